"""`fold` and `search_history`: a long history within a token limit, and what is in the part that is not shown."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import record
from llm_common._threads import in_thread
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import PointerNotFoundError
from llm_common.history.folding import (
    HISTORY_TOOL,
    SEARCH_NAME,
    FoldedPart,
    FoldPolicy,
    StoredPart,
    plan_fold,
)
from llm_common.history.message_shapes import HistoryMessage, Message, read_messages
from llm_common.pointers.pointer import ContextPointer, compute_pointer_id
from llm_common.pointers.reading import READER_NAME
from llm_common.pointers.save import checked_query_id
from llm_common.pointers.store import ContextPointerStore
from llm_common.ranking import folded as folded_text, places_of, scan, search_stems
from llm_common.text.display import in_fence, one_line, to_json
from llm_common.tools.read_back import ReadBackTool
from llm_common.tools.tool import Tool

_MAX_FOUND: Final = 20
_SHOWN_CHARS: Final = 400
_NAME_CHARS: Final = 100
_READ_CHARS: Final = 100_000  # of one message or result
_WEIGHTS: Final = (1.0,)


class Folded(BaseModel):
    """A history within its limit.

    Attributes:
        messages: What to send, in the shape of what was given: system messages, at most one message
            that tells what was folded, then the messages that stay.
        tokens: What they take.
        parts: What is behind pointers, in the order in which it was folded.
    """

    model_config = ConfigDict(frozen=True, defer_build=True, arbitrary_types_allowed=True)

    messages: tuple[Any, ...]
    tokens: int
    parts: tuple[FoldedPart, ...] = ()


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

    model_config = ConfigDict(frozen=True, defer_build=True)

    pointer_id: str
    path: str
    role: str
    text: str
    total_chars: int
    score: float

    @property
    def line(self) -> str:
        """The finding as a model sees it."""
        place = f"id {self.pointer_id}" + (f", path {self.path}" if self.path else "")
        rest = self.total_chars - len(self.text)
        unseen = (
            f" [{rest:,} more characters are not shown and have not been read]" if rest > 0 else ""
        )
        return f"{place}, {self.role}: {self.text}{unseen}"


async def fold(
    messages: Sequence[Message],
    *,
    store: ContextPointerStore,
    session_id: str,
    policy: FoldPolicy | None = None,
    counter: TokenCounter | None = None,
) -> Folded:
    """A history within `policy.limit_tokens`.

    What is not shown of it is stored, and can be read back word for word.
    Give the whole history each time: the same history gives the same messages, and a longer one
    begins with the bytes of a shorter one, but for the few turns that take a step of folding.
    Folded are, as far as needed: earlier outputs of a repeated call, the largest outputs, the
    oldest messages. Calls and their outputs stay together. The system messages at the head, the
    user's newest message and the newest message stay; a text that alone takes most of the limit is
    cut in its middle, which is said and stored. One message tells what was folded: wishes,
    decisions, names and numbers in their own words, and a line for each message while there is
    room.

    Args:
        messages: Oldest first: `LLMMessage`s, or dicts in the shape of OpenAI's chat completions or
            of Anthropic's messages; calls and blocks may be the SDK's own objects. Not changed.
        store: Keeps what is folded.
        session_id: The conversation, as a query id of the store.
        policy: Limits, and the names of the tools that read back; None takes the defaults.
        counter: Counts tokens; None takes `DefaultCounter`.

    Raises:
        TokenBudgetError: What is never folded is over the limit; `.needed_tokens` holds how much it
            takes.
        TypeError: `messages` is no list, one is neither an `LLMMessage` nor a dict with a known
            role, `store` is no `ContextPointerStore`, or the counter returned no whole number.
        UnserialisableError: JSON cannot stand for a message.
        InvalidIdError: `session_id` is not allowed.
        StoreError: What is folded could not be stored; nothing may be sent then.
    """
    _check_given(store, session_id)
    policy, counter = policy or FoldPolicy(), counter or DefaultCounter()
    given = read_messages(messages)
    ids: dict[str, str] = {}

    def id_of(part: StoredPart) -> str:
        own = compute_pointer_id(
            tool_name=part.tool_name, args=part.args, query_id=session_id, task_id=part.task_id
        )
        return ids.get(own, own)

    while True:
        plan = await in_thread(plan_fold, given, policy=policy, counter=counter, id_of=id_of)
        wanted = {one.pointer_id: stored for one, stored in plan.parts}
        known = (
            {pointer.pointer_id for pointer in await in_thread(store.list, query_id=session_id)}
            if wanted
            else ()
        )
        new = {
            pointer_id: stored for pointer_id, stored in wanted.items() if pointer_id not in known
        }
        saved = await asyncio.gather(*(_save(store, session_id, stored) for stored in new.values()))
        moved = {
            own: pointer.pointer_id
            for own, pointer in zip(new, saved, strict=True)
            if own != pointer.pointer_id
        }
        if not moved:
            whole = Folded(
                messages=plan.messages,
                tokens=plan.tokens,
                parts=tuple(part for part, _ in plan.parts),
            )
            record(
                "fold",
                folded=whole,
                session_id=session_id,
                limit_tokens=policy.limit_tokens,
                given=len(given),
            )
            return whole
        ids |= moved  # another call has the short id: plan again with the longer one


async def _save(store: ContextPointerStore, session_id: str, part: StoredPart) -> ContextPointer:
    return await store.save(
        query_id=session_id,
        task_id=part.task_id,
        tool_name=part.tool_name,
        args=part.args,
        result=part.result,
    )


async def search_history(
    query: str, *, store: ContextPointerStore, session_id: str, k: int = 5
) -> tuple[FoundMessage, ...]:
    """What was folded or stored in a session and holds words of the query, the best first.

    None without a match.

    Args:
        query: What to find.
        store: Keeps what was folded.
        session_id: The conversation.
        k: Most findings, up to 20.

    Raises:
        InvalidIdError: `session_id` is not allowed.
        StoreError: The store cannot be read.
        TypeError: `query` is no text, or `store` no `ContextPointerStore`.
    """
    _check_given(store, session_id)
    if not isinstance(query, str):
        raise TypeError(
            f"query is of type {type(query).__name__}; pass the words to find as a text"
        )
    return await in_thread(_search, query, store, session_id, min(max(k, 0), _MAX_FOUND))


def _check_given(store: object, session_id: str) -> None:
    # A short history needs neither: the mistake would show when the conversation has grown.
    if not isinstance(store, ContextPointerStore):
        raise TypeError(
            f"store is a {type(store).__name__}; pass a store, such as FileContextPointerStore(folder)"
        )
    checked_query_id(session_id, store.redactor)


def _search(
    query: str, store: ContextPointerStore, session_id: str, k: int
) -> tuple[FoundMessage, ...]:
    rows = [row for pointer in store.list(query_id=session_id) for row in _rows(store, pointer)]
    scores = scan(
        query, [(folded_text(text[:_READ_CHARS]),) for _, _, _, text in rows], weights=_WEIGHTS
    )
    best = sorted(zip(scores, range(len(rows)), strict=True), key=lambda row: (-row[0], row[1]))[:k]
    stems = search_stems(query)
    return tuple(
        FoundMessage(
            pointer_id=rows[number][0],
            path=rows[number][1],
            role=rows[number][2],
            text=_around(rows[number][3][:_READ_CHARS], stems),
            total_chars=len(" ".join(rows[number][3].split())),
            score=round(score, 4),
        )
        for score, number in best
        if score > 0
    )


def _rows(store: ContextPointerStore, pointer: ContextPointer) -> list[tuple[str, str, str, str]]:
    """Pointer, path, role and text of each message or output that a pointer holds.

    None if it is gone.
    """
    try:
        result: Any = store.load_result(pointer=pointer)
    except PointerNotFoundError:  # expired since it was listed
        return []
    if pointer.tool_name == HISTORY_TOOL and _are_messages(result):
        messages = (HistoryMessage(data, data, int(number)) for number, data in result.items())
        return [
            (
                pointer.pointer_id,
                f"/{one.number}",
                one.role,
                "\n".join([one.text, *(out.text for out in one.outputs)]),
            )
            for one in messages
        ]
    text = result if isinstance(result, str) else to_json(result)
    return [(pointer.pointer_id, "", one_line(pointer.tool_name, max_chars=_NAME_CHARS), text)]


def _are_messages(result: Any) -> bool:
    """Whether a result is folded messages by their numbers, and not of a tool that has the name too."""
    return isinstance(result, dict) and all(
        number.isdecimal() and isinstance(data, dict) and "role" in data
        for number, data in result.items()
    )


def _around(text: str, stems: Sequence[str]) -> str:
    """The part of the text with the most of the words, in one line."""
    size = _SHOWN_CHARS - 2  # of which marks for what is missing before and after take two
    starts = range(0, max(len(text) - size // 2, 1), size // 2)
    windows = [folded_text(text[start : start + size]) for start in starts]
    held = Counter(place for stem in stems for place in places_of(stem, windows))
    best = max(range(len(windows)), key=lambda place: (held[place], -place))
    start = max(min(starts[best], len(text) - size), 0)
    return one_line(("…" if start else "") + text[start:], max_chars=_SHOWN_CHARS)


def history_tools(
    store: ContextPointerStore,
    *,
    session_id: str,
    reader_name: str = READER_NAME,
    search_name: str = SEARCH_NAME,
) -> tuple[Tool, Tool]:
    """The tools that a model needs beside a folded history: one reads by id, one finds by words.

    Args:
        store: Keeps what was folded.
        session_id: The conversation; nothing of another one can be read.
        reader_name: As in the policy.
        search_name: As in the policy.

    Raises:
        ConfigError: A name is not allowed.
        InvalidIdError: `session_id` is not allowed.
        TypeError: `store` is no `ContextPointerStore`.
    """
    _check_given(store, session_id)

    async def search(query: str) -> str:
        found = await search_history(query, store=store, session_id=session_id)
        if not found:
            return "Nothing that was folded holds these words; try others."
        return in_fence("\n".join(one.line for one in found))

    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words that were said or returned."}
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    description = (
        "Finds earlier messages and tool outputs of this conversation that are not shown any more."
    )
    reader = ReadBackTool(partial(store.load_payload, query_id=session_id), name=reader_name)
    return reader, Tool(search, name=search_name, description=description, parameters=parameters)
