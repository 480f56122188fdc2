"""Let a sub-agent read the pointers that a tool call hands to it.

A sub-agent with hooks joins the session of the agent that called it: `calling` and
`session_of_caller`. A sub-agent without hooks has no tool that reads, so `inlined` puts the results
into its input.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from llm_common.agents import Session, Sessions, text_of
from llm_common.core import count_tokens
from llm_common.errors import StoreError
from llm_common.runtime import in_thread
from llm_common.text import decode_json, excerpt_text, in_fence

_CALLER: Final[ContextVar[Session | None]] = ContextVar("llm_common_caller", default=None)
_POINTER_ID: Final = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{12,16}(?![0-9a-zA-Z])")
_MAX_CHARS_PER_TOKEN: Final = 16


@contextmanager
def calling(session: Session) -> Iterator[None]:
    """Run the block as a tool call of a session, including its tasks and threads."""
    token = _CALLER.set(session)
    try:
        yield
    finally:
        _CALLER.reset(token)


def begin_call(session: Session) -> None:
    """Run the rest of this asyncio task as a tool call of a session. Ends with the task."""
    _CALLER.set(session)


def session_of_caller(sessions: Sessions) -> Session | None:
    """Return the session of the tool call that this code runs in, or None outside of one.

    Use it only where the framework or the application has not named the conversation: a name that
    was given wins. Sub-agents that store elsewhere cannot read the caller's results.
    """
    caller = _CALLER.get()
    return None if caller is None else sessions.with_id(caller.session_id)


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
