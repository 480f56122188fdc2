"""`fold` a long history to a token limit, and search its folded messages."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import record, span
from llm_common._threads import in_thread
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import TokenBudgetError, UnserialisableError
from llm_common.history.folding import FoldPlan, StoredPart, plan_fold
from llm_common.history.message_shapes import HistoryMessage, Message, read_messages
from llm_common.history.policy import SEARCH_NAME, FoldedPart, FoldPolicy
from llm_common.history.references import has_references, named_results
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import (
    ContextPointer,
    checked_query_id,
    compute_pointer_id,
    time_text,
)
from llm_common.pointers.prompt_forms import FramedResult
from llm_common.pointers.reading import READER_NAME
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.display import in_fence
from llm_common.tools.read_back import ReadBackTool
from llm_common.tools.tool import Tool

_MAX_MATCHES: Final = 20


class Folded(BaseModel):
    """A history within its limit.

    Attributes:
        messages: The messages to send, in the shape of the caller's: system messages, the pins,
            at most one note about folded messages, then the messages that stay.
        tokens: Tokens of these messages.
        parts: The stored parts, in the order of folding.
        role_tokens: Tokens of the messages by role.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    messages: tuple[Any, ...]
    tokens: int
    parts: tuple[FoldedPart, ...] = ()
    role_tokens: dict[str, int] = {}


async def fold(
    messages: Sequence[Message],
    *,
    store: ContextPointerStore,
    session_id: str,
    policy: FoldPolicy | None = None,
    counter: TokenCounter | None = None,
    ttl_s: float | None = None,
    pinned: Sequence[str | Message] = (),
) -> Folded:
    """Return a history within `policy.max_tokens`, and store the messages that it leaves out.

    The model can read every folded message back word for word. Pass the whole history each time:
    equal histories give equal messages. A longer history begins with the bytes of a shorter one,
    except at the few turns with a step of folding.

    Folding takes, in this order and only as far as needed, the largest outputs and the oldest
    messages. Calls and their outputs stay together. The leading
    system messages, the user's newest message and the newest message stay. A text that takes most
    of the limit by itself is cut in its middle, which is stored and marked.

    An output "Identical to the result above" of `Session.offload` is replaced by a line that names
    the pointer, once that result is no longer among the messages.

    A note lists the folded messages, within its share of the limit. It has what the user said for
    the conversation, word for word, his latest task, his consents with the calls that followed, the
    values that the next call may need, and where to read the rest. Only pins are called rules.

    What `pinned` has, and each message with the true key `pinned`, is in every prompt word for
    word, in one message behind the system messages. The key itself is not returned. What `fold`
    returned can be folded again and keeps its pins and what the user said.

    Args:
        messages: Oldest first: `LLMMessage`s, or dicts in the shape of OpenAI's chat completions or
            of Anthropic's messages. Calls and blocks may be the SDK's own objects. Never changed.
        store: Keeps the folded messages.
        session_id: The conversation, as a query id of the store.
        policy: Limits, and the names of the tools that read back. None takes the defaults.
        counter: Counts tokens. None takes `DefaultCounter`.
        ttl_s: Seconds that a folded message lives after it was last saved or read. Each fold saves
            those again that have lost half of it. None keeps them as long as the store does.
        pinned: Texts, or messages with a text, that every prompt has word for word.

    Raises:
        TokenBudgetError: If the messages that are never folded exceed the limit, or the pins with
            the newest message. `.needed_tokens` is their size.
        TypeError: If `messages` or `pinned` is not a list, a message is neither an `LLMMessage` nor
            a dict with a known role, pinned content has no text, `store` is not a
            `ContextPointerStore`, or the counter does not return an int.
        UnserialisableError: If a message cannot be written as JSON.
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If the folded messages could not be stored. Do not send anything then.
    """
    _check_store(store, session_id)
    policy = policy or FoldPolicy()
    history = read_messages(messages)
    pointers = None
    if await in_thread(has_references, history):
        listed = await in_thread(store.list, query_id=session_id)
        pointers = {pointer.pointer_id: pointer for pointer in listed}
    with span("llm_common.fold", {"llm_common.fold.messages": len(history)}) as current:
        plan_for = partial(
            plan_fold,
            history,
            session_id=session_id,
            policy=policy,
            counter=counter or DefaultCounter(),
            pinned=pinned,
            pointers=pointers,
        )
        plan = await _stored_plan(plan_for, store, session_id=session_id, ttl_s=ttl_s)
        current.set_attributes(
            {
                "gen_ai.conversation.compacted": bool(plan.parts),
                "llm_common.fold.sent": len(plan.messages),
                "llm_common.fold.parts": len(plan.parts),
                "llm_common.context.tokens": plan.tokens,
                "llm_common.context.budget_tokens": policy.max_tokens,
            }
        )
    folded = Folded(
        messages=tuple(message.raw for message in plan.messages),
        tokens=plan.tokens,
        parts=tuple(plan.parts),
        role_tokens=plan.role_tokens,
    )
    record(
        "fold",
        folded=folded,
        session_id=session_id,
        limit_tokens=policy.max_tokens,
        message_count=len(history),
    )
    return folded


