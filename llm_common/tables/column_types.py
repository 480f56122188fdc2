"""`type_of`: what the cells of a column are, decided once for previews and SQL.

A column holds numbers, flags or moments if at least nine of ten of its present cells read as such.
A marker among them, such as `N/A`, is a missing value. What no single cell tells, all of them
decide: whether `1,234` is a thousand or a fraction, which part of `3/4/2026` is the day, and what
`K` is a thousand of. Where they leave it open the column is text, and nothing computes with it.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import ne
from typing import Final, Literal, TypeAlias, TypeVar

from llm_common.ranking.question_dates import MONTHS
from llm_common.ranking.question_words import set_of, stem_of
from llm_common.tables.values import (
    CODE,
    CURRENCIES,
    DIGITS,
    Cell,
    number_in,
    number_match,
    unit_of,
)

Kind: TypeAlias = Literal["number", "flag", "moment", "text"]
_Read = TypeVar("_Read")

_MAX_UNREAD: Final = 0.1  # of the present cells
_MAX_CHARS: Final = 40  # of a number or a moment
_MAX_INTEGER: Final = 2**63 - 1  # of SQLite
MARKERS: Final = frozenset(
    (  # noqa: SIM905
        "- -- \u2013 \u2014 ? n/a N/A NA na #N/A null NULL Null none None NONE nil nan NaN NAN"
    ).split()
)
"""Texts that say that there is no value, where the others are values."""

_FLAGS: Final = {"yes": True, "true": True, "y": True, "no": False, "false": False, "n": False}
# Names of columns whose digits are no numbers.
_TEXT_STEMS: Final = frozenset(map(stem_of, set_of("version phone telephone tel mobile fax")))

# Lines as programs write them, which are searched together since that takes a tenth of the time.
_PLAIN_NUMBERS: Final = re.compile(
    r"(?:-?(?:0|[1-9]\d{0,14}|(?=\.\d))(?:\.\d+)?(?:[eE](?:-\d{1,3}|\+?\d\d?))?(?:\n|\Z))*+"
)
_PLAIN_MOMENTS: Final = re.compile(
    r"(?:\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?(?:\n|\Z))*+"
)
_GROUPED_NUMBERS: Final = re.compile(r"(?:-?[1-9]\d{0,2}(?:\.\d{3})?(?:\n|\Z))*+")
_VERSIONS: Final = re.compile(r"(?:(?:20)?\d{1,2}(?:\.(?:0|[1-9]\d?))?(?:\n|\Z))*+")
_FRACTION: Final = re.compile(r"\.(\d+)$", re.MULTILINE)
_LAST_ZERO: Final = re.compile(r",\d+0$", re.MULTILINE)
_WHOLE_NUMBER: Final = re.compile(r"^-?\d+$", re.MULTILINE)
_DIGIT: Final = re.compile(r"\d+(?:[eE].*)?")
_OPEN_MOMENT: Final = re.compile(r"^(\d\d?)[/-](\d\d?)[/-]\d{4}\b", re.MULTILINE)
_OFFSET: Final = re.compile(r":\d\d(?:\.\d+)? ?([-+]\d\d:?\d\d)$", re.MULTILINE)

_SCALES: Final[tuple[tuple[str, Mapping[str, float]], ...]] = (
    (
        "bytes",
        {
            "": 1,
            "B": 1,
            "Ki": 2**10,
            "Mi": 2**20,
            "Gi": 2**30,
            "Ti": 2**40,
            "KiB": 2**10,
            "MiB": 2**20,
            "GiB": 2**30,
            "TiB": 2**40,
        },
    ),
    (
        "bytes",
        {
            "B": 1,
            "bytes": 1,
            "kB": 10**3,
            "KB": 10**3,
            "MB": 10**6,
            "GB": 10**9,
            "TB": 10**12,
            "kb": 10**3,
            "mb": 10**6,
            "gb": 10**9,
            "tb": 10**12,
        },
    ),
    # As `du -h` writes sizes, and people numbers of followers.
    ("bytes", {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}),
    ("", {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}),
    (
        "seconds",
        {
            "ns": 1e-9,
            "us": 1e-6,
            "µs": 1e-6,
            "ms": 1e-3,
            **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
            **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
            **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600),
            **dict.fromkeys(("d", "day", "days"), 86_400),
        },
    ),
)
"""The common unit of each scale, and how many of it each unit is."""

_MONTHS_OF_YEAR: Final = 12
_DAYS_OF_MONTH: Final = 31
_SCALED_DIGITS: Final = 9  # behind the point, where 2.3 times 1,000 is 2,299.9999999999995


@dataclass(frozen=True, slots=True)
class ColumnType:
    """What the cells of a column are.

    Attributes:
        kind: What they are.
        values: The value of each different cell that has one: a number, a flag, or a moment as
            `2026-01-31` or `2026-01-31 10:00:00`. Empty for text.
        unit: What the numbers count, such as `$`, `%`, `ms` or `bytes`.
        unread: Number of cells that are present and have no value.
        has_texts: Whether some cells say more than their values, or something else.
    """

    kind: Kind
    values: Mapping[Cell, Cell] = field(default_factory=dict)
    unit: str = ""
    unread: int = 0
    has_texts: bool = False

    @property
    def is_scaled(self) -> bool:
        """Whether the cells may have several units, of which `unit` is the common one."""
        return self.unit in ("bytes", "seconds")


_TEXT: Final = ColumnType("text")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The present cells of a column.

    Attributes:
        texts: How often each text occurs that is not a marker.
        others: The numbers and flags.
        lines: The texts, one a line.
        max_unread: Maximum number of cells without a value.
        name_stems: The stems of the words of the column's name.
    """

    texts: Mapping[str, int]
    others: Collection[Cell]
    lines: str
    max_unread: int
    name_stems: Collection[str]

    def read(self, read: Callable[[str], _Read | None]) -> dict[str, _Read]:
        """Return what each text is read as, or nothing if too many cannot be read."""
        results = {}
        left = self.max_unread
        for text, count in self.texts.items():
            result = read(text)
            if result is not None:
                results[text] = result
                continue
            left -= count
            if left < 0:
                return {}
        return results


