"""`search_pointers`: finds words in stored results and in folded messages."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import PointerNotFoundError
from llm_common.history.folding import HISTORY_TOOL
from llm_common.history.message_shapes import HistoryMessage
from llm_common.pointers.format import LoadsResults
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import folded, scan, search_stems
from llm_common.ranking.passages import RankedPassages
from llm_common.text.display import one_line, to_json

_SHOWN_CHARS: Final = 400
_NAME_CHARS: Final = 100
_MAX_RANKED_CHARS: Final = 2_000_000  # of one result: finding passages in more takes a second
_MAX_CHARS: Final = 20_000_000  # of all results together: scanning more takes seconds


class FoundMessage(BaseModel):
    """A message or an output that holds words of a query.

    Attributes:
        pointer_id: What to read back.
        path: JSON pointer of the message within it; empty for the whole.
        role: Who spoke, or the name of the tool.
        text: The part around the words, in one line of at most 400 characters.
        total_chars: Characters of the whole, each run of white space as one.
        score: From 0 to 1, the best first.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    path: str
    role: str
    text: str
    total_chars: int
    score: float

    @property
    def line(self) -> str:
        """The finding as a model sees it."""
        path = f", path {self.path}" if self.path else ""
        line = f"id {self.pointer_id}{path}, {self.role}: {self.text}"
        rest = self.total_chars - len(self.text)
        if rest <= 0:
            return line
        return f"{line} [{rest:,} more characters are not shown and have not been read]"


class _Entry(NamedTuple):
    """A text that may be found: an output, or one message of a folded range."""

    pointer_id: str
    path: str
    role: str
    text: str


def search_pointers(
    words: str, pointers: Sequence[ContextPointer], *, load: LoadsResults, limit: int
) -> tuple[FoundMessage, ...]:
    """Return the outputs and messages that hold words, best first, and older ones first on ties.

    Reads up to 20 million characters, the newest results first. Blocks.

    Args:
        words: What to find.
        pointers: Where to look, oldest first.
        load: Loads the results. One that is gone is left out.
        limit: How many findings.

    Raises:
        StoreError: If a result cannot be read.
    """
    stems = search_stems(words)
    if not stems or limit <= 0:
        return ()
    entries: list[_Entry] = []
    chars = 0
    for pointer in reversed(pointers):
        read = _entries_of(pointer, load)
        chars += sum(len(entry.text) for entry in read)
        if chars > _MAX_CHARS and entries:
            break
        entries[:0] = read
    scores = scan(words, [(folded(entry.text),) for entry in entries], weights=(1.0,))
    hits = [number for number, score in enumerate(scores) if score > 0]
    hits.sort(key=lambda number: (-scores[number], number))
    findings = []
    for number in hits[:limit]:
        entry = entries[number]
        found = FoundMessage(
            pointer_id=entry.pointer_id,
            path=entry.path,
            role=entry.role,
            text=_around(entry.text, stems),
            total_chars=len(" ".join(entry.text.split())),
            score=round(scores[number], 4),
        )
        findings.append(found)
    return tuple(findings)


def _entries_of(pointer: ContextPointer, load: LoadsResults) -> list[_Entry]:
    try:
        result: Any = load.load_result(pointer=pointer)
    except PointerNotFoundError:  # expired or erased since it was listed
        return []
    if pointer.tool_name != HISTORY_TOOL or not _are_messages(result):
        name = one_line(pointer.tool_name, max_chars=_NAME_CHARS)
        text = result if isinstance(result, str) else to_json(result)
        return [_Entry(pointer.pointer_id, "", name, text)]
    entries = []
    for number, data in result.items():
        message = HistoryMessage(data, data, int(number))
        text = "\n".join([message.text, *(output.text for output in message.outputs)])
        entries.append(_Entry(pointer.pointer_id, f"/{number}", message.role, text))
    return entries


def _are_messages(result: Any) -> bool:
    """Return whether a result is folded messages by number, and not of a tool of the same name."""
    if not isinstance(result, dict):
        return False
    return all(
        number.isdecimal() and isinstance(data, dict) and "role" in data
        for number, data in result.items()
    )


def _around(text: str, stems: Sequence[str]) -> str:
    """Return the passages with the rarest of the words, in one line."""
    passages = RankedPassages(text[:_MAX_RANKED_CHARS], stems)
    best = passages.best(room=_SHOWN_CHARS, count=len)
    return one_line(best.text if best else text, max_chars=_SHOWN_CHARS)
