"""Hooks for Agno agents: `LLMCommonToolHook`."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final

from agno.run import RunContext
from agno.tools.function import Function, ToolResult
from pydantic import BaseModel

from llm_common.errors import ToolError, UnserialisableError
from llm_common.integrations.session_hooks import SessionHooks, run_sync
from llm_common.tools.tool import Tool

_PLAIN: Final = (str, list, tuple, dict, BaseModel)


class LLMCommonToolHook:
    """Long results behind pointers, and the tools that read them back.

    `hook = LLMCommonToolHook()`, then `Agent(..., tools=[..., *hook.tools], tool_hooks=[hook])`;
    `run` and `arun` both work. Exceptions, streams and media stay as they are. A session is that of
    the run and its user. With several tool hooks, put this one first: it then sees what the others
    made of a result. Agno has no hook that sees a model's call, so all tools are shown, and the
    history is Agno's matter.

    Args:
        hooks: Store, limits and policies; None takes the defaults.

    Attributes:
        tools: The tools that read back, for the agent.
    """

    __name__ = "llm_common"  # Agno names hooks in its log

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        self._hooks = hooks or SessionHooks()
        self.tools = [self._function(tool) for tool in self._hooks.tools(self._hooks.session_id)]

    def __call__(
        self,
        name: str,
        function: Callable[..., Any],
        args: Mapping[str, Any],
        run_context: RunContext | None = None,
    ) -> Any:
        """The result of a call or what replaces it, from an asynchronous run as an awaitable.

        Agno calls it.
        """
        result = function(**args)
        if isawaitable(result):
            return self._awaited(result, name, args, run_context)
        return run_sync(self._shown(result, name, args, run_context))

    async def _awaited(
        self, result: Awaitable[Any], name: str, args: Mapping[str, Any], run: Any
    ) -> Any:
        return await self._shown(await result, name, args, run)

    async def _shown(self, result: Any, name: str, args: Mapping[str, Any], run: Any) -> Any:
        value = result.content if isinstance(result, ToolResult) else result
        if not isinstance(value, _PLAIN):
            return result
        call = {"tool_name": name, "args": args, "session_id": self._session(run), **_turn(run)}
        try:
            shown = await self._hooks.offload(value, **call)
        except UnserialisableError:
            shown = await self._hooks.offload(str(value), **call)  # what Agno shows the model
        if shown is None:
            return result
        if isinstance(result, ToolResult):
            return result.model_copy(update={"content": shown.text})
        return shown.text

    def _session(self, run: Any) -> str:
        if run is None:
            return self._hooks.session_id
        return self._hooks.session((run.user_id, run.session_id) if run.user_id else run.session_id)

    def _function(self, tool: Tool) -> Function:
        """A tool that reads back, in the session of the run that calls it."""

        def read(run_context: RunContext, **args: Any) -> str:
            try:
                return run_sync(
                    self._hooks.read_back(tool.name, args, session_id=self._session(run_context))
                )
            except ToolError as exc:
                return exc.message

        return Function(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            entrypoint=read,
            skip_entrypoint_processing=True,
        )


def _turn(run: Any) -> dict[str, Any]:
    """The message that made the calls, how many it made, and what the user said last."""
    messages = (run.messages if run else None) or []
    caller = next((one for one in reversed(messages) if one.tool_calls), None)
    query = next((one.get_content_string() for one in reversed(messages) if one.role == "user"), "")
    return {
        "turn_id": caller and caller.id,
        "calls": len(caller.tool_calls) if caller else 1,
        "query": query,
    }
