"""Hooks for LangChain agents: `LLMCommonMiddleware`."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain.tools import BaseTool, ToolException, ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.delegation import (
    SessionCall,
    calling,
    session_of_caller,
    take_over,
)
from llm_common.integrations.translation import (
    chat_call,
    choose_tools,
    fold_messages,
    plain_text,
    read_back,
    run_sync,
)
from llm_common.tools import Tool, ToolDefinition

T = TypeVar("T")
_log = logging.getLogger(__name__)

# By message type. Other types, such as `chat`, count as messages of the user.
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}


class LLMCommonMiddleware(AgentMiddleware[Any, Any, Any]):
    """Middleware that offloads long results, chooses tools and folds the history.

    Use it as `create_agent(..., middleware=[LLMCommonMiddleware()])`. Both `invoke` and `ainvoke`
    work. A long text of a tool becomes a preview in the same `ToolMessage`, which keeps its
    `artifact`, `status` and `tool_call_id`, also within a `Command` for the same graph. Errors and
    images are not changed. The state keeps every message, and only the messages sent to the model
    are folded.

    The run's `thread_id` names the session. Without one, the id and text of the first message do,
    and a warning is logged: a caller who keeps the history must pass on the messages that the
    previous run returned.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
    """

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        super().__init__()
        self.sessions = Sessions.over(store, config)
        self._has_warned = False
        # Definitions only, because each call reads from the session of its run.
        self.tools = list(map(self._read_back_tool, self.sessions.tools()))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Return the tool's message, with a preview instead of a long text."""
        session = self._session(request.runtime, request.state["messages"])
        with calling(session, request.tool_call["args"]) as call:
            result = handler(request)
        return run_sync(self._offload(call, request, result))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Return the same as `wrap_tool_call`, asynchronously."""
        session = self._session(request.runtime, request.state["messages"])
        with calling(session, request.tool_call["args"]) as call:
            result = await handler(request)
        return await self._offload(call, request, result)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], T]
    ) -> T:
        """Call the model with a folded history and the chosen tools."""
        return handler(run_sync(self._shorten(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[T]]
    ) -> T:
        """Do the same as `wrap_model_call`, asynchronously."""
        return await handler(await self._shorten(request))

    def _session(self, runtime: Any, messages: Sequence[BaseMessage]) -> Session:
        thread_id = None
        if runtime and runtime.execution_info:
            thread_id = runtime.execution_info.thread_id
        if thread_id is None and (caller := session_of_caller(self.sessions)):
            return caller
        if thread_id is None and messages and messages[0].id:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "a run has no thread_id, so its first message names the session: pass a "
                    "thread_id to keep users apart"
                )
            # With the text, since clients may number their messages. A tuple cannot collide with a
            # `thread_id`, which is a str.
            return self.sessions.get(("messages", messages[0].id, repr(messages[0].content)))
        return self.sessions.get(thread_id)

    async def _offload(self, call: SessionCall, request: ToolCallRequest, result: Any) -> Any:
        session = call.session
        # The answer of a sub-agent on its own thread may name results that only that thread has.
        for delegate in call.delegates:
            await take_over(session, result, delegate)
        if request.tool is not None and request.tool.return_direct:
            return result  # the user gets it as the answer
        return await self._offload_messages(session, request, result)

    async def _offload_messages(
        self, session: Session, request: ToolCallRequest, result: Any
    ) -> Any:
        if isinstance(result, list):  # a tool may return several commands and messages
            return [await self._offload_messages(session, request, part) for part in result]
        update = result.update if isinstance(result, Command) else None
        # A parent graph may have no tool that reads.
        if isinstance(update, dict) and "messages" in update and result.graph is None:
            messages = await self._offload_messages(session, request, update["messages"])
            return replace(result, update={**update, "messages": messages})
        return await self._offload_message(session, request, result)

    async def _offload_message(
        self, session: Session, request: ToolCallRequest, result: Any
    ) -> Any:
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        text = plain_text(result.content)
        if text is None:
            return result
        messages = request.state["messages"]
        preview = await session.offload(
            text,
            tool=request.tool_call["name"],
            args=request.tool_call["args"],
            turn=_caller_id(messages),
            messages=[*map(_read_message, messages)],
        )
        if preview.is_whole:
            return result
        return result.model_copy(update={"content": str(preview)})

    async def _shorten(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return the request with the chosen tools and a folded history."""
        # The state has the first message even where another middleware dropped it.
        session = self._session(request.runtime, request.state["messages"])
        tools = await choose_tools(
            session,
            request.tools,
            describe=_describe,
            messages=[*map(_read_message, request.messages)],
        )
        messages = await fold_messages(
            session, request.messages, read=_read_message, write=_write_message
        )
        return request.override(tools=tools, messages=messages)

    def _read_back_tool(self, tool: Tool) -> BaseTool:
        """Return a tool that reads back from the session of the run that calls it."""

        async def read(runtime: ToolRuntime, **args: Any) -> str:
            session = self._session(runtime, runtime.state["messages"])
            try:
                return await read_back(session, tool.name, args)
            except ToolError as exc:
                raise ToolException(exc.message) from exc

        def read_sync(runtime: ToolRuntime, **args: Any) -> str:
            return run_sync(read(runtime, **args))

        return StructuredTool(
            name=tool.name,
            description=tool.description,
            args_schema=dict(tool.parameters),
            func=read_sync,
            coroutine=read,
            handle_tool_error=True,  # the model gets the text of a ToolException
        )


def _describe(tool: Any) -> ToolDefinition | None:
    """Return the definition of a tool, or None for a dict, which is a tool of the provider."""
    if not isinstance(tool, BaseTool):
        return None
    # This leaves out arguments that LangChain fills in, such as the runtime.
    function = convert_to_openai_tool(tool)["function"]
    return ToolDefinition(tool.name, tool.description, function.get("parameters", {}))


def _caller_id(messages: Sequence[BaseMessage]) -> str | None:
    """Return the id of the message that made the calls, whose previews share one budget."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return str(message.id) if message.id else None
    return None


def _read_message(message: BaseMessage) -> Mapping[str, Any]:
    """Return a message in the shape of chat completions."""
    fields: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = [
            chat_call(call["id"], call["name"], call["args"]) for call in message.tool_calls
        ]
    return fields


def _write_message(message: Any, text: str) -> Any:
    """Return a copy of a message with another text and its images, or a new user message."""
    if message is None:
        return HumanMessage(text)
    images: list[Any] = []
    if isinstance(message.content, list) and not isinstance(message, ToolMessage):
        for block in message.content:
            if isinstance(block, dict) and "text" not in block:
                images.append(block)
    content = [{"type": "text", "text": text}, *images] if images else text
    return message.model_copy(update={"content": content})
