"""`conditions_of`: how the parts of a question belong together, and which words nobody read.

"Not", "or", "and", "neither" and "but" stand between the parts. Two parts about one column are
alternatives, or both are needed, as these words say. A count may be claimed only if every word that
could restrict the records was read, so that all other words have to be known as harmless.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, combinations
from typing import Final

from llm_common.ranking.lexical import folded
from llm_common.ranking.question_words import (
    NEGATIONS,
    NEUTRAL,
    is_alike,
    set_of,
    singular,
    stem_of,
)
from llm_common.tables.columns import Column
from llm_common.tables.question.column_words import ColumnWords
from llm_common.tables.question.terms import LIST_WORDS, Term, shown
from llm_common.tables.values import cell_text

_JOINTS: Final = {"and": "and", "or": "or", "nor": "and", "but": "but", "well": "and"}
_LIMITING: Final = set_of("longer only all both every just necessarily")
_GAP_WORDS: Final = set_of("and or nor but than either both even also if as well else")
_RESULTS: Final = set_of("table chart list log file data dataset document output")
_RECORDS: Final = set_of("entry entries record records line lines row rows")
_TURNING: Final = set_of(
    "far anything everything nothing nobody hardly barely rarely seldom unless instead rather"
    " unlike opposite minus save bar"
)
"""Words after which a value may be one that is not meant, or the only one."""

_PLURALS: Final = set_of("people staff persons folks")
_NEGATED: Final = {
    "=": "is not",
    "is": "is not",
    "has": "has not",
    "begins with": "does not begin with",
    "ends with": "does not end with",
    "contains": "does not contain",
}
_SEVERAL: Final = re.compile(r"\s*[/&+;,]\s*")
_PLACING: Final = set_of("in on at by with from for to")
_MEASURES: Final = set_of(
    "times days weeks months years hours minutes seconds dollars euros points percent others values"
    " mondays tuesdays wednesdays thursdays fridays saturdays sundays weekends mornings nights"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that the question asks of the records.

    Attributes:
        columns: Indexes of the columns that it compares.
        text: The condition for a reader, such as `status = open`.
        rows: Indexes of the rows that meet it.
        patterns: Patterns of SQL's LIKE that may select these rows.
        is_certain: Whether no record outside of these rows can be meant.
    """

    columns: tuple[int, ...]
    text: str
    rows: frozenset[int]
    patterns: tuple[str, ...] = ()
    is_certain: bool = True


@dataclass(slots=True)
class _Part:
    """One term, with the words that join it to the one before."""

    term: Term
    joint: str  # "and", "or", "but", "," or "" for none of them
    is_negated: bool
    continues: bool  # whether it goes on a list that began before: "Lima or Oslo"


def conditions_of(
    naming: ColumnWords, terms: Sequence[Term]
) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    """Return the conditions that the parts of a question make, and the words that are left.

    A record has to meet all of the conditions. The words may restrict the records too, and were
    not understood.

    Args:
        naming: The words of the question.
        terms: Its parts, in their order.
    """
    return _Logic(naming, terms).result()


