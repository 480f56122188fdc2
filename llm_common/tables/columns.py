"""`Column`: a column of a table, with what its name says and which kind of values it holds."""

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Final

from llm_common.ranking.lexical import find_stem, folded
from llm_common.ranking.question_words import stem_of
from llm_common.tables.column_types import MARKERS, ColumnType, type_of
from llm_common.tables.table import Table, quoted
from llm_common.tables.values import (
    CURRENCIES,
    Cell,
    are_mixed,
    cell_text,
    elements_of,
    fits_64_bits,
    number_of,
)

MAX_VALUE_CHARS: Final = 80
"""A longer value is prose, which no question quotes."""

NOTHING: Final = frozenset({None, "", "{}", "[]"})
"""Cells without a value, also as JSON."""

_SAMPLE_ROWS: Final = 2_000
_MAX_DISTINCT: Final = 2_000
_LIST_SHARE: Final = 0.2  # of the cells, from which a column holds lists
_MAX_CATEGORIES: Final = 60
_MAX_CATEGORY_CHARS: Final = 25
_MAX_PART_WORDS: Final = 4

_MAX_AMOUNT: Final = 1e12
_ID_STEMS: Final = frozenset({"id", "uid", "uuid", "key", "code", "zip", "phone", "number"})
_NAME_SEAM: Final = re.compile(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])")
_PART: Final = re.compile(r"[^\s/&+|,_-]+")
_MAX_CONDITION_VALUES: Final = 3
_MAX_LITERAL_CHARS: Final = 40


@lru_cache(maxsize=4_096)
def _name_stems(name: str) -> tuple[str, ...]:
    parts = [part for part in _NAME_SEAM.split(name) if part]
    return tuple(stem_of(folded(part)) for part in parts)


def is_id_name(path: str) -> bool:
    """Return whether the name of a column says that its cells are ids."""
    return not _ID_STEMS.isdisjoint(_name_stems(path.rpartition(".")[2]))


