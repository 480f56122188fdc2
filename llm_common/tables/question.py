"""`read_question`: what a question asks of a table.

Reads, without a model and in linear time, the columns that the question names, the conditions that
it sets (values, ranges, counts, dates, flags), an order such as "highest", and the rows that meet
them. English words carry ranges, negations and orders. Values, names of columns and other words are
compared in any language.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from itertools import accumulate
from typing import Final

from llm_common.ranking.lexical import folded, search_stems
from llm_common.tables.columns import Column
from llm_common.tables.question_logic import Condition, conditions_of
from llm_common.tables.question_terms import MONEY, terms_of
from llm_common.tables.question_words import (
    OrderWord,
    QuestionWords,
    are_alike,
    is_alike,
    set_of,
    words_of,
)
from llm_common.tables.table import Table
from llm_common.tables.values import Cell, cell_text, date_of, number_of

_QUOTED: Final = 1.4  # a name that the question quotes as it stands
NAMED: Final = 0.5
"""The score from which a question names a column."""

_MAX_SEARCHED_WORDS: Final = 8
_MAX_NEAR: Final = 50
_FIRST_ROWS: Final = 12  # a preview shows about as many
_CELL_END: Final = "\n"  # no word contains it
_WORDS_BEFORE: Final = 8  # that may name the column of a number, and those behind it
_WORDS_AFTER: Final = 4
# With a named record they ask for the rows beside it.
_NEIGHBOUR_WORDS: Final = set_of("next after before above below previous following preceding")

_WORD_SEAM: Final = re.compile(r"[\W_\d]+|(?<=[a-z])(?=[A-Z])")
_VERBS: Final = set_of("get list search find fetch read query show")


@dataclass(frozen=True, slots=True)
class Order:
    """An order that the question asks for."""

    column: int
    is_descending: bool


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """What a question asks of a table.

    Attributes:
        columns: Indexes of the columns that the question names, best first.
        conditions: The conditions.
        order: The order that it asks for, if any.
        rows: Indexes of the rows to show, best first: those that meet every condition, or else
            those that meet the most. Empty if the question asks for no rows.
        total: Number of rows that meet every condition. 0 without a condition.
        near: Indexes of other rows, at most 50, that meet the most conditions and have the most of
            the question's other words, best first.
        unread: Words that may restrict the records and were not understood. No number of records
            may be claimed then.
        matched: Indexes of the columns in which the first rows have words of the question, most
            telling first.
        words: The stems of these words, rarest first.
        neighbours: Indexes of the rows before and after the rows that meet every condition, if
            these are adjacent and the question asks for such a row.
    """

    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]
    order: Order | None
    rows: tuple[int, ...]
    total: int
    near: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()
    matched: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    neighbours: tuple[int, ...] = ()

    @property
    def is_claimed(self) -> bool:
        """Whether the conditions say all that the question asks, and no order asks for a few."""
        return not self.unread and self.order is None


def read_question(
    question: str, table: Table, columns: Sequence[Column], *, nouns: str = ""
) -> TableQuestion:
    """Return what a question asks of a table.

    Args:
        question: The question, of which the first 4,000 characters are read.
        table: The table.
        columns: The columns of the table.
        nouns: Words for the records, such as the name of the tool.
    """
    return _Reading(QuestionWords(question), table, columns, nouns).result()


class _Reading:
    """One reading of a question against one table."""

    def __init__(
        self, question: QuestionWords, table: Table, columns: Sequence[Column], nouns: str
    ) -> None:
        self._question = question
        self._words = question.words
        self._table = table
        self._columns = columns
        self._nouns = frozenset(
            word.stem for word in words_of(_WORD_SEAM.sub(" ", nouns)) if word.text not in _VERBS
        )
        self._names = {part for column in self._columns for part in column.last_stems}
        self._used: frozenset[int] = frozenset()
        """Indexes of the words that stand for values, and name no column."""
        # Weights of the stems that some rows have, and the rows of each stem and column.
        self._rarity: dict[str, float] = {}
        self._hits: list[tuple[str, int, set[int]]] = []

    def result(self) -> TableQuestion:
        terms = terms_of(self._question, self._columns, self._nouns)
        self._used = frozenset(
            index for term in terms for index in range(term.first, term.last + 1)
        )
        self._scores = self._named_scores()
        order = self._order()
        read = conditions_of(self._question, terms, self._columns, self._nouns)
        named = [index for index, score in enumerate(self._scores) if score >= NAMED]
        named.sort(key=lambda index: -self._scores[index])
        rows, total, near = self._rows(read.conditions, order)
        return TableQuestion(
            tuple(named),
            read.conditions,
            order,
            tuple(rows),
            total,
            near,
            read.unread,
            matched=self._matched(rows[:_FIRST_ROWS]),
            words=tuple(sorted(self._rarity, key=lambda stem: -self._rarity[stem])),
            neighbours=self._neighbours(rows[:total]),
        )

    # --- columns

    def _named_scores(self) -> list[float]:
        """Return how well the question names each column, from 0 to 1.3."""
        stems = [word.stem for index, word in enumerate(self._words) if index not in self._used]
        uses: dict[str, int] = {}
        for column in self._columns:
            for part in (*column.last_stems, *column.outer_stems):
                uses[part] = uses.get(part, 0) + 1
        named = set()
        for part in uses:
            if len(part) > 1 and is_alike(part, stems):
                named.add(part)

        def weight(part: str) -> float:
            # A word of many names, such as `product` in `product_id`, names none of the columns.
            return min(2.0 / uses[part], 1.0)

        scores = []
        for column in self._columns:
            own = sum(weight(part) for part in column.last_stems if part in named)
            share = own / max(sum(map(weight, column.last_stems)), own, 0.01)
            outer = sum(weight(part) for part in column.outer_stems if part in named)
            score = min(own, 1.0) * (0.5 + 0.5 * share) + 0.3 * min(outer, 1.0)
            is_quoted = len(column.name) > 1 and column.name.lower() in self._question.phrases
            scores.append(max(score, _QUOTED) if is_quoted else score)
        return scores

    def _best_column(self, around: Iterable[int], fits: Callable[[Column], bool]) -> Column | None:
        """Return the fitting column that the words around a number name, else the best named."""
        nearby = [self._words[index].stem for index in around]
        best, chosen = (0.0, 0.0), None
        for column in self._columns:
            near = 0.0
            for part in (*column.last_stems, *column.outer_stems):
                weight = 1.0 if part in column.last_stems else 0.4
                for distance, stem in enumerate(nearby):
                    if len(part) > 1 and are_alike(part, stem):
                        near += weight / (1 + 0.1 * distance)
                        break
            score = (near, self._scores[column.index])
            if score > best and fits(column):
                best, chosen = score, column
        return chosen

    # --- rows

    def _order(self) -> Order | None:
        for word in self._question.orders():
            column = self._ordered_column(word) if word.index not in self._used else None
            if column is not None:
                return Order(column.index, word.is_descending)
        return None

    def _before(self, index: int) -> list[int]:
        """Return the indexes of the words before a word, the nearest first."""
        return list(range(index - 1, max(index - 1 - _WORDS_BEFORE, -1), -1))

    def _behind(self, index: int) -> list[int]:
        return list(range(index, min(index + _WORDS_AFTER, len(self._words))))

    def _ordered_column(self, word: OrderWord) -> Column | None:
        around = self._behind(word.index + 1) + self._before(word.index)
        column = self._best_column(around, lambda column: column.is_numeric or column.is_date)
        if column is None and word.is_of_prices:
            for column in self._columns:
                if column.is_numeric and MONEY & set(column.last_stems):
                    return column
            return None
        return column

    def _rows(
        self, conditions: Sequence[Condition], order: Order | None
    ) -> tuple[list[int], int, tuple[int, ...]]:
        """Return the rows to show, best first, how many meet every condition, and near ones."""
        met: dict[int, int] = {}
        for condition in conditions:
            for row in condition.rows:
                met[row] = met.get(row, 0) + 1
        exact = [row for row in sorted(met) if met[row] == len(conditions)]
        rows = exact or sorted(met, key=lambda row: (-met[row], row))
        if order is not None:
            asked = rows if conditions else range(len(self._table.rows))
            return self._in_order(asked, order), len(exact), ()
        weights = self._word_weights()
        if not conditions:
            rows = sorted(weights)
        rows.sort(key=lambda row: -weights.get(row, 0.0))  # stable, so ties keep their order
        # A question may name a value in other words, so that the row that it means misses one
        # condition and has a word instead.
        others = met.keys() - set(rows)
        near = nsmallest(
            _MAX_NEAR, others, key=lambda row: (-met[row] - weights.get(row, 0.0), row)
        )
        return rows, len(exact), tuple(near)

    def _in_order(self, rows: Iterable[int], order: Order) -> list[int]:
        """Return rows in an order, those without a value last."""
        column = self._columns[order.column]
        keyed: list[tuple[float, str, int]] = []
        without_value: list[int] = []
        for row in rows:
            cell = column.cells[row]
            number = number_of(cell) if column.is_numeric else 0.0
            moment = "" if column.is_numeric else date_of(cell)
            if number is not None and moment is not None:
                keyed.append((number, moment, row))
            else:
                without_value.append(row)
        keyed.sort(key=lambda entry: entry[:2], reverse=order.is_descending)
        return [row for _, _, row in keyed] + without_value

    def _word_weights(self) -> dict[int, float]:
        """Return for each row the weight of the question's other words in its texts."""
        used = set(search_stems(" ".join(self._words[index].text for index in self._used)))
        stems = [
            stem for stem in search_stems(self._question.text) if stem not in self._names | used
        ]
        if not stems:
            return {}
        texts = [_ColumnText(column) for column in self._columns if not column.is_numeric]
        weights: dict[int, float] = {}
        most = len(self._table.rows) / 2
        for stem in stems[:_MAX_SEARCHED_WORDS]:
            by_column = {text.column.index: text.rows_with(stem, limit=most) for text in texts}
            rows = set().union(*by_column.values())
            # A word of most records tells them not apart.
            if 0 < len(rows) <= most:
                self._rarity[stem] = len(rows) ** -0.5
                self._hits += [(stem, column, with_stem) for column, with_stem in by_column.items()]
                for row in rows:
                    weights[row] = weights.get(row, 0.0) + self._rarity[stem]
        return weights

    def _matched(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the columns in which rows have words of the question, most telling first."""
        weights: dict[int, float] = {}
        for stem, column, rows_with in self._hits:
            count = len(rows_with.intersection(rows))
            if count:
                weights[column] = weights.get(column, 0.0) + self._rarity[stem] * count
        return tuple(sorted(weights, key=lambda column: -weights[column]))

    def _neighbours(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the rows before and after adjacent rows, if the question asks for such."""
        if not rows or max(rows) - min(rows) >= len(rows):
            return ()
        for index, word in enumerate(self._words):
            if word.text in _NEIGHBOUR_WORDS and index not in self._used:
                beside = (min(rows) - 1, max(rows) + 1)
                return tuple(row for row in beside if 0 <= row < len(self._table.rows))
        return ()


class _ColumnText:
    """The different cells of a column as one text, which is searched faster than each of them."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._cells = list(column.counts)
        texts = [cell if isinstance(cell, str) else cell_text(cell) for cell in self._cells]
        text = _CELL_END.join(texts)
        if not text.isascii():  # folding changes the length of other texts
            texts = list(map(folded, texts))
            text = _CELL_END.join(texts)
        self._text = text.lower()
        self._lengths = list(map(len, texts))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(length + len(_CELL_END) for length in self._lengths))

    def rows_with(self, stem: str, *, limit: float) -> set[int]:
        """Return the rows of cells with a word that begins with a stem.

        The search ends at more than `limit` different cells.
        """
        cells: set[Cell] = set()
        start = self._text.find(stem)
        while start >= 0 and len(cells) <= limit:
            before = self._text[start - 1] if start else ""
            end = start + 1
            if not (before.isalnum() or before == "_"):
                index = bisect_right(self._ends, start)
                cells.add(self._cells[index])
                end = self._ends[index]  # one word of a cell is enough
            start = self._text.find(stem, end)
        if not cells:
            return set()
        return {row for row, cell in enumerate(self.column.cells) if cell in cells}
