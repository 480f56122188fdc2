"""The page of a search: where its words occur in each output."""

from collections.abc import Sequence
from typing import Final

from llm_common.agents import ContextPointer, output_label
from llm_common.apps.inspector.marking import Fragment, Marker
from llm_common.pointers import PointerMatch

_EXCERPT_CHARS: Final = 240
_CHARS_BEFORE: Final = 80  # of the first matched word


def search_rows(
    matches: Sequence[PointerMatch], words: str
) -> list[tuple[ContextPointer, tuple[Fragment, ...], tuple[Fragment, ...]]]:
    """Return each match of a search, its call, and a passage, in which the words are marked.

    The passage is empty if only the call has the words.
    """
    rows = []
    for match in matches:
        marker = Marker(words, ())
        pointer = match.pointer
        # Without a search in results, the record has the beginning of the result.
        passage = match.passage or marker.around(
            pointer.digest, before=_CHARS_BEFORE, chars=_EXCERPT_CHARS
        )
        name = marker.fragments(output_label(pointer))
        rows.append((pointer, name, marker.fragments(passage)))
    return rows
