"""`read_question`: what a question asks of a table.

Reads, without a model and in linear time, the columns that the question names, the conditions that
it sets (values, ranges, counts, dates, flags), an order such as "highest", and the rows that meet
them. English words carry ranges, negations and orders. Values, names of columns and other words are
compared in any language.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from itertools import accumulate
from typing import Final

from llm_common.ranking.lexical import folded, search_stems
from llm_common.tables.columns import Column
from llm_common.tables.question_words import (
    FILLERS,
    OrderWord,
    QuestionWords,
    are_alike,
    stem_of,
    words_of,
)
from llm_common.tables.table import Table
from llm_common.tables.values import (
    Cell,
    cell_text,
    date_of,
    elements_of,
    flag_of,
    number_of,
)

_QUOTED: Final = 1.4  # a name that the question quotes as it stands
NAMED: Final = 0.5
"""The score from which a question names a column."""

_MAX_QUESTION_CHARS: Final = 4_000
_MAX_CELL_CHARS: Final = 4_000
_MAX_SEARCHED_WORDS: Final = 8
_MAX_NEAR: Final = 50
_CELL_END: Final = "\n"  # no word contains it
_MAX_COUNTED: Final = 1_000
_SMALL_NUMBER_CHARS: Final = 3
_YEARS: Final = range(1900, 2101)
_WORDS_BEFORE: Final = 8  # that may name the column of a number, and those behind it
_WORDS_AFTER: Final = 4
_MAX_DATES: Final = 4
# Words that a flag's name may have and a question may leave out: `is_active`, `on_sale`.
_FLAG_FILLERS: Final = frozenset({"is", "has", "with", "on", "are", "was", "i", "ha", "wa"})
_MONEY_STEMS: Final = frozenset(map(stem_of, ("price", "cost", "amount", "total", "fee")))


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that the question asks of the records.

    Attributes:
        columns: Indexes of the columns that it compares.
        text: The condition for a reader, such as `status = open`.
        rows: Indexes of the rows that meet it.
    """

    columns: tuple[int, ...]
    text: str
    rows: frozenset[int]


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
    """

    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]
    order: Order | None
    rows: tuple[int, ...]
    total: int
    near: tuple[int, ...] = ()


def read_question(question: str, table: Table, columns: Sequence[Column]) -> TableQuestion:
    """Return what a question asks of a table.

    Args:
        question: The question, of which the first 4,000 characters are read.
        table: The table.
        columns: The columns of the table.
    """
    return _Reading(QuestionWords(question[:_MAX_QUESTION_CHARS]), table, columns).result()


@dataclass(slots=True)
class _ValueMatch:
    """A phrase of the question that is a value of one or more columns."""

    text: str
    is_whole: bool  # whether it is the whole value in some row
    rows_by_column: dict[int, set[int]] = field(default_factory=dict)

    def rows_of(self, columns: Iterable[int]) -> set[int]:
        """Return the rows that have the value in one of the columns."""
        return set().union(*(self.rows_by_column[column] for column in columns))


class _Reading:
    """One reading of a question against one table."""

    def __init__(self, question: QuestionWords, table: Table, columns: Sequence[Column]) -> None:
        self._question = question
        self._words = question.words
        self._table = table
        self._columns = columns
        self._names = {part for column in self._columns for part in column.last_stems}
        self._used: set[int] = set()
        """Indexes of the words that stand for values, and name no column."""
        self._scores = self._named_scores()

    def result(self) -> TableQuestion:
        conditions = [*self._ranges(), *self._counts(), *self._values(), *self._dates()]
        compared = {column for condition in conditions for column in condition.columns}
        conditions += self._flags(compared)
        self._scores = self._named_scores()
        named = [index for index, score in enumerate(self._scores) if score >= NAMED]
        named.sort(key=lambda index: -self._scores[index])
        order = self._order()
        rows, total, near = self._rows(conditions, order)
        return TableQuestion(tuple(named), tuple(conditions), order, tuple(rows), total, near)

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
            if len(part) > 1 and any(are_alike(part, stem) for stem in stems):
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

    def _only_measure(self, *, is_money: bool) -> Column | None:
        """Return the one numeric column, without ids, that an amount without a name can mean."""
        measures = []
        for column in self._columns:
            is_price = column.is_money or bool(_MONEY_STEMS & set(column.last_stems))
            if column.is_numeric and not column.is_id and (is_price or not is_money):
                measures.append(column)
        return measures[0] if len(measures) == 1 else None

    def _before(self, index: int) -> list[int]:
        """Return the indexes of the words before a word, the nearest first."""
        return list(range(index - 1, max(index - 1 - _WORDS_BEFORE, -1), -1))

    def _behind(self, index: int) -> list[int]:
        return list(range(index, min(index + _WORDS_AFTER, len(self._words))))

    # --- conditions

    def _ranges(self) -> Iterator[Condition]:
        for span in self._question.ranges():
            first, last = self._question.index_at(span.start), self._question.index_at(span.end)
            around = self._before(first) + self._behind(first)
            column = self._best_column(around, _is_numeric)
            if column is None and span.low in _YEARS:
                column = self._best_column(around, _is_date)
            if column is None:
                column = self._only_measure(is_money=span.is_money)
            if column is None:
                continue
            numbers = [
                index for index in range(first, last) if self._words[index].text[0].isdigit()
            ]
            self._used.update(numbers)
            rows = set()
            for row, cell in enumerate(column.cells):
                number = number_of(cell) if column.is_numeric else _year_of(cell)
                if number is not None and span.contains(number):
                    rows.add(row)
            yield Condition((column.index,), f"{column.name} {span}", frozenset(rows))

    def _counts(self) -> Iterator[Condition]:
        """Yield conditions on the number of elements, such as "in 3 colours"."""
        for number, index in self._question.numbers.items():
            is_count = 0 < number <= _MAX_COUNTED and number == int(number)
            if index in self._used or not is_count:
                continue
            following = [word.stem for word in self._words[index + 1 : index + 3]]
            for column in self._columns:
                if not column.is_list or not _shares_word(column.last_stems, following):
                    continue
                rows = set()
                for row, cell in enumerate(column.cells):
                    if len(elements_of(cell)) == number:
                        rows.add(row)
                if rows:
                    self._used.add(index)
                    text = f"{column.name} has {number:g} elements"
                    yield Condition((column.index,), text, frozenset(rows))
                    break

    def _values(self) -> list[Condition]:
        """Return a condition for each value that the question names."""
        matches: dict[str, _ValueMatch] = {}
        for column in self._columns:
            self._match_values(column, matches)
        values = []
        # A longer value is meant with all of its words: `New York City`, and not also `New York`.
        for phrase in sorted(matches, key=lambda phrase: (-len(phrase), phrase)):
            first = self._question.phrases[phrase]
            indexes = set(range(first, first + len(words_of(phrase))))
            if indexes & self._used or not self._is_value(phrase, matches[phrase]):
                continue
            self._used |= indexes
            values.append((first, matches[phrase]))
        return self._value_conditions(values)

    def _match_values(self, column: Column, matches: dict[str, _ValueMatch]) -> None:
        """Add the phrases of the question that are values of a column."""
        if not (column.is_list or column.is_category) and self._names_no_cell(column):
            return
        with_words = self._scores[column.index] >= NAMED
        phrases_by_cell: dict[Cell, list[tuple[str, str]]] = {}
        for cell in column.counts:
            if cell is None or isinstance(cell, bool):
                continue
            phrases = list(self._phrases_in(column, cell, with_words=with_words))
            if phrases:
                phrases_by_cell[cell] = phrases
        if not phrases_by_cell:
            return
        rows_by_cell: dict[Cell, list[int]] = {cell: [] for cell in phrases_by_cell}
        for row, cell in enumerate(column.cells):
            if cell in rows_by_cell:
                rows_by_cell[cell].append(row)
        for cell, phrases in phrases_by_cell.items():
            for phrase, text in phrases:
                match = matches.setdefault(phrase, _ValueMatch(text, is_whole=False))
                match.is_whole |= text == cell
                match.rows_by_column.setdefault(column.index, set()).update(rows_by_cell[cell])

    def _names_no_cell(self, column: Column) -> bool:
        """Return whether the question has no whole value of a column. Fast for many values."""
        texts = [cell for cell in column.counts if isinstance(cell, str)]
        lower = set(map(str.lower, map(str.strip, texts)))
        numbers = self._question.numbers.keys()
        return lower.isdisjoint(self._question.phrases) and numbers.isdisjoint(column.counts)

    def _phrases_in(
        self, column: Column, cell: str | float, *, with_words: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield the phrases of the question that a cell holds, each with the text of the cell."""
        if not isinstance(cell, str):
            index = self._question.numbers.get(cell)
            if index is not None:
                yield self._words[index].text, cell_text(cell)
            return
        if len(cell) > _MAX_CELL_CHARS:
            return
        has_categories = column.is_category and not column.is_flag
        for text in column.parts_of(cell, with_words=with_words):
            lower = text.strip().lower()
            if lower in self._question.phrases:
                yield lower, text
            elif has_categories and lower.replace("'s", "").isalpha():
                index = self._question.stems.get(stem_of(lower))
                if index is not None:  # "for women" means the department `Women's`
                    yield self._words[index].text, text

    def _is_value(self, phrase: str, match: _ValueMatch) -> bool:
        """Return whether a phrase of the question means a value."""
        words = words_of(phrase)
        if len(phrase) == 1 and not phrase.isdigit():
            return False
        if all(word.text in FILLERS for word in words):
            return False
        if number_of(phrase) is not None and len(phrase) <= _SMALL_NUMBER_CHARS:
            return any(map(self._may_hold_small_number, match.rows_by_column))
        if all(word.stem in self._names for word in words):
            # The question speaks of the column, unless rows have exactly this value.
            rows = set().union(*match.rows_by_column.values())
            return match.is_whole and len(rows) < len(self._table.rows)
        return True

    def _may_hold_small_number(self, index: int) -> bool:
        """Return whether a number such as 17 means a value of a column: it is named, or the id."""
        column = self._columns[index]
        is_key = column.is_id and len(column.counts) == len(self._table.rows)
        return self._scores[index] >= NAMED or is_key

    def _value_conditions(self, values: Sequence[tuple[int, _ValueMatch]]) -> list[Condition]:
        """Return a condition for each column. Of the values of one column a record needs one."""
        wanted: dict[tuple[int, ...], list[_ValueMatch]] = {}
        conditions = []
        for first, match in values:
            # If columns share a value, those count that the question names, or else all of them.
            named = [column for column in match.rows_by_column if self._scores[column] >= NAMED]
            columns = tuple(sorted(named or match.rows_by_column))
            if self._question.is_negated(first):
                rows = set(range(len(self._table.rows))) - match.rows_of(columns)
                sign = "is not" if match.is_whole else "has not"
                text = f"{self._names_of(columns)} {sign} {match.text}"
                conditions.append(Condition(columns, text, frozenset(rows)))
            else:
                wanted.setdefault(columns, []).append(match)
        for columns, matches in wanted.items():
            sign = "=" if all(match.is_whole for match in matches) else "has"
            text = " or ".join(match.text for match in matches)
            rows = set().union(*(match.rows_of(columns) for match in matches))
            text = f"{self._names_of(columns)} {sign} {text}"
            conditions.append(Condition(columns, text, frozenset(rows)))
        return conditions

    def _names_of(self, columns: Sequence[int]) -> str:
        return " or ".join(self._columns[column].name for column in columns[:3])

    def _dates(self) -> Iterator[Condition]:
        """Yield conditions on days, months and years, such as "in March 2024"."""
        for beginning, index in [*self._question.dates()][:_MAX_DATES]:
            if index in self._used:
                continue
            column = self._best_column(self._before(index), _is_date)
            if column is None:
                column = next(filter(_is_date, self._columns), None)
            if column is None:
                return
            rows = set()
            for row, cell in enumerate(column.cells):
                if (date_of(cell) or "").startswith(beginning):
                    rows.add(row)
            if rows:
                self._used.add(index)
                yield Condition((column.index,), f"{column.name} in {beginning}", frozenset(rows))

    def _flags(self, compared: set[int]) -> Iterator[Condition]:
        """Yield conditions on flags that the question names, such as "on sale"."""
        for column in self._columns:
            if column.index in compared or not column.is_flag:
                continue
            indexes = self._indexes_of(column)
            if not indexes:
                continue
            is_wanted = not self._question.is_negated(indexes[-1])
            rows = set()
            for row, cell in enumerate(column.cells):
                # A flag that is missing is not set.
                if bool(flag_of(cell)) is is_wanted:
                    rows.add(row)
            self._used.update(indexes)
            text = f"{column.name} = {'yes' if is_wanted else 'no'}"
            yield Condition((column.index,), text, frozenset(rows))

    def _indexes_of(self, column: Column) -> list[int]:
        """Return the indexes of the words that name a column with all of its words, or []."""
        indexes = []
        for part in column.last_stems:
            if part in _FLAG_FILLERS:
                continue
            for index, word in enumerate(self._words):
                if index not in self._used and are_alike(part, word.stem):
                    indexes.append(index)
                    break
            else:
                return []
        return sorted(indexes)

    # --- rows

    def _order(self) -> Order | None:
        for word in self._question.orders():
            column = self._ordered_column(word)
            if column is not None:
                return Order(column.index, word.is_descending)
        return None

    def _ordered_column(self, word: OrderWord) -> Column | None:
        around = self._behind(word.index + 1) + self._before(word.index)
        column = self._best_column(around, lambda column: column.is_numeric or column.is_date)
        if column is None and word.is_of_prices:
            for column in self._columns:
                if column.is_numeric and _MONEY_STEMS & set(column.last_stems):
                    return column
            return None
        return column

    def _rows(
        self, conditions: list[Condition], order: Order | None
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
        used = {self._words[index].stem for index in self._used}
        stems = [
            stem for stem in search_stems(self._question.text) if stem not in self._names | used
        ]
        if not stems:
            return {}
        texts = [_ColumnText(column) for column in self._columns if not column.is_numeric]
        weights: dict[int, float] = {}
        most = len(self._table.rows) / 2
        for stem in stems[:_MAX_SEARCHED_WORDS]:
            rows = set().union(*(text.rows_with(stem, limit=most) for text in texts))
            # A word of most records tells them not apart.
            if len(rows) <= most:
                for row in rows:
                    weights[row] = weights.get(row, 0.0) + len(rows) ** -0.5
        return weights


class _ColumnText:
    """The different cells of a column as one text, which is searched faster than each of them."""

    def __init__(self, column: Column) -> None:
        self._column = column
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
        return {row for row, cell in enumerate(self._column.cells) if cell in cells}


def _is_numeric(column: Column) -> bool:
    return column.is_numeric


def _is_date(column: Column) -> bool:
    return column.is_date


def _shares_word(first: Iterable[str], second: Iterable[str]) -> bool:
    others = list(second)
    return any(are_alike(part, other) for part in first for other in others)


def _year_of(cell: Cell) -> float | None:
    moment = date_of(cell)
    return float(moment[:4]) if moment else None
