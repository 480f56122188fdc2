"""`read_question`: what a question asks of a table.

Reads, without a model and in linear time, the columns that the question names, the conditions that
it sets (values, ranges, counts, dates, flags), an order such as "highest", and the rows that meet
them. English words carry ranges, negations and orders. Values, names of columns and other words are
compared in any language.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from llm_common.ranking.lexical import search_stems
from llm_common.ranking.question_words import (
    QuestionWords,
    set_of,
    words_of,
)
from llm_common.tables.columns import Column
from llm_common.tables.question.column_words import REVERSED, ColumnWords
from llm_common.tables.question.logic import Condition, conditions_of
from llm_common.tables.question.terms import terms_of
from llm_common.tables.table import Table
from llm_common.tables.values import Cell

_MAX_SEARCHED_WORDS: Final = 8
_FIRST_ROWS: Final = 12  # a preview shows about as many
# With a named record they ask for the rows beside it.
_NEIGHBOUR_WORDS: Final = set_of("next after before above below previous following preceding")

_PLACES: Final = set_of("first last")  # in the table, where no column has the order

_WORD_SEAM: Final = re.compile(r"[\W_\d]+|(?<=[a-z])(?=[A-Z])")
_VERBS: Final = set_of("get list search find fetch read query show")


@dataclass(frozen=True, slots=True)
class Order:
    """An order that the question asks for."""

    column: int | None
    """Index of the column, or None for the order in which the rows stand."""

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
        unread: Words that may restrict the records and were not understood. No number of records
            may be claimed then.
        matched: Indexes of the columns in which the first rows have words of the question, most
            telling first.
        words: The stems of these words, rarest first.
        neighbours: Indexes of the rows before and after the rows that meet every condition, if
            these are adjacent and the question asks for such a row.
        misses_records: Whether the table does, so that no number of records may be claimed.
        is_counting: Whether the question asks how many records there are.
    """

    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]
    order: Order | None
    rows: tuple[int, ...]
    total: int
    unread: tuple[str, ...] = ()
    matched: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    neighbours: tuple[int, ...] = ()
    misses_records: bool = False
    is_counting: bool = False

    @property
    def is_claimed(self) -> bool:
        """Whether the number of records that meet the conditions is what the question asks for.

        The conditions say all that it asks, no order asks for a few, and all records were read.
        """
        return not self.unread and self.order is None and not self.misses_records


def read_question(
    question: str | QuestionWords, table: Table, columns: Sequence[Column], *, nouns: str = ""
) -> TableQuestion:
    """Return what a question asks of a table.

    Args:
        question: The question, of which the first 4,000 characters are read, or its words.
        table: The table.
        columns: The columns of the table.
        nouns: Words for the records, such as the name of the tool.
    """
    if isinstance(question, str):
        question = QuestionWords(question)
    return _Reading(question, table, columns, nouns).result()


