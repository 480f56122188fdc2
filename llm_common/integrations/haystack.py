"""Hooks for Haystack agents: `LLMCommonHook`."""

import json
from copy import copy
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage, ChatRole, TextContent
from haystack.tools.tool import Tool

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ConfigError
from llm_common.integrations.delegation import calling, inlined, session_of_caller
from llm_common.integrations.translation import (
    chat_call,
    choose_tools,
    fold_messages,
    read_back_or_explain,
    run_sync,
)
from llm_common.tools import Tool as SessionTool, ToolDefinition

SESSION_KEY: Final = "session_id"
"""The key of `hook_context` that names the session of a run."""

_OFFLOADED: Final = "llm_common_pointer_id"  # in the `meta` of a message that is a preview


class LLMCommonHook:
    """A hook that offloads long results, chooses tools and folds the history before model calls.

    Use `hook = LLMCommonHook()`, then `Agent(..., tools=[..., *hook.tools], hooks={"before_llm":
    [hook]})`. Errors and results with images or files are not changed. The messages of the run
    and of its answer change, and the tools read what was folded.

    `hook_context={"session_id": ...}` names the session of a run. Without it, all runs of this hook
    share one session, so pass it wherever there are several users.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.

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
        # Definitions only, because each call reads from the session of its run.
        self.tools = list(map(self._read_back_tool, self.sessions.tools()))

    def run(self, state: State) -> None:
        """Change the messages and tools of a run. Haystack calls this method."""
        run_sync(self.run_async(state))

    async def run_async(self, state: State) -> None:
        """Do the same as `run`, asynchronously."""
        session = self._session(state)
        # Not `state.get`, which copies all messages at each step.
        messages = await self._offload(state.data["messages"], session)
        tools = state.data["tools"]
        # In place: Haystack rebuilds this list for each step, and shows the model this object.
        chosen = await choose_tools(
            session, tools, describe=_describe, messages=[*map(_read_message, messages)]
        )
        tools[:] = [_delegating(tool, session) for tool in chosen]
        messages = await fold_messages(session, messages, read=_read_message, write=_write_message)
        # By default, Haystack appends to the list.
        state.set("messages", messages, handler_override=replace_values)

    async def _offload(self, messages: list[ChatMessage], session: Session) -> list[ChatMessage]:
        """Return the messages with previews instead of the long results at their end."""
        # The results of the last model response are at the end, and share one turn.
        start = len(messages)
        while start and messages[start - 1].tool_call_result:
            start -= 1
        # Messages have no ids, so the results of a response get a random name.
        turn = token_hex(8)
        conversation = [*map(_read_message, messages[:start])]
        replaced = messages[:start]
        for message in messages[start:]:
            result: Any = message.tool_call_result
            text = _result_text(result)
            if result.error or text is None or _OFFLOADED in message.meta:
                replaced.append(message)
                continue
            call = result.origin
            preview = await session.offload(
                text, tool=call.tool_name, args=call.arguments, turn=turn, messages=conversation
            )
            if preview.is_whole:
                replaced.append(message)
                continue
            meta = {**message.meta, _OFFLOADED: preview.pointer_id}
            replaced.append(ChatMessage.from_tool(str(preview), origin=call, meta=meta))
        return replaced

    def to_dict(self) -> dict[str, Any]:
        """Raise `ConfigError`, because a store and its settings are not plain values."""
        raise _not_serializable()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:  # noqa: ARG003 - Haystack's protocol
        """Raise `ConfigError`, as `to_dict` does."""
        raise _not_serializable()

    def _session(self, state: State) -> Session:
        session_id = (state.data.get("hook_context") or {}).get(SESSION_KEY)
        caller = None if session_id else session_of_caller(self.sessions)
        return caller or self.sessions.get(session_id)

    def _read_back_tool(self, tool: SessionTool) -> Tool:
        async def read(state: State, **args: Any) -> str:
            # Haystack may end the run for an exception, so the model gets the text.
            return await read_back_or_explain(self._session(state), tool.name, args)

        def read_sync(state: State, **args: Any) -> str:
            return run_sync(read(state, **args))

        parameters = dict(tool.parameters)
        return Tool(
            tool.name, tool.description, parameters, function=read_sync, async_function=read
        )


def _not_serializable() -> ConfigError:
    return ConfigError(
        "an LLMCommonHook cannot be serialised; make it and its agent in code", variable="store"
    )


def _delegating(tool: Tool, session: Session) -> Tool:
    """Return a tool whose agent reads in this session, or gets the results themselves."""
    agent = getattr(tool, "_component", None)
    if not isinstance(agent, Agent):
        return tool
    hooks = agent.hooks.get("before_llm", ())
    reads = any(isinstance(hook, LLMCommonHook) for hook in hooks)
    function: Any = tool.function
    async_function: Any = tool.async_function

    def call(**args: Any) -> Any:
        if not reads:
            args = run_sync(inlined(session, args))
        with calling(session, args):
            return function(**args)

    async def call_async(**args: Any) -> Any:
        if not reads:
            args = await inlined(session, args)
        with calling(session, args):
            return await async_function(**args)

    # A copy for this step, since the agent's own tool serves other sessions.
    delegating = copy(tool)
    if function is not None:
        delegating.function = call
    if async_function is not None:
        delegating.async_function = call_async
    return delegating


def _describe(tool: Tool) -> ToolDefinition:
    return ToolDefinition(tool.name, tool.description, tool.parameters)


def _read_message(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the shape of chat completions, without images."""
    if result := message.tool_call_result:
        text = _result_text(result) or ""
        return {"role": "tool", "tool_call_id": _call_id(result.origin), "content": text}
    fields: dict[str, Any] = {"role": message.role.value, "content": "\n".join(message.texts)}
    if message.tool_calls:
        fields["tool_calls"] = [
            chat_call(_call_id(call), call.tool_name, json.dumps(call.arguments))
            for call in message.tool_calls
        ]
    return fields


def _call_id(call: Any) -> str:
    # Some generators give their calls no ids.
    return str(call.id or call.tool_name)


def _write_message(message: ChatMessage | None, content: str) -> ChatMessage:
    """Return a copy of a message with another text, or a new user message for None."""
    if message is None:
        return ChatMessage.from_user(content)
    if result := message.tool_call_result:
        return ChatMessage.from_tool(
            content, origin=result.origin, error=result.error, meta=message.meta
        )
    if message.is_from(ChatRole.USER):
        parts: list[Any] = [TextContent(content), *message.images, *message.files]
        return ChatMessage.from_user(content_parts=parts, meta=message.meta, name=message.name)
    # Folding shortens no message with calls, so there are none to copy.
    return ChatMessage.from_assistant(content, meta=message.meta, name=message.name)


def _result_text(result: Any) -> str | None:
    """Return a tool's result as a text, or None if it holds an image or a file."""
    if isinstance(result.result, str):
        return str(result.result)
    texts = [part.text for part in result.result if isinstance(part, TextContent)]
    return "\n".join(texts) if texts and len(texts) == len(result.result) else None
