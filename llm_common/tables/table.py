"""`Table`: records as columns and rows of plain cells."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast

import orjson

from llm_common.tables.values import Cell
from llm_common.text.canonical import Json, json_text
from llm_common.text.display import one_line, printable

MAX_ROWS: Final = 100_000
MAX_COLUMNS: Final = 500
MAX_CELLS: Final = 2_000_000
"""Bound memory and time. What exceeds them is counted by `total_rows` and `total_columns`."""

_MAX_DEPTH: Final = 4
"""Levels of objects within a record that become columns. Deeper ones stay JSON."""

_MAX_NAME_CHARS: Final = 200
_NESTED: Final = frozenset({dict, list})
_MAX_CHARS: Final = 40  # of the tool's name, and of the path
_DIGITS: Final = 6
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")
_SAMPLE: Final = 50  # records that tell whether values stand within the names of their types
# Of Firestore, OpenTelemetry and MongoDB.
_TAGS: Final = frozenset(
    (  # noqa: SIM905
        "stringValue integerValue intValue doubleValue booleanValue boolValue nullValue arrayValue"
        " mapValue timestampValue bytesValue referenceValue geoPointValue"
        " $oid $date $numberInt $numberLong $numberDouble $numberDecimal"
    ).split()
)
# Of DynamoDB. A name of one letter can be that of a field, so that all fields must have one.
_SHORT_TAGS: Final[dict[str, type]] = {
    "S": str,
    "N": str,
    "B": str,
    "BOOL": bool,
    "NULL": bool,
    "M": dict,
    "L": list,
    "SS": list,
    "NS": list,
}
_TYPE_FIELDS: Final = frozenset({"type", "value", "datatype", "xml:lang"})  # of SPARQL and others


@dataclass(frozen=True, slots=True)
class Table:
    """Records of one kind.

    Attributes:
        path: Where the records stand in the result, such as `data.products`. "" for the whole.
        columns: Names of the columns, none like another in lower case. A nested field has its last
            name, or as much of its path as tells it from the others.
        paths: Dotted path of each column within a record, such as `offer.price`.
        rows: One tuple of cells per record, as long as `columns`. Lists are JSON texts.
        total_rows: Number of records in the result, of which `rows` holds the first.
        total_columns: Number of fields in the result, of which `columns` holds the first.
        is_log: Whether the rows are the entries of a log, whose lines say more than their columns.
        other_lines: Lines of a text that are no records, such as a title, a rule or a total.
        misses_records: Whether some of these lines are records of another form, so that no number
            of records is certain.
    """

    path: str
    columns: tuple[str, ...]
    paths: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total_rows: int
    total_columns: int
    is_log: bool = False
    other_lines: tuple[str, ...] = ()
    misses_records: bool = False

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.columns) * len(self.rows)

    def column(self, index: int) -> list[Cell]:
        """Return the cells of a column."""
        return [row[index] for row in self.rows]


def table_of_records(path: str, records: Sequence[dict[str, Json]]) -> Table:
    """Return objects as a table, in their order.

    Members of nested objects become columns, lists become JSON texts, and a missing field is None.

    Args:
        path: Where the records stand.
        records: The objects, of which the first 100,000 are read.
    """
    fields: dict[str, None] = {}  # of all records so far, in the order of their first record
    flat_records = []
    for record in records[:MAX_ROWS]:
        flat = _flattened(record)
        flat_records.append(flat)
        if not fields.keys() >= flat.keys():  # rarely after the first records
            fields.update(dict.fromkeys(flat))
        if min(len(fields), MAX_COLUMNS) * len(flat_records) > MAX_CELLS:
            break
    paths = tuple(islice(fields, MAX_COLUMNS))
    rows = [tuple(map(flat.get, paths)) for flat in flat_records]
    return Table(path, _short_names(paths), paths, tuple(rows), len(records), len(fields))


def table_of_rows(path: str, columns: Sequence[str], rows: Iterable[Sequence[Json]]) -> Table:
    """Return rows of cells as a table. Short rows end with None, and long ones are cut.

    Args:
        path: Where the rows stand.
        columns: Names of the columns. An empty or repeated name gets a number.
        rows: The rows, of which the first 100,000 are kept, and all are counted.
    """
    names = _distinct(columns[:MAX_COLUMNS])
    max_rows = min(MAX_ROWS, MAX_CELLS // max(len(names), 1))
    kept: list[tuple[Cell, ...]] = []
    total = 0
    for row in rows:
        total += 1
        if total > max_rows:
            continue
        cells = list(map(cell_of, row[: len(names)]))
        cells += [None] * (len(names) - len(cells))
        kept.append(tuple(cells))
    return Table(path, names, names, tuple(kept), total, len(columns))


def cell_of(value: Json) -> Cell:
    """Return a value as a cell: itself, or its JSON text if it is a list or an object."""
    if not isinstance(value, (list, dict)):
        return value
    try:  # many times as fast, but it refuses lone surrogates and integers over 64 bits
        return orjson.dumps(value).decode()
    except TypeError:
        return json_text(value)


def without_type_tags(records: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return records whose fields are values, and not objects such as `{"S": "open"}`."""
    if all(_without_tags(record) == record for record in records[:_SAMPLE]):
        return list(records)
    return [_without_tags(record) for record in records]


