"""The days, months, quarters and years that a question names, with their signs."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

from llm_common.ranking.question_words import QuestionWords

_MONTH_NAMES: Final = (
    "january february march april may june july august september october november december"
)
MONTHS: Final = {
    name: number
    for number, month in enumerate(_MONTH_NAMES.split(), start=1)
    for name in (month, month[:3])
}
"""The number of each English month, by its name and by its first three letters."""

_MAX_SIGN_CHARS: Final = 60
_MONTHS_OF_YEAR: Final = 12
_NO_YEAR: Final = "?"

_Ends: TypeAlias = tuple[str, str]
"""The beginnings of a first and a last day."""


@dataclass(frozen=True, slots=True)
class DateWords:
    """A span of days that the question names.

    Attributes:
        sign: `in`, `before`, `after`, `since` or `until`.
        low: Beginning of the first day as `2024-05-06`, `2024-05` or `2024`. A month without a
            year begins with `?`.
        high: Beginning of the last day.
        words: Indexes of its words, with those of the sign.
        is_number: Whether it is a number that may be no year, such as in "over 2000".
        is_excluded: Whether the days outside of the span are meant.
    """

    sign: str
    low: str
    high: str
    words: range
    is_number: bool = False
    is_excluded: bool = False

    @property
    def has_year(self) -> bool:
        """Whether the question names the year."""
        return not self.low.startswith(_NO_YEAR)

    @property
    def is_year(self) -> bool:
        """Whether the span is of whole years."""
        return self.low.isdigit() and self.high.isdigit()

    def contains(self, moment: str) -> bool:
        """Return whether a moment, as `date_of` writes it, is meant."""
        low, high = moment[: len(self.low)], moment[: len(self.high)]
        if self.sign == "before":
            return low < self.low
        if self.sign == "after":
            return high > self.high
        is_late = low >= self.low or self.sign == "until"
        is_meant = is_late and (high <= self.high or self.sign == "since")
        return is_meant is not self.is_excluded

    def of_year(self, year: str) -> "DateWords":
        """Return the span with a year for the missing one."""
        low, high = self.low.replace(_NO_YEAR, year), self.high.replace(_NO_YEAR, year)
        return replace(self, low=low, high=high)

    def __str__(self) -> str:
        if self.sign in ("before", "since"):
            return f"{self.sign} {self.low}"
        if self.sign in ("after", "until"):
            return f"{self.sign} {self.high}"
        span = f"in {self.low}" if self.low == self.high else f"from {self.low} to {self.high}"
        return f"not {span}" if self.is_excluded else span


def dates_in(question: QuestionWords) -> list[DateWords]:
    """Return the spans of days that a question names, in their order."""
    spans = [_signed(question, match, ends) for match, ends in _matches(question.text.lower())]
    return [*_joined(question, _with_years(question, spans))]


def _matches(text: str) -> list[tuple[re.Match[str], _Ends]]:
    """Return what reads as a date, each part of the text once."""
    found: list[tuple[re.Match[str], _Ends]] = []
    for pattern, ends_of in _FORMS:
        for match in pattern.finditer(text):
            is_free = all(
                match.end() <= other.start() or other.end() <= match.start() for other, _ in found
            )
            ends = ends_of(match)
            if is_free and ends is not None:
                found.append((match, ends))
    return sorted(found, key=lambda entry: entry[0].start())


def _signed(question: QuestionWords, match: re.Match[str], ends: _Ends) -> DateWords:
    """Return a date with the sign before it or behind it."""
    text = question.text.lower()
    start, end, sign, is_negated = match.start(), match.end(), "", False
    before = _SIGN_BEFORE.search(text, max(start - _MAX_SIGN_CHARS, 0), start)
    if before is not None:
        sign = next(name for name in _SIGNS if before[name])
        start, is_negated = before.start(), bool(before["no"])
    after = _SIGN_AFTER.match(text, end)
    if after is not None and sign in ("", "in", "span"):
        sign = "since" if after["since"] else "until"
        end = after.end()
    if is_negated:
        sign = _OPPOSITES.get(sign, sign)
    return DateWords(
        sign,
        *ends,
        words=question.words_within(start, end),
        is_number=match[0].isdigit() and not _OF_YEARS.match(text, start, match.start()),
        is_excluded=is_negated and sign in ("", "in"),
    )


def _with_years(question: QuestionWords, spans: list[DateWords]) -> list[DateWords]:
    """Return the spans with the years that stand beside others, as in "May or June 2024"."""
    for index in range(len(spans) - 1, 0, -1):
        first, second = spans[index - 1], spans[index]
        if not first.has_year and second.has_year and _joint(question, first, second):
            spans[index - 1] = first.of_year(second.low[:4])
    for index, (first, second) in enumerate(pairwise(spans), start=1):
        if first.has_year and _joint(question, first, second):
            spans[index] = replace(second.of_year(first.low[:4]), is_number=first.is_number)
    return spans


def _joined(question: QuestionWords, spans: list[DateWords]) -> Iterator[DateWords]:
    """Yield the spans, and one for both ends of "from March to May 2024"."""
    index = 0
    while index < len(spans):
        span = spans[index]
        following = spans[index + 1] if index + 1 < len(spans) else None
        index += 1
        if following is not None and _are_ends(question, span, following):
            index += 1
            words = range(span.words.start, following.words.stop)
            yield replace(span, sign="in", high=following.high, words=words)
        else:
            yield replace(span, sign="in") if span.sign in ("", "span") else span


def _are_ends(question: QuestionWords, first: DateWords, second: DateWords) -> bool:
    """Return whether two dates are the first and the last one that are meant."""
    joint = _joint(question, first, second)
    if first.sign == "span":
        return joint in ("and", "to", "-") or (not joint and second.sign == "until")
    return first.sign in ("", "in") and joint in ("to", "-")


def _joint(question: QuestionWords, first: DateWords, second: DateWords) -> str:
    """Return what stands between two dates that belong together, or ""."""
    gap = question.between(first.words.stop - 1, second.words.start)
    match = _JOINT.fullmatch(gap)
    if match is None:
        return ""
    joint = match[0].split()[0] if match[0].split() else ","
    return "-" if joint in ("-", "\u2013", "\u2014") else joint


# --- forms of dates


def _iso(match: re.Match[str]) -> _Ends:
    year, month, day, time = match.groups()
    date = f"{year}-{int(month):02}" + (f"-{int(day):02}" if day else "")
    date = f"{date} {time}" if time else date
    return date, date


def _part(match: re.Match[str]) -> _Ends | None:
    number = int(match["number"] if match["number"].isdigit() else _ORDINALS[match["number"][:3]])
    months = 6 if match["part"].startswith("h") else 3
    if number * months > _MONTHS_OF_YEAR:
        return None
    year = match["year"] or _NO_YEAR
    return f"{year}-{(number - 1) * months + 1:02}", f"{year}-{number * months:02}"


def _named(match: re.Match[str]) -> _Ends:
    groups = match.groupdict()
    year, month, day = groups.get("year") or _NO_YEAR, MONTHS[match["month"][:3]], groups.get("day")
    date = f"{year}-{month:02}" + (f"-{int(day):02}" if day else "")
    return date, date


_ORDINALS: Final = {"fir": 1, "1st": 1, "sec": 2, "2nd": 2, "thi": 3, "3rd": 3, "fou": 4, "4th": 4}
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(MONTHS, key=len, reverse=True))}|sept)\b\.?"
_DAY: Final = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_OF_YEAR: Final = r"(?:,?\s*(?:(?:of|in)\s+)?(?P<year>(?:19|20)\d\d)\b(?!-))"
_START: Final = r"(?<![\w.,$€£/-])"
_END: Final = r"(?![\w/-]|[.,:]\d)"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Ends | None]], ...]] = (
    (
        re.compile(
            _START + r"(\d{4})[-/.](0?[1-9]|1[0-2])(?:[-/.]([0-3]?\d)"
            r"(?:[t ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)z?)?)?" + _END
        ),
        _iso,
    ),
    (re.compile(_START + r"(?P<part>[qh])(?P<number>[1-4])\b(?:\s*[-/])?" + _OF_YEAR + "?"), _part),
    (
        re.compile(
            r"\b(?P<number>first|1st|second|2nd|third|3rd|fourth|4th)\s+(?P<part>quarter|half)\b"
            + _OF_YEAR
            + "?"
        ),
        _part,
    ),
    (re.compile(rf"{_START}{_DAY}\s*[-/]?\s*(?:of\s+)?{_MONTH}-?{_OF_YEAR}?"), _named),
    (re.compile(rf"\b{_MONTH}\s+{_DAY}(?!\d|[.,]\d|k\b){_OF_YEAR}?"), _named),
    (re.compile(rf"\b{_MONTH}{_OF_YEAR}"), _named),
    (re.compile(rf"(?<=in |or |to |nd |ce |re |er |il |ng |of |om ){_MONTH}(?!\s+\d)"), _named),
    (
        re.compile(_START + r"((?:19|20)\d)0['\u2019]?s" + _END),
        lambda match: (f"{match[1]}0", f"{match[1]}9"),
    ),
    (re.compile(_START + r"(?:19|20)\d\d" + _END), lambda match: (match[0], match[0])),
)

# --- their signs

_SIGNS: Final = ("before", "until", "after", "since", "span", "in")
_OPPOSITES: Final = {"before": "since", "since": "before", "after": "until", "until": "after"}
_SIGN_BEFORE: Final = re.compile(
    r"\b(?:(?P<no>not|n't|no)\s+)?(?:"
    r"(?P<since>since|(?:on|in)\s+or\s+(?:after|later\s+than)|starting(?:\s+(?:from|in|on|with))?)"
    r"|(?P<until>until|till|up\s+to|through|(?:on|in)\s+or\s+before|by|no\s+later\s+than)"
    r"|(?P<before>before|(?:earlier|older)\s+than|prior\s+to)"
    r"|(?P<after>after|(?:later|newer)\s+than)"
    r"|(?P<span>between|from)"
    r"|(?P<in>in|on|during|of|for|at|dated|throughout|within))"
    r"(?:\s+the)?(?:\s+(?:years?|months?|days?)(?:\s+of)?)?\s*$"
)
_SIGN_AFTER: Final = re.compile(
    r"\s*(?:(?P<since>(?:(?:and|or)\s+(?:later|after|newer)|onwards?|on(?=[,.?!\s]*$)|forward)\b)"
    r"|(?:and|or)\s+(?:earlier|before|older)\b)"
)
_OF_YEARS: Final = re.compile(
    r"(?:in|since|during|until|till|throughout|within|dated|starting)\b|.*\byear\b"
)
_JOINT: Final = re.compile(
    r"\s*(?:,|,?\s*(?:and|or|to)|[-\u2013\u2014])\s*(?:the\s+)?(?:in\s+|on\s+)?"
)
