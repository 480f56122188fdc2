"""`find_records`: the records inside a result, wherever they stand.

| in the result | becomes |
|---|---|
| a list of objects, at any depth | a table, one row per object |
| an object of objects of one form (`{"W1": {...}, "W2": {...}}`) | a table, the keys as `key` |
| a list of rows, also beside a list `columns`, `header` or `fields` | a table |
| an object of lists of one length (`{"time": [...], "heat": [...]}`) | a table of these columns |
| a list of at least ten texts or numbers | a table with the column `value` |
| records within the records of another list | a table, with the first field of their record |
| a text in one of the forms of `text_forms` | a table |
| a text in Python's notation, XML or YAML | the tables of its data |
| values within the names of their types (`{"S": "open"}`) | these values |

The column of the keys is `key_2` if the objects have a field `key`.
"""

import re
from collections import ChainMap, Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final, TypeGuard

from llm_common.errors import CorruptPointerError
from llm_common.tables.forms.documents import json_lines, python_data, xml_data, yaml_data
from llm_common.tables.forms.text_forms import tables_in_text
from llm_common.tables.table import (
    MAX_ROWS,
    Table,
    names_of_tables,
    table_of_records,
    table_of_rows,
    unused_name,
    without_type_tags,
)
from llm_common.tables.values import Cell, cell_text
from llm_common.text.canonical import DECODER, Json, decode_json
from llm_common.text.display import counted
from llm_common.text.unwrapping import (
    unwrapped,
    without_cut_note,
    without_frame,
    without_line_numbers,
)

_NESTED: Final = "[]."  # between the path of a list and the field of its records
_MAX_TABLES: Final = 20
_MAX_FIELDS: Final = 20
_MAX_DEPTH: Final = 12
_MAX_VALUES: Final = 100_000  # visited in the search, without those of records
_MIN_RECORDS: Final = 2
_MIN_MEMBERS: Final = 3  # an object of two objects is an object
_MIN_SCALARS: Final = 10
_MIN_EMBEDDED_CHARS: Final = 200
_SAMPLE: Final = 50  # records that decide whether a list or an object holds records
_HEADER_KEYS: Final = ("columns", "header", "headers", "fields", "column_names")
_ROWS_KEYS: Final = ("rows", "data", "values", "records", "results")
_MAX_CHARS_BEHIND: Final = 500  # of lines behind JSON, such as the time that a query took
_RECORDS_SHARE: Final = 0.5  # of the characters, from which a result is records
_SAMPLE_ROWS: Final = 200
_PUNCTUATION_CHARS: Final = 4  # quotes, colon and comma around a value in JSON
_NO_BLANK: Final = re.compile(r"\S")
_WHITE_SPACE: Final = " \t\r\n"


def _json_in(text: str) -> Json:
    """Return the data of a text that is JSON, or the text itself.

    Lines before JSON, such as `Found 3 results:`, and a few behind it are left out. Objects one
    after another are a list.
    """
    start = _json_start(text)
    if start is None:
        return text
    try:
        return decode_json(text[start:].encode("utf-8", "surrogatepass"))
    except (CorruptPointerError, ValueError):
        return _json_before_others(text, start)


