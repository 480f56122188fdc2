"""The words of a question: phrases, numbers, comparisons, negations and orders."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from llm_common.ranking.cues import Name, names_in
from llm_common.ranking.lexical import folded, stem

_MAX_CHARS: Final = 4_000
_MAX_WORDS: Final = 300
_MAX_PHRASE_WORDS: Final = 8
_MIN_STEM_CHARS: Final = 4
_MAX_ENDING_CHARS: Final = 3
_MAX_SIGN_CHARS: Final = 60

# A number with its commas is one word, as is `2-bedroom` two.
_WORD: Final = re.compile(
    r"[-\u2212+]?[$€£¥₹]?-?\d{1,3}(?:,\d{3})+(?!\d)[^\s,;!?()\[\]{}\"“”]*"
    r"|\d+(?=-[A-Za-z]{3})"
    r"|[^\s,;!?()\[\]{}\"“”]+"
)
_DASH: Final = re.compile(r"(?<=\w)--(?=\w)")
_TRIMMED: Final = ".:'`*-\N{RIGHT SINGLE QUOTATION MARK}"
_NUMBER_START: Final = re.compile(r"-?\.?(?=\d)")
_POSSESSIVE: Final = re.compile(r"(?:['\N{RIGHT SINGLE QUOTATION MARK}]|/)s$")
_FAILURE: Final = re.compile(
    r"\b(?:fail|error|wrong|broke|crash|problem|exception|bug)", re.IGNORECASE
)


def exact(number: float) -> str:
    """Return a number with all of its digits, as a condition needs them."""
    return repr(number).removesuffix(".0")


def set_of(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


NEGATIONS: Final = set_of(
    "not no non neither nor never without except excluding exclude besides apart aside barring"
    " outside other isn't aren't wasn't"
    " weren't don't doesn't didn't haven't hasn't cannot can't lack lacks lacking missing"
)
_DESCENDING: Final = set_of(
    "highest most maximum max largest biggest greatest best top latest newest longest last"
    " youngest recent heaviest tallest fastest hottest warmest expensive costliest descending"
)
_ASCENDING: Final = set_of(
    "lowest least minimum min smallest cheapest earliest first shortest oldest worst fewest slowest"
    " lightest coldest ascending"
)
FILLERS: Final = set_of(
    "a an the of in on at is are was were be and or not to for from by with all any each how many"
    " much what which who when where why whose whom give get list show find tell me us please"
    " number count total have has had do does did that this these those it its their than between"
    " above below over under more less most least only include including also among inclusive"
    " id ids name names there they them as so if"
)
"""Words that are no value alone."""

NEUTRAL: Final = set_of(
    "a an the this that these those which who whom whose what where when of in on at from by"
    " for to with as is are was were be been being has have had having do does did can could"
    " would will all any how many count number list show find give get tell display return"
    " want need know see like please me us you i there their they them it its inclusive"
    " exactly currently still now yet also only together both either just so far ever already"
    " name names named called labelled labeled marked tagged we our among well included work"
    " works working worked go goes available present up going got i'm i'd here happen"
    " happened occur occurred placed offer offers offered offering provide provides provided"
    " record records row rows entry entries result results one ones data come comes came"
    " belong belongs belonged live lives lived living located based made exist contain"
    " contains contained containing hold holds carry carries carried include includes"
    " including listed whether look looking let's let hi hello hey thanks thank value"
)
"""Words that restrict no records, whatever the records are."""


def asks_for_failures(question: str) -> bool:
    """Return whether a question asks what failed."""
    return bool(_FAILURE.search(question))


def is_request(question: str) -> bool:
    """Return whether a question asks for work, such as "Run the tests", and not for an answer."""
    words = folded(question).split()
    return "?" not in question and bool(words) and words[0] not in FILLERS


_NUMBER_WORDS: Final = {
    word: float(value)
    for word, value in (
        pair.split("=")
        for pair in set_of(
            "zero=0 one=1 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11"
            " twelve=12 dozen=12 fifteen=15 twenty=20 thirty=30 forty=40 fifty=50 sixty=60"
        )
    )
}
_SCALES: Final = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "mn": 1e6,
    "billion": 1e9,
    "bn": 1e9,
}
_NUMBER: Final = re.compile(
    r"(?P<sign>[-\u2212+]?)(?P<currency>[$€£¥₹]?)(?P<inner>-?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+|0|[1-9]\d*|(?=\.\d))(?P<fraction>\.\d+)?(?P<unit>[a-z%€$£°]*)(?P<plus>\+?)"
)
_SCALED_DIGITS: Final = 9  # behind the point, where 2.3 times 1,000 is 2,299.9999999999995
_CURRENCIES: Final = set_of("$ € £ ¥ ₹ dollar dollars euro euros pound pounds usd eur gbp bucks")


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
class Number:
    """A number of the question.

    Attributes:
        value: The number.
        words: Indexes of its words, with those of its scale and its currency.
        scale: By how much its digits are multiplied, as 1,000 in `5k`.
        unit: Letters behind its digits, as `kg` of `5kg`.
        is_money: Whether it has a currency.
        is_open: Whether it ends with `+`.
    """

    value: float
    words: range
    scale: float = 1.0
    unit: str = ""
    is_money: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Numbers that the question asks for, such as `at least 5`.

    Attributes:
        sign: `=`, `!=`, `<`, `>`, `<=`, `>=` or `between`.
        low: The number, or the lower one of two.
        high: The number, or the higher one of two.
        words: Indexes of the words, from the sign to the last number.
        signs: Indexes of the words of the sign, which may name what is compared, as in `a lower
            age than 5`.
        ending: Indexes of the words of a sign behind the number, as in `5 or more`.
        unit: Letters behind the digits.
        is_money: Whether a currency stands beside the number.
        is_written: Whether a sign stands there, so that the number is no mere value.
    """

    sign: str
    low: float
    high: float
    words: range
    signs: range = range(0)
    ending: range = range(0)
    unit: str = ""
    is_money: bool = False
    is_written: bool = True

    def contains(self, number: float) -> bool:
        """Return whether a number is one of those asked for."""
        if self.sign == "between":
            return self.low <= number <= self.high
        if self.sign in (">=", ">"):
            return number > self.low or (number == self.low and self.sign == ">=")
        if self.sign in ("<=", "<"):
            return number < self.low or (number == self.low and self.sign == "<=")
        return (number == self.low) is (self.sign == "=")

    def __str__(self) -> str:
        if self.sign == "between":
            return f"between {exact(self.low)} and {exact(self.high)}"
        return f"{self.sign} {exact(self.low)}"