class _Reading:
    """One reading of a question against one table."""

    def __init__(
        self, question: QuestionWords, table: Table, columns: Sequence[Column], nouns: str
    ) -> None:
        stems = {
            word.stem for word in words_of(_WORD_SEAM.sub(" ", nouns)) if word.text not in _VERBS
        }
        self._naming = ColumnWords(question, columns, frozenset(stems))
        self._question = question
        self._words = question.words
        self._table = table
        self._columns = columns
        # Weights of the stems that some rows have, and the rows of each stem and column.
        self._rarity: dict[str, float] = {}
        self._hits: list[tuple[str, int, set[int]]] = []

    def result(self) -> TableQuestion:
        terms = terms_of(self._naming)
        # A name of a compared column names it still, the words of a value name no column.
        self._naming.used = {index for term in terms for index in range(term.first, term.last + 1)}
        order = self._order()
        conditions, unread = conditions_of(self._naming, terms)
        rows, total = self._rows(conditions, order)
        return TableQuestion(
            tuple(self._naming.named()),
            conditions,
            order,
            tuple(rows),
            total,
            unread,
            matched=self._matched(rows[:_FIRST_ROWS]),
            words=tuple(sorted(self._rarity, key=lambda stem: -self._rarity[stem])),
            neighbours=self._neighbours(rows[:total]),
            misses_records=self._table.misses_records,
            is_counting=bool(self._question.counting or "amount of" in self._question.text),
        )

    # --- rows

    def _order(self) -> Order | None:
        for word in self._question.orders():
            if word.index in self._naming.in_names | self._naming.used:  # as in `temp max`
                continue
            column = self._ordered_column(word.index)
            if column is not None:
                turned = REVERSED.get(self._words[word.index].text, frozenset())
                is_turned = not turned.isdisjoint(column.last_stems)
                return Order(column.index, word.is_descending ^ is_turned)
            if self._words[word.index].text in _PLACES:
                return Order(None, word.is_descending)
        return None

    def _ordered_column(self, index: int) -> Column | None:
        """Return the column that a word such as "highest" is about."""
        ordered = [column for column in self._columns if column.is_numeric or column.is_date]
        free = range(len(self._words))
        by = [each for each in free if self._words[each].text == "by"]
        starts = {index + 1, *(each + 1 for each in by)}
        for column in sorted(ordered, key=lambda column: -len(column.last_stems)):
            name = self._naming.whole_names.get(column.index)
            if name and name.start in starts:
                return column
        before, behind = self._naming.around(index, index)
        behind_by = [each for start in by for each in self._naming.around(start, start)[1]]
        for near in (behind_by, [index, *behind, *before], free):
            best, _, _ = self._naming.best(near, ordered.__contains__)
            if best is not None:
                return best
        return None

    def _rows(self, conditions: Sequence[Condition], order: Order | None) -> tuple[list[int], int]:
        """Return the rows to show, best first, and how many meet every condition."""
        met: dict[int, int] = {}
        for condition in conditions:
            for row in condition.rows:
                met[row] = met.get(row, 0) + 1
        exact = [row for row in sorted(met) if met[row] == len(conditions)]
        rows = exact or sorted(met, key=lambda row: (-met[row], row))
        if order is not None:
            asked = rows if conditions else range(len(self._table.rows))
            return self._in_order(asked, order), len(exact)
        weights = self._word_weights()
        if not conditions:
            rows = sorted(weights)
        rows.sort(key=lambda row: -weights.get(row, 0.0))  # stable, so ties keep their order
        return rows, len(exact)

    def _in_order(self, rows: Sequence[int], order: Order) -> list[int]:
        """Return rows in an order, those without a value last."""
        if order.column is None:
            return list(reversed(rows)) if order.is_descending else list(rows)
        column = self._columns[order.column]
        keyed: list[tuple[Cell, int]] = []
        without_value: list[int] = []
        for row in rows:
            if column.values[row] is None:
                without_value.append(row)
            else:
                keyed.append((column.values[row], row))
        keyed.sort(key=itemgetter(0), reverse=order.is_descending)
        return [row for _, row in keyed] + without_value

    def _word_weights(self) -> dict[int, float]:
        """Return for each row the weight of the question's other words in its texts."""
        used = set(search_stems(" ".join(self._words[index].text for index in self._naming.used)))
        stems = [
            stem
            for stem in search_stems(self._question.text)
            if stem not in self._naming.names | used
        ]
        if not stems:
            return {}
        searched = [column for column in self._columns if not column.is_numeric]
        weights: dict[int, float] = {}
        for stem in stems[:_MAX_SEARCHED_WORDS]:
            by_column = {column.index: column.rows_with(stem) for column in searched}
            rows = set().union(*by_column.values())
            # A word of most records tells them not apart.
            if 0 < len(rows) <= len(self._table.rows) / 2:
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
            if word.text in _NEIGHBOUR_WORDS and index not in self._naming.used:
                beside = (min(rows) - 1, max(rows) + 1)
                return tuple(row for row in beside if 0 <= row < len(self._table.rows))
        return ()