def _json_before_others(text: str, start: int) -> Json:
    """Return the data at the beginning of a text that goes on behind it, or the text itself."""
    values: list[Json] = []
    while text.startswith(("{", "["), start):
        try:
            value, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            return text
        values.append(value)
        following = _NO_BLANK.search(text, end)
        start = following.start() if following else len(text)
        if following and "\n" not in text[end:start] and text[start] not in "{[":
            return text  # a line that goes on behind a bracket, such as the time of a log
    chars_behind = len(text) - start
    if len(values) == 1 and chars_behind <= _MAX_CHARS_BEHIND:
        return values[0]
    return values if values and not chars_behind else text


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a result.

    Attributes:
        tables: The tables, the one with the most cells first, at most 20.
        fields: Path and value of the first texts and numbers beside the tables, such as a status, a
            total or a cursor of the next page.
        texts: Path and text of each text that is more than its tables, at most 20.
    """

    tables: tuple[Table, ...]
    fields: tuple[tuple[str, Cell], ...]
    texts: tuple[tuple[str, str], ...] = ()

    def names(self, name: str) -> list[str]:
        """Return the names in SQL of the tables, and then of the lines of each text.

        Args:
            name: The first name.
        """
        paths = [table.path for table in self.tables]
        paths += [f"{path} lines".strip() for path, _ in self.texts]
        return names_of_tables(name, paths)

    def line_tables(self) -> list[Table]:
        """Return the lines of each text as a table with their numbers."""
        tables = []
        for path, text in self.texts:
            rows = enumerate(text.removesuffix("\n").split("\n"), start=1)
            tables.append(table_of_rows(f"{path} lines".strip(), ("line", "text"), rows))
        return tables


def find_records(value: Json) -> Records:
    """Return the records of a result.

    The result decides alone: the same data has the same tables in every process. It takes time
    that grows with the size, and never raises.

    Args:
        value: Plain data, or a text, which is parsed.
    """
    search = _Search()
    tables = search.tables(value)
    # Records within records come last. The sort is stable, so other ties keep their order.
    tables.sort(key=lambda table: (_NESTED in table.path, -table.cells))
    return Records(
        tuple(tables[:_MAX_TABLES]),
        tuple(search.fields),
        tuple(search.texts[:_MAX_TABLES]),
    )


def _json_start(text: str) -> int | None:
    """Return where JSON may begin: at the first character, or at the start of an early line."""
    position = 0
    for line in islice(text[:2_000].splitlines(keepends=True), 5):
        stripped = line.lstrip(_WHITE_SPACE)
        if stripped[:1] in ("{", "["):
            return position
        position += len(line)
    return None


class _Search:
    """One walk through a value."""

    def __init__(self) -> None:
        self._values_left = _MAX_VALUES
        self.fields: list[tuple[str, Cell]] = []
        self.texts: list[tuple[str, str]] = []

    def tables(self, value: Json) -> list[Table]:
        if isinstance(value, str):
            return list(self._walk_text("", value, 0))
        return list(self._walk("", value, 0))

    def _walk(self, path: str, value: Json, depth: int) -> Iterator[Table]:
        self._values_left -= 1
        if self._values_left < 0 or depth > _MAX_DEPTH:
            return
        if isinstance(value, str) and len(value) >= _MIN_EMBEDDED_CHARS:
            # A tool's answer within another answer, such as the text block of an MCP result.
            yield from self._walk_text(path, value, depth + 1)
        elif isinstance(value, list):
            yield from self._walk_list(path, value, depth)
        elif isinstance(value, dict):
            yield from self._walk_object(path, value, depth)
        else:
            self._add_field(path, value)

    def _walk_text(self, path: str, text: str, depth: int) -> Iterator[Table]:
        text = unwrapped(text)
        data = _json_in(text)
        if not isinstance(data, str):
            yield from self._walk(path, data, depth)
            return
        text = without_line_numbers(without_frame(text))
        body, note = without_cut_note(text)
        lines = json_lines(body)
        if lines is not None:
            objects, others = lines
            self._add_lines(path, others, note)
            yield from self._walk(path, objects, depth)
            return
        for read in (python_data, xml_data, yaml_data):
            tables = self._tables_of_data(path, read(text), depth)
            if tables:
                yield from tables
                return
        tables = tables_in_text(body)
        if tables:
            self._add_lines(path, (), note)
        if not tables or tables[0].path:
            self.texts.append((path, text))
        for table in tables:
            self._add_lines(path, table.other_lines)
            yield replace(table, path=f"{path} {table.path}".strip())
        if not tables:
            self._add_field(path, text)

    def _add_lines(self, path: str, others: Sequence[str], note: str = "") -> None:
        """Add the lines of a text that are no records, and the note that it was cut."""
        if note:
            self._add_field(f"{path} cut".strip(), note)
        if others:
            name = counted(len(others), "other line")
            self._add_field(f"{path} {name}".strip(), "\n".join(others))

    def _tables_of_data(self, path: str, data: Json, depth: int) -> list[Table]:
        """Return the tables of a document of data. Without any, it is a text."""
        fields = [*self.fields]
        tables = [] if data is None else list(self._walk(path, data, depth + 1))
        if not tables:
            self.fields = fields
        return tables

    def _add_field(self, path: str, value: Cell) -> None:
        if path and len(self.fields) < _MAX_FIELDS:
            self.fields.append((path, value))

    def _walk_list(self, path: str, items: list[Json], depth: int) -> Iterator[Table]:
        records: list[Json] = [item for item in items if item is not None]
        texts = _texts_of_blocks(items)
        for index, text in enumerate(texts):
            yield from self._walk(f"{path}[{index}].text", text, depth + 1)
        if texts:
            return
        if are_records(records):
            if len(records) < len(items):
                self._add_field(f"{path} missing records".strip(), len(items) - len(records))
            plain = without_type_tags(records)
            yield table_of_records(path, plain)
            yield from self._nested(path, plain)
        elif _are_rows(items):
            yield _table_with_header(path, items)
        elif len(items) >= _MIN_SCALARS and _are_scalars(items):
            yield table_of_rows(path, ["value"], ([item] for item in items))
        else:
            for index, item in enumerate(items):
                yield from self._walk(f"{path}[{index}]", item, depth + 1)

    def _walk_object(self, path: str, members: dict[str, Json], depth: int) -> Iterator[Table]:
        [members] = without_type_tags([members])
        columns = _table_of_columns(path, members)
        if columns is not None:
            yield columns
            return
        rows = _rows_beside_names(path, members)
        if rows is not None:
            table, members = rows
            yield table
        elif are_members(members):
            first = dict(islice(members.items(), MAX_ROWS))
            records = records_of_members(first, key_name(first))
            yield replace(table_of_records(path, records), total_rows=len(members))
            yield from self._nested(path, records)
            return
        for name, member in members.items():
            yield from self._walk(_inner_path(path, name), member, depth + 1)

    def _nested(self, path: str, records: Sequence[dict[str, Json]]) -> Iterator[Table]:
        """Return the tables of lists of records within records, such as the items of orders."""
        names: set[str] = set()
        for record in records[:_SAMPLE]:
            for name, value in record.items():
                if are_records(value, min_records=1):
                    names.add(name)
        for name in sorted(names):
            rows: list[dict[str, Json]] = []
            for record in records[:MAX_ROWS]:
                items = record.get(name)
                self._values_left -= 1
                if self._values_left < 0 or len(rows) >= MAX_ROWS:
                    break
                # Some have one item without a list around it.
                for item in items if isinstance(items, list) else [items]:
                    if isinstance(item, dict):
                        rows.append({**_first_field(path, record), **item})
            if len(rows) > _MIN_RECORDS:
                yield table_of_records(f"{path}{_NESTED}{name}", without_type_tags(rows))


def _first_field(path: str, record: dict[str, Json]) -> dict[str, Json]:
    """Return the first text or number of a record, under the record's name, to join by."""
    for name, value in record.items():
        if isinstance(value, (str, int)):
            last_name = path.rpartition(".")[2].rpartition("]")[2]
            return {f"{last_name or 'record'}.{name}": value}
    return {}


