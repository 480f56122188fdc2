"""Reads the records of a stored result as a table that a page can show."""

from dataclasses import dataclass
from typing import Final

from llm_common.apps.inspector.result_page import MAX_INDENTED_BYTES
from llm_common.tables import Cell, are_mostly_records, cell_text, find_records
from llm_common.text import decode_json

_MAX_CELL_CHARS: Final = 200
_MAX_COLUMNS: Final = 40  # a browser lays out wider tables slowly


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A cell, and how many of its characters are missing."""

    text: str
    missing_chars: int


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of the result: its number from 1, where it is, and its number of records."""

    number: int
    path: str
    total_rows: int


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some rows of one table, with the names of all tables of the result.

    Attributes:
        tables: The tables, the largest first.
        table: The one that is shown.
        columns: Names of its first 40 columns.
        missing_columns: Number of its other fields.
        rows: The rows of this page.
        first_row: Number of the first of these rows, from 1.
        readable_rows: Number of rows that pages can show, the first 100,000.
        number: Number of the page, from 1.
        are_most: Whether the result is records for the most part.
    """

    tables: tuple[TableName, ...]
    table: TableName
    columns: tuple[str, ...]
    missing_columns: int
    rows: tuple[tuple[ShownCell, ...], ...]
    first_row: int
    readable_rows: int
    number: int
    are_most: bool


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
    names = []
    for position, table in enumerate(tables, start=1):
        names.append(TableName(position, table.path, table.total_rows))
    index = min(table_number, len(tables)) - 1
    table = tables[index]
    last = max((len(table.rows) + page_rows - 1) // page_rows, 1)
    number = min(number, last)
    start = (number - 1) * page_rows
    rows = [tuple(map(_shown, row[:_MAX_COLUMNS])) for row in table.rows[start : start + page_rows]]
    return RecordPage(
        tables=tuple(names),
        table=names[index],
        columns=table.columns[:_MAX_COLUMNS],
        missing_columns=table.total_columns - len(table.columns[:_MAX_COLUMNS]),
        rows=tuple(rows),
        first_row=start + 1,
        readable_rows=len(table.rows),
        number=number,
        are_most=are_mostly_records(tables, len(payload)),
    )


def _shown(cell: Cell) -> ShownCell:
    text = cell_text(cell)
    return ShownCell(text[:_MAX_CELL_CHARS], max(len(text) - _MAX_CELL_CHARS, 0))
