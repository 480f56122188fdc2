"""Read the values of cells, such as numbers written as text, and write cells for a reader.

A text that a reader could take for something else is shown as JSON: if it is empty, has blank edges
or control characters, contains what separates values in its place, or looks like a missing value or
a mark of something cut. So a row can be read back. A missing value is `null`, an empty text is
`""`, and the text `null` is `"null"`. Digits have quotes only in a column that has numbers too.
"""

import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from types import NoneType
from typing import Final, TypeAlias

from llm_common.text.canonical import json_text
from llm_common.text.display import one_line

Cell: TypeAlias = str | int | float | bool | None

# A number as people write it: with a sign, a currency, commas between thousands, and a unit or a
# scale behind it, as in `-$1,234.50`, `17% off`, `30ms` and `4.8/5`.
_NUMBER: Final = re.compile(
    r"\s*+(?P<sign>[-+\u2212]?)\s*+(?:[$€£¥₹]|(?:USD|EUR|GBP|CHF)\s)?\s*+(?P<inner>-?)"
    r"(?P<digits>\d{1,3}(?:,\d{3})+|\d+)(?P<fraction>\.\d+)?"
    r"\s?(?:[%$€£¥₹]|/\d{1,4})?\s?[A-Za-z]{0,8}\s*"
)
_MAX_NUMBER_CHARS: Final = 40
_MAX_ELEMENTS: Final = 50
_EXACT_TO: Final = 1e15  # a larger float holds no digits behind the point
_SMALL: Final = 0.001  # six digits behind the point would keep three of a smaller number, or none
# A longer text with commas is a sentence.
_MAX_ELEMENT_CHARS: Final = 40

IN_LIST: Final = re.compile(r",\s|\(-?\d.*\)$")
"""Separates the values of a list, which may have counts: `city: Bern (2), Oslo`."""

IN_LABEL: Final = re.compile(rf"[|=:]|\sor\s|{IN_LIST.pattern}")
"""Separates what stands before a colon: `city (1 to 9)`, `city = Bern or Oslo`."""

IN_ROW: Final = re.compile(r"(?<!\S)\||\|(?!\S)")
"""Separates the cells of a row."""

# Characters that a reader does not see, or that begin another line.
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNCLEAR: Final = re.compile(rf'^$|^["\s]|\s$|###|…|^(?i:null)$|{_HIDDEN.pattern}')
_LITERAL: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false")


@lru_cache(maxsize=16_384)
def _number_in(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign = -1 if match["sign"] in ("-", "\u2212") or match["inner"] else 1
    return sign * float(match["digits"].replace(",", "") + (match["fraction"] or ""))


def number_of(cell: Cell) -> float | None:
    """Return the number of a cell, also of a text such as `$1,234.50` or `12 %`, or None.

    A text of digits that begins with 0, such as a postal code, is no number.
    """
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, str):
        if len(cell) > _MAX_NUMBER_CHARS or (cell[:1] == "0" and cell[1:2].isdigit()):
            return None
        return _number_in(cell)
    try:
        return float(cell)
    except OverflowError:  # an integer of over 308 digits
        return None


@lru_cache(maxsize=16_384)
def _elements_in(text: str) -> tuple[str, ...]:
    if text.startswith("["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):  # brackets in brackets, a thousand deep
            return (text,)
        scalars = [item for item in items if isinstance(item, (str, int, float))]
        return tuple(str(item) for item in scalars) if len(scalars) == len(items) else ()
    elements = [element.strip() for element in text.split(",")]
    is_list = len(elements) <= _MAX_ELEMENTS and all(
        0 < len(element) <= _MAX_ELEMENT_CHARS for element in elements
    )
    return tuple(elements) if is_list else (text,)


def elements_of(cell: Cell) -> tuple[str, ...]:
    """Return the elements of a cell: of a JSON list, of a text `a, b, c`, or the cell alone."""
    if cell is None:
        return ()
    if isinstance(cell, str):
        return (cell,) if number_of(cell) is not None else _elements_in(cell)
    return (cell_text(cell),)


