"""`select_by_keywords`: which pointers share words with a query, by counting."""

import re
from collections.abc import Sequence
from typing import Literal

from llm_common.pointers.pointer import ContextPointer

__all__ = ["OnNoMatch", "select_by_keywords"]

OnNoMatch = Literal["all", "none"]

_LEAST_WORD = 3
_WORD = re.compile(r"[^\W_]+")


def select_by_keywords(
    query: str, pointers: Sequence[ContextPointer], *, on_no_match: OnNoMatch
) -> list[ContextPointer]:
    """The pointers whose summaries share words with the query, by how many, ties in the order given.

    Words have three letters or more; case does not count.

    Args:
        query: Any text.
        pointers: The candidates.
        on_no_match: What no match gives: all candidates in their order, or none.
    """
    words = _words(query)
    scores = [len(words & _words(pointer.summary)) for pointer in pointers]
    order = sorted(range(len(pointers)), key=lambda number: -scores[number])
    related = [pointers[number] for number in order if scores[number]]
    return related or (list(pointers) if on_no_match == "all" else [])


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) >= _LEAST_WORD}