@dataclass(frozen=True, slots=True)
class OrderWord:
    """A word that asks for an order, such as "cheapest"."""

    index: int
    is_descending: bool


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
    if longer in (f"{shorter}er", f"{shorter}or"):  # who owns is the owner
        return len(shorter) > 2  # noqa: PLR2004
    if len(shorter) < _MIN_STEM_CHARS or len(longer) - len(shorter) > _MAX_ENDING_CHARS:
        return False
    return longer.startswith(shorter)


def is_alike(stem: str, others: Iterable[str]) -> bool:
    """Return whether a stem and one of the others belong to one word."""
    return any(are_alike(stem, other) for other in others)


def singular(word: str) -> str:
    """Return a noun in lower case without the ending of its plural or of a possession."""
    word = _POSSESSIVE.sub("", word.lower()).rstrip("'\N{RIGHT SINGLE QUOTATION MARK}")
    if word.endswith("ies") and len(word) > _MIN_STEM_CHARS:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def words_of(text: str) -> list[Word]:
    """Return the first 300 words of a text."""
    words: list[Word] = []
    for match in _WORD.finditer(text):
        trimmed = match[0].rstrip(_TRIMMED).lstrip(_TRIMMED)
        sign = _NUMBER_START.match(match[0])
        if sign is not None:
            trimmed = sign[0] + trimmed  # a number below zero, or one such as `.5`
        if not trimmed:
            continue
        if len(words) == _MAX_WORDS:
            break
        start = match.start() + match[0].index(trimmed)
        lower = folded(trimmed).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        words.append(Word(lower, stem_of(lower), start, start + len(trimmed)))
    return words


def phrase_of(text: str) -> str:
    """Return a text folded, in which `&` between two words is `and`."""
    return folded(text).replace(" & ", " and ")


