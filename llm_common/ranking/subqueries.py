"""The parts of a request that asks for several things."""

import re
from typing import Final

from llm_common.ranking.lexical import query_terms

__all__ = ["MAX_PARTS", "split_request"]

MAX_PARTS: Final = 4
"""A text with more parts is prose, whose sentences are no wishes of their own."""

_FEWEST_TERMS: Final = 2
_SEAM: Final = re.compile(
    r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+"  # noqa: RUF001 - the sentence ends of Chinese and Japanese
    r"|,?\s+(?:and\s+then|then|and\s+also|as\s+well\s+as)\s+",
    re.IGNORECASE,
)


def split_request(text: str) -> tuple[str, ...]:
    """The sentences, lines and "and then" parts of a request, two to four; none when it is one part, or prose.

    Each part is worth a search of its own, since the words of one thing that is asked for drown those of another.
    Pieces with fewer than two words to look up, such as "Thanks!", are no parts.
    """
    parts = [part.strip() for part in _SEAM.split(text) if len(query_terms(part)) >= _FEWEST_TERMS]
    return tuple(parts) if len(parts) in range(2, MAX_PARTS + 1) else ()
