"""The page of a stored result: its records as tables, its text in parts, and its download."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import orjson

from llm_common.agents import ContextPointer
from llm_common.pointers import stored_text
from llm_common.tables import (
    IN_ROW,
    Cell,
    Table,
    are_mixed,
    are_mostly_records,
    find_records,
    shown_cell,
)
from llm_common.text import decode_json

View = Literal["pretty", "stored"]

MAX_INDENTED_BYTES: Final = 4_000_000
"""A larger result is shown as stored, because decoding and indenting it takes much memory."""

PART_CHARS: Final = 20_000
"""Approximate number of characters on a page."""

_MAX_LINE_CHARS: Final = 2 * PART_CHARS
_MAX_INDENT_CHARS: Final = 50_000_000  # 4 MB of numbers at the 250th level would take 1 GB
_MAX_CELL_CHARS: Final = 200
_MAX_COLUMNS: Final = 40  # a browser lays out wider tables slowly
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS: Final = 60


class ShownCell(NamedTuple):
    """A cell, and the number of its characters if it is clipped."""

    text: str
    clipped_chars: int = 0


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some rows of one table, with the names of all tables of the result.

    Attributes:
        tables: The tables, the largest first, each with its first 100,000 rows.
        table_number: Number of the one that is shown, from 1.
        columns: Names of its first 40 columns.
        rows: The rows of this page.
        first_row: Number of the first of these rows, from 1.
        number: Number of the page, from 1.
        are_most: Whether the result is records for the most part.
    """

    tables: tuple[Table, ...]
    table_number: int
    columns: tuple[str, ...]
    rows: tuple[tuple[ShownCell, ...], ...]
    first_row: int
    number: int
    are_most: bool


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result.

    Attributes:
        text: The text.
        number: Number of the part, from 1.
        count: Number of parts.
        first_line: Number of its first line, from 1.
        last_line: Number of its last line.
        lines: Number of lines of all parts.
        form: Description of the text's form.
    """

    text: str
    number: int
    count: int
    first_line: int
    last_line: int
    lines: int
    form: str


def read_records(
    payload: bytes, *, table_number: int, number: int, page_rows: int
) -> RecordPage | None:
    """Return a page of a result's records, or None if it has none or exceeds 4 MB.

    Args:
        payload: The stored bytes.
        table_number: Number of the table, from 1. A number beyond the last one means the last.
        number: Number of the page, from 1. A number beyond the last page means the last page.
        page_rows: Number of rows on a page.
    """
    if len(payload) > MAX_INDENTED_BYTES:
        return None
    tables = find_records(decode_json(payload)).tables
    if not tables:
        return None
    table_number = min(table_number, len(tables))
    table = tables[table_number - 1]
    last = max((len(table.rows) + page_rows - 1) // page_rows, 1)
    number = min(number, last)
    start = (number - 1) * page_rows
    columns = table.columns[:_MAX_COLUMNS]
    mixed = [are_mixed(table.column(index)) for index in range(len(columns))]
    rows = []
    for row in table.rows[start : start + page_rows]:
        rows.append(tuple(map(_shown, row, mixed)))
    return RecordPage(
        tables=tuple(tables),
        table_number=table_number,
        columns=columns,
        rows=tuple(rows),
        first_row=start + 1,
        number=number,
        are_most=are_mostly_records(tables, len(payload)),
    )


def _shown(cell: Cell, is_mixed: bool) -> ShownCell:
    """Return a cell as previews show it, so that NULL, "" and "null" differ."""
    text = shown_cell(cell, IN_ROW, max_chars=_MAX_CELL_CHARS, is_mixed=is_mixed)
    if isinstance(cell, str) and len(cell) > _MAX_CELL_CHARS:
        return ShownCell(text, len(cell))
    return ShownCell(text)


def read_part(payload: bytes, *, view: View, number: int, line: int = 0) -> ResultPart:
    """Return a part of a result.

    Args:
        payload: The stored bytes.
        view: `pretty` indents JSON, `stored` shows the stored text.
        number: Number of the part, from 1. A number beyond the last part means the last part.
        line: Number of a line, from 1, to return the part that contains it. 0 uses `number`.
    """
    if view == "stored":
        text, form = payload.decode("utf-8", "replace"), "as stored"
    else:
        text, form = _indented(payload)
    bounds = [0, *_part_ends(text)]
    if line:
        offset = sum(len(before) + 1 for before in text.split("\n")[: line - 1])
        number = bisect_right(bounds, offset)
    count = len(bounds) - 1
    number = min(max(number, 1), count)
    start, end = bounds[number - 1 : number + 1]
    return ResultPart(
        text=text[start:end],
        number=number,
        count=count,
        first_line=text.count("\n", 0, start) + 1,
        # A line end at the end of the part belongs to its last line.
        last_line=text.count("\n", 0, max(end - 1, 0)) + 1,
        lines=text.count("\n") + 1,
        form=form,
    )


def _indented(payload: bytes) -> tuple[str, str]:
    """Return a result as indented JSON or as text, and a description of that form."""
    stored = payload.decode("utf-8", "replace")
    if len(payload) > MAX_INDENTED_BYTES:
        return stored, "as stored: it is too long to be indented"
    value: object = decode_json(payload)
    form = "JSON, indented"
    if isinstance(value, str):
        text = value
        if not text.lstrip().startswith(("{", "[")):
            return text, "a text"
        try:
            value, form = orjson.loads(text), "a text that contains JSON, indented"
        except orjson.JSONDecodeError:
            return text, "a text"
    if _indent_chars(value) > _MAX_INDENT_CHARS:
        return stored, "as stored: indented it would be too long"
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), form
    except TypeError:  # a number over 64 bits, or half a surrogate pair
        return stored, "as stored: it cannot be indented"


def _indent_chars(value: object) -> int:
    """Estimate the spaces of an indented value, two for each level and member."""
    # Level by level and not recursively, since a result can be nested deeper than Python's stack.
    total, depth, level = 0, 0, [value]
    while level and total <= _MAX_INDENT_CHARS:
        total += 2 * depth * len(level)
        depth += 1
        members: list[object] = []
        for part in level:
            if isinstance(part, dict):
                members.extend(part.values())
            elif isinstance(part, list):
                members.extend(part)
        level = members
    return total


def _part_ends(text: str) -> list[int]:
    """Return the ends of parts: at line ends, or within a line that is far too long."""
    ends, start = [], 0
    while len(text) - start > PART_CHARS:
        line_end = text.find("\n", start + PART_CHARS, start + _MAX_LINE_CHARS)
        start = start + PART_CHARS if line_end < 0 else line_end + 1
        ends.append(start)
    ends.append(len(text))
    return ends


def download(pointer: ContextPointer, payload: bytes) -> tuple[bytes, str]:
    """Return the content and name of a file: a text as it is, anything else as the stored JSON.

    The name has no character of the tool that could leave the folder or the header.
    """
    content, ending = payload, "json"
    stored = stored_text(payload)
    if stored.form == "text":
        content, ending = stored.text.encode(), "txt"
    tool = _UNSAFE.sub("_", pointer.tool_name)[:_MAX_NAME_CHARS]
    return content, f"{tool}-{pointer.pointer_id}.{ending}"