class QuestionWords:
    """A question, taken apart.

    Attributes:
        text: Its first 4,000 characters, with single blanks.
        words: Its words.
        phrases: Each run of up to eight words, folded, with the indexes of these words.
        numbers: Its numbers, in their order.
        is_cut: Whether the question goes on behind the last of these words.
    """

    def __init__(self, question: str) -> None:
        # Runs of blanks would cost the patterns of dates and numbers quadratic time.
        text = " ".join(_DASH.sub(" - ", question[:_MAX_CHARS]).split())
        self.text = text
        self.words = words_of(text)
        self.is_cut = len(question) > _MAX_CHARS or len(self.words) == _MAX_WORDS
        self.phrases: dict[str, list[range]] = {}
        for index, word in enumerate(self.words):
            following = self.words[index : index + _MAX_PHRASE_WORDS]
            for end, last in enumerate(following, start=index + 1):
                phrase = phrase_of(text[word.start : last.end])
                self.phrases.setdefault(phrase, []).append(range(index, end))
        self.numbers = list(self._numbers())

    def index_at(self, position: int) -> int:
        """Return the index of the word at a position of the text, or of the next word."""
        for index, word in enumerate(self.words):
            if word.end > position:
                return index
        return len(self.words)

    def between(self, first: int, last: int) -> str:
        """Return the text from the end of a word to the beginning of another, in lower case."""
        start = self.words[first].end if first >= 0 else 0
        end = self.words[last].start if last < len(self.words) else len(self.text)
        return self.text[start:end].lower()

    @cached_property
    def names(self) -> list[Name]:
        """What its form tells from words, see `names_in`."""
        return names_in(self.text)

    def words_within(self, start: int, end: int) -> range:
        """Return the indexes of the words that a part of the text touches."""
        end_index = min(self.index_at(end - 1) + 1, len(self.words))
        return range(self.index_at(start), end_index)

    def text_of(self, words: range) -> str:
        """Return the text of some words that follow each other."""
        return self.text[self.words[words[0]].start : self.words[words[-1]].end]

    @cached_property
    def counting(self) -> range:
        """Indexes of the words that ask for a number of records, such as "how many"."""
        match = _COUNTING.search(self.text)
        if match is None:
            return range(0)
        return range(self.index_at(match.start()), self.index_at(match.end()))

    def orders(self) -> Iterator[OrderWord]:
        """Yield the words that ask for an order."""
        for index, word in enumerate(self.words):
            is_descending = word.text in _DESCENDING
            if is_descending or word.text in _ASCENDING:
                yield OrderWord(index, is_descending)

    # --- numbers

    def _numbers(self) -> Iterator[Number]:
        index = 0
        while index < len(self.words):
            number = self._number_at(index)
            if number is not None:
                yield number
                index = number.words.stop
            else:
                index += 1

    def _number_at(self, index: int) -> Number | None:
        word = self.words[index].text
        value, unit, is_money, is_open = _NUMBER_WORDS.get(word), "", False, False
        if value is None:
            match = _NUMBER.fullmatch(word)
            if match is None:
                return None
            value = float(match["digits"].replace(",", "") + (match["fraction"] or ""))
            if match["sign"] in ("-", "\u2212") or match["inner"]:
                value = -value
            unit, is_money, is_open = match["unit"], bool(match["currency"]), bool(match["plus"])
        if unit in _CURRENCIES:
            unit, is_money = "", True
        if unit == "m" and is_money:
            unit = "mn"
        end = index + 1
        following = self.words[end].text if end < len(self.words) else ""
        scale = 1.0
        if unit in _SCALES:
            scale, unit = _SCALES[unit], ""
        elif following in _SCALES and following != "k":
            scale = _SCALES[following]
            end += 1
            following = self.words[end].text if end < len(self.words) else ""
        if following in _CURRENCIES:
            is_money, end = True, end + 1
        if scale != 1:
            value = round(value * scale, _SCALED_DIGITS)
        return Number(value, range(index, end), scale, unit, is_money, is_open)

    def comparisons(self) -> Iterator[Comparison]:
        """Yield what the question says of its numbers, in their order."""
        numbers = iter(enumerate(self.numbers))
        for position, number in numbers:
            following = self.numbers[position + 1 : position + 2]
            if following and self._spans(number, following[0]):
                next(numbers)
                yield self._span(number, following[0])
            else:
                yield self._comparison(number)

    def _spans(self, first: Number, second: Number) -> bool:
        """Return whether two numbers are the ends of a range, such as `5 to 10`."""
        gap = self.between(first.words.stop - 1, second.words.start)
        match = _JOINT.fullmatch(gap)
        # "300 to 500k" may begin at 300 or at 300k.
        if match is None or first.scale < second.scale:
            return False
        return match["joint"] != "and" or self._before(_SPAN_SIGN, first.words.start) is not None

    def _before(self, pattern: re.Pattern[str], index: int) -> re.Match[str] | None:
        """Return the sign that ends before a word."""
        end = self.words[index].start
        return pattern.search(self.text.lower(), max(end - _MAX_SIGN_CHARS, 0), end)

    def _span(self, first: Number, second: Number) -> Comparison:
        before = self._before(_SPAN_SIGN, first.words.start)
        start = first.words.start if before is None else self.index_at(before.start())
        low, high = sorted((first.value, second.value))
        return Comparison(
            "between",
            low,
            high,
            words=range(start, second.words.stop),
            unit=first.unit or second.unit,
            is_money=first.is_money or second.is_money,
        )

    def _comparison(self, number: Number) -> Comparison:
        start, end = number.words.start, number.words.stop
        sign, ending = "", range(0)
        before = self._before(_SIGN_BEFORE, start)
        if before is not None:
            start = self.index_at(before.start())
            sign = next(sign for name, sign in _SIGNS.items() if before[name])
            if before["not"]:
                sign = _OPPOSITES[sign]
        after = _SIGN_AFTER.match(self.text.lower(), self.words[end - 1].end)
        if not sign and after is not None:
            sign = ">=" if after["least"] else "<="
            ending = range(self.index_at(after.start("joint")), self.index_at(after.end() - 1) + 1)
        if not sign and number.is_open:
            sign = ">="
        return Comparison(
            sign or "=",
            number.value,
            number.value,
            words=range(start, end),
            signs=range(start, number.words.start),
            ending=ending,
            unit=number.unit,
            is_money=number.is_money,
            is_written=bool(sign),
        )


