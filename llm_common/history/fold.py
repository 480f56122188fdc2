"""`fold` a long history to a token limit, and search what is not shown of it."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import record
from llm_common._threads import in_thread
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.history.folding import (
    SEARCH_NAME,
    FoldedPart,
    FoldPolicy,
    StoredPart,
    plan_fold,
)
from llm_common.history.message_shapes import Message, read_messages
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import ContextPointer, checked_query_id, compute_pointer_id
from llm_common.pointers.reading import READER_NAME
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.display import in_fence
from llm_common.tools.read_back import ReadBackTool
from llm_common.tools.tool import Tool

_MAX_FOUND: Final = 20


class Folded(BaseModel):
    """A history within its limit.

    Attributes:
        messages: What to send, in the shape of what was given: system messages, at most one message
            that tells what was folded, then the messages that stay.
        tokens: What they take.
        parts: What is behind pointers, in the order in which it was folded.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    messages: tuple[Any, ...]
    tokens: int
    parts: tuple[FoldedPart, ...] = ()


async def fold(
    messages: Sequence[Message],
    *,
    store: ContextPointerStore,
    session_id: str,
    policy: FoldPolicy | None = None,
    counter: TokenCounter | None = None,
) -> Folded:
    """A history within `policy.max_tokens`.

    What is not shown of it is stored, and can be read back word for word. Give the whole history
    each time: the same history gives the same messages, and a longer one begins with the bytes of a
    shorter one, but for the few turns that take a step of folding. Folded are, as far as needed:
    earlier outputs of a repeated call, the largest outputs, the oldest messages. Calls and their
    outputs stay together. The system messages at the head, the user's newest message and the newest
    message stay; a text that alone takes most of the limit is cut in its middle, which is said and
    stored. One message tells what was folded: wishes, decisions, names and numbers in their own
    words, and a line for each message while there is room.

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
    _check_store(store, session_id)
    policy, counter = policy or FoldPolicy(), counter or DefaultCounter()
    history = read_messages(messages)
    stored_ids: dict[str, str] = {}  # by the id that a part would have

    def id_of(part: StoredPart) -> str:
        own_id = compute_pointer_id(
            tool_name=part.tool_name, args=part.args, query_id=session_id, task_id=part.task_id
        )
        return stored_ids.get(own_id, own_id)

    while True:
        plan = await in_thread(plan_fold, history, policy=policy, counter=counter, id_of=id_of)
        parts = {part.pointer_id: stored for part, stored in plan.parts}
        if parts:
            for pointer in await in_thread(store.list, query_id=session_id):
                parts.pop(pointer.pointer_id, None)
        saved = await asyncio.gather(
            *(_save(store, session_id, stored) for stored in parts.values())
        )
        moved = False
        for own_id, pointer in zip(parts, saved, strict=True):
            if own_id != pointer.pointer_id:
                # Another call has the short id: plan again with the longer one.
                stored_ids[own_id] = pointer.pointer_id
                moved = True
        if not moved:
            break
    folded = Folded(
        messages=plan.messages, tokens=plan.tokens, parts=tuple(part for part, _ in plan.parts)
    )
    record(
        "fold",
        folded=folded,
        session_id=session_id,
        limit_tokens=policy.max_tokens,
        message_count=len(history),
    )
    return folded


async def _save(store: ContextPointerStore, session_id: str, part: StoredPart) -> ContextPointer:
    return await store.save(
        query_id=session_id,
        task_id=part.task_id,
        tool_name=part.tool_name,
        args=part.args,
        result=part.result,
    )


async def search_history(
    query: str, *, store: ContextPointerStore, session_id: str, limit: int = 5
) -> tuple[FoundMessage, ...]:
    """Find what was folded or stored in a session and shares words with a query, best first.

    A damaged output is skipped.

    Args:
        query: What to find.
        store: Keeps what was folded.
        session_id: The conversation.
        limit: Maximum number of findings, up to 20.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If the store cannot be read.
        TypeError: If `query` is not a str, or `store` not a `ContextPointerStore`.
    """
    _check_store(store, session_id)
    if not isinstance(query, str):
        raise TypeError(
            f"query is of type {type(query).__name__}; pass the words to find as a text"
        )
    limit = min(max(limit, 0), _MAX_FOUND)
    return await in_thread(search_messages, query, store, query_ids=[session_id], limit=limit)


def _check_store(store: object, session_id: str) -> None:
    # A short history needs neither: the mistake would show when the conversation has grown.
    if not isinstance(store, ContextPointerStore):
        raise TypeError(
            f"store is a {type(store).__name__}; pass a store, such as "
            f"FileContextPointerStore(folder)"
        )
    checked_query_id(session_id, store.redactor)


def history_tools(
    store: ContextPointerStore,
    *,
    session_id: str,
    reader_name: str = READER_NAME,
    search_name: str = SEARCH_NAME,
) -> tuple[Tool, Tool]:
    """Return the tools that a model needs beside a folded history: to read and to search.

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
    _check_store(store, session_id)

    async def search(query: str) -> str:
        found = await search_history(query, store=store, session_id=session_id)
        if not found:
            return "Nothing that was folded holds these words; try others."
        return in_fence("\n".join(message.line for message in found))

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
