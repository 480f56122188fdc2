"""`terms_of`: what each part of a question asks of a column.

A part is a value, a comparison, a span of days, a flag, a number of elements, or a missing value.
Each takes its words, so that the year of a date is no number and no value. A part whose column the
question leaves open is uncertain.
"""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Final, TypeVar

from llm_common.ranking.lexical import folded
from llm_common.ranking.question_dates import DateWords, dates_in
from llm_common.ranking.question_words import (
    FILLERS,
    NEGATIONS,
    NEUTRAL,
    SIGN_WORDS,
    Comparison,
    are_alike,
    exact,
    is_alike,
    phrase_of,
    set_of,
    singular,
    stem_of,
)
from llm_common.tables.column_types import MARKERS
from llm_common.tables.columns import MAX_VALUE_CHARS, Column, like
from llm_common.tables.question.affixes import affixes_in
from llm_common.tables.question.column_words import (
    CONCEPTS,
    MONEY,
    ColumnWords,
    stems_of,
    telling_stems,
)
from llm_common.tables.values import (
    IN_LABEL,
    Cell,
    cell_text,
    shown_cell,
)

_Cell = TypeVar("_Cell")

_MAX_CELL_CHARS: Final = 4_000
_MAX_SHOWN_VALUES: Final = 3
_CODE_DIGITS: Final = 3  # so many digits may be a value of a column that the question leaves out

_OPPOSITE: Final = re.compile(r"(?:un|in|non-?|not-)(.+)")
_DATE_NOUNS: Final = set_of("date dates day days time month year")
LIST_WORDS: Final = set_of("and or nor the a an in from of on by to both either even as well")
"""Words between two parts of a question that begin no clause of their own."""

_SENTENCE_ENDS: Final = ".:,;!?"
_LEADING: Final = set_of("of is are was equal to number no the a exactly")
_MARKS: Final = "\"'([ )]"
_YEARS: Final = stems_of("year season")
_NO_VALUES: Final = FILLERS | NEGATIONS | NEUTRAL
_SEVERAL: Final = r"(?:[/&+;,]|\band\b|\s\s)"  # between the values of a cell
_NO_VALUE_AFTER: Final = set_of("than first last top")  # of a number
_RESULT_VERBS: Final = set_of("failed returned responded answered ended exited finished")
_UNITS: Final = stems_of(
    "second minute hour day week month year km kilometer kilometre mile meter metre cm mm foot"
    " feet inch kg gram pound ton liter litre percent kb mb gb tb ms sec min"
)


@dataclass(frozen=True, slots=True)
class Term:
    """What a part of the question asks of one column, or of several that share a value.

    Attributes:
        columns: Indexes of the columns.
        first: Index of its first word.
        last: Index of its last word.
        words: Indexes of all words that it explains.
        sign: How the cells compare, such as `=`, or "" if the operand says it.
        operand: With what they compare, for a reader.
        rows: Indexes of the rows that meet it.
        is_negated: Whether its own words negate it, as "inactive" does.
        is_certain: Whether the question leaves nothing open.
        patterns: Patterns of SQL's LIKE that the cells have.
    """

    columns: tuple[int, ...]
    first: int
    last: int
    words: frozenset[int]
    sign: str
    operand: str
    rows: frozenset[int]
    is_negated: bool = False
    is_certain: bool = True
    patterns: tuple[str, ...] = ()


def shown(text: str) -> str:
    """Return a value or a name as it stands in a condition."""
    return shown_cell(text, IN_LABEL, max_chars=MAX_VALUE_CHARS)


def terms_of(words: ColumnWords) -> list[Term]:
    """Return what the parts of a question ask, in their order.

    Args:
        words: The words of the question. Those that a part takes are used then.
    """
    reading = _Terms(words)
    reading.read()
    return sorted(reading.terms, key=lambda term: (term.first, term.last))