async def _stored_plan(
    plan_for: Callable[..., FoldPlan],
    store: ContextPointerStore,
    *,
    session_id: str,
    ttl_s: float | None,
) -> FoldPlan:
    """Return the plan of a fold after its parts were stored."""
    longer_ids: dict[str, str] = {}  # of parts whose short id another call has

    def id_of(part: StoredPart) -> str:
        pointer_id = _pointer_id(part, session_id)
        return longer_ids.get(pointer_id, pointer_id)

    # The messages name the ids of their parts, so the plan needs the ids before anything is saved.
    while True:
        plan = await in_thread(plan_for, id_of=id_of)
        parts = {part.pointer_id: stored for part, stored in plan.parts.items()}
        if parts:
            for pointer in await in_thread(store.list, query_id=session_id):
                part = parts.get(pointer.pointer_id)
                if part is not None and _has(pointer, part, ttl_s):
                    del parts[pointer.pointer_id]
        saves = [_save(store, session_id, part, ttl_s) for part in parts.values()]
        is_final = True
        for pointer_id, pointer in zip(parts, await asyncio.gather(*saves), strict=True):
            if pointer_id != pointer.pointer_id:
                longer_ids[pointer_id] = pointer.pointer_id
                is_final = False
        if is_final:
            return plan


def _pointer_id(part: StoredPart, session_id: str) -> str:
    return compute_pointer_id(
        tool_name=part.tool_name, args=part.args, query_id=session_id, task_id=part.task_id
    )


def _has(pointer: ContextPointer, part: StoredPart, ttl_s: float | None) -> bool:
    """Return whether an earlier fold stored a part that need not be saved again."""
    # Another call can have the same short id. Equal task ids have equal content, since they
    # contain a digest of it.
    if (pointer.tool_name, pointer.task_id) != (part.tool_name, part.task_id):
        return False
    if ttl_s is None or pointer.expires_at is None or pointer.pinned:
        return True
    return pointer.expires_at > time_text(datetime.now(UTC) + timedelta(seconds=ttl_s / 2))


async def _save(
    store: ContextPointerStore, session_id: str, part: StoredPart, ttl_s: float | None
) -> ContextPointer:
    return await store.save(
        query_id=session_id,
        task_id=part.task_id,
        tool_name=part.tool_name,
        args=part.args,
        result=part.result,
        ttl_s=ttl_s,
        renew_on_read=ttl_s is not None,
    )


def results_in_view(
    messages: Sequence[Message],
    pointers: Sequence[ContextPointer],
    *,
    session_id: str,
    policy: FoldPolicy | None,
    counter: TokenCounter,
    pinned: Sequence[str | Message] = (),
) -> dict[str, bool]:
    """Return the ids of the stored results that `fold` leaves in view, unchanged. Stores nothing.

    The value of an id is whether the user has written anything after that result.

    Args:
        messages: The whole history, as `fold` gets it.
        pointers: The results in question.
        session_id: The conversation.
        policy: The limits of `fold`. None if the history is not folded.
        counter: Counts tokens.
        pinned: As for `fold`.
    """
    try:
        history = read_messages(messages)
        in_view = _in_view(history, pointers)
        if in_view and policy is not None:
            # Most histories show none of them, so few are planned twice.
            plan = plan_fold(
                history,
                session_id=session_id,
                policy=policy,
                counter=counter,
                pinned=pinned,
                id_of=lambda part: _pointer_id(part, session_id),
            )
            in_view = _in_view(plan.messages, pointers)
    except (TypeError, UnserialisableError, TokenBudgetError):
        # `fold` raises it for the caller. Here it only means that nothing is known to be in view.
        return {}
    return in_view


def _in_view(
    messages: Sequence[HistoryMessage], pointers: Sequence[ContextPointer]
) -> dict[str, bool]:
    by_id = {pointer.pointer_id: pointer for pointer in pointers}
    last_text = -1
    for index, message in enumerate(messages):
        if message.role == "user" and message.text:
            last_text = index
    in_view: dict[str, bool] = {}
    for result in named_results(messages, by_id):
        if result.is_in_view and isinstance(result.form, FramedResult):
            in_view[result.form.pointer_id] = result.message_index < last_text
    return in_view


def refers_to_results(messages: Sequence[Message]) -> bool:
    """Return whether an output of the messages refers to a result further up."""
    try:
        return has_references(read_messages(messages))
    except (TypeError, UnserialisableError):
        return False  # a session that does not fold takes any messages


async def search_history(
    query: str, *, store: ContextPointerStore, session_id: str, limit: int = 5
) -> tuple[FoundMessage, ...]:
    """Find the folded messages and outputs of a session that share words with a query, best first.

    A damaged output is skipped.

    Args:
        query: The words to find.
        store: The store with the folded messages.
        session_id: The conversation.
        limit: Maximum number of matches, up to 20.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If the store cannot be read.
        TypeError: If `query` is not a str, or `store` not a `ContextPointerStore`.
    """
    _check_store(store, session_id)
    limit = min(max(limit, 0), _MAX_MATCHES)
    return await in_thread(search_messages, query, store, query_ids=[session_id], limit=limit)


def _check_store(store: object, session_id: str) -> None:
    # A short history needs neither, and the mistake would appear only when it has grown.
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
    """Return the two tools that a model needs with a folded history, to read and to search.

    Args:
        store: The store with the folded messages.
        session_id: The conversation. The tools cannot read another one.
        reader_name: The reader's name, as in the policy.
        search_name: The search's name, as in the policy.

    Raises:
        ConfigError: If a name is not allowed.
        InvalidIdError: If `session_id` is not allowed.
        TypeError: If `store` is not a `ContextPointerStore`.
    """
    _check_store(store, session_id)

    async def search(query: str) -> str:
        matches = await search_history(query, store=store, session_id=session_id)
        if not matches:
            return "No folded message contains these words; try others."
        return in_fence("\n".join(match.line for match in matches))

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
