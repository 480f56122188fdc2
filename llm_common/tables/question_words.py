"""The words of a question: phrases, numbers, ranges, dates, negations and orders."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from llm_common.ranking.lexical import folded, stem
from llm_common.tables.values import MONTHS, date_of, number_of

_MAX_WORDS: Final = 300
_MAX_PHRASE_WORDS: Final = 8
_MIN_STEM_CHARS: Final = 4
_MAX_ENDING_CHARS: Final = 3
_NEGATED_WORDS: Final = 4  # a negation reaches this far: "do not belong to women"

_WORD: Final = re.compile(r"[^\s,;!?()\[\]{}\"“”]+")
_TRIMMED: Final = ".:'`*\N{RIGHT SINGLE QUOTATION MARK}"
_POSSESSIVE: Final = re.compile(r"(?:['\N{RIGHT SINGLE QUOTATION MARK}]|/)s$")


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CLAUSE_END: Final = re.compile(r"[,;.!?]\s")
_NEGATIONS: Final = _set_of(
    "not no non without except excluding exclude isn't aren't don't doesn't didn't never other"
)
_DESCENDING: Final = _set_of(
    "highest most maximum max largest biggest greatest best top latest newest longest last"
    " youngest recent heaviest expensive costliest"
)
_ASCENDING: Final = _set_of(
    "lowest least minimum min smallest cheapest earliest first shortest oldest worst fewest slowest"
)
_OF_PRICES: Final = _set_of("expensive costliest cheapest")
FILLERS: Final = _set_of(
    "a an the of in on at is are was were be and or not to for from by with all any each how many"
    " much what which who when where why whose whom give get list show find tell me us please"
    " number count total have has had do does did that this these those it its their than between"
    " above below over under more less most least only include including also among inclusive"
    " id ids name names there they them as so if"
)
"""Words that are no value alone."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the question.

    Attributes:
        text: The word in lower case, without accents and without punctuation at its ends.
        stem: Its `stem_of`.
        start: Where it begins in the question.
        end: Where it ends.
    """

    text: str
    stem: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Range:
    """A range of numbers that the question names, such as `at least 5`."""

    sign: str
    low: float
    high: float
    start: int
    end: int
    is_money: bool

    def contains(self, number: float) -> bool:
        """Return whether a number lies in the range."""
        if self.sign == "between":
            return self.low <= number <= self.high
        if self.sign == ">=":
            return number >= self.low
        if self.sign == "<=":
            return number <= self.low
        return number > self.low if self.sign == ">" else number < self.low

    def __str__(self) -> str:
        if self.sign == "between":
            return f"between {self.low:g} and {self.high:g}"
        return f"{self.sign} {self.low:g}"


@dataclass(frozen=True, slots=True)
class OrderWord:
    """A word that asks for an order, such as "cheapest"."""

    index: int
    is_descending: bool
    is_of_prices: bool


@lru_cache(maxsize=65_536)
def stem_of(word: str) -> str:
    """Return the stem of a folded word, the same for `colour` and `color`, `men's` and `men`."""
    word = _POSSESSIVE.sub("", word)
    if word.endswith(("our", "ours")):
        word = word.replace("our", "or")
    # `stem` leaves words of up to four letters as they are, and `ids` is the plural of `id`.
    is_short_plural = len(word) in (3, 4) and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if is_short_plural else stem(word)


def are_alike(first: str, second: str) -> bool:
    """Return whether two stems belong to one word, as `percent` and `percentag` do."""
    if first == second:
        return True
    shorter, longer = sorted((first, second), key=len)
    if len(shorter) < _MIN_STEM_CHARS or len(longer) - len(shorter) > _MAX_ENDING_CHARS:
        return False
    return longer.startswith(shorter)


def words_of(text: str) -> list[Word]:
    """Return the first 300 words of a text."""
    words: list[Word] = []
    for match in _WORD.finditer(text):
        trimmed = match[0].strip(_TRIMMED)
        if not trimmed:
            continue
        if len(words) == _MAX_WORDS:
            break
        start = match.start() + match[0].index(trimmed)
        lower = folded(trimmed)
        words.append(Word(lower, stem_of(lower), start, start + len(trimmed)))
    return words


class QuestionWords:
    """A question, taken apart.

    Attributes:
        text: The question.
        words: Its words.
        phrases: Each run of up to eight words in lower case, with the index of its first word.
        stems: The stem of each word, with the index of the first word that has it.
        numbers: Each number, with the index of its word.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words_of(text)
        self.phrases: dict[str, int] = {}
        self.stems: dict[str, int] = {}
        self.numbers: dict[float, int] = {}
        for index, word in enumerate(self.words):
            for last in self.words[index : index + _MAX_PHRASE_WORDS]:
                self.phrases.setdefault(text[word.start : last.end].lower(), index)
            self.stems.setdefault(word.stem, index)
            number = number_of(word.text)
            if number is not None:
                self.numbers.setdefault(number, index)

    def index_at(self, position: int) -> int:
        """Return the index of the word at a position of the text, or of the next word."""
        for index, word in enumerate(self.words):
            if word.end > position:
                return index
        return len(self.words)

    def is_negated(self, index: int) -> bool:
        """Return whether one of the four words before a word negates it."""
        start = self.words[index].start
        for word in self.words[max(index - _NEGATED_WORDS, 0) : index]:
            # A negation ends with its clause: "not for women, on sale".
            between = self.text[word.end : start]
            if word.text in _NEGATIONS and not _CLAUSE_END.search(between):
                return True
        return False

    def ranges(self) -> list[Range]:
        """Return the ranges of numbers."""
        ranges: list[Range] = []
        lower = self.text.lower()
        for sign, pattern in _RANGES:
            for match in pattern.finditer(lower):
                start, end = match.span()
                if any(start < other.end and other.start < end for other in ranges):
                    continue
                numbers = [float(group.replace(",", "")) for group in match.groups() if group]
                if sign == "between":
                    numbers.sort()
                is_money = _CURRENCY.search(lower[start : end + _CURRENCY_CHARS]) is not None
                ranges.append(Range(sign, numbers[0], numbers[-1], start, end, is_money))
        return ranges

    def dates(self) -> Iterator[tuple[str, int]]:
        """Yield each year, month or day as the beginning of a date, with the index of its word."""
        for match in _DATE.finditer(self.text):
            yield date_of(match[0]) or match[0], self.index_at(match.start())

    def orders(self) -> Iterator[OrderWord]:
        """Yield the words that ask for an order."""
        for index, word in enumerate(self.words):
            is_descending = word.text in _DESCENDING
            if is_descending or word.text in _ASCENDING:
                yield OrderWord(index, is_descending, word.text in _OF_PRICES)