def _without_tags(members: dict[str, Json]) -> dict[str, Json]:
    """Return an object with the values within the names of types."""
    are_tagged = all(_inner(value) is not value for value in members.values())
    values: dict[str, Json] = {}
    for name, value in members.items():
        values[name] = value
        if isinstance(value, dict):
            is_tagged = are_tagged or not _TAGS.isdisjoint(value)
            values[name] = _inner(value) if is_tagged else _without_tags(value)
    return values


def _inner(value: Json) -> Json:
    """Return the value within the name of its type, or the same value if there is none."""
    if not isinstance(value, dict):
        return value
    if {"type", "value"} <= value.keys() <= _TYPE_FIELDS and isinstance(value["type"], str):
        return value["value"]
    tag, inner = next(iter(value.items()), ("", None))
    is_tag = tag in _TAGS or isinstance(inner, _SHORT_TAGS.get(tag, ()))
    if len(value) > 1 or not is_tag:
        return value
    if tag in ("NULL", "nullValue"):
        return None
    if isinstance(inner, dict):
        inner = inner.get("fields", inner.get("values", inner))  # of Firestore
    if isinstance(inner, list):
        return [_inner(item) for item in inner]
    return _without_tags(inner) if isinstance(inner, dict) else inner


def _flattened(record: dict[str, Json]) -> dict[str, Cell]:
    if _NESTED.isdisjoint(map(type, record.values())):
        return cast(dict[str, Cell], record)
    flat: dict[str, Cell] = {}
    for path, value in fields_of(record, _MAX_DEPTH):
        flat[unused_name(path, flat)] = cell_of(value)
    return flat


def fields_of(
    members: dict[str, Json], max_depth: int, prefix: str = ""
) -> Iterator[tuple[str, Json]]:
    """Yield the dotted path and the value of each field of an object and of the objects in it.

    Args:
        members: The object.
        max_depth: Levels of objects in it whose members are fields. A deeper object is a value.
        prefix: What stands before each path.
    """
    for name, value in members.items():
        if isinstance(value, dict) and value and max_depth > 0:
            yield from fields_of(value, max_depth - 1, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def unused_name(name: str, taken: Container[str]) -> str:
    """Return the name, or the name with a number, as where a field `a.b` meets a member b of a."""
    unused, copies = name, 1
    while unused in taken:
        copies += 1
        unused = f"{name}_{copies}"
    return unused


def _short_names(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the last name of each path, and more of those paths whose last names are the same."""
    uses: Counter[str] = Counter()
    for path in paths:
        for name in _endings(path):
            uses[name.lower()] += 1
    names = []
    for path in paths:
        unique = (name for name in _endings(path) if uses[name.lower()] == 1)
        names.append(next(unique, path))
    return _distinct(names)


def _endings(path: str) -> list[str]:
    """Return the endings of a dotted path, the shortest first: `price`, `offer.price`."""
    parts = path.split(".")
    return [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns on one line, as `distinct_names`."""
    lines = []
    for number, name in enumerate(names, start=1):
        # On one line, so that a model that copies a name from a sketch finds the column.
        lines.append(one_line(name, max_chars=_MAX_NAME_CHARS) or f"column_{number}")
    return tuple(distinct_names(lines))


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers where two are the same in SQL, which ignores their case."""
    distinct: dict[str, str] = {}
    for name in names:
        unused = unused_name(name.lower(), distinct)
        distinct[unused] = name + unused.removeprefix(name.lower())
    return list(distinct.values())


def result_name(tool_name: str, pointer_id: str) -> str:
    """Return the name of a result's largest table: its tool and the first digits of its id.

    SQL takes it without quotes: it has letters, digits and underscores.
    """
    tool = _plain(tool_name)
    if not tool or tool[0].isdigit():
        tool = f"t_{tool}".rstrip("_")
    return f"{tool}_{pointer_id[:_DIGITS]}"


def quoted(name: str) -> str:
    """Return a name as an SQL identifier. SQLite takes no NUL and no lone surrogate in one."""
    return '"' + printable(name).replace("\0", "\N{REPLACEMENT CHARACTER}").replace('"', '""') + '"'


def names_of_tables(name: str, paths: Sequence[str]) -> list[str]:
    """Return the names of the tables of a result, such as `get_orders_3ac5f0_items`.

    Args:
        name: The name of the first table.
        paths: Where the tables stand, in the order of `find_records`.
    """
    names = [name]
    for path in paths[1:]:
        member = _plain(path.rpartition(".")[2]) or "records"
        names.append(f"{name}_{member}")
    return distinct_names(names[: len(paths)])


def _plain(text: str) -> str:
    return _OTHER.sub("_", text).strip("_")[:_MAX_CHARS].rstrip("_")
