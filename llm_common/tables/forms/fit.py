"""How well lines fit a form."""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

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


def share_of(lines: Sequence[T], fits: Callable[[T], bool]) -> float:
    """Return the share of lines, or of other things, that fit."""
    return sum(map(fits, lines)) / len(lines) if lines else 0.0


def has_gaps(line: str) -> bool:
    """Return whether a line may be a heading of columns. Prose has single spaces only."""
    return line.isupper() or "  " in line.strip()


def spans_of(line: str) -> list[Span]:
    """Return where the words of a line stand."""
    return [match.span() for match in _WORD.finditer(line)]
