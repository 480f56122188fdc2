"""The page of a search: where its words occur in each output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llm_common.agents import output_label
from llm_common.apps.inspector.marking import Fragment, Marker
from llm_common.pointers import PointerMatch

_EXCERPT_CHARS: Final = 240
_CHARS_BEFORE: Final = 80  # of the first matched word


@dataclass(frozen=True, slots=True)
class SearchRow:
    """A match of a search.

    Attributes:
        match: The match.
        name: Its call, in which words of the search are marked.
        excerpt: A passage around these words. Empty if only the call has them.
    """

    match: PointerMatch
    name: tuple[Fragment, ...]
    excerpt: tuple[Fragment, ...]


def search_rows(matches: Sequence[PointerMatch], words: str) -> list[SearchRow]:
    """Return the rows of a search, in which its words are marked."""
    rows = []
    for match in matches:
        marker = Marker(words, ())
        name = marker.fragments(output_label(match.pointer))
        # Without a search in results, the record has the beginning of the result.
        passage = match.passage or marker.around(
            match.pointer.digest, before=_CHARS_BEFORE, chars=_EXCERPT_CHARS
        )
        rows.append(SearchRow(match, name, marker.fragments(passage)))
    return rows