@dataclass(slots=True)
class _Found:
    """Cells of a column that hold a phrase of the question, as a whole or as a part."""

    whole: set[Cell] = field(default_factory=set)
    part: set[Cell] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)  # how the cells write it
    is_exact: bool = False  # whether one is written as in the question


class _Terms:
    """The parts of one question about one table."""

    def __init__(self, naming: ColumnWords) -> None:
        self.terms: list[Term] = []
        self._naming = naming
        self._question = naming.question
        self._words = naming.question.words
        self._columns = naming.columns
        self._compared = set(naming.in_names)
        """Indexes of words that are no values: of whole names, and of numbers with a sign."""
        self._found: dict[str, dict[int, _Found]] = {}
        """The phrases that are values, with the columns."""
        for column in self._columns:
            self._find_values(column)
        self._bound = self._compared | self._words_of_texts()
        """Indexes of words of whole names and of whole texts, whose numbers are no dates."""

    def read(self) -> None:
        dates = [date for date in dates_in(self._question) if self._bound.isdisjoint(date.words)]
        self._read_dates(date for date in dates if not date.is_number)
        self._read_affixes()
        self._read_comparisons()
        self._read_dates(
            date for date in dates if date.is_number and self._naming.used.isdisjoint(date.words)
        )
        self._read_presence()
        self._read_values()
        self._read_flags()
        self._read_events()

    def _words_of_texts(self) -> set[int]:
        """Return the indexes of the words of texts such as `TSV 1860`, which are whole cells."""
        words: set[int] = set()
        for phrase, entries in self._found.items():
            columns = [self._columns[index] for index, entry in entries.items() if entry.whole]
            if any(column.type.kind == "text" for column in columns):
                for indexes in self._question.phrases[phrase]:
                    words.update(indexes if len(indexes) > 1 else ())
        return words

    def _add(self, term: Term) -> None:
        self.terms.append(term)
        self._naming.used |= term.words

    # --- dates

    def _read_dates(self, dates: Iterable[DateWords]) -> None:
        for date in dates:
            term = self._date_term(date)
            if term is not None:
                self._add(term)

    def _date_term(self, date: DateWords) -> Term | None:
        first, last = date.words.start, date.words.stop - 1
        before, behind = self._naming.around(first, last)
        column, named, is_alone = self._column_of_date(date, before, behind)
        if column is None:
            return None
        if not date.has_year:
            years = {str(value)[:4] for value in column.values if value is not None}
            is_alone = is_alone and len(years) == 1
            date = date.of_year(min(years))
        rows = set()
        for row, value in enumerate(column.values):
            moment = _moment_of(value)
            if moment is None:
                continue
            if len(moment) < len(date.low):
                is_alone = False  # a month, where a day is asked for
            if date.contains(moment):
                rows.add(row)
        words = {*named, *date.words}
        words.update(
            index for index in (*before[:1], *behind[:1]) if self._words[index].text in _DATE_NOUNS
        )
        return Term(
            columns=(column.index,),
            first=first,
            last=last,
            words=frozenset(words),
            sign="",
            operand=str(date),
            rows=frozenset(rows),
            is_certain=is_alone,
        )

    def _column_of_date(
        self, date: DateWords, before: list[int], behind: list[int]
    ) -> tuple[Column | None, set[int], bool]:
        """Return the column of a date, the words that name it, and whether it is certain."""
        fits = _is_date_or_year if date.is_year else _is_date
        for near in (before, behind):
            column, named, is_alone = self._naming.best(near, fits)
            if column is not None:
                return column, named, is_alone
        fitting = [each for each in self._columns if _is_date(each)]
        if not fitting and date.is_year:
            fitting = [each for each in self._columns if _is_year(each)]
        if not fitting:
            return None, set(), False
        return fitting[0], set(), len(fitting) == 1 and not self._tells_event(before)

    def _tells_event(self, before: Sequence[int]) -> bool:
        """Return whether the word before a date says what happened then, as in "closed in May"."""
        if not before:
            return False
        word = self._words[before[0]].text
        return word not in NEUTRAL and (word.endswith(("ed", "ing")) or word in _PARTICIPLES)

    # --- letters

    def _read_affixes(self) -> None:
        """Read "names beginning with 'B'", about the text that is named nearest before it."""
        for affix in affixes_in(self._question):
            first, form = affix.words.start, like(affix.patterns)
            nouns = {each for each in range(first) if self._words[each].stem in self._naming.nouns}
            near = [each for each in self._naming.around(first, first)[0] if each not in nouns]
            column, named, is_certain = self._naming.best(near, _is_text)
            if column is None:
                # "Countries with names that begin with" has no column for the names.
                column, named, is_certain = self._naming.best(range(first), _is_text)
            if column is None:
                continue
            # "A manager whose name begins with" may ask for the column `manager`.
            others = set(range(first)) - named - nouns
            is_certain &= self._naming.best(list(others), _is_text)[0] in (None, column)
            texts = ["" if cell is None else cell_text(cell) for cell in column.cells]
            rows = _rows(texts, form.fullmatch)
            # `"Red"` begins with a letter for a reader, and so does `Élan`.
            is_certain &= rows == _rows(
                [folded(text).strip(_MARKS) for text in texts], form.fullmatch
            )
            self._add(
                Term(
                    columns=(column.index,),
                    first=first,
                    last=affix.words.stop - 1,
                    words=frozenset({*named, *affix.words}),
                    sign=affix.sign,
                    operand=" or ".join(map(shown, affix.letters)),
                    rows=rows,
                    is_certain=is_certain,
                    patterns=affix.patterns,
                )
            )

    # --- comparisons

    def _read_comparisons(self) -> None:
        for comparison in self._question.comparisons():
            numbers = set(comparison.words)
            taken = self._naming.used | (self._compared if comparison.is_written else self._bound)
            if numbers & taken:
                continue
            if comparison.is_written:
                self._compared |= numbers
            column, words, is_certain = self._column_of(comparison)
            if column is not None:
                self._add_comparison(column, comparison, words, is_certain=is_certain)

    def _column_of(self, comparison: Comparison) -> tuple[Column | None, set[int], bool]:
        """Return the column of a comparison, its words, and whether nothing is left open."""
        first, last = comparison.words.start, comparison.words.stop - 1
        before, behind = self._naming.around(first, last)
        if comparison.ending:
            behind += self._naming.around(first, comparison.ending.stop - 1)[1]
        signs, negations = list[int](), list[int]()
        for index in comparison.words:
            stem = self._words[index].stem
            if self._words[index].text in NEGATIONS:
                negations.append(index)
            elif stem in CONCEPTS or stem in self._naming.names:  # "over the age of 30"
                signs.append(index)
        near = [*signs, *before, *behind]
        if not comparison.is_written:
            near = self._beside_number(first, before, behind)
        column, named, is_alone = self._naming.best(near, _is_counted)
        if not is_alone and not comparison.is_written:
            return None, set(), False
        if column is not None and column.is_list and named.isdisjoint(behind):
            return None, set(), False  # "size 11" is no number of sizes
        if column is None and comparison.is_written:
            column, named, is_alone = self._column_behind(comparison, behind[:1])
        others = {self._words[index].text for index in comparison.signs if index not in signs}
        is_alone = is_alone and others <= SIGN_WORDS  # "a lower height than 5" has the height
        if column is not None:
            # "No over 19" asks for the column `no`, or for no more than 19.
            is_open = any(self._words[index].stem in column.last_stems for index in negations)
            is_alone = not is_open and is_alone and self._units_fit(column, comparison, behind)
            # "How many years had over 15 million people" compares no year.
            known = _UNITS.union(column.last_stems, NEUTRAL)
            is_other = bool(behind) and self._words[behind[0]].stem not in known
            is_alone &= not (is_other and named == {self._question.counting.stop})
        units = {index for index in behind[:2] if self._words[index].stem in {*_UNITS, "old"}}
        return column, named | units, is_alone

    def _beside_number(self, first: int, before: Sequence[int], behind: Sequence[int]) -> list[int]:
        """Return the words that may name the column of a number without a sign.

        They are those of "4 stars" and "a rating of 4", and none that merely stands near.
        """
        if first and self._words[first - 1].text in _NO_VALUE_AFTER:
            return []  # "the first 10 lines" have no line 10
        orders = {word.index for word in self._question.orders()}
        near = [*[each for each in before[:4] if self._leads_to(each, first)], *behind[:2]]
        return [index for index in near if index not in orders]

    def _column_behind(
        self, comparison: Comparison, next_words: Sequence[int]
    ) -> tuple[Column | None, set[int], bool]:
        """Return the column of `exceed 1998 in the year`, or else the only one it can mean."""
        _, behind = self._naming.around(comparison.words.start, comparison.words.stop)
        column, named, is_alone = self._naming.best(behind, _is_counted)
        nouns = [self._words[index] for index in next_words]  # of "more than one member"
        if column is None and all(noun.text in NEUTRAL or noun.stem in _UNITS for noun in nouns):
            return self._only_measure(is_money=comparison.is_money), named, True
        return column, named, is_alone

    def _leads_to(self, index: int, number: int) -> bool:
        """Return whether only such words as "of" and "is" stand between a word and a number."""
        between = (self._words[each].text for each in range(index + 1, number))
        return all(text in _LEADING or stem_of(text) in self._naming.names for text in between)

    def _units_fit(self, column: Column, comparison: Comparison, behind: Sequence[int]) -> bool:
        """Return whether the unit behind a number is the one of a column."""
        stems = [self._words[index].stem for index in behind[:2]]
        units = [stem for stem in stems if stem in _UNITS]
        if comparison.unit and comparison.unit != "%":
            units.append(stem_of(comparison.unit))
        if units == ["year"] and "age" in column.last_stems:
            return True
        return all(is_alike(unit, column.last_stems) for unit in units)

    def _only_measure(self, *, is_money: bool) -> Column | None:
        """Return the one numeric column, without ids, that an amount without a name can mean."""
        measures = []
        for column in self._columns:
            is_price = column.is_money or bool(MONEY & set(column.last_stems))
            is_amount = column.is_numeric and not column.is_id and not _is_year(column)
            if is_amount and (is_price or not is_money):
                measures.append(column)
        return measures[0] if len(measures) == 1 else None

    def _add_comparison(
        self, column: Column, comparison: Comparison, named: set[int], *, is_certain: bool
    ) -> None:
        sign, operand, numbers = "", str(comparison), column.values
        if column.is_list and not column.is_numeric:
            sign, operand = "has", f"{comparison} elements"
            numbers = [len(column.elements(value)) for value in column.values]
        self._add(
            Term(
                columns=(column.index,),
                first=comparison.words.start,
                last=max(comparison.words.stop, comparison.ending.stop) - 1,
                words=frozenset({*named, *comparison.words, *comparison.ending}),
                sign=sign,
                operand=operand,
                rows=_rows(
                    numbers,
                    lambda number: isinstance(number, (int, float)) and comparison.contains(number),
                ),
                is_certain=is_certain and not column.type.is_scaled,
            )
        )

    # --- values

    def _read_values(self) -> None:
        found = self._found
        # A longer value is meant with all of its words: `New York City`, and not also `New York`.
        taken: list[tuple[range, str]] = []
        for phrase in sorted(found, key=lambda phrase: (-len(phrase), phrase)):
            for indexes in self._question.phrases[phrase]:
                is_free = self._naming.used.isdisjoint(indexes) and self._compared.isdisjoint(
                    indexes
                )
                if is_free and self._may_be_value(indexes, found[phrase]):
                    taken.append((indexes, phrase))
                    if not self._are_names(indexes):
                        self._naming.used.update(indexes)
        # Words that are names too come last, as they may have named the column of another value.
        for indexes, phrase in sorted(taken, key=lambda entry: entry[0].start):
            if not self._are_names(indexes):
                self._add_value(phrase, indexes, found[phrase])
        for indexes, phrase in taken:
            if self._are_names(indexes) and self._naming.used.isdisjoint(indexes):
                self._add_value(phrase, indexes, found[phrase])

    def _add_value(self, phrase: str, indexes: range, found: dict[int, _Found]) -> None:
        self._naming.used.difference_update(indexes)
        term = self._value_term(phrase, indexes, found)
        if term is not None:
            self._add(term)

    def _are_names(self, indexes: range) -> bool:
        """Return whether words name columns, all of them."""
        return all(self._words[index].stem in self._naming.names for index in indexes)

    def _find_values(self, column: Column) -> None:
        """Add the phrases of the question that are values of a column."""
        if column.is_flag:
            return
        with_words = bool(self._naming.named_by(column, range(len(self._words)))[1])
        is_told_apart = column.is_list or column.is_category
        if not is_told_apart and self._names_no_cell(column):
            return
        for cell in column.counts:
            if isinstance(cell, bool):
                continue
            value = _value_of(column, cell)
            if isinstance(value, str):
                self._find_in_text(column, value, with_words=with_words)
                continue
            for number in self._question.numbers:
                if number.value == value and len(number.words) == 1 and not number.unit:
                    phrase = self._words[number.words.start].text
                    entry = self._found_in(phrase, column)
                    entry.whole.add(cell)
                    entry.texts.add(_written(value))
                    entry.is_exact = True

    def _find_in_text(self, column: Column, cell: str, *, with_words: bool) -> None:
        if len(cell) > _MAX_CELL_CHARS and not column.is_list:
            return
        elements = {cell, *column.elements(cell)}
        if column.is_list:
            elements.update(part.strip() for part in cell.replace(",", "/").split("/"))
        for text in column.parts_of(cell, with_words=with_words):
            phrase = self._phrase_of(column, text)
            if phrase is None:
                continue
            entry = self._found_in(phrase, column)
            (entry.whole if text in elements else entry.part).add(cell)
            entry.texts.add(text)
            for indexes in self._question.phrases[phrase]:
                start = self._words[indexes.start].start
                entry.is_exact |= self._question.text.startswith(text, start)

    def _found_in(self, phrase: str, column: Column) -> _Found:
        return self._found.setdefault(phrase, {}).setdefault(column.index, _Found())

    def _phrase_of(self, column: Column, text: str) -> str | None:
        """Return the phrase of the question that is a text, or its plural, or None."""
        phrase = _phrase(text)
        if phrase in self._question.phrases:
            return phrase
        if column.last_stems == ("level",) and phrase[:1] in self._question.phrases:
            return phrase[0]  # of `E` for `ERROR`, as logs write it
        if column.is_category and phrase.replace("'s", "").isalpha():
            one = singular(phrase)
            for word in self._words:
                if singular(word.text) == one:
                    return phrase_of(self._question.text[word.start : word.end])
        return None

    def _names_no_cell(self, column: Column) -> bool:
        """Return whether the question has no whole value of a column. Fast for many values."""
        texts = [cell for cell in column.counts if isinstance(cell, str)]
        phrases = set(map(_phrase, texts))
        numbers = {number.value for number in self._question.numbers}
        values = {_value_of(column, cell) for cell in column.counts}
        return phrases.isdisjoint(self._question.phrases) and numbers.isdisjoint(values)

    def _may_be_value(self, indexes: range, found: dict[int, _Found]) -> bool:
        words = [self._words[index] for index in indexes]
        if len(words) == 1 and len(words[0].text) == 1 and not words[0].text.isdigit():
            return self._may_be_letter(indexes.start, found)
        following = self._words[indexes.stop].text if indexes.stop < len(self._words) else ""
        if words[-1].text == "other" and following == "than":
            return False
        before = self._words[indexes.start - 1].text if indexes.start else ""
        if before in _NO_VALUE_AFTER and words[0].text.lstrip("-.")[:1].isdigit():
            return False
        if not all(word.text in _NO_VALUES for word in words):
            return True
        is_name = self._question.text[words[0].start].isupper() and indexes.start > 0
        if is_name and any(entry.is_exact for entry in found.values()):
            return True  # the language Go, and no verb
        # "On hold" is a value, "of" and "other" are not.
        return len(words) > 1 and any(entry.whole for entry in found.values())

    def _may_be_letter(self, index: int, found: dict[int, _Found]) -> bool:
        """Return whether a capital letter is a value, as in "grade A" and "E lines"."""
        before, behind = self._naming.around(index, index)
        is_counted = bool(behind) and self._words[behind[0]].stem in self._naming.nouns
        is_named = any(self._naming.named_by(self._columns[each], before[:1])[1] for each in found)
        is_capital = index > 0 and self._question.text[self._words[index].start].isupper()
        return is_capital and (is_counted or is_named)

    def _value_term(self, phrase: str, indexes: range, found: dict[int, _Found]) -> Term | None:
        named = self._columns_named_near(indexes, found)
        listed = self._column_of_list(indexes)
        if listed in found and found[listed].whole:
            found, named = {listed: found[listed]}, {listed: named.get(listed, set())}
        found = self._possible(phrase, indexes, found, named)
        if not found:
            return None
        # The columns that the phrase means: as a whole, as it is written, and as named.
        whole = {index: entry for index, entry in found.items() if entry.whole} or found
        best = {index: entry for index, entry in whole.items() if entry.is_exact} or whole
        chosen = {index: entry for index, entry in best.items() if index in named} or best
        rows: set[int] = set()
        texts: set[str] = set()
        is_whole, is_certain = True, len(chosen) == 1
        for index, entry in chosen.items():
            column = self._columns[index]
            cells = entry.whole or entry.part
            texts |= {_written(_value_of(column, cell)) for cell in entry.whole} or entry.texts
            if column.is_list:
                # "Black" is an element, and perhaps a word of the element "Core Black".
                is_certain &= not entry.whole or entry.part <= entry.whole
                cells, texts = entry.whole | entry.part, entry.texts
                is_whole = False
            elif entry.whole:
                among_others = _cells_of_several(column, entry.whole)
                if among_others:
                    is_certain = is_whole = False
                    cells = entry.whole | entry.part | among_others
            else:
                is_whole = False
                is_certain &= len(entry.part) == 1 or bool(named.get(index))
            rows |= _rows(column.cells, cells.__contains__)
        words = set(indexes).union(*(named.get(index, ()) for index in chosen))
        is_certain &= len(texts) <= _MAX_SHOWN_VALUES
        operand = " or ".join(map(shown, sorted(texts)[:_MAX_SHOWN_VALUES]))
        for index in range(max(indexes.start - 2, 0), indexes.start):
            if phrase.isdigit() and self._words[index].text in _RESULT_VERBS:
                words.add(index)  # "failed with 404"
        return Term(
            columns=tuple(sorted(chosen)),
            first=indexes.start,
            last=indexes.stop - 1,
            words=frozenset(words),
            sign="=" if is_whole else "has",
            operand=operand,
            rows=frozenset(rows),
            is_certain=is_certain,
            patterns=tuple(f"%{text}%" for text in sorted(texts)[:_MAX_SHOWN_VALUES]),
        )

    def _columns_named_near(self, indexes: range, found: dict[int, _Found]) -> dict[int, set[int]]:
        """Return which of the columns of a value the words near it name, with these words."""
        before, behind = self._naming.around(indexes.start, indexes.stop - 1)
        near = [*before[:3], *behind[:2]]
        sign = indexes.start - 1
        while sign > 0 and self._words[sign].text in ("neither", "either", "both", "the"):
            sign -= 1
        if sign >= 0 and self._words[sign].text in ("from", "to"):
            near.append(sign)
        return {
            index: words
            for index in found
            if (words := self._naming.named_by(self._columns[index], near)[1])
        }

    def _column_of_list(self, indexes: range) -> int | None:
        """Return the column of the value that a list begins with, as in "seed 2 or 13"."""
        for term in self.terms:
            is_value = len(term.columns) == 1 and (term.sign or term.operand).startswith("=")
            gap = [word.text for word in self._words[term.last + 1 : indexes.start]]
            if is_value and gap in (["or"], ["nor"]):
                return term.columns[0]
        return None

    def _possible(
        self, phrase: str, indexes: range, found: dict[int, _Found], named: dict[int, set[int]]
    ) -> dict[int, _Found]:
        """Return the columns whose value a phrase may be."""
        is_number = any(number.words == indexes for number in self._question.numbers)
        if is_number and "." not in phrase:
            is_code = sum(map(str.isdigit, phrase)) >= _CODE_DIGITS
            possible = {}
            for index, entry in found.items():
                column = self._columns[index]
                is_key = column.is_id and column.is_unique
                if index in named or is_key or (is_code and column.is_category):
                    possible[index] = entry
            return possible
        if self._are_names(indexes):
            # The question speaks of the column, unless rows have exactly this value.
            return {index: entry for index, entry in found.items() if entry.whole}
        return found

    # --- flags

    def _read_flags(self) -> None:
        compared = {column for term in self.terms for column in term.columns}
        for column in self._columns:
            if column.index in compared or not column.is_flag:
                continue
            indexes, is_negated = self._flag_words(column)
            if not indexes:
                continue
            operand, is_yes = "yes", True
            words = set(indexes)
            for index in range(indexes[-1] + 1, min(indexes[-1] + 4, len(self._words))):
                text = self._words[index].text
                if text in ("true", "yes", "false", "no"):
                    words.update(range(indexes[-1] + 1, index + 1))
                    # Of the records without a value, "no" means none.
                    is_yes = text in ("true", "yes")
                    operand = "yes" if is_yes else "no"
                    break
                if text not in ("is", "=", "set", "to", "flag"):
                    break
            self._add(
                Term(
                    columns=(column.index,),
                    first=indexes[0],
                    last=max(words),
                    words=frozenset(words),
                    sign="=",
                    operand=operand,
                    rows=_rows(column.values, partial(operator.is_, is_yes)),
                    is_negated=is_negated,
                )
            )

    def _flag_words(self, column: Column) -> tuple[list[int], bool]:
        """Return the words that name a flag with all of its words, and whether they negate it."""
        indexes, is_negated = [], False
        for part in telling_stems(column):
            for index, word in enumerate(self._words):
                if index in self._naming.used:
                    continue
                opposite = _OPPOSITE.match(word.text)
                is_opposite = opposite is not None and stem_of(opposite[1]) == part
                if is_opposite or are_alike(part, word.stem):
                    indexes.append(index)
                    is_negated |= is_opposite
                    break
            else:
                return [], False
        return sorted(indexes), is_negated

    # --- missing values

    def _read_presence(self) -> None:
        """Read "no manager", "without an email" and "have a manager"."""
        indexes = filter(self._follows_presence, range(1, len(self._words)))
        for index, column in product(indexes, self._columns):
            is_free = index not in self._naming.used and not column.is_flag
            if is_free and self._is_whole_name(column, index):
                self._add_presence(column, index)

    def _follows_presence(self, index: int) -> bool:
        """Return whether the words before a name say that there is a value or none."""
        start = index - 1
        while start > 0 and self._words[start].text in ("a", "an", "any", "some", "been", "yet"):
            start -= 1
        sign = self._words[start].text
        if sign in _LACKING:
            return True
        is_article = start < index - 1
        return is_article and sign in _HAVING and self._ends_clause(index)

    def _read_events(self) -> None:
        """Read "were returned" where some dates of a return are missing."""
        for index, column in product(range(len(self._words)), self._columns):
            is_event = index not in self._naming.used and self._tells_event([index])
            is_event &= self._words[index - 1].text != "be"  # "will be created" tells of none
            has_gaps = column.is_date and None in column.values
            is_name = is_event and has_gaps and self._is_whole_name(column, index)
            if is_name and self._ends_clause(index):
                self._add_presence(column, index)

    def _is_whole_name(self, column: Column, index: int) -> bool:
        parts = telling_stems(column)
        if column.is_date:
            parts = [part for part in parts if part not in _DATE_ENDINGS]
        if parts in (["name"], ["id"]) and column.outer_stems:
            parts = [column.outer_stems[-1]]
        return len(parts) == 1 and are_alike(parts[0], self._words[index].stem)

    def _ends_clause(self, index: int) -> bool:
        following = self._words[index + 1].text if index + 1 < len(self._words) else "and"
        if following in _DATE_NOUNS:
            return self._ends_clause(index + 1)
        return following in ("and", "or", "but") or "," in self._question.between(index, index + 1)

    def _add_presence(self, column: Column, index: int) -> None:
        words = {index}
        if index + 1 < len(self._words) and self._words[index + 1].text in _DATE_NOUNS:
            words.add(index + 1)
        # A zero may stand for no value, and so may the `?` of a text.
        is_open = column.is_numeric and 0 in column.values
        is_open |= column.type.kind == "text" and not MARKERS.isdisjoint(column.counts)
        self._add(
            Term(
                columns=(column.index,),
                first=index,
                last=max(words),
                words=frozenset(words),
                sign="is",
                operand="present",
                rows=_rows(column.cells, lambda cell: not column.is_missing(cell)),
                is_certain=not is_open,
            )
        )