def are_records(
    value: Json, *, min_records: int = _MIN_RECORDS
) -> TypeGuard[list[dict[str, Json]]]:
    """Return whether a value is a list of objects that have fields in common."""
    if not isinstance(value, list) or len(value) < min_records:
        return False
    return _are_objects(value) and _have_one_form(value[:_SAMPLE])


def _texts_of_blocks(items: list[Json]) -> list[str]:
    """Return the texts of a list of text blocks, as tools of MCP answer with, or []."""
    texts: list[str] = []
    for item in items:
        if not isinstance(item, dict) or item.get("type") != "text":
            return []
        text = item.get("text")
        if not isinstance(text, str):
            return []
        texts.append(text)
    return texts


def _have_one_form(records: Sequence[dict[str, Json]]) -> bool:
    counts = Counter(chain.from_iterable(records))
    average = counts.total() / max(len(records), 1)
    common = list(counts.values()).count(len(records))
    # Optional fields may double the names. More differing names are objects of other kinds, if they
    # are most of each object, and so are objects that share none.
    has_form = 0 < len(counts) <= 2 * average + 5 or 2 * common > average
    return has_form and 2 * max(counts.values()) >= len(records)


def are_members(members: dict[str, Json]) -> TypeGuard[dict[str, dict[str, Json]]]:
    """Return whether an object maps keys to records of one form."""
    values = list(members.values())
    if len(values) < _MIN_MEMBERS or not _are_objects(values) or not all(values):
        return False
    sample = values[:_SAMPLE]
    fields = set(chain.from_iterable(sample))
    return len(fields) * len(sample) <= 1.5 * sum(map(len, sample))


def key_name(*objects: dict[str, dict[str, Json]]) -> str:
    """Return a name for the keys of objects that no record in these objects has as a field."""
    records = chain.from_iterable(members.values() for members in objects)
    return unused_name("key", ChainMap(*records))


