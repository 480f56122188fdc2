"""`sql_columns`: a table as columns of SQL, with the texts beside the values."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import NoneType
from typing import Final

from llm_common.tables.columns import Column
from llm_common.tables.table import Table, distinct_names
from llm_common.tables.values import Cell, cell_text, fits_64_bits, format_number, number_of
from llm_common.text.display import printable

_SAMPLE_CELLS: Final = 1_000


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table in SQL.

    Attributes:
        name: Its name.
        affinity: Its type in SQLite. "" for cells of several types.
        cells: Its cells, as SQLite can store them.
        note: What a reader of a comparison has to know. "" for nothing.
    """

    name: str
    affinity: str
    cells: Sequence[Cell]
    note: str = ""


def sql_columns(table: Table, *, max_columns: int) -> list[SqlColumn]:
    """Return the columns of a table by their values, then the texts that say more.

    Args:
        table: The table.
        max_columns: Maximum number of columns, beyond which texts are left out.
    """
    names = list(table.columns)
    typed, texts = [], []
    for index in range(len(table.columns)):
        column = Column(table, index)
        note = _note_on(column)
        if column.type.has_texts and len(names) < max_columns:
            names = distinct_names([*names, f"{column.name}_text"])
            cells: list[Cell] = []
            for cell in column.cells:
                cells.append(None if cell is None else _storable(cell_text(cell)))
            texts.append(SqlColumn(names[-1], "TEXT", cells))
            beside = f"{column.name} has {column.type.unit or 'the'} values, {names[-1]} the texts."
            note = f"{note} {beside}".strip()
        values = list(map(_storable, column.values))
        typed.append(SqlColumn(column.name, _affinity(column, values), values, note))
    return [*typed, *texts]


def _affinity(column: Column, cells: Sequence[Cell]) -> str:
    """Return the type of a column. A whole number of a REAL column divides as a decimal."""
    kinds = set(map(type, cells)) - {NoneType}
    if column.is_numeric and float in kinds:
        return "REAL"
    # Integers that are too long are stored as texts, and the others with them.
    if kinds <= {str} or (str in kinds and not any(isinstance(cell, str) for cell in column.cells)):
        return "TEXT"
    return "INTEGER" if kinds <= {int, bool} else ""


def _note_on(column: Column) -> str:
    """Return what a comparison of a text column of numbers does, or ""."""
    if column.is_flag:
        return f"{column.name} is 1 or 0."
    if column.type.kind != "text":
        return ""
    sample = list(islice(column.counts, _SAMPLE_CELLS))
    numbers = sum(number_of(cell) is not None for cell in sample)
    if 2 * numbers <= len(sample):
        return ""
    name = column.name
    return f"{name} is text, compared by letters. number({name}) reads numbers in it."


def _storable(cell: Cell) -> Cell:
    """Return a cell as SQLite takes it: text that encodes, and integers of 64 bits."""
    if isinstance(cell, str):
        return cell if cell.isascii() else printable(cell)
    if isinstance(cell, int) and not fits_64_bits(cell):
        return format_number(cell)
    return cell