class _Logic:
    """The parts of one question about one table, put together."""

    def __init__(self, naming: ColumnWords, terms: Sequence[Term]) -> None:
        self._question = naming.question
        self._words = naming.question.words
        self._terms = terms
        self._columns = columns = naming.columns
        self._nouns = naming.nouns
        self._row_count = len(columns[0].cells) if columns else 0
        self._used = {index for term in terms for index in term.words}
        self._read = self._used.union(self._question.counting)
        self._first_term = min((term.first for term in terms), default=len(self._words))
        self._doubts: set[int] = set()
        """Indexes of words whose meaning is open."""
        self._wide: set[int] = set()
        """Indexes of words that may mean fewer cells than those that hold them."""

    def result(self) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        conditions = self._conditions(self._groups())
        self._read |= self._counted_noun()
        unread = {index for index in range(len(self._words)) if not self._is_harmless(index)}
        unread |= self._doubts | self._wide
        is_none = len(conditions) > 1 and not frozenset.intersection(
            *(each.rows for each in conditions)
        )
        for term in self._terms:
            # The word "sockets" may stand for the records, and for no value of theirs.
            if (is_none and self._is_bare_plural(term)) or self._is_kind_of_record(term):
                unread.add(term.first)
        texts = [self._words[index].text for index in sorted(unread)]
        if self._question.is_cut:
            texts.append("…")
        return tuple(conditions), tuple(texts)

    # --- parts and groups

    def _groups(self) -> list[list[_Part]]:
        groups: list[list[_Part]] = []
        previous: _Part | None = None
        for term in self._terms:
            part = self._part(term, previous)
            is_same = previous is not None and previous.term.columns == term.columns
            if groups and is_same:
                groups[-1].append(part)
            else:
                groups.append([part])
            if not term.is_certain:
                (self._wide if term.sign == "has" else self._doubts).add(term.first)
            previous = part
        return groups

    def _part(self, term: Term, previous: _Part | None) -> _Part:
        """Return a term with what stands between it and the one before."""
        start = previous.term.last + 1 if previous is not None else 0
        gap = range(start, term.first)
        texts = [self._words[index].text for index in gap]
        negations = [index for index in range(start, term.last) if self._is_negation(index)]
        joint = next((_JOINTS[text] for text in reversed(texts) if text in _JOINTS), "")
        before = self._question.between(start - 1, term.first)
        if not joint and previous is not None and "," in before:
            joint = ","
        joints = [text for text in texts if text in _JOINTS and text != "well"]
        if len(joints) > 1 or not _TURNING.isdisjoint(texts):
            # Something between two joints was not read.
            self._doubts.add(term.first)
        continues = previous is not None and all(text in LIST_WORDS for text in texts)
        if self._is_half(term, gap) or self._may_go_on(term, previous, texts):
            self._doubts.add(term.first)
            joint = ""
        is_negated = bool(negations)
        if previous is not None:
            self._read.update(index for index in gap if self._words[index].text in _GAP_WORDS)
            is_same = previous.term.columns == term.columns
            if continues and previous.is_negated and not negations:
                is_negated = is_same
                if not is_same and joint != "but":
                    self._doubts.add(term.first)
        self._read_negations(negations, term)
        return _Part(term, joint, is_negated, continues)

    def _read_negations(self, negations: Sequence[int], term: Term) -> None:
        for index in negations:
            following = self._words[index + 1].text
            self._read.add(index)
            if following in ("than", "for"):
                self._read.add(index + 1)
            if len(negations) > 1 or following in _LIMITING or not self._negates(index, term):
                self._doubts.add(term.first)

    def _is_half(self, term: Term, gap: range) -> bool:
        """Return whether the alternative of a term was not read, such as "Go" in "Go or Rust"."""
        joints = [index for index in gap if self._words[index].text == "or"]
        others = [index - 1 for index in joints[-1:] if index - 1 not in self._used]
        if term.last + 2 < len(self._words) and self._words[term.last + 1].text == "or":
            others.append(term.last + 2)
        return any(not self._is_harmless(index) for index in others)

    def _may_go_on(self, term: Term, previous: _Part | None, gap: Sequence[str]) -> bool:
        """Return whether a sign may hold for the next number too: "over 3 beds and 2 baths"."""
        numbers = {number.words.start for number in self._question.numbers}
        is_bare = term.operand.startswith("= ") and term.first in numbers
        is_signed = previous is not None and previous.term.operand.startswith((">", "<"))
        return is_bare and is_signed and "and" in gap

    def _negates(self, index: int, term: Term) -> bool:
        """Return whether a negation is one of a term, and of no other word before it."""
        following = min(each for each in term.words if each > index)
        is_near = "," not in self._question.between(index, following)
        if self._words[index].text == "no":  # "how many no have" is about the value "no"
            is_near &= following == index + 1
        return is_near and all(map(self._is_harmless, range(index + 1, following)))

    def _is_negation(self, index: int) -> bool:
        text = self._words[index].text
        return index not in self._used and (text in NEGATIONS or text.endswith("n't"))

    # --- conditions

    def _conditions(self, groups: list[list[_Part]]) -> list[Condition]:
        conditions = [self._condition(group) for group in groups]
        alternatives = [
            index for index, group in enumerate(groups) if index and group[0].joint == "or"
        ]
        if alternatives and len(alternatives) == len(groups) - 1:
            columns = tuple(dict.fromkeys(chain.from_iterable(each.columns for each in conditions)))
            rows = reduce(frozenset.union, (each.rows for each in conditions))
            conditions = [Condition(columns, " or ".join(each.text for each in conditions), rows)]
            groups = [list(chain.from_iterable(groups))]
        else:
            for index in alternatives:
                self._doubts |= {each[0].term.first for each in groups[index - 1 : index + 1]}
        for other, group in combinations(groups, 2):
            are_values = other[0].term.sign == group[0].term.sign == "="
            if are_values and other[0].term.columns == group[0].term.columns:
                self._doubts.add(group[0].term.first)
        certain = []
        for group, condition in zip(groups, conditions, strict=True):
            has_doubts = any(part.term.first in self._doubts for part in group)
            certain.append(replace(condition, is_certain=not has_doubts))
        return certain

    def _condition(self, parts: Sequence[_Part]) -> Condition:
        """Return what the parts about one column ask together."""
        joints = {part.joint for part in parts[1:]}
        is_either = self._are_alternatives(parts, joints)
        sets = [self._rows_of(part) for part in parts]
        rows = reduce(frozenset.union if is_either else frozenset.intersection, sets)
        if not rows and len(parts) > 1 and not is_either:
            # "Men and women shoes" are for one of them. Who has both is not asked for certain.
            self._doubts.add(parts[1].term.first)
            is_either, rows = True, reduce(frozenset.union, sets)
        patterns = tuple(chain.from_iterable(part.term.patterns for part in parts))
        return Condition(
            parts[0].term.columns, self._text(parts, is_either=is_either), rows, patterns
        )

    def _are_alternatives(self, parts: Sequence[_Part], joints: set[str]) -> bool:
        """Return whether a record needs one of the parts, and note what stays open."""
        if len(parts) == 1:
            return False
        terms = [part.term for part in parts]
        if "" in joints or ("or" in joints and joints - {"or", ","}):
            self._doubts.add(terms[1].first)
        negated = [part.is_negated ^ part.term.is_negated for part in parts]
        is_list = any(self._columns[index].is_list for index in terms[0].columns)
        if all(negated):
            if is_list and joints == {","}:  # "not Bern, Switzerland" may be one place
                self._doubts.add(terms[1].first)
            return False
        if "or" in joints:
            return True
        is_point = all(
            term.sign == "=" or (term.sign == "" and term.operand.startswith(("in ", "from ")))
            for term in terms
        )
        if is_point and not is_list and not any(negated):
            # "Paid and open orders" are those that are one or the other.
            if not all(part.continues for part in parts[1:]):
                self._doubts.add(terms[1].first)
            return True
        return False

    def _rows_of(self, part: _Part) -> frozenset[int]:
        if part.is_negated ^ part.term.is_negated:
            return frozenset(range(self._row_count)) - part.term.rows
        return part.term.rows

    def _text(self, parts: Sequence[_Part], *, is_either: bool) -> str:
        joint = " or " if is_either else " and "
        name = " or ".join(shown(self._columns[index].name) for index in parts[0].term.columns[:3])
        heads = [self._head(part) for part in parts]
        operands = [part.term.operand for part in parts]
        if len(set(heads)) == 1:
            if heads[0].endswith("not"):
                joint = " or "
            heads, operands = heads[:1], [joint.join(operands)]
        texts = []
        for head, operand in zip(heads, operands, strict=True):
            texts.append(" ".join(filter(None, (name, head, operand))))
        return joint.join(texts)

    def _head(self, part: _Part) -> str:
        if not part.is_negated ^ part.term.is_negated:
            return part.term.sign
        return _NEGATED.get(part.term.sign, "not")

    # --- words

    def _counted_noun(self) -> set[int]:
        """Return the word for the records themselves, such as "customers" in "how many customers".

        It may be any noun, but none that names a column: "how many customers" asks for customers
        where each record is an order.
        """
        index = self._question.counting.stop
        phrase: list[int] = []
        while index < len(self._words):
            text = self._words[index].text
            is_known = self._is_harmless(index)
            if index not in self._used and self._words[index].stem in self._nouns:
                return {index}
            if is_known and phrase:
                break
            if not is_known:
                phrase.append(index)
            index += 1
        if len(phrase) != 1 or self._is_akin_to_value(phrase[0]):
            return set()
        if not all(column.is_unique for column in self._columns_named(phrase[0])):
            return set()
        if self._words[max(phrase[0] - 1, 0)].text in _PLACING:
            return set()  # "did it rain on Christmas" has a name, and none for the records
        text = self._words[phrase[0]].text
        is_plural = text in _PLURALS or (text.endswith("s") and not text.endswith("ss"))
        return {phrase[0]} if is_plural and text not in _MEASURES else set()

    def _is_bare_plural(self, term: Term) -> bool:
        """Return whether a value is a plural without a word that names its column."""
        text = self._words[term.first].text
        return term.sign in ("=", "has") and len(term.words) == 1 and singular(text) != text

    def _is_kind_of_record(self, term: Term) -> bool:
        """Return whether a value names the records with the word behind it, as in "log entries"."""
        behind = [word.text for word in self._words[term.last + 1 :][:1]]
        return self._words[term.last].text in _RESULTS and not _RECORDS.isdisjoint(behind)

    def _is_akin_to_value(self, index: int) -> bool:
        """Return whether a noun may be some records only, as senators are those of the senate."""
        stem = self._words[index].stem
        for column in self._columns:
            values = set(column.counts)
            if not column.is_category:  # those that have the word are enough
                values = {column.cells[row] for row in column.rows_with(stem)}
            akin = 0
            for value in values:
                text = folded(cell_text(value))
                # "Thrillers" are those of `Thriller/Suspense`, and no shoes are `Running Shoes`.
                texts = _SEVERAL.split(text) if column.is_category else [text]
                akin += column.counts[value] * is_alike(stem, map(stem_of, texts))
            if 0 < akin < self._row_count:
                return True
        return False

    def _columns_named(self, index: int) -> list[Column]:
        word = self._words[index]
        named = []
        for column in self._columns:
            is_name = word.text == column.own_name.lower()
            if is_name or is_alike(word.stem, (*column.last_stems, *column.outer_stems)):
                named.append(column)
        return named

    def _is_harmless(self, index: int) -> bool:
        """Return whether a word restricts no records that the conditions leave."""
        word = self._words[index]
        if index in self._read or word.text in NEUTRAL or word.stem in self._nouns:
            return True
        named = self._columns_named(index)
        if not named:
            return word.text in _RESULTS and index > 0 and self._words[index - 1].text == "this"
        compared = {column for term in self._terms for column in term.columns}
        if any(column.index in compared for column in named):
            return True
        # "Which customer has paid orders" asks for a column, "orders with a discount" does not.
        return not self._question.counting and index < self._first_term
