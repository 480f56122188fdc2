"""`condition_of`: the condition in SQL that some rows of a column meet, and no other row.

It is made of the values of these rows, so that a query selects exactly what a preview has found.
"""

import math
from collections.abc import Collection
from typing import Final, TypeVar

from llm_common.tables.columns import Column
from llm_common.tables.sql.columns import fits_64_bits
from llm_common.tables.table import quoted
from llm_common.tables.values import Cell

_MAX_VALUES: Final = 3
_MAX_VALUE_CHARS: Final = 40

_Value = TypeVar("_Value", float, str)


def condition_of(column: Column, rows: Collection[int]) -> str:
    """Return an SQL condition that exactly these rows meet, or "" if no short one does.

    Args:
        column: The column.
        rows: Indexes of its rows.
    """
    values: set[Cell] = set()
    others: set[Cell] = set()
    for row, value in enumerate(column.values):
        (values if row in rows else others).add(value)
    if not values or None in values or values & others or column.is_mixed:
        return ""
    name = quoted(column.name)
    if len(values) > _MAX_VALUES:
        if column.is_numeric:
            return _between(name, _numbers(values), _numbers(others))
        return _between(name, _texts(values), _texts(others)) if column.is_date else ""
    literals = sorted(map(_literal, values))
    if not all(literals):
        return ""
    return f"{name} = {literals[0]}" if len(literals) == 1 else f"{name} IN ({', '.join(literals)})"


def _between(name: str, values: list[_Value], others: list[_Value]) -> str:
    """Return the bounds of values, without a bound that keeps no other value out."""
    low, high = min(values), max(values)
    if any(low < other < high for other in others):
        return ""
    bounds = []
    if any(other < low for other in others):
        bounds.append(f"{name} >= {_literal(low)}")
    if any(other > high for other in others):
        bounds.append(f"{name} <= {_literal(high)}")
    return " AND ".join(bounds)


def _numbers(values: Collection[Cell]) -> list[float]:
    return [value for value in values if isinstance(value, (int, float))]


def _texts(values: Collection[Cell]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _literal(value: Cell) -> str:
    """Return a value as SQL writes it, or "" if that is long or not exact."""
    if isinstance(value, str):
        is_plain = value.isprintable() and len(value) <= _MAX_VALUE_CHARS
        return "'" + value.replace("'", "''") + "'" if is_plain else ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ""
    return str(int(value)) if value is not None and fits_64_bits(value) else ""