def type_of(counts: Mapping[Cell, int], name_stems: Collection[str]) -> ColumnType:
    """Return what the cells of a column are.

    Args:
        counts: How often each cell occurs, without missing and empty ones.
        name_stems: The stems of the words of the column's name.
    """
    kinds = set(map(type, counts))
    texts: dict[str, int] = {}
    if str in kinds:
        texts = {cell: count for cell, count in counts.items() if isinstance(cell, str)}
    others = []
    if kinds != {str}:
        others = [cell for cell in counts if cell not in texts]
    present = sum(counts.values())
    for marker in MARKERS & texts.keys():
        present -= texts.pop(marker)
    lines = "\n".join(texts)
    if lines.count("\n") >= len(texts) > 0:
        lines = "\n".join([text.replace("\n", "|") for text in texts])
    cells = _Cells(texts, others, lines, int(_MAX_UNREAD * present), name_stems)
    prose = sum([texts[text] for text in texts if len(text) > _MAX_CHARS])
    if prose > cells.max_unread:
        return _TEXT
    for read in (_numbers, _flags, _moments):
        column_type = read(cells)
        unread = 0
        if len(column_type.values) < len(texts) + len(others):
            unread = present - sum(map(counts.__getitem__, column_type.values))
        if unread <= cells.max_unread and column_type.values:
            has_texts = column_type.has_texts or len(column_type.values) < len(counts)
            return replace(column_type, unread=unread, has_texts=has_texts)
    return _TEXT


# --- numbers


def _numbers(cells: _Cells) -> ColumnType:
    values: dict[Cell, Cell] = dict(zip(cells.others, cells.others, strict=True))
    integers = [cell for cell in cells.others if isinstance(cell, int)]
    # SQLite would round a longer integer.
    if bool in set(map(type, integers)) or max(map(abs, integers), default=0) > _MAX_INTEGER:
        return _TEXT
    if cells.texts and not _TEXT_STEMS.isdisjoint(cells.name_stems):
        return _TEXT
    if not _PLAIN_NUMBERS.fullmatch(cells.lines):
        return _written_numbers(cells, values)
    if not _are_decimals(cells.lines):
        return _TEXT
    for text in cells.texts:
        values[text] = int(text) if text.lstrip("-").isdigit() else float(text)
    return ColumnType("number", values)


def _written_numbers(cells: _Cells, values: dict[Cell, Cell]) -> ColumnType:
    """Return the type of numbers as people write them, with the values of the others."""
    matches = cells.read(number_match)
    if not matches:
        return ColumnType("number", values)
    units = list(map(unit_of, matches.values()))
    digits = [match["digits"] for match in matches.values()]
    mark = None if CODE.search(cells.lines) else _decimal_mark(digits, units)
    unit, factors = _scale_of(digits, units)
    if mark is None or factors is None:
        return _TEXT
    for (text, match), own_unit in zip(matches.items(), units, strict=True):
        number = number_in(match, mark)
        factor = factors.get(own_unit, 1)
        values[text] = number if factor == 1 else round(number * factor, _SCALED_DIGITS)
    return ColumnType("number", values, unit, has_texts=True)


def _decimal_mark(digits: Collection[str], units: Collection[str]) -> str | None:
    """Return what stands before the decimals of all numbers, or None if that is open."""
    marks = [mark for mark, form in DIGITS.items() if all(map(form.fullmatch, digits))]
    gaps = {_DIGIT.sub("", text) for text in digits}
    lines = "\n".join(digits)
    is_address = any(gaps) and gaps <= {"..", "...", "  ", "   "}  # or a telephone number
    if not marks or is_address or ("," not in lines and not _are_decimals(lines)):
        return None
    if len(marks) == 1 or gaps.isdisjoint(",."):
        return marks[0]
    # Three digits are behind each mark.
    if gaps.issuperset(",."):
        return None
    if all(unit.startswith(CURRENCIES) for unit in units):  # no price has three decimals
        return "," if "." in gaps else "."
    # Three decimals would be written of each number, or no zero at the end.
    are_thousands = _LAST_ZERO.search(lines) and any(map(str.isdigit, digits))
    return "." if "." in gaps or are_thousands else None


