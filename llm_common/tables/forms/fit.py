"""How well lines fit a form."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

MAX_TEXT_CHARS: Final = 20_000_000
MIN_LINES: Final = 3
"""A header and two records."""
SAMPLE_LINES: Final = 40
MOST: Final = 0.9
"""Share of the lines that have to fit a form."""
MAX_LINE_CHARS: Final = 10_000
"""A longer line holds a document and no record."""


def share_of(lines: Sequence[T], fits: Callable[[T], bool]) -> float:
    """Return the share of lines, or of other things, that fit."""
    return sum(map(fits, lines)) / len(lines) if lines else 0.0


def has_gaps(line: str) -> bool:
    """Return whether a line may be a heading of columns. Prose has single spaces only."""
    return line.isupper() or "  " in line.strip()