def cell_text(cell: Cell) -> str:
    """Return a cell as text: `true` and `false` for flags, "" for a missing value."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return cell if isinstance(cell, str) else format_number(cell)


def row_text(
    cells: Iterable[Cell], *, max_chars: int, mixed: Iterable[bool] = repeat(False)
) -> str:
    """Return cells as a row, each as from `shown_cell`.

    Args:
        cells: The cells, or the names of the columns.
        max_chars: Maximum characters of each text.
        mixed: Whether each column has values of several kinds, as from `are_mixed`.
    """
    shown = []
    for cell, is_mixed in zip(cells, mixed, strict=False):
        shown.append(shown_cell(cell, IN_ROW, max_chars=max_chars, is_mixed=is_mixed))
    return " | ".join(shown)


def shown_cell(
    cell: Cell, separators: re.Pattern[str], *, max_chars: int, is_mixed: bool = False
) -> str:
    """Return a cell on one line. A clipped text ends with `…`, which is behind its quotes.

    Args:
        cell: The cell.
        separators: What separates values where the cell is shown.
        max_chars: Maximum characters of a text, without quotes and escapes.
        is_mixed: Whether the column may have numbers or flags beside texts.
    """
    if not isinstance(cell, str):
        return "null" if cell is None else cell_text(cell)
    text, end = cell, ""
    if len(cell) > max_chars:
        text, end = one_line(cell, max_chars=max_chars).removesuffix("…").rstrip(), "…"
    is_literal = is_mixed and _LITERAL.fullmatch(text)
    if is_literal or _UNCLEAR.search(text) or separators.search(text):
        text = _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text(text))
    return text + end


def are_mixed(cells: Iterable[Cell]) -> bool:
    """Return whether cells are of several kinds, such as texts beside numbers."""
    return len(set(map(type, cells)) - {NoneType}) > 1


def format_number(number: float) -> str:
    """Return a number without a fraction that says nothing, and at most six digits behind."""
    if isinstance(number, int):
        try:
            return str(number)
        except ValueError:  # Python writes at most 4,300 digits
            return "a long number"
    if not math.isfinite(number) or abs(number) >= _EXACT_TO:
        return repr(number)
    if number == int(number):
        return str(int(number))
    if abs(number) < _SMALL:
        return f"{number:.6g}"
    return repr(round(number, 6))


_FLAGS: Final = {"yes": True, "true": True, "no": False, "false": False}


def flag_of(cell: Cell) -> bool | None:
    """Return the flag of a cell, also of `Yes` and `false`, or None."""
    if isinstance(cell, bool):
        return cell
    return _FLAGS.get(cell.lower()) if isinstance(cell, str) else None


_MONTH_NAMES: Final = (
    "january february march april may june july august september october november december"
)
MONTHS: Final = {
    name: number
    for number, month in enumerate(_MONTH_NAMES.split(), start=1)
    for name in (month, month[:3])
}
"""The number of each English month, by its name and by its first three letters."""

_ISO_DATE: Final = re.compile(
    r"(?P<year>\d{4})[-/.](?P<month>\d\d?)(?:[-/.](?P<day>\d\d?))?(?:[T ](?P<time>\d\d:\d\d.*))?"
)
_NAMED_DATE: Final = re.compile(
    r"(?:\w{3,9}, )?(?:(?P<day>\d\d?)(?:st|nd|rd|th)?[ /-])?(?P<month>[A-Za-z]{3,9})\.?[ /-]"
    r"(?:(?P<day_2>\d\d?)(?:st|nd|rd|th)?,? )?(?P<year>\d{4})"
)
_MAX_DATE_CHARS: Final = 40


@lru_cache(maxsize=16_384)
def _date_in(text: str) -> str | None:
    match = _ISO_DATE.match(text) or _NAMED_DATE.match(text)
    if match is None:
        return None
    groups = match.groupdict()
    month = MONTHS.get(match["month"].lower()) or match["month"]
    if isinstance(month, str) and not month.isdigit():
        return None
    day = groups["day"] or groups.get("day_2")
    date = f"{match['year']}-{int(month):02}" + (f"-{int(day):02}" if day else "")
    return f"{date} {groups['time']}" if groups.get("time") else date


def date_of(cell: Cell) -> str | None:
    """Return a date as `2026-01-31`, as `2026-01`, or with its time behind it, or None.

    Reads ISO 8601 dates, and English ones such as `31 January 2026` and `Jan 31, 2026`.
    """
    return _date_in(cell) if isinstance(cell, str) and len(cell) <= _MAX_DATE_CHARS else None