def records_of_members(members: dict[str, dict[str, Json]], name: str) -> list[dict[str, Json]]:
    """Return the records of an object, each with its key as the first field.

    Args:
        members: An object for which `are_members` holds.
        name: The name of the first field. See `key_name`.
    """
    return [{name: key, **member} for key, member in members.items()]


def _are_scalars(values: Sequence[Json]) -> bool:
    return not any(isinstance(value, (list, dict)) for value in values)


def _are_objects(values: Sequence[Json]) -> TypeGuard[Sequence[dict[str, Json]]]:
    return all(type(value) is dict for value in values)


def _are_rows(items: list[Json]) -> TypeGuard[list[list[Json]]]:
    if len(items) < _MIN_RECORDS or not _are_lists(items):
        return False
    sample = items[:_SAMPLE]
    # A matrix of numbers is no table: its columns have no meaning of their own.
    has_text = any(isinstance(cell, str) for cell in chain.from_iterable(sample))
    return len(set(map(len, sample))) == 1 and has_text


def _rows_beside_names(path: str, members: dict[str, Json]) -> tuple[Table, dict[str, Json]] | None:
    """Return the table of rows that stand beside their names, and the other members."""
    for header_key in _HEADER_KEYS:
        names = _names_in(members.get(header_key))
        if names is None:
            continue
        for rows_key in _ROWS_KEYS:
            rows = members.get(rows_key)
            if not _are_lists(rows) or max(map(len, rows[:_SAMPLE])) > len(names):
                continue
            others = dict(members)
            del others[header_key], others[rows_key]
            return table_of_rows(_inner_path(path, rows_key), names, rows), others
    return None


def _are_lists(value: Json) -> TypeGuard[list[list[Json]]]:
    return isinstance(value, list) and bool(value) and all(type(item) is list for item in value)


def _table_of_columns(path: str, members: dict[str, Json]) -> Table | None:
    """Return the table of an object whose members are columns: lists of one length."""
    columns = [value for value in members.values() if isinstance(value, list)]
    if len(columns) < 2 or len(columns) < len(members):  # noqa: PLR2004
        return None
    if len({*map(len, columns)}) > 1 or len(columns[0]) < _MIN_MEMBERS:
        return None
    for column in columns:
        if not _are_scalars(column[:_SAMPLE]):
            return None
    return table_of_rows(path, [*members], zip(*columns, strict=True))


def _inner_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names_in(header: Json) -> list[str] | None:
    """Return column names from a list of texts, or of objects with a `name`."""
    if not isinstance(header, list) or not header:
        return None
    names = []
    for item in header:
        name = item.get("name") if isinstance(item, dict) else item
        if not isinstance(name, str):
            return None
        names.append(name)
    return names


def _table_with_header(path: str, rows: list[list[Json]]) -> Table:
    if _is_header(rows[0], rows[1:]):
        header = [str(name) for name in rows[0]]
        rows = rows[1:]
    else:
        header = [f"column_{number}" for number in range(1, len(rows[0]) + 1)]
    return table_of_rows(path, header, rows)


def _is_header(first: Sequence[Json], others: Sequence[Sequence[Json]]) -> bool:
    """Return whether a row names the columns: texts only, all different, none repeated below."""
    names = list(first)
    if names[:1] == [""] and all(row[0] not in ("", None) for row in others):
        names.pop(0)  # of the column that names the rows
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        return False
    cells = chain(first, *others[:_SAMPLE])
    counts = Counter(cell for cell in cells if isinstance(cell, str))
    return all(counts[name] == 1 for name in names if isinstance(name, str))


def are_mostly_records(tables: Sequence[Table], total_chars: int) -> bool:
    """Return whether a result is records and no document: whether they are half of it.

    Args:
        tables: The tables of the result.
        total_chars: Characters of the result, without indentation.
    """
    return bool(tables) and chars_in(tables) >= _RECORDS_SHARE * total_chars


def chars_in(tables: Sequence[Table]) -> int:
    """Estimate the characters that the records of tables take in their result."""
    total = 0.0
    for table in tables:
        if "[]" in table.path:  # these records stand within those of another table
            continue
        chars = 0
        sample = table.rows[:_SAMPLE_ROWS]
        for row in sample:
            for name, cell in zip(table.columns, row, strict=True):
                if cell is not None:
                    chars += len(cell_text(cell)) + len(name) + _PUNCTUATION_CHARS
        # Rows and columns beyond the limits of a table are records too.
        columns = table.total_columns / max(len(table.columns), 1)
        total += chars / max(len(sample), 1) * table.total_rows * columns
    return int(total)
