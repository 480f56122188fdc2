"""Hooks for Haystack agents: `LLMCommonHook`, and `PointerResultStore` for Haystack's own."""

import base64
from secrets import token_hex
from typing import Any, Final

from haystack.components.agents.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage, ChatRole
from haystack.hooks.tool_result_offloading.types import ToolResultStore
from haystack.tools.tool import Tool

from llm_common.errors import ToolError
from llm_common.integrations.haystack_folding import (
    MadeInCode,
    read_message,
    result_text,
    write_message,
)
from llm_common.integrations.session_hooks import SessionHooks, ToolFacts, run_sync
from llm_common.text.canonical import decode_json
from llm_common.tools.tool import Tool as ReadsBack

SESSION_KEY: Final = "session_id"
"""The key of `hook_context` that names the session of a run."""

_OFFLOADED: Final = "llm_common_pointer_id"


class LLMCommonHook(MadeInCode):
    """Long results behind pointers, the tools that fit, and a folded history, before each call of the model.

    `hook = LLMCommonHook()`, then `Agent(..., tools=[..., *hook.tools], hooks={"before_llm":
    [hook]})`. Errors and results with images or files stay as they are. The run's messages change,
    those of its answer too: what was folded is read with the tools. A run is of the session that
    `hook_context={"session_id": ...}` names; without one, all runs of this hook are one session, so
    name it wherever there are several users.

    Args:
        hooks: Store, limits and policies; None takes the defaults.

    Attributes:
        tools: The tools that read back, for the agent.
    """

    allowed_hook_points = ("before_llm",)

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        self._hooks = hooks or SessionHooks()
        self.tools = [self._tool(one) for one in self._hooks.tools(self._hooks.session_id)]

    def run(self, state: State) -> None:
        """Changes the messages and tools of a run; Haystack calls it."""
        run_sync(self.run_async(state))

    async def run_async(self, state: State) -> None:
        """As `run`."""
        session_id = self._session(state)
        messages = await self._offloaded(state.data["messages"], session_id)
        called = {call.tool_name for message in messages for call in message.tool_calls}
        # Haystack shows the model this list, and makes it anew for each step.
        tools = state.data["tools"]
        tools[:] = await self._hooks.choose_tools(
            tools, query=_query(messages), facts_of=_facts, keep=called
        )
        messages = await self._hooks.fold_messages(
            messages, session_id=session_id, read=read_message, write=write_message
        )
        state.set("messages", messages, handler_override=replace_values)

    async def _offloaded(self, messages: list[ChatMessage], session_id: str) -> list[ChatMessage]:
        """The messages with previews instead of the long results at their end."""
        start = len(messages)
        while start and messages[start - 1].tool_call_result:
            start -= 1
        turn = {"turn_id": token_hex(8), "calls": len(messages) - start, "query": _query(messages)}
        return [
            *messages[:start],
            *[
                await self._replaced(message, session_id=session_id, **turn)
                for message in messages[start:]
            ],
        ]

    async def _replaced(self, message: ChatMessage, **turn: Any) -> ChatMessage:
        result: Any = message.tool_call_result
        text = result_text(result)
        if result.error or text is None or _OFFLOADED in message.meta:
            return message
        call = result.origin
        shown = await self._hooks.offload(
            text, tool_name=call.tool_name, args=call.arguments, **turn
        )
        if shown is None:
            return message
        meta = {**message.meta, _OFFLOADED: shown.pointer_id}
        return ChatMessage.from_tool(shown.text, origin=call, meta=meta)

    def _session(self, state: State) -> str:
        return self._hooks.session((state.data.get("hook_context") or {}).get(SESSION_KEY))

    def _tool(self, one: ReadsBack) -> Tool:
        async def read(state: State, **args: Any) -> str:
            try:
                return await self._hooks.read_back(one.name, args, session_id=self._session(state))
            except ToolError as exc:  # raised, it may end the run
                return exc.message

        def read_sync(state: State, **args: Any) -> str:
            return run_sync(read(state, **args))

        parameters = dict(one.parameters)
        return Tool(one.name, one.description, parameters, function=read_sync, async_function=read)


class PointerResultStore(MadeInCode, ToolResultStore):
    """A pointer store for `ToolResultOffloadHook` and `ToolResultOffloadCompactor`.

    A reference is the id of a pointer, which the tools of an `LLMCommonHook` of the same `hooks`
    and session read.

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
        result = (
            content if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}
        )
        save = self._hooks.store.save  # keys of different runs may be the same
        saved = save(
            query_id=self._query_id,
            task_id=None,
            tool_name="tool_result",
            args={"name": key},
            result=result,
            keep_repeats=True,
        )
        return run_sync(saved).pointer_id

    def read(self, reference: str) -> str | bytes:
        """What was written; raises `StoreError`, if it is gone `PointerNotFoundError`."""
        result: Any = decode_json(
            self._hooks.store.load_payload(reference, query_id=self._query_id)[1]
        )
        return base64.b64decode(result["base64"]) if isinstance(result, dict) else str(result)


def _query(messages: list[ChatMessage]) -> str:
    """What the user said last."""
    said = (message.text for message in reversed(messages) if message.is_from(ChatRole.USER))
    return next(filter(None, said), "")


def _facts(tool: Tool) -> ToolFacts:
    return ToolFacts(tool.name, tool.description, tool.parameters)
