"""`search_messages`: finds words in stored outputs and in folded messages."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from llm_common.history.message_shapes import HistoryMessage
from llm_common.history.policy import HISTORY_TOOL
from llm_common.parts.passages import RankedPassages
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.search import PointerMatch, find_pointers, whole_result
from llm_common.pointers.store import ContextPointerStore
from llm_common.ranking.lexical import search_stems
from llm_common.text.canonical import decode_json
from llm_common.text.display import Excerpt, one_line

# As `fold` writes it. Python refuses to read a number of thousands of digits.
_POSITION = re.compile(r"[1-9][0-9]{0,8}")
_SHOWN_CHARS: Final = 400
_NAME_CHARS: Final = 100
_MAX_PASSAGE_CHARS: Final = 2 * _SHOWN_CHARS  # the parts with the rarest words are shown


class FoundMessage(BaseModel):
    """A message or an output that shares words with a query.

    Attributes:
        pointer_id: The id of the stored result to read back.
        path: JSON pointer of the message within the result. Empty for the whole result.
        role: The role of the message, or the name of the tool.
        text: The part with most of the words, in one line of at most 400 characters.
        unread_chars: Number of characters that `text` leaves out.
        score: From 0 to 1.
        places: Number of places in the message that have the words as they were asked for.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    path: str
    role: str
    text: str
    unread_chars: int
    score: float
    places: int = 0

    @property
    def line(self) -> str:
        """Return the match as a model sees it."""
        source = f"id {self.pointer_id}"
        if self.path:
            source += f", path {self.path}"
        if self.places > 1:
            source += f", the first of {self.places:,} places"
        line = f"{source}, {self.role}: {self.text}"
        if self.unread_chars > 0:
            line += f" [{self.unread_chars:,} more characters are not shown and have not been read]"
        return line


def search_messages(
    words: str,
    store: ContextPointerStore,
    *,
    query_ids: Collection[str],
    pointer_ids: Collection[str] | None = None,
    limit: int,
) -> tuple[FoundMessage, ...]:
    """Return the outputs and folded messages that share a word with a text, best first.

    A damaged output is skipped. The search blocks, so event loops call it in a thread.

    Args:
        words: The words to find.
        store: The store with the outputs.
        query_ids: The queries to search.
        pointer_ids: The pointers to search. None searches all pointers of the queries.
        limit: Maximum number of matches.

    Raises:
        InvalidIdError: If a query id is not allowed.
        StoreError: If the store cannot be read.
        TypeError: If `words` is not a str.
    """
    if not isinstance(words, str):
        raise TypeError(f"query must be a str, got {type(words).__name__}; pass the words to find")
    roles: dict[tuple[str, str], str] = {}

    def split(pointer: ContextPointer, payload: bytes) -> Iterator[tuple[str, str]]:
        messages = _folded_messages(pointer, payload)
        if not messages:
            yield from whole_result(pointer, payload)
        for message in messages:
            path = f"/{message.position}"
            roles[pointer.pointer_id, path] = message.role
            yield path, message.content

    search = find_pointers(
        store,
        words,
        query_id=query_ids,
        pointer_ids=pointer_ids,
        limit=limit,
        in_results=True,
        split=split,
        max_passage_chars=_MAX_PASSAGE_CHARS,
    )
    stems = search_stems(words)
    return tuple(_found_message(match, stems, roles) for match in search.matches)


def _folded_messages(pointer: ContextPointer, payload: bytes) -> list[HistoryMessage]:
    """Return the folded messages behind a pointer, or no messages for an output."""
    # A user's tool may be called `history` too, so the shape decides.
    result: Any = decode_json(payload) if pointer.tool_name == HISTORY_TOOL else None
    if not isinstance(result, dict):
        return []
    messages: list[HistoryMessage] = []
    for position, data in result.items():
        if not (_POSITION.fullmatch(position) and isinstance(data, dict) and "role" in data):
            return []
        messages.append(HistoryMessage(data, data, int(position)))
    return messages


def _found_message(
    match: PointerMatch, stems: Sequence[str], roles: Mapping[tuple[str, str], str]
) -> FoundMessage:
    pointer = match.pointer
    text, chars_shown = match.passage, len(match.passage)
    if chars_shown > _SHOWN_CHARS:
        best = RankedPassages(text, stems).best(max_size=_SHOWN_CHARS, count=len)
        best = best or Excerpt(text[:_SHOWN_CHARS], _SHOWN_CHARS)
        text, chars_shown = best.text, best.chars_shown
    elif not text:
        text = pointer.digest  # the words are in the call alone
    tool_name = one_line(pointer.tool_name, max_chars=_NAME_CHARS)
    return FoundMessage(
        pointer_id=pointer.pointer_id,
        path=match.path,
        role=roles.get((pointer.pointer_id, match.path), tool_name),
        text=one_line(text, max_chars=_SHOWN_CHARS),
        unread_chars=match.total_chars - chars_shown,
        score=round(match.score, 4),
        places=match.places,
    )
