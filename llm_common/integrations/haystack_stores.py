"""`PointerResultStore` and `FoldCompactor`: our store and our folding for Haystack's own hooks."""

import base64
from typing import Final

from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction.types import Compactor
from haystack.hooks.tool_result_offloading.types import ToolResultStore
from haystack.token_counters import TokenCounter

from llm_common.agents.offloading import OffloadPolicy
from llm_common.errors import TokenBudgetError
from llm_common.history import FoldPolicy
from llm_common.integrations.haystack import MadeInCode, read_message, write_message
from llm_common.integrations.session_hooks import SessionHooks, run_sync
from llm_common.text.canonical import decode_json

_MIN_LIMIT_TOKENS: Final = 200
_TARGET_SHARE: Final = 0.9  # the caller has set the target already


class PointerResultStore(MadeInCode, ToolResultStore):
    """A pointer store for `ToolResultOffloadHook` and `ToolResultOffloadCompactor`.

    A reference is the id of a pointer, which the tools of an `LLMCommonHook` of the same `hooks` and session read.

    Args:
        hooks: Store, limits and policies; None takes the defaults.
        session_id: The session, as `hook_context` names it; others are not read.
    """

    supports_binary_content = True

    def __init__(self, hooks: SessionHooks | None = None, *, session_id: str | None = None) -> None:
        self._hooks = hooks or SessionHooks()
        self._query_id = self._hooks.session(session_id)

    def write(self, *, key: str, content: str | bytes) -> str:
        """The id of the pointer under which the content is now stored; raises `StoreError`."""
        result = content if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}
        saved = self._hooks.store.save(
            query_id=self._query_id, task_id=None, tool_name="tool_result", args={"name": key}, result=result
        )
        return run_sync(saved).pointer_id

    def read(self, reference: str) -> str | bytes:
        """What was written; raises `StoreError`, if it is gone `PointerNotFoundError`."""
        result = decode_json(self._hooks.store.load_payload(reference, query_id=self._query_id)[1])
        return base64.b64decode(result["base64"]) if isinstance(result, dict) else str(result)


class FoldCompactor(MadeInCode, Compactor):
    """`fold` for Haystack's `CompactionHook`: what is not shown goes behind pointers.

    For agents without an `LLMCommonHook`, which folds by itself; take its tools all the same.

    Args:
        hooks: The store, and the name of the tool that reads back; None takes the defaults.
        session_id: The session, as `hook_context` names it.
    """

    def __init__(self, hooks: SessionHooks | None = None, *, session_id: str | None = None) -> None:
        self._hooks = hooks or SessionHooks()
        self._session_id = self._hooks.session(session_id)

    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """The messages within the target, or None if that makes them no smaller; Haystack calls it.

        Raises:
            StoreError: What is folded could not be stored; the messages are what they were.
        """
        return run_sync(self.compact_async(messages, target_tokens, token_counter))

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        """As `compact`."""
        try:
            folded = await self._folded(messages, target_tokens, token_counter)
        except TokenBudgetError as exc:  # what is never folded is over the target
            folded = await self._folded(messages, exc.needed_tokens, token_counter)
        return folded if token_counter.count(folded) < token_counter.count(messages) else None

    async def _folded(
        self, messages: list[ChatMessage], limit_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage]:
        policy = FoldPolicy(limit_tokens=max(limit_tokens, _MIN_LIMIT_TOKENS), target_share=_TARGET_SHARE)
        hooks = SessionHooks(
            self._hooks.store,
            policy=OffloadPolicy(reader_name=self._hooks.reader_name),
            fold_policy=policy,
            counter=_TextCounter(token_counter),
        )
        return await hooks.fold_messages(messages, session_id=self._session_id, read=read_message, write=write_message)


class _TextCounter:
    """Haystack's counter as one of ours; a text counts with the marks of a message."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def count(self, text: str) -> int:
        return int(self._counter.count([ChatMessage.from_user(text)]))
