"""`FoldCompactor`: folding for Haystack's `CompactionHook`.

And Haystack's messages as folding reads them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from haystack.dataclasses import ChatMessage, ChatRole, TextContent
from haystack.hooks.compaction.types import Compactor
from haystack.token_counters import TokenCounter

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ConfigError, TokenBudgetError
from llm_common.history import FoldPolicy
from llm_common.integrations.translation import fold_messages, run_sync
from llm_common.pointers.store import ContextPointerStore

_MIN_LIMIT_TOKENS: Final = 200
_TARGET_SHARE: Final = 0.9  # the caller has set the target already


class MadeInCode:
    """What Haystack cannot write to a file."""

    def to_dict(self) -> dict[str, Any]:
        """Raises `ConfigError`: a store and its settings are no plain values."""
        kind = type(self).__name__
        raise ConfigError(
            f"a {kind} cannot be serialised; make it and its agent in code", variable="store"
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:  # noqa: ARG003 - Haystack's protocol
        """Raises `ConfigError`, as `to_dict`."""
        raise ConfigError(
            f"a {cls.__name__} cannot be serialised; make it and its agent in code",
            variable="store",
        )


class FoldCompactor(MadeInCode, Compactor):
    """`fold` for Haystack's `CompactionHook`: what is not shown goes behind pointers.

    For agents without an `LLMCommonHook`, which folds by itself; take its tools all the same.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
        session_id: The session, as `hook_context` names it.
    """

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> None:
        self._session = Sessions.over(store, config).get(session_id)

    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """Return the messages within the target, or None if that makes them no smaller.

        Raises:
            StoreError: What is folded could not be stored; the messages are what they were.
        """
        return run_sync(self.compact_async(messages, target_tokens, token_counter))

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """As `compact`."""
        limit_tokens = max(target_tokens, _MIN_LIMIT_TOKENS)
        while (folded := await self._folded(messages, limit_tokens, token_counter)) is None:
            limit_tokens *= 2
        return folded if token_counter.count(folded) < token_counter.count(messages) else None

    async def _folded(
        self, messages: list[ChatMessage], limit_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """Return the messages within a limit, or None if what is never folded is over it."""
        config = replace(
            self._session.config,
            fold=FoldPolicy(max_tokens=limit_tokens, target_share=_TARGET_SHARE),
            counter=_TextCounter(token_counter),
        )
        session = Session(self._session.store, session_id=self._session.session_id, config=config)
        try:
            return await fold_messages(session, messages, read=read_message, write=write_message)
        except TokenBudgetError:
            return None


class _TextCounter:
    """Haystack's counter as one of ours; a text counts with the marks of a message."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def count(self, text: str) -> int:
        return int(self._counter.count([ChatMessage.from_user(text)]))


def read_message(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the shape of OpenAI's chat completions, without images."""
    if result := message.tool_call_result:
        return {
            "role": "tool",
            "tool_call_id": _id(result.origin),
            "content": result_text(result) or "",
        }
    fields: dict[str, Any] = {"role": message.role.value, "content": "\n".join(message.texts)}
    if message.tool_calls:
        fields["tool_calls"] = [*map(_call, message.tool_calls)]
    return fields


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call.tool_name, "arguments": json.dumps(call.arguments)}
    return {"id": _id(call), "function": function}


def write_message(message: ChatMessage | None, content: str) -> ChatMessage:
    """Return a message with another text, or a new one of the user."""
    if message is None:
        return ChatMessage.from_user(content)
    if result := message.tool_call_result:
        return ChatMessage.from_tool(
            content, origin=result.origin, error=result.error, meta=message.meta
        )
    if message.is_from(ChatRole.USER):
        parts: list[Any] = [TextContent(content), *message.images, *message.files]
        return ChatMessage.from_user(content_parts=parts, meta=message.meta, name=message.name)
    return ChatMessage.from_assistant(content, meta=message.meta, name=message.name)


def _id(call: Any) -> str:
    return str(call.id or call.tool_name)


def result_text(result: Any) -> str | None:
    """Return a result as a text, or None if it holds an image or a file."""
    if isinstance(result.result, str):
        return str(result.result)
    texts = [part.text for part in result.result if isinstance(part, TextContent)]
    return "\n".join(texts) if texts and len(texts) == len(result.result) else None