_COUNTING: Final = re.compile(
    r"\b(?:how\s+many(?:\s+times)?|how\s+often|(?:total\s+)?number\s+of(?:\s+times)?|count)\b",
    re.IGNORECASE,
)
_UP: Final = (
    "more expensive|more|greater|higher|larger|bigger|longer|older|later|heavier|taller|newer"
    "|warmer|hotter|faster|better|costlier|pricier|wider|deeper"
)
_DOWN: Final = (
    "less expensive|less|fewer|lower|smaller|shorter|younger|earlier|lighter|cheaper|cooler|colder"
    "|slower|worse"
)
SIGN_WORDS: Final = frozenset(f"{_UP}|{_DOWN}".replace("|", " ").split()) | set_of(
    "than over above exceed exceeds exceeding exceeded under below beneath at least a minimum of"
    " most maximum up to exactly precisely equal equals or the not no never > < >= <= ≥ ≤ = =="
)
"""Words of signs before a number."""

_SIGN_BEFORE: Final = re.compile(
    r"(?:\b(?P<not>not?|never)\s+)?"
    rf"(?:(?P<gt>\b(?:(?:{_UP})(?:\s+\w+){{0,3}}?\s+than|over|above|exceed(?:s|ing|ed)?)|>)"
    rf"|(?P<lt>\b(?:(?:{_DOWN})(?:\s+\w+){{0,3}}?\s+than|under|below|beneath)|<)"
    rf"|(?P<ge>\b(?:(?:{_UP})\s+than\s+or\s+equal\s+to"
    rf"|equal\s+to\s+or\s+(?:(?:{_UP})\s+than|above)|at\s+least|a\s+minimum\s+of|minimum(?:\s+of)?)|>=|≥)"
    rf"|(?P<le>\b(?:(?:{_DOWN})\s+than\s+or\s+equal\s+to"
    rf"|equal\s+to\s+or\s+(?:(?:{_DOWN})\s+than|below)|at\s+most|a\s+maximum\s+of|maximum(?:\s+of)?|up\s+to)|<=|≤)"
    r"|(?P<eq>\b(?:exactly|precisely|equal\s+to|equals)|==?))"
    r"(?:\s+the\s+\w+\s+of)?\s*$"
)
_SIGNS: Final = {"ge": ">=", "le": "<=", "gt": ">", "lt": "<", "eq": "="}
_OPPOSITES: Final = {">": "<=", "<": ">=", ">=": "<", "<=": ">", "=": "!="}
_SIGN_AFTER: Final = re.compile(
    r"(?:\s+[a-z]\w*){0,2}?,?\s+(?P<joint>and|or)\s+"
    r"(?:(?P<least>more|higher|above|over|up|greater|older|longer|later|larger|bigger|heavier"
    r"|newer)|(?P<most>less|fewer|lower|below|under|younger|smaller|shorter|earlier|cheaper"
    r"|lighter))\b(?!\s+than)"
)
_JOINT: Final = re.compile(
    r"\s*(?:[a-z$€£%]+\s*)?\b(?P<joint>and|to|through|until)\s+|\s*[-\u2013\u2014]\s*"
)
_SPAN_SIGN: Final = re.compile(r"\b(?:between|from|ranging\s+from|in\s+the\s+range(?:\s+of)?)\s*$")
