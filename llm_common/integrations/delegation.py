"""Let agents that call each other read the pointers that they hand over.

A sub-agent with hooks joins the session of the agent that called it: `calling` and
`session_of_caller`. If it has a session of its own, `take_over` adds the results that are named to
it. A sub-agent without hooks has no tool that reads, so `inlined` puts the results into its input.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from llm_common.agents import ContextPointer, Session, Sessions, text_of
from llm_common.core import count_tokens
from llm_common.errors import StoreError
from llm_common.runtime import in_thread
from llm_common.tables import result_name
from llm_common.text import decode_json, excerpt_text, in_fence


@dataclass(frozen=True)
class SessionCall:
    """A tool call of a session.

    Attributes:
        session: The session.
        args: The arguments of the call, which name what a sub-agent may read.
        outer: The call in which the agent of this session runs. None if no agent called it.
        delegates: The sessions whose tools were called within this call.
    """

    session: Session
    args: object
    outer: "SessionCall | None"
    delegates: set[Session] = field(default_factory=set)


_CALL: Final[ContextVar[SessionCall | None]] = ContextVar("llm_common_call", default=None)
_POINTER_ID: Final = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{12,16}(?![0-9a-zA-Z])")
_MAX_CHARS_PER_TOKEN: Final = 16


@contextmanager
def calling(session: Session, args: object = None) -> Iterator[SessionCall]:
    """Run the block as a tool call of a session, including its tasks and threads."""
    call = _call_of(session, args)
    token = _CALL.set(call)
    try:
        yield call
    finally:
        _CALL.reset(token)


def begin_call(session: Session, args: object = None) -> None:
    """Run the rest of this asyncio task as a tool call of a session. Ends with the task."""
    _CALL.set(_call_of(session, args))


def _call_of(session: Session, args: object) -> SessionCall:
    outer = _CALL.get()
    if outer is not None:
        outer.delegates.add(session)
    return SessionCall(session, args, outer)


def session_of_caller(sessions: Sessions) -> Session | None:
    """Return the session of the tool call that this code runs in, or None outside of one.

    Use it only where the framework or the application has not named the conversation: a name that
    was given wins. Sub-agents that store elsewhere cannot read the caller's results.
    """
    call = _CALL.get()
    return None if call is None else sessions.with_id(call.session.session_id)


async def take_over_from_callers(session: Session) -> None:
    """Add what the calls that this code runs in hand to a sub-agent to its own session.

    A result of the caller is added only if the arguments of its call name it, so a sub-agent never
    reads what the caller's model did not write.
    """
    call = _CALL.get()
    while call is not None:
        await take_over(session, call.args, call.session)
        call = call.outer


async def take_over(session: Session, words: object, giver: Session) -> None:
    """Let a session read those results of another one that words name.

    Args:
        session: The session that gets the results.
        words: What one agent tells the other. It names a result by its id or its table.
        giver: The session that has the results.
    """
    if giver is session:
        return
    with suppress(StoreError):  # reading one of them says why
        for pointer in await in_thread(_named_in, words, giver):
            session.results.adopt(pointer)


def _named_in(words: object, giver: Session) -> list[ContextPointer]:
    text = str(words).lower()
    named = []
    for pointer in giver.results.list_readable():
        table = result_name(pointer.tool_name, pointer.pointer_id).lower()
        if pointer.pointer_id in text or table in text:
            named.append(pointer)
    return named


async def inlined(session: Session, value: Any) -> Any:
    """Return arguments with the results after the texts that contain their pointers.

    Args:
        session: Has the results. Ids of other sessions stay as they are.
        value: The arguments, as plain data.

    Returns:
        A copy. Each result is whole up to `max_whole_tokens`, and otherwise has its beginning and
        end, with the number of characters that are missing.
    """
    if isinstance(value, str):
        texts = [value]
        for pointer_id in dict.fromkeys(_POINTER_ID.findall(value)):
            try:
                _, payload = await in_thread(session.results.load_payload, pointer_id)
            except StoreError:
                continue
            texts.append(await in_thread(_shown, session, pointer_id, payload))
        return "\n\n".join(texts)
    if isinstance(value, Mapping):
        return {name: await inlined(session, part) for name, part in value.items()}
    if isinstance(value, list):
        return [await inlined(session, part) for part in value]
    return value


def _shown(session: Session, pointer_id: str, payload: bytes) -> str:
    text = text_of(decode_json(payload))
    max_tokens = session.config.offload.max_whole_tokens
    # No more is counted, since counting megabytes takes seconds.
    beginning = text[: max_tokens * _MAX_CHARS_PER_TOKEN]
    tokens = count_tokens(session.config.counter, beginning)
    # All of it if it has fewer tokens than the limit.
    max_chars = len(beginning) * max_tokens // max(tokens, max_tokens, 1)
    excerpt = excerpt_text(text, max_chars).text
    return f"The result {pointer_id}, {len(text):,} characters:\n{in_fence(excerpt)}"