class Column:
    """A column of a table.

    Attributes:
        index: Its index.
        name: Its name.
        path: Its path, such as `offer.price`.
        own_name: The last name of its path.
        last_stems: The stems of the last name of its path.
        outer_stems: The stems of the other names, such as `offer` of `offer.price`.
    """

    def __init__(self, table: Table, index: int) -> None:
        self._table = table
        self.index = index
        self.name = table.columns[index]
        self.path = table.paths[index]
        self.own_name = self.path.rpartition(".")[2]
        self.last_stems = _name_stems(self.own_name)
        self.outer_stems = tuple(
            part for part in _name_stems(self.path) if part not in self.last_stems
        )

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells, one per row."""
        return self._table.column(self.index)

    @cached_property
    def counts(self) -> Counter[Cell]:
        """How often each cell occurs, without missing ones."""
        # 1 and True are one key of a Counter, and so are 1 and 1.0.
        counts = Counter(self.cells)
        del counts[None], counts[""]
        return counts

    @cached_property
    def value_counts(self) -> Counter[str] | None:
        """How often each element occurs, as text. None if there are too many different ones."""
        if len(self.counts) > _MAX_DISTINCT:
            return None
        values: Counter[str] = Counter()
        counts = self.counts
        if self.is_mixed:  # 1 and true are different values
            counts = Counter(map(cell_text, self.cells))
            del counts[""]
        for cell, count in counts.items():
            for value in self.elements(cell):
                values[value] += count
        return values

    def elements(self, cell: Cell) -> tuple[str, ...]:
        """Return the elements of a cell, or the cell alone in a column of no lists."""
        if cell is None or cell == "":
            return ()
        text = cell_text(cell)
        if self.is_list or text.startswith("["):
            return elements_of(cell, is_list=self.is_list)
        return (text,)

    @cached_property
    def _folded(self) -> list[str]:
        return [folded(cell_text(cell)) for cell in self.counts]

    def rows_with(self, stem: str) -> set[int]:
        """Return the rows of cells with a word of a stem."""
        distinct = list(self.counts)
        cells = {distinct[index] for index in find_stem(stem, self._folded)}
        if not cells:
            return set()
        return {row for row, cell in enumerate(self.cells) if cell in cells}

    @cached_property
    def _sample(self) -> list[Cell]:
        present = (cell for cell in self.cells if cell is not None and cell != "")
        return list(islice(present, _SAMPLE_ROWS))

    @cached_property
    def _sample_counts(self) -> Counter[Cell]:
        return Counter(self._sample)

    @cached_property
    def type(self) -> ColumnType:
        """What the cells are."""
        return type_of(self.counts, self.last_stems)

    @cached_property
    def values(self) -> list[Cell]:
        """The value of each cell, or None for a missing one. The cells themselves for text."""
        if self.type.kind == "text":
            return self.cells
        return list(map(self.type.values.get, self.cells))

    def is_missing(self, cell: Cell) -> bool:
        """Return whether a cell has no value: nothing in it, or a marker among values."""
        return cell in NOTHING or (self.type.kind != "text" and cell in MARKERS)

    @property
    def is_numeric(self) -> bool:
        """Whether the cells are numbers."""
        return self.type.kind == "number"

    @cached_property
    def is_id(self) -> bool:
        """Whether the name says that the cells are ids, or they are too large for amounts."""
        if is_id_name(self._table.paths[self.index]):
            return True
        return any(abs(number_of(cell) or 0.0) > _MAX_AMOUNT for cell in self._sample[:50])

    @cached_property
    def is_unique(self) -> bool:
        """Whether each record has a value of its own."""
        return len(self.counts) == self.counts.total() == len(self.cells)

    @property
    def is_money(self) -> bool:
        """Whether the cells are amounts with a currency."""
        return self.type.unit.startswith(CURRENCIES)

    @property
    def is_flag(self) -> bool:
        """Whether the cells are yes or no."""
        return self.type.kind == "flag"

    @cached_property
    def is_mixed(self) -> bool:
        """Whether the cells are of several kinds, such as flags, numbers and texts."""
        return are_mixed(self.cells)

    @property
    def is_date(self) -> bool:
        """Whether the cells are days or times."""
        return self.type.kind == "moment"

    @cached_property
    def is_list(self) -> bool:
        """Whether some cells have several elements."""
        if self.is_date or self.is_numeric:
            return False
        lists = 0
        for cell, cells in self._sample_counts.items():
            may_be_list = isinstance(cell, str) and ("," in cell or cell.startswith("["))
            if may_be_list and len(elements_of(cell)) > 1:
                lists += cells
        return lists > 0 and lists >= _LIST_SHARE * len(self._sample)

    @cached_property
    def is_category(self) -> bool:
        """Whether the cells are few short values, as those of a status."""
        if not self._sample or len(self._sample_counts) > _MAX_CATEGORIES:
            return False
        distinct = set(map(cell_text, self._sample_counts))
        # Values of a short table repeat little. A category is told from a title by its length.
        repeats = len(distinct) < len(self._sample)
        return max(map(len, distinct)) <= (MAX_VALUE_CHARS if repeats else _MAX_CATEGORY_CHARS)

    def parts_of(self, cell: str, *, with_words: bool) -> Iterator[str]:
        """Yield the texts of a cell that a question may name: `Gray/Black`, `Gray` and `Black`.

        Args:
            cell: A cell of the column.
            with_words: Whether one word of a longer value counts.
        """
        elements = self.elements(cell)
        yield from elements
        if "://" in cell or not (self.is_list or self.is_category):
            return
        for element in elements:
            spans = [match.span() for match in _PART.finditer(element[:MAX_VALUE_CHARS])]
            if len(spans) == 1:
                continue
            for first, (start, _) in enumerate(spans):
                for last in range(first, min(first + _MAX_PART_WORDS, len(spans))):
                    if last > first or with_words:
                        yield element[start : spans[last][1]]


def condition_of(column: Column, rows: Collection[int], patterns: Collection[str] = ()) -> str:
    """Return an SQL condition that exactly these rows meet, or "" if no short one does.

    Args:
        column: The column.
        rows: Indexes of its rows.
        patterns: Patterns of LIKE that may select them, where they have too many or long values.
    """
    values: set[Cell] = set()
    others: set[Cell] = set()
    for row, value in enumerate(column.values):
        (values if row in rows else others).add(value)
    if not values or values & others or column.is_mixed:
        return ""
    name = quoted(column.name)
    if values == {None}:
        return f"{name} IS NULL"
    if others == {None}:
        return f"{name} IS NOT NULL"
    present, absent = values - {None}, others - {None}
    condition = _among(name, present, absent, column) or _like(name, present, absent, patterns)
    return f"({condition} OR {name} IS NULL)" if condition and None in values else condition


def _among(name: str, values: set[Cell], others: set[Cell], column: Column) -> str:
    """Return a condition that all of these values meet and none of the others, or ""."""
    if len(values) <= _MAX_CONDITION_VALUES:
        return _in(name, "", values)
    if column.is_numeric or column.is_date:
        bounds = _between(name, values, others)
        if bounds:
            return bounds
    return _in(name, "NOT ", others) if 0 < len(others) <= _MAX_CONDITION_VALUES else ""


def like(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return the expression of the texts that have one of some patterns of SQL's LIKE."""
    forms = (re.escape(pattern).replace("%", ".*").replace("_", ".") for pattern in patterns)
    # SQLite ignores the case of ASCII letters alone.
    return re.compile("|".join(forms), re.ASCII | re.DOTALL | re.IGNORECASE)


