"""`ColumnWords`: which words of a question name which columns of a table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Final

from llm_common.ranking.question_words import QuestionWords, are_alike, set_of, stem_of
from llm_common.tables.columns import Column

_WORDS_BEFORE: Final = 8  # that may name the column of a part, and those behind it
_WORDS_AFTER: Final = 4
_BOUNDARIES: Final = set_of("and or but with whose where from in at on for to by then plus")
_SIGN_WORDS: Final = set_of("over under above below more less most least than")


def stems_of(words: str) -> frozenset[str]:
    """Return the stems of the words of a text."""
    return frozenset(map(stem_of, words.split()))


MONEY: Final = stems_of("price cost amount total fee fare charge")
"""Stems of the names of prices."""

_FILLERS: Final = frozenset({"is", "has", "with", "on", "are", "was", "i", "ha", "wa"})
"""Words that a flag's name may have and a question may leave out: `is_active`, `on_sale`."""

_WHOLE_NAME: Final = 2.3  # more than parts of a name score
_AGE: Final = frozenset({"age"})
_TIME: Final = stems_of("duration length runtime")
_WAIT: Final = _TIME | stems_of("latency elapsed time")
REVERSED: Final = {
    word: stems
    for words, stems in (
        ("oldest youngest", _AGE),
        ("slowest fastest", _WAIT),
        ("best worst", stems_of("rank ranking position place")),
        ("top highest lowest", stems_of("rank ranking")),
    )
    for word in words.split()
}
"""Words of an order, with the stems of columns that they order the other way around.

The slowest has the lowest speed, but the longest duration.
"""

CONCEPTS: Final = {
    stem_of(word): stems
    for words, stems in (
        ("older younger aged old oldest youngest", _AGE),
        (
            "expensive cheaper cost costs costing priced costlier pricier worth cheapest costliest",
            MONEY,
        ),
        ("heavier lighter weigh weighs weighing heaviest lightest", stems_of("weight mass")),
        ("taller tallest", stems_of("height")),
        ("longer shorter lasting lasted lasts take takes took", _TIME),
        ("larger bigger smaller", stems_of("size area")),
        ("slower faster slowest fastest", _WAIT | stems_of("speed")),
        ("hotter warmer colder cooler hottest warmest coldest", stems_of("temperature temp")),
        # What log files call by many names is `source` in their tables.
        ("service component logger module process daemon", frozenset({stem_of("source")})),
        ("from", stems_of("origin source departure sender")),
        ("to", stems_of("destination target arrival recipient")),
        ("earn earns earning make makes making", stems_of("salary income")),
    )
    for word in words.split()
}
"""Stems of adjectives and verbs, with those of the columns that they compare."""


def telling_stems(column: Column) -> list[str]:
    """Return the stems of a column's own name, without those that a question may leave out."""
    return [part for part in column.last_stems if part not in _FILLERS]


class ColumnWords:
    """The words of a question that may name columns.

    Attributes:
        question: The question.
        columns: The columns of the table.
        nouns: Stems of words for the records.
        used: Indexes of the words that parts of the question took, which name no other column.
        names: The stems of the columns' own names.
        whole_names: Where the question has the whole name of a column of several words, such as
            `sales (2016)`, by the index of the column.
        in_names: Indexes of the words of whole names.
    """

    def __init__(
        self, question: QuestionWords, columns: Sequence[Column], nouns: frozenset[str]
    ) -> None:
        self.question = question
        self.columns = columns
        self.nouns = nouns
        self._words = question.words
        self.used: set[int] = set()
        self.names = {part for column in columns for part in column.last_stems}
        self.whole_names = dict(self._whole_names())
        self.in_names = set(chain.from_iterable(self.whole_names.values()))
        # The stem behind "how many", if no name goes on behind it: "orders", "order ids". It is
        # what the records are, and no choice among columns such as `order_id`.
        stems = [word.stem for word in self._words[question.counting.stop :][:2]]
        is_noun = bool(question.counting) and self.names.isdisjoint(stems[1:])
        self._counted = stems[:1] if is_noun else []

    def around(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the words that may name the column of a part: those before it, and behind.

        Those before it begin with the nearest.
        """
        before: list[int] = []
        for index in range(first - 1, max(first - 1 - _WORDS_BEFORE, -1), -1):
            if index in self.used or self._words[index].text in _BOUNDARIES:
                break
            before.append(index)
        behind: list[int] = []
        for index in range(last + 1, min(last + 1 + _WORDS_AFTER, len(self._words))):
            is_end = "," in self.question.between(index - 1, index)
            if is_end or index in self.used or self._words[index].text in _BOUNDARIES:
                break
            behind.append(index)
        return before, behind

    def _whole_names(self) -> Iterator[tuple[int, range]]:
        stems = [word.stem for word in self._words]
        for column in self.columns:
            short = telling_stems(column)
            if len(short) < 2:  # noqa: PLR2004
                continue
            for parts, start in product((list(column.last_stems), short), range(len(stems))):
                if stems[start : start + len(parts)] == parts:
                    yield column.index, range(start, start + len(parts))
                    break

    def named_by(self, column: Column, indexes: Iterable[int]) -> tuple[float, set[int]]:
        """Return how well words name a column, and which of them do."""
        indexes = list(indexes)
        path = column.path.lower()
        whole = [each for each in indexes if self._words[each].text == path and len(path) > 1]
        if whole:  # beside `EngineSize` "small ones" name no size
            return _WHOLE_NAME + path.count("."), set(whole[:1])
        score, named = 0.0, set()
        parts: set[str] = set()
        for index in indexes:
            stem = self._words[index].stem
            if self._words[index].text == column.own_name.lower() and len(column.own_name) > 1:
                parts.update(column.last_stems)
                named.add(index)
                score += 2.0
                continue
            is_sign = self._words[index].text in _SIGN_WORDS
            for part in (*column.last_stems, *column.outer_stems):
                if is_sign and part != stem:  # "over" names no overtime
                    continue
                is_noun = part in self.nouns or part in self._counted
                if is_noun and len(column.last_stems) > 1 and not column.is_date:
                    continue
                if len(part) > 1 and are_alike(part, stem) and part not in parts:
                    parts.add(part)
                    named.add(index)
                    score += 1.0 if part in column.last_stems else 0.4
            concept = CONCEPTS.get(stem, frozenset())
            if not concept.isdisjoint(column.last_stems):
                named.add(index)
                score += 0.8 + 0.3 * concept.issuperset(column.last_stems)
        if parts and parts.issuperset(column.last_stems):
            score += 0.3
        return score, named

    def best(
        self, indexes: Sequence[int], fits: Callable[[Column], bool]
    ) -> tuple[Column | None, set[int], bool]:
        """Return the fitting column that words name best, these words, and whether it is alone."""
        best, chosen, words, is_alone = 0.0, None, set[int](), True
        for column in self.columns:
            if not fits(column):
                continue
            score, named = self.named_by(column, indexes)
            if score > best:
                best, chosen, words, is_alone = score, column, named, True
            elif score == best and score > 0:
                is_alone = False
        return chosen, words, is_alone

    def named(self) -> list[int]:
        """Return the indexes of the columns that free words name, best first."""
        free = [index for index in range(len(self._words)) if index not in self.used]
        scores = {}
        for column in self.columns:
            score, _ = self.named_by(column, free)
            if score >= 1:
                scores[column.index] = score
        return sorted(scores, key=lambda index: -scores[index])
