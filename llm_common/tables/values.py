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

# A number as people write it: with a sign or in parentheses, a currency, marks between its digits,
# and a unit behind it, as in `-$1,234.50`, `1.234,50 €`, `17% off`, `30ms` and `4.8/5`.
_MIN_INTEGER: Final = -(2**63)  # of SQLite
_NUMBER: Final = re.compile(
    r"(?P<before>\s*+(?P<open>\()?[-+\u2212]?\s*+(?:[$€£¥₹]|(?:USD|EUR|GBP|CHF)\s)?\s*+-?)"
    r"(?P<digits>(?:\d+(?:[.,'\u2019\u00a0\u202f ]\d+)*|\.\d+)(?:[eE](?:-\d{1,3}|\+?\d\d?))?)"
    r"(?P<after>\s?(?:[%$€£¥₹]|/\d{1,4})?\s?[A-Za-zµ]{0,8}\s*(?(open)\)))"
)
_GAPS: Final = "'\u2019\u00a0\u202f "
DIGITS: Final = {
    mark: re.compile(
        rf"(?:[1-9]\d{{0,2}}(?P<gap>[{other}{_GAPS}])\d{{3}}(?:(?P=gap)\d{{3}})*|\d*)"
        rf"(?:[{mark}]\d+)?(?:[eE].+)?"
    )
    for mark, other in ((".", ","), (",", "."))
}
"""The forms of digits by the mark before the decimals. Another mark may be between thousands."""

_AS_PYTHON: Final = {
    ".": str.maketrans("", "", f",{_GAPS}"),
    ",": str.maketrans(",", ".", f".{_GAPS}"),
}
CURRENCIES: Final = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF")
_MINUS: Final = frozenset("-\u2212(")
_SIGNS: Final = re.compile(r"[-+\u2212()\s]")
CODE: Final = re.compile(r"^\s*+(?:\+?0\d|\+?\d{16}|\+(?:\d\D?){7})", re.MULTILINE)
"""The beginning of a line with a code or a telephone number, or with more digits than a float."""

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
def number_match(text: str) -> re.Match[str] | None:
    """Return the digits of a number as people write it, with what stands around them, or None."""
    return _NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARS else None


def unit_of(match: re.Match[str]) -> str:
    """Return what a number counts, such as `$`, `%` or `ms`. "" for a plain one."""
    return _SIGNS.sub("", match["before"] + match["after"])


def number_in(match: re.Match[str], decimal_mark: str) -> float:
    """Return the number of a match whose digits have a form of `DIGITS`."""
    digits = match["digits"].translate(_AS_PYTHON[decimal_mark])
    number = int(digits) if digits.isdigit() else float(digits)
    return number if _MINUS.isdisjoint(match["before"]) else -number


def number_of(cell: Cell) -> float | None:
    """Return the number of a cell alone, also of a text such as `$1,234.50` or `12 %`, or None.

    A comma stands between thousands. A code, such as a postal code that begins with 0, is no
    number. `type_of` reads the cells of a column together.
    """
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, str):
        match = number_match(cell)
        if match is None or CODE.match(cell) or not DIGITS["."].fullmatch(match["digits"]):
            return None
        return number_in(match, ".")
    try:
        return float(cell)
    except OverflowError:  # an integer of over 308 digits
        return None


@lru_cache(maxsize=16_384)
def _elements_in(text: str, *, is_list: bool) -> tuple[str, ...]:
    if text.startswith("["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):  # brackets in brackets, a thousand deep
            return (text,)
        scalars = [item for item in items if isinstance(item, (str, int, float))]
        return tuple(str(item) for item in scalars) if len(scalars) == len(items) else ()
    elements = [element.strip() for element in text.split(",")]
    if is_list:
        return tuple(filter(None, elements))
    seems_list = len(elements) <= _MAX_ELEMENTS and all(
        0 < len(element) <= _MAX_ELEMENT_CHARS for element in elements
    )
    return tuple(elements) if seems_list else (text,)


def elements_of(cell: Cell, *, is_list: bool = False) -> tuple[str, ...]:
    """Return the elements of a cell: of a JSON list, of a text `a, b, c`, or the cell alone.

    Args:
        cell: The cell.
        is_list: Whether its column is known to hold lists. Otherwise a text with long or many
            parts is a sentence.
    """
    if cell is None:
        return ()
    if isinstance(cell, str):
        match = number_match(cell)
        is_number = match is not None and (unit_of(match) or number_of(cell) is not None)
        return (cell,) if is_number else _elements_in(cell, is_list=is_list)
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
    kinds = set(map(type, cells)) - {NoneType}
    return len(kinds) > 1 and kinds != {int, float}


def fits_64_bits(number: int) -> bool:
    """Return whether SQLite stores an integer as it is."""
    return _MIN_INTEGER <= number < -_MIN_INTEGER


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
