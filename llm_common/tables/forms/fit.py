"""How well lines fit a form, and whether the first is a heading or a record like the others."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from llm_common.tables.column_types import MARKERS

T = TypeVar("T")
Span: TypeAlias = tuple[int, int]
"""Start and end of a word in a line."""

MAX_TEXT_CHARS: Final = 20_000_000
MIN_LINES: Final = 3
"""A header and two records."""
SAMPLE_LINES: Final = 40
MOST: Final = 0.9
"""Share of the lines that have to fit a form."""
MAX_LINE_CHARS: Final = 10_000
"""A longer line holds a document and no record."""
_WORD: Final = re.compile(r"\S+")

NUMBER: Final = re.compile(
    r"[-+($€£<>~]*\d[\d.,:/%+ TZ-]{0,60}(?:[KMGTPkmg]i?[Bb]?|ms|s|[eE][-+]?\d{1,3})?\)?"
)
_MARKS: Final = re.compile(r"[^\w\s]")
_NAME_MARKS: Final = frozenset("-./()%#&?")  # also stand in names
_ID_CHARS: Final = 8
_MIN_KEYS: Final = 5
_YEAR: Final = re.compile(r"(?:1[89]|20)\d\d")
_SMALL: Final = re.compile(r"\d{1,4}")
_MIN_SMALL: Final = 4  # fewer numbers are in equal steps by chance


def share_of(lines: Sequence[T], fits: Callable[[T], bool]) -> float:
    """Return the share of lines, or of other things, that fit."""
    return sum(map(fits, lines)) / len(lines) if lines else 0.0


def has_gaps(line: str) -> bool:
    """Return whether a line may be a heading of columns. Prose has single spaces only."""
    return line.isupper() or "  " in line.strip()


def spans_of(line: str) -> list[Span]:
    """Return where the words of a line stand."""
    return [match.span() for match in _WORD.finditer(line)]


def heading_evidence(first: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how many columns have a name, less those whose first cell is like the others.

    Args:
        first: The first row.
        rows: Rows behind it.
    """
    if _counts_up(first) and share_of(rows, _counts_up) < MOST / 2:
        return len(first)
    evidence = 0
    others = [row for row in rows if row != first]
    for index, name in enumerate(first):
        column = [row[index] for row in others if len(row) > index]
        cells = list(filter(None, column))
        if name and name not in MARKERS and cells:
            evidence += _vote(name, cells)
    return evidence


def _counts_up(row: Sequence[str]) -> bool:
    """Return whether its numbers are in equal steps, as minutes and years that name columns are."""
    numbers = [int(cell) for cell in row if _SMALL.fullmatch(cell)]
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) >= _MIN_SMALL and len(steps) == 1 and 0 not in steps


def _is_year(cell: str) -> bool:
    return _YEAR.fullmatch(cell) is not None


def _is_number(cell: str) -> bool:
    return NUMBER.fullmatch(cell) is not None


def _vote(name: str, cells: Sequence[str]) -> int:
    """Return 1 if the cells have something in common that their name lacks, less if it has it."""
    if name in cells:
        # Among keys, as in a list of fields with a field `name`, it would be the only one twice.
        # Digests are of one length, and the first of a list may come again.
        are_names = len(set(map(len, cells))) > 1
        is_key = are_names and len(cells) >= _MIN_KEYS and len(set(cells)) == len(cells)
        return 0 if is_key else -2
    if share_of(cells, _is_number) >= MOST:
        if not _is_number(name):
            return int(name[0].isalpha() or not any(map(str.isdigit, name)))
        # A year above other numbers says when they were measured.
        return 1 if _is_year(name) and share_of(cells, _is_year) < MOST / 2 else -1
    # Such as digests, ids and modes of files.
    if len(name) >= _ID_CHARS and all(len(cell) == len(name) for cell in cells):
        return -1
    common = set()
    for mark in set(_MARKS.findall(cells[0])):
        if sum(mark in cell for cell in cells) >= MOST * len(cells):
            common.add(mark)
    if not common <= set(name):
        return 1
    return -1 if common - _NAME_MARKS else 0