_PARTICIPLES: Final = set_of("sold sent paid won lost built bought gone left done held")


_LACKING: Final = set_of("no without lack lacks lacking missing")  # negations, all of them
_HAVING: Final = set_of("have has having with had")
_DATE_ENDINGS: Final = stems_of("at on date time day")


def _phrase(text: str) -> str:
    """Return a text as a question has it, without quotes and without the mark at its end."""
    return phrase_of(text.strip().rstrip(_SENTENCE_ENDS).strip('"\u201c\u201d'))


def _value_of(column: Column, cell: Cell) -> Cell:
    """Return the number of a cell, as `0.00` and `0` are one, or the cell if it is none.

    So is a cell in a column of several units.
    """
    if not column.is_numeric or column.type.is_scaled:
        return cell
    return column.type.values.get(cell, cell)


def _written(value: Cell) -> str:
    return exact(value) if isinstance(value, float) else cell_text(value)


def _cells_of_several(column: Column, values: set[Cell]) -> set[Cell]:
    """Return the other cells that have one of some values among several, as `France/ Italy`."""
    phrases = "|".join(re.escape(phrase_of(cell_text(value))) for value in values)
    among = re.compile(rf"(?:^|{_SEVERAL})\s*(?:{phrases})\s*(?:$|{_SEVERAL})")
    others = (cell for cell in column.counts if isinstance(cell, str) and cell not in values)
    return {cell for cell in others if among.search(phrase_of(cell))}


def _is_counted(column: Column) -> bool:
    return column.is_numeric or column.is_list


def _rows(cells: Iterable[_Cell], meets: Callable[[_Cell], object]) -> frozenset[int]:
    """Return the indexes of the cells that meet something."""
    return frozenset(row for row, cell in enumerate(cells) if meets(cell))


def _is_text(column: Column) -> bool:
    return column.type.kind == "text" and not column.is_list


def _is_date(column: Column) -> bool:
    return column.is_date


def _is_year(column: Column) -> bool:
    return column.is_numeric and not _YEARS.isdisjoint(column.last_stems)


def _is_date_or_year(column: Column) -> bool:
    return column.is_date or _is_year(column)


def _moment_of(value: Cell) -> str | None:
    """Return a day, or a year that is a number, as text, with a blank before the time."""
    if isinstance(value, (int, float)):
        return f"{value:.0f}"
    return value and value.replace("T", " ")
