"""Shows where the words of a search occur in an output."""

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
        label = output_label(match.pointer)
        rows.append(SearchRow(match, _marked(label, words), _excerpt(match, words)))
    return rows


def _excerpt(match: PointerMatch, words: str) -> tuple[Fragment, ...]:
    """Return a passage of the result, or of its beginning if results were not searched."""
    if match.passage:
        return _marked(match.passage, words)
    text = match.pointer.digest
    start = _first_mark(_marked(text, words))
    if start is None:
        return ()
    start = max(start - _CHARS_BEFORE, 0)
    part = text[start : start + _EXCERPT_CHARS]
    before = "…" if start else ""
    after = "…" if start + _EXCERPT_CHARS < len(text) else ""
    return _marked(f"{before}{part}{after}", words)


def _first_mark(fragments: tuple[Fragment, ...]) -> int | None:
    position = 0
    for fragment in fragments:
        if fragment.mark:
            return position
        position += len(fragment.text)
    return None


def _marked(text: str, words: str) -> tuple[Fragment, ...]:
    return Marker(words, ()).fragments(text)