_CURRENCY: Final = re.compile(r"[$€£]|\b(?:dollars?|euros?|pounds?|usd|eur|gbp)\b")
_CURRENCY_CHARS: Final = 10  # behind a number, in which a currency may stand
_AMOUNT: Final = r"[$€£]?\s?(-?\d[\d,]{0,20}(?:\.\d{1,9})?)\s?[%$€£]?"
_UNIT: Final = r"(?:\s+\w+){0,2}?,?\s+"  # "10 dollars and above"


def _after(words: str) -> re.Pattern[str]:
    return re.compile(rf"{_AMOUNT}{_UNIT}(?:and|or)\s+(?:{words})\b")


def _before(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{words})\s*{_AMOUNT}")


_RANGES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("between", re.compile(rf"\b(?:between|from)\s+{_AMOUNT}\s*+\w*\s*+(?:and|to|-)\s+{_AMOUNT}")),
    (">=", _after("above|more|higher|over|up|greater|later|newer")),
    ("<=", _after("below|less|lower|under|fewer|earlier|older")),
    (">=", _before(r"\bat\s+least|\bminimum(?:\s+of)?|\bno\s+less\s+than|>=|≥|\bsince")),
    ("<=", _before(r"\bat\s+most|\bmaximum(?:\s+of)?|\bup\s+to|\bno\s+more\s+than|<=|≤")),
    (">", _before(r"\b(?:more|greater|higher|larger|bigger|longer|later)\s+than|\bexceed\w*")),
    (">", _before(r"\bover|\babove|\bafter|>")),
    ("<", _before(r"\b(?:less|fewer|lower|smaller|shorter|cheaper|earlier)\s+than")),
    ("<", _before(r"\bunder|\bbelow|\bbefore|<")),
)
_MONTH: Final = "|".join(sorted(MONTHS, key=len, reverse=True))
_DATE: Final = re.compile(
    rf"\b(?:\d{{4}}-\d\d(?:-\d\d)?"
    rf"|(?:\d\d?(?:st|nd|rd|th)? )?(?:{_MONTH})\.?(?: \d\d?(?:st|nd|rd|th)?,?)? \d{{4}}"
    r"|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
