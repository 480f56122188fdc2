"""Use pointers in Haystack's built-in hooks: `FoldCompactor` and `PointerResultStore`."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction.types import Compactor
from haystack.hooks.tool_result_offloading.types import ToolResultStore
from haystack.token_counters import TokenCounter

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import TokenBudgetError
from llm_common.history import FoldPolicy
from llm_common.integrations.haystack_common import NotSerializable, read_message, write_message
from llm_common.integrations.translation import fold_messages, run_sync
from llm_common.text import decode_json

# The smallest limit that `FoldPolicy` accepts.
_MIN_TOKENS: Final = 200
# Near 1, because Haystack's target is below its limit already.
_TARGET_SHARE: Final = 0.9


class FoldCompactor(NotSerializable, Compactor):
    """A compactor for Haystack's `CompactionHook` that folds old messages behind pointers.

    Use it for agents without an `LLMCommonHook`, which folds by itself. Give the agent that hook's
    tools, so that the model can read folded messages.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
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
        """Return the messages within the target, or None if folding makes them no smaller.

        If pinned messages exceed the target, the limit is doubled until they fit.

        Raises:
            StoreError: If a folded message could not be stored. The messages are unchanged.
        """
        return run_sync(self.compact_async(messages, target_tokens, token_counter))

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """Return the same as `compact`, asynchronously."""
        max_tokens = max(target_tokens, _MIN_TOKENS)
        while (folded := await self._fold(messages, max_tokens, token_counter)) is None:
            max_tokens *= 2
        if token_counter.count(folded) >= token_counter.count(messages):
            return None
        return folded

    async def _fold(
        self, messages: list[ChatMessage], max_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """Return the messages within a limit, or None if pinned messages exceed it."""
        # Haystack sets a target for each call, and the policy of a session is fixed.
        config = replace(
            self._session.config,
            fold=FoldPolicy(max_tokens=max_tokens, target_share=_TARGET_SHARE),
            counter=_TextCounter(token_counter),
        )
        session = Session(self._session.store, session_id=self._session.session_id, config=config)
        try:
            return await fold_messages(session, messages, read=read_message, write=write_message)
        except TokenBudgetError:
            return None


class _TextCounter:
    """A token counter that counts a text as Haystack counts a message."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def count(self, text: str) -> int:
        # Haystack counts messages only, so each text includes the marks around a message.
        return int(self._counter.count([ChatMessage.from_user(text)]))


class PointerResultStore(NotSerializable, ToolResultStore):
    """A result store for Haystack's `ToolResultOffloadHook` and `ToolResultOffloadCompactor`.

    A reference is the id of a pointer. The tools of an `LLMCommonHook` with the same `Sessions` and
    session read it.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
        session_id: The session, as `hook_context` names it. Others cannot be read.
    """

    supports_binary_content = True

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> None:
        self._session = Sessions.over(store, config).get(session_id)

    def write(self, *, key: str, content: str | bytes) -> str:
        """Store the content and return the id of its pointer. Raises `StoreError`."""
        result: Any = content
        if isinstance(content, bytes):
            # Results are JSON, which has no bytes.
            result = {"base64": base64.b64encode(content).decode()}
        saving = self._session.results.save(result, tool="tool_result", args={"name": key})
        return run_sync(saving).pointer_id

    def read(self, reference: str) -> str | bytes:
        """Return the content of a reference.

        Raises:
            PointerNotFoundError: If the content has expired or was erased.
            StoreError: If it cannot be read.
        """
        result: Any = decode_json(self._session.results.load_payload(reference)[1])
        # `write` takes texts and bytes, so a dict holds bytes.
        if isinstance(result, dict):
            return base64.b64decode(result["base64"])
        return str(result)
