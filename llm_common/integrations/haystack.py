"""Hooks for Haystack agents: `LLMCommonHook`, and `PointerResultStore` for Haystack's own."""

import base64
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from haystack.components.agents.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage
from haystack.hooks.tool_result_offloading.types import ToolResultStore
from haystack.tools.tool import Tool

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.haystack_folding import (
    MadeInCode,
    read_message,
    result_text,
    write_message,
)
from llm_common.integrations.translation import fold_messages, read_back, run_sync
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.canonical import decode_json
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.tool import Tool as ReadsBack

SESSION_KEY: Final = "session_id"
"""The key of `hook_context` that names the session of a run."""

_OFFLOADED: Final = "llm_common_pointer_id"


class LLMCommonHook(MadeInCode):
    """Long results behind pointers, the tools that fit, and a folded history, at each model call.

    `hook = LLMCommonHook()`, then `Agent(..., tools=[..., *hook.tools], hooks={"before_llm":
    [hook]})`. Errors and results with images or files stay as they are. The run's messages change,
    those of its answer too: what was folded is read with the tools. A run is of the session that
    `hook_context={"session_id": ...}` names; without one, all runs of this hook are one session, so
    name it wherever there are several users.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.

    Attributes:
        tools: The tools that read back, for the agent.
    """

    allowed_hook_points = ("before_llm",)

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        self.sessions = Sessions.over(store, config)
        self.tools = [self._tool(tool) for tool in self.sessions.get().tools()]

    def run(self, state: State) -> None:
        """Change the messages and tools of a run; Haystack calls it."""
        run_sync(self.run_async(state))

    async def run_async(self, state: State) -> None:
        """As `run`."""
        session = self._session(state)
        messages = await self._offloaded(state.data["messages"], session)
        # Haystack shows the model this list, and makes it anew for each step.
        tools = state.data["tools"]
        chosen = await session.choose_tools(
            [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in tools],
            messages=[*map(read_message, messages)],
        )
        names = {definition.name for definition in chosen}
        tools[:] = [tool for tool in tools if tool.name in names]
        messages = await fold_messages(session, messages, read=read_message, write=write_message)
        state.set("messages", messages, handler_override=replace_values)

    async def _offloaded(self, messages: list[ChatMessage], session: Session) -> list[ChatMessage]:
        """Return the messages with previews instead of the long results at their end."""
        start = len(messages)
        while start and messages[start - 1].tool_call_result:
            start -= 1
        turn = token_hex(8)
        conversation = [*map(read_message, messages[:start])]
        replaced = messages[:start]
        for message in messages[start:]:
            result: Any = message.tool_call_result
            text = result_text(result)
            if result.error or text is None or _OFFLOADED in message.meta:
                replaced.append(message)
                continue
            call = result.origin
            shown = await session.offload(
                text, tool=call.tool_name, args=call.arguments, turn=turn, messages=conversation
            )
            if shown.pointer_id is not None:
                meta = {**message.meta, _OFFLOADED: shown.pointer_id}
                message = ChatMessage.from_tool(str(shown), origin=call, meta=meta)  # noqa: PLW2901
            replaced.append(message)
        return replaced

    def _session(self, state: State) -> Session:
        return self.sessions.get((state.data.get("hook_context") or {}).get(SESSION_KEY))

    def _tool(self, tool: ReadsBack) -> Tool:
        async def read(state: State, **args: Any) -> str:
            try:
                return await read_back(self._session(state), tool.name, args)
            except ToolError as exc:  # raised, it may end the run
                return exc.message

        def read_sync(state: State, **args: Any) -> str:
            return run_sync(read(state, **args))

        parameters = dict(tool.parameters)
        return Tool(
            tool.name, tool.description, parameters, function=read_sync, async_function=read
        )


class PointerResultStore(MadeInCode, ToolResultStore):
    """A pointer store for `ToolResultOffloadHook` and `ToolResultOffloadCompactor`.

    A reference is the id of a pointer, which the tools of an `LLMCommonHook` of the same
    `Sessions` and session read.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
        session_id: The session, as `hook_context` names it. Others are not read.
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
            result = {"base64": base64.b64encode(content).decode()}
        saved = self._session.results.save(result, tool="tool_result", args={"name": key})
        return run_sync(saved).pointer_id

    def read(self, reference: str) -> str | bytes:
        """Return what was written. Raises `StoreError`, if it is gone `PointerNotFoundError`."""
        result: Any = decode_json(self._session.results.load_payload(reference)[1])
        return base64.b64decode(result["base64"]) if isinstance(result, dict) else str(result)
