"""Whether a first row names the columns, or is a record like the others."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from llm_common.tables.column_types import MARKERS
from llm_common.tables.forms.fit import MOST, share_of

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


def heading_evidence(first: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how many columns have a name, less those whose first cell is like the others.

    Args:
        first: The first row.
        rows: Rows behind it.
    """
    if _counts_up(first) and share_of(rows, _counts_up) < MOST / 2:
        return len(first)
    evidence = 0
    for index, name in enumerate(first):
        cells = [row[index] for row in rows if len(row) > index and row[index] and row != first]
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
        is_key = len(cells) >= _MIN_KEYS and len(set(cells)) == len(cells)
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