def _like(name: str, values: set[Cell], others: set[Cell], patterns: Collection[str]) -> str:
    """Return a condition that values have one of some patterns, or have none, or ""."""
    literals = list(map(_literal, patterns))
    # SQLite reads a text only up to a NUL.
    are_texts = all(isinstance(value, str) and "\0" not in value for value in values | others)
    if not literals or not all(literals) or not are_texts:
        return ""
    form = like(patterns)
    alike = {value for value in values | others if form.fullmatch(cell_text(value))}
    text = " OR ".join(f"{name} LIKE {literal}" for literal in literals)
    if alike == values:
        return f"({text})"
    return f"NOT ({text})" if alike == others else ""


def _in(name: str, negation: str, values: set[Cell]) -> str:
    """Return a condition that a column has one of some values, or none of them, or ""."""
    literals = sorted(map(_literal, values))
    if not all(literals):
        return ""
    if len(literals) > 1:
        return f"{name} {negation}IN ({', '.join(literals)})"
    return f"{name} {'<>' if negation else '='} {literals[0]}"


def _between(name: str, values: Collection[Any], others: Collection[Any]) -> str:
    """Return the bounds of values, without a bound that keeps no other value out, or "".

    The values are all numbers, or all moments.
    """
    low, high = min(values), max(values)
    if any(low < other < high for other in others):
        return ""
    bounds: list[tuple[str, str]] = []
    if any(other < low for other in others):
        bounds.append((">=", _literal(low)))
    if any(other > high for other in others):
        bounds.append(("<=", _literal(high)))
    if not all(literal for _, literal in bounds):
        return ""
    return " AND ".join(f"{name} {sign} {literal}" for sign, literal in bounds)


def _literal(value: Cell) -> str:
    """Return a value as SQL writes it, or "" if that is long or not exact."""
    if isinstance(value, str):
        is_plain = value.isprintable() and len(value) <= _MAX_LITERAL_CHARS
        return "'" + value.replace("'", "''") + "'" if is_plain else ""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) and _is_read_back(value) else ""
    return str(int(value)) if value is not None and fits_64_bits(value) else ""


def _is_read_back(number: float) -> bool:
    """Return whether SQLite reads the same number, since it rounds the last bit of some."""
    with closing(sqlite3.connect(":memory:")) as database:
        (read,) = database.execute(f"SELECT {number!r}").fetchone()
    return bool(read == number)
