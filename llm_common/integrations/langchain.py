"""`LLMCommonMiddleware`: offloading, choosing and reading back in an agent of LangChain."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain.tools import BaseTool, ToolException, ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.translation import fold_messages, plain_text, read_back, run_sync
from llm_common.pointers.store import ContextPointerStore
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.tool import Tool

T = TypeVar("T")

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}


class LLMCommonMiddleware(AgentMiddleware[Any, Any, Any]):
    """Long results behind pointers, a folded history and the tools that fit, for `create_agent`.

    Give it as `middleware=[LLMCommonMiddleware()]`; `invoke` and `ainvoke` both work. A long text
    of a tool becomes a preview in the same `ToolMessage`: `artifact`, `status` and `tool_call_id`
    stay. Errors, images and `Command`s stay as they are. The state keeps every message; only what
    the model is sent is folded.

    A session is the `thread_id` of the run. Without one it is the first message: a caller who keeps
    the history passes on the messages that the run before returned.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
    """

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        super().__init__()
        self.sessions = Sessions.over(store, config)
        self.tools = [self._readable(tool) for tool in self.sessions.get().tools()]

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Return the tool's message, with a preview instead of a long text."""
        return run_sync(self._offloaded(request, handler(request)))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """As `wrap_tool_call`, asynchronously."""
        return await self._offloaded(request, await handler(request))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], T]
    ) -> T:
        """Return the model's answer to a folded history, with the tools that fit."""
        return handler(run_sync(self._reduced(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[T]]
    ) -> T:
        """As `wrap_model_call`, asynchronously."""
        return await handler(await self._reduced(request))

    def _session(self, runtime: Any, messages: Sequence[BaseMessage]) -> Session:
        thread_id = runtime.execution_info.thread_id if runtime and runtime.execution_info else None
        if thread_id is None and messages and messages[0].id:
            return self.sessions.get(("messages", messages[0].id))
        return self.sessions.get(thread_id)

    async def _offloaded(self, request: ToolCallRequest, result: Any) -> Any:
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        text = plain_text(result.content)
        if text is None:
            return result
        messages = request.state["messages"]
        session = self._session(request.runtime, messages)
        shown = await session.offload(
            text,
            tool=request.tool_call["name"],
            args=request.tool_call["args"],
            turn=_caller_id(messages),
            messages=[*map(_read, messages)],
        )
        if shown.pointer_id is None:
            return result
        return result.model_copy(update={"content": str(shown)})

    async def _reduced(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self._session(request.runtime, request.state["messages"])
        # Tools that run at the provider are dicts, and stay.
        own = [tool for tool in request.tools if isinstance(tool, BaseTool)]
        chosen = await session.choose_tools(
            [*map(_definition, own)], messages=[*map(_read, request.messages)]
        )
        hidden = {tool.name for tool in own} - {definition.name for definition in chosen}
        tools = [tool for tool in request.tools if getattr(tool, "name", None) not in hidden]
        messages = await fold_messages(session, request.messages, read=_read, write=_write)
        return request.override(tools=tools, messages=messages)

    def _readable(self, tool: Tool) -> BaseTool:
        """Return a tool that reads back, in the session of the run that calls it."""

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
            handle_tool_error=True,
        )


def _caller_id(messages: Sequence[BaseMessage]) -> str | None:
    """Return the id of the message that made the calls."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return str(message.id) if message.id else None
    return None


def _definition(tool: BaseTool) -> ToolDefinition:
    function = convert_to_openai_tool(tool)["function"]
    return ToolDefinition(tool.name, tool.description, function.get("parameters", {}))


def _read(message: BaseMessage) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = [*map(_call, message.tool_calls)]
    return fields


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call["args"]}
    return {"id": call["id"], "type": "function", "function": function}


def _write(message: Any, text: str) -> Any:
    if message is None:
        return HumanMessage(text)
    images: list[Any] = []
    if isinstance(message.content, list) and not isinstance(message, ToolMessage):
        blocks = [block for block in message.content if isinstance(block, dict)]
        images = [block for block in blocks if "text" not in block]
    content = [{"type": "text", "text": text}, *images] if images else text
    return message.model_copy(update={"content": content})
