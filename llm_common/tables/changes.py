"""`changes_between`: what differs between two results of the same call.

Data is compared value by value, and a text line by line. Where both sides have records, the rows
that came, went and changed are matched by a key. What is returned is all that differs, so that the
new result follows from it and the old one, except for the places of the rows that came and for a
last line end. A difference that cannot be written in this way, such as a field that is now a list,
has no answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, TypeAlias, cast

import orjson

from llm_common.tables.columns import is_id_name
from llm_common.tables.finding import are_members, are_records, key_name, records_of_members
from llm_common.tables.table import fields_of
from llm_common.tables.values import Cell, shown_cell
from llm_common.text.canonical import Json, embedded_json, stable_json

_MAX_ROWS: Final = 200  # more do not fit the place of a preview
_MAX_DEPTH: Final = 12
_MAX_ROW_DEPTH: Final = 8
_MISSING: Final = "(missing)"
_ARROW: Final = "→"
# Also what looks like a missing value, a list or an object, which are written as they are here.
_SEPARATORS: Final = re.compile(rf'[|;{_ARROW}"]|: |^[(#\[{{]')

Key: TypeAlias = tuple[type, Cell]
Cells: TypeAlias = dict[str, Json]
"""The cells of a row by their columns. A missing one is absent."""


def changes_between(old: Json, new: Json, *, max_chars: int) -> str | None:
    """Return what differs between two results, or None if that cannot be written in few lines.

    Takes time that grows with the size of the results.

    Args:
        old: The earlier result: plain data, or a text.
        new: The new result, which differs.
        max_chars: About the maximum characters of the answer.
    """
    if not isinstance(old, str) or not isinstance(new, str):
        return _data_changes(old, new, max_chars)
    changes = None
    old_data, new_data = embedded_json(old), embedded_json(new)
    if old_data is not old and new_data is not new:  # JSON lines are compared as lines
        changes = _data_changes(old_data, new_data, max_chars)
    return changes or line_changes(old, new, max_chars=max_chars)


def _data_changes(old: Json, new: Json, max_chars: int) -> str | None:
    comparison = _Comparison(max_chars)
    try:
        comparison.add("", old, new, 0)
    except _CannotBeWrittenError:
        return None
    return comparison.text()


class _CannotBeWrittenError(Exception):
    """Two values differ in a way that has no form here, or in too much."""


class _Comparison:
    """The differences of two values."""

    def __init__(self, max_chars: int) -> None:
        self._chars_left = max_chars
        self._fields: list[str] = []
        self._tables: list[str] = []

    def text(self) -> str | None:
        lines = list(self._tables)
        if self._fields:
            lines += ["Other fields that changed:", *self._fields]
        return "\n".join(lines) or None

    def add(self, path: str, old: Json, new: Json, depth: int) -> None:
        """Add the differences of two values.

        Raises:
            _CannotBeWrittenError: If one of them cannot be written.
        """
        if depth > _MAX_DEPTH:
            raise _CannotBeWrittenError
        if _text(old) == _text(new):
            return
        if isinstance(old, list) and isinstance(new, list):
            # One record may be left of many, or none.
            are_rows = are_records(old or new, min_records=1)
            are_rows = are_rows and are_records(new or old, min_records=1)
            if not are_rows and any(isinstance(item, (dict, list)) for item in [*old, *new]):
                raise _CannotBeWrittenError
            self._add_rows(path, old, new)
        elif isinstance(old, dict) and isinstance(new, dict):
            self._add_objects(path, old, new, depth)
        else:
            self._add_field(path, _scalar_text(old), _scalar_text(new))

    def _add_objects(
        self, path: str, old: dict[str, Json], new: dict[str, Json], depth: int
    ) -> None:
        if are_members(old) and are_members(new):
            name = key_name(old, new)
            self._add_rows(path, records_of_members(old, name), records_of_members(new, name))
            return
        for name in dict.fromkeys([*old, *new]):
            inner = f"{path}.{name}" if path else name
            if name in old and name in new:
                self.add(inner, old[name], new[name], depth + 1)
            else:
                before = _scalar_text(old[name]) if name in old else _MISSING
                after = _scalar_text(new[name]) if name in new else _MISSING
                self._add_field(inner, before, after)

    def _add_rows(self, path: str, old: Sequence[Json], new: Sequence[Json]) -> None:
        self._add(self._tables, _row_changes(path, _rows_of(old), _rows_of(new)))

    def _add_field(self, path: str, old: str, new: str) -> None:
        self._add(self._fields, f"{_cell_text(path)}: {old} {_ARROW} {new}")

    def _add(self, texts: list[str], text: str) -> None:
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise _CannotBeWrittenError
        texts.append(text)


# --- rows


@dataclass(frozen=True, slots=True)
class _Row:
    """A row with its cells, and a text that differs if anything in it differs."""

    cells: Cells
    text: str


def _row_changes(path: str, old: list[_Row], new: list[_Row]) -> str:
    """Return how two lists of rows differ, as lines."""
    key = _key_column(old, new)
    old_by_key, new_by_key = _by_key(old, key), _by_key(new, key)
    changed: list[str] = []
    came: list[_Row] = []
    for value, row in new_by_key.items():
        old_row = old_by_key.get(value)
        if old_row is None:
            came.append(row)
        elif old_row.text != row.text:
            assert key is not None  # without a key, a row is its text
            changed.append(f"{_cell(row.cells, key)}: {_cell_changes(old_row, row)}")
        if len(changed) + len(came) > _MAX_ROWS:
            raise _CannotBeWrittenError
    went = [row for value, row in old_by_key.items() if value not in new_by_key]
    if len(changed) + len(came) + len(went) > _MAX_ROWS:
        raise _CannotBeWrittenError
    where = f"{path}: " if path else ""
    if not changed and not came and not went:
        return f"{where}{len(new):,} records, all the same. Only their order changed."
    same = len(new) - len(changed) - len(came)
    summary = (
        f"{where}{len(old):,} records before, {len(new):,} now: {same:,} are the same, "
        f"{len(changed):,} changed, {len(came):,} came, {len(went):,} went."
    )
    old_order = list(filter(new_by_key.__contains__, old_by_key))
    if old_order != list(filter(old_by_key.__contains__, new_by_key)):
        summary += " The order of the others changed too."
    if changed:
        changed.insert(0, f"Changed, by {_cell_text(key)}:")
    return "\n".join([summary, *changed, *_row_lines(came, went)])


def _by_key(rows: list[_Row], key: str | None) -> dict[Key, _Row]:
    by_key = {_key(row, key): row for row in rows}
    # Of rows that are the same, it is open which one went, and whether the order changed.
    if len(by_key) < len(rows):
        raise _CannotBeWrittenError
    return by_key


def _row_lines(came: list[_Row], went: list[_Row]) -> list[str]:
    """Return the rows that came and went, below the names of their columns."""
    columns: dict[str, None] = {}
    for row in came + went:
        columns.update(dict.fromkeys(row.cells))
    lines = []
    if came or went:
        lines.append(f"Columns: {' | '.join(map(_cell_text, columns))}")
    for label, rows in (("Came:", came), ("Went:", went)):
        if rows:
            lines.append(label)
        for row in rows:
            lines.append(" | ".join(_cell(row.cells, column) for column in columns))
    return lines


def _cell_changes(old: _Row, new: _Row) -> str:
    """Return how the cells of two rows with one key differ."""
    changes = []
    for column in dict.fromkeys([*old.cells, *new.cells]):
        is_on_both = column in old.cells and column in new.cells
        if not is_on_both or _text(old.cells[column]) != _text(new.cells[column]):
            before, after = _cell(old.cells, column), _cell(new.cells, column)
            changes.append(f"{_cell_text(column)}: {before} {_ARROW} {after}")
    if not changes:
        raise _CannotBeWrittenError  # as if a field `a.b` is now a member b of a field a
    return "; ".join(changes)


def _cell_text(value: Json) -> str:
    if not isinstance(value, str):
        return _text(value)
    return shown_cell(value, _SEPARATORS, max_chars=len(value), is_mixed=True)


def _scalar_text(value: Json) -> str:
    if isinstance(value, (dict, list)):
        raise _CannotBeWrittenError
    return _cell_text(value)


def _cell(cells: Mapping[str, Json], column: str) -> str:
    return _cell_text(cells[column]) if column in cells else _MISSING


def _key_column(old: list[_Row], new: list[_Row]) -> str | None:
    """Return the first column that tells all rows apart, best one whose name says that it does."""
    if not old or not new:
        return None
    columns = list(old[0].cells)
    columns.sort(key=lambda column: not is_id_name(column))  # stable, so the first comes first
    for column in columns:
        if _is_unique(column, old) and _is_unique(column, new):
            return column
    return None


def _is_unique(column: str, rows: list[_Row]) -> bool:
    for row in rows:
        value = row.cells.get(column)
        if value is None or value == "" or isinstance(value, (dict, list)):
            return False
    return len({_key(row, column) for row in rows}) == len(rows)


def _key(row: _Row, column: str | None) -> Key:
    """Return a value by which a row is matched. 1, 1.0 and true are equal, but for their types."""
    value = row.text if column is None else row.cells[column]
    return type(value), cast(Cell, value)


def _rows_of(records: Sequence[Json]) -> list[_Row]:
    """Return records as rows, and values without fields as rows of a column `value`."""
    rows: list[_Row] = []
    for record in records:
        cells: Cells = record if isinstance(record, dict) else {"value": record}
        if dict in map(type, cells.values()):  # most records have no objects, and need no copy
            fields = fields_of(cells, _MAX_ROW_DEPTH)
            cells = {}
            for path, value in fields:
                if path in cells:
                    raise _CannotBeWrittenError
                cells[path] = value
        # The text of the record, since a field `a.b` and a member b of a field a are one cell.
        rows.append(_Row(cells, _text(record)))
    return rows


def _text(value: Json) -> str:
    """Return a value as JSON, the same for equal values whatever the order of their fields."""
    try:  # many times as fast, but it refuses lone surrogates and integers over 64 bits
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        return stable_json(value)


# --- lines, by the greedy algorithm of Myers (1986)

# `difflib` takes cubic time on texts of repeated lines. The steps of this algorithm are the lines
# times the differences. Only few differences are worth showing, so it stops at a limit.
_MAX_EDITS: Final = 200  # more lines do not fit the place of a preview
_MAX_STEPS: Final = 2_000_000  # about a second


def line_changes(old: str, new: str, *, max_chars: int) -> str | None:
    """Return the lines that went and came with their numbers, or None if they are too many.

    A line that went is `-` with its number in the old text, and a line that came is `+` with its
    number in the new text, each followed by `: ` and the line.

    Args:
        old: The old text.
        new: The new text, which differs.
        max_chars: Maximum characters of the answer.
    """
    # A last line end begins no further line.
    old_lines = old.removesuffix("\n").split("\n")
    new_lines = new.removesuffix("\n").split("\n")
    edits = _edits(old_lines, new_lines)
    if not edits:
        return None
    removed = sum(sign == "-" for sign, _ in edits)
    summary = (
        f"{len(old_lines):,} lines before, {len(new_lines):,} now: {removed:,} went (-), "
        f"{len(edits) - removed:,} came (+), the others are the same."
    )
    lines = [summary]
    chars = 0
    for sign, index in edits:
        content = old_lines[index] if sign == "-" else new_lines[index]
        chars += len(content) + 1
        if chars > max_chars:
            return None
        lines.append(f"{sign}{index + 1}: {content}")
    return "\n".join(lines)


def _edits(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int]] | None:
    """Return the indexes of the lines that went and came, or None if they are too many."""
    pairs = zip(old, new, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    max_end = min(len(old), len(new)) - start
    end = 0
    while end < max_end and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if abs(len(middle_old) - len(middle_new)) > _MAX_EDITS:
        return None
    trace = _search(middle_old, middle_new)
    if trace is None:
        return None
    return [(sign, index + start) for sign, index in _path(trace, middle_old, middle_new)]


def _search(old: Sequence[str], new: Sequence[str]) -> list[dict[int, int]] | None:
    """Return how far each diagonal reaches after 0, 1, 2 … edits, until one reaches the end."""
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    steps = 0
    for edits in range(min(len(old) + len(new), _MAX_EDITS) + 1):
        trace.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            if _is_insertion(reach, diagonal, edits):
                first = reach[diagonal + 1]
            else:
                first = reach[diagonal - 1] + 1
            x = first
            while x < len(old) and x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            reach[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return trace
            steps += 1 + x - first
            if steps > _MAX_STEPS:
                return None
    return None


def _is_insertion(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    if diagonal == -edits:
        return True
    return diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]


def _path(
    trace: list[dict[int, int]], old: Sequence[str], new: Sequence[str]
) -> list[tuple[str, int]]:
    """Return the edits of the path that the search found, in the order of the lines."""
    path: list[tuple[str, int]] = []
    x, y = len(old), len(new)
    for edits in range(len(trace) - 1, 0, -1):
        reach = trace[edits]
        diagonal = x - y
        if _is_insertion(reach, diagonal, edits):
            x = reach[diagonal + 1]
            y = x - (diagonal + 1)
            path.append(("+", y))
        else:
            x = reach[diagonal - 1]
            y = x - (diagonal - 1)
            path.append(("-", x))
    return path[::-1]
