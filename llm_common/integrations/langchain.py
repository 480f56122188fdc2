"""`LLMCommonMiddleware`: offloading, choosing and reading back in an agent of LangChain."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain.tools import BaseTool, ToolException, ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from llm_common.errors import ToolError
from llm_common.integrations.session_hooks import SessionHooks, ToolFacts, plain_text, run_sync
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
    """Long results behind pointers, a history within a limit, and the tools that fit, for `create_agent`.

    Give it as `middleware=[LLMCommonMiddleware()]`; `invoke` and `ainvoke` both work. A long text
    of a tool becomes a preview in the same `ToolMessage`: `artifact`, `status` and `tool_call_id`
    stay. Errors, images and `Command`s stay as they are. The state keeps every message; only what
    the model is sent is folded.

    A session is the `thread_id` of the run. Without one it is the first message: a caller who keeps
    the history passes on the messages that the run before returned.

    Args:
        hooks: Store, limits and policies; None takes the defaults of `SessionHooks`, which keep
            results in memory.
    """

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        super().__init__()
        self.hooks = hooks or SessionHooks()
        self.tools = [self._readable(tool) for tool in self.hooks.tools(self.hooks.session_id)]

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """The tool's message, with a preview instead of a long text."""
        return run_sync(self._offloaded(request, handler(request)))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """As `wrap_tool_call`, asynchronously."""
        return await self._offloaded(request, await handler(request))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], T]
    ) -> T:
        """The model's answer to a folded history, with the tools that fit."""
        return handler(run_sync(self._reduced(request)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[T]]
    ) -> T:
        """As `wrap_model_call`, asynchronously."""
        return await handler(await self._reduced(request))

    def _session(self, runtime: Any, messages: Sequence[BaseMessage]) -> str:
        thread_id = runtime.execution_info.thread_id if runtime and runtime.execution_info else None
        if thread_id is None and messages and messages[0].id:
            return self.hooks.session(("messages", messages[0].id))
        return self.hooks.session(thread_id)

    async def _offloaded(self, request: ToolCallRequest, result: Any) -> Any:
        text = (
            plain_text(result.content)
            if isinstance(result, ToolMessage) and result.status != "error"
            else None
        )
        if text is None:
            return result
        messages = request.state["messages"]
        caller = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
        shown = await self.hooks.offload(
            text,
            tool_name=request.tool_call["name"],
            args=request.tool_call["args"],
            session_id=self._session(request.runtime, messages),
            query=_query(messages),
            turn_id=caller.id if caller else None,
            calls=len(caller.tool_calls) if caller else 1,
        )
        return result.model_copy(update={"content": shown.text}) if shown else result

    async def _reduced(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        called = {
            call["name"]
            for one in request.messages
            if isinstance(one, AIMessage)
            for call in one.tool_calls
        }
        # a provider's are dicts
        own = [tool for tool in request.tools if isinstance(tool, BaseTool)]
        chosen = await self.hooks.choose_tools(
            own, query=_query(request.messages), facts_of=_facts, keep=called
        )
        names = {tool.name for tool in chosen}
        session = self._session(request.runtime, request.state["messages"])
        return request.override(
            tools=[
                tool
                for tool in request.tools
                if not isinstance(tool, BaseTool) or tool.name in names
            ],
            messages=await self.hooks.fold_messages(
                request.messages, session_id=session, read=_read, write=_write
            ),
        )

    def _readable(self, tool: Tool) -> BaseTool:
        """A tool that reads back, in the session of the run that calls it."""

        async def read(runtime: ToolRuntime, **args: Any) -> str:
            session = self._session(runtime, runtime.state["messages"])
            try:
                return await self.hooks.read_back(tool.name, args, session_id=session)
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


def _query(messages: Sequence[BaseMessage]) -> str:
    """What the user said last."""
    return next((str(one.text) for one in reversed(messages) if isinstance(one, HumanMessage)), "")


def _facts(tool: BaseTool) -> ToolFacts:
    function = convert_to_openai_tool(tool)["function"]
    return ToolFacts(tool.name, tool.description, function.get("parameters", {}))


def _read(message: BaseMessage) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["args"]},
            }
            for call in message.tool_calls
        ]
    return fields


def _write(message: Any, text: str) -> Any:
    if message is None:
        return HumanMessage(text)
    blocks = (
        message.content
        if isinstance(message.content, list) and not isinstance(message, ToolMessage)
        else []
    )
    # such as images
    rest = [block for block in blocks if isinstance(block, dict) and "text" not in block]
    return message.model_copy(
        update={"content": [{"type": "text", "text": text}, *rest] if rest else text}
    )