def _are_decimals(lines: str) -> bool:
    """Return whether the points in numbers stand before decimals."""
    fractions = set(_FRACTION.findall(lines)) - {"0"}
    if not any(fraction.endswith("0") for fraction in fractions):
        return True
    if len(set(map(len, fractions))) > 1:  # 1.9 and 1.10 are versions, 1.95 and 1.100 are not
        return _VERSIONS.fullmatch(lines) is None
    # Of 1.200 and 950, the first is a thousand.
    return _GROUPED_NUMBERS.fullmatch(lines) is None or _WHOLE_NUMBER.search(lines) is None


def _scale_of(
    digits: Collection[str], units: Collection[str]
) -> tuple[str, Mapping[str, float] | None]:
    """Return the unit of all numbers, and how many of it each other unit is, or None."""
    different = set(units)
    if len(different) > 1:  # zero needs no unit
        different.clear()
        for text, unit in zip(digits, units, strict=True):
            if not unit and not text.strip("0.,"):
                continue
            different.add(unit)
    if len(different) <= 1:
        return "".join(different), {}
    scales = [scale for scale in _SCALES if different <= scale[1].keys()]
    return scales[0] if len(scales) == 1 else ("", None)


# --- flags and moments


def _flags(cells: _Cells) -> ColumnType:
    values: dict[Cell, Cell] = {cell: cell for cell in cells.others if isinstance(cell, bool)}
    values.update(cells.read(lambda text: _FLAGS.get(text.lower())))
    return ColumnType("flag", values, has_texts=bool(cells.texts))


def _moments(cells: _Cells) -> ColumnType:
    lines = cells.lines
    # Of one length, so that their order as texts is theirs.
    if len(set(map(len, cells.texts))) == 1 and _PLAIN_MOMENTS.fullmatch(lines):
        return ColumnType("moment", dict(zip(cells.texts, cells.texts, strict=True)))
    if len(set(_OFFSET.findall(lines))) > 1:
        return _TEXT
    pairs = _OPEN_MOMENT.findall(lines)
    is_day_first = any(int(first) > _MONTHS_OF_YEAR for first, _ in pairs)
    if pairs and is_day_first == any(int(second) > _MONTHS_OF_YEAR for _, second in pairs):
        return _TEXT
    values: dict[Cell, Cell] = {}
    values.update(cells.read(partial(moment_in, is_day_first=is_day_first)))
    return ColumnType("moment", values, has_texts=any(map(ne, values, values.values())))


_HAS_YEAR: Final = re.compile(r"(?<!\d)\d{4}(?!\d)")
_CLOCK: Final = (
    r"(?:,?[T :]\s?(?P<hour>[01]?\d|2[0-3])(?P<rest>:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?)"
    r"\s?(?P<half>[AaPp][Mm])?\s?(?:Z|UTC|GMT|[-+]\d\d:?\d\d)?)?"
)
_WEEKDAY: Final = r"(?:[A-Za-z]{3,9},? )?"
_DAY: Final = r"(?P<day>\d\d?)(?:st|nd|rd|th)?"
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})\.?"
_FORMS: Final = tuple(
    re.compile(day + _CLOCK)
    for day in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)",
        r"(?P<year>\d{4})-(?P<month>\d\d)",
        r"(?P<month>\d\d?)(?P<mark>[/-])(?P<day>\d\d?)(?P=mark)(?P<year>\d{4})",
        r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})",
        rf"{_WEEKDAY}(?:{_DAY}[ /-])?{_MONTH},?[ /-](?P<year>\d{{4}})",
        rf"{_WEEKDAY}{_MONTH} {_DAY},? (?P<year>\d{{4}})",
    )
)


def moment_in(text: str, *, is_day_first: bool) -> str | None:
    """Return a moment as `2026-01-31`, `2026-01` or `2026-01-31 10:00:00`, or None.

    Args:
        text: The moment, in ISO 8601 or English, or with bare numbers. An offset from UTC is left
            out.
        is_day_first: Whether `1/2/2026` is in February.
    """
    if len(text) > _MAX_CHARS or _HAS_YEAR.search(text) is None:
        return None
    match = next(filter(None, (form.fullmatch(text) for form in _FORMS)), None)
    if match is None:
        return None
    parts = match.groupdict()
    day = int(parts.get("day") or 0)
    month = MONTHS.get(parts["month"].lower(), 0)
    if parts["month"].isdigit():
        month = int(parts["month"])
        if is_day_first and match.start("month") == 0:
            month, day = day, month
    if not 1 <= month <= _MONTHS_OF_YEAR or day > _DAYS_OF_MONTH:
        return None
    moment = f"{parts['year']}-{month:02}" + (f"-{day:02}" if day else "")
    if not parts["hour"]:
        return moment
    hour = int(parts["hour"])
    if parts["half"]:
        hour = hour % 12 + 12 * (parts["half"].lower() == "pm")
    return f"{moment} {hour:02}{parts['rest'].replace(',', '.')}"
