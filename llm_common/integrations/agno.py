"""Hooks for Agno agents: `LLMCommonToolHook`."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

from agno.run import RunContext
from agno.tools.function import Function, ToolResult
from pydantic import BaseModel

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError, UnserialisableError
from llm_common.integrations.translation import read_back, run_sync
from llm_common.pointers.store import ContextPointerStore
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
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.

    Attributes:
        tools: The tools that read back, for the agent.
    """

    __name__ = "llm_common"  # Agno names hooks in its log

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        self.sessions = Sessions.over(store, config)
        self.tools = [self._function(tool) for tool in self.sessions.get().tools()]

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
        session, messages = self._session(run), _messages(run)
        turn = _caller_id(run)
        try:
            shown = await session.offload(value, tool=name, args=args, turn=turn, messages=messages)
        except UnserialisableError:  # Agno shows the model its text
            shown = await session.offload(
                str(value), tool=name, args=args, turn=turn, messages=messages
            )
        if shown.pointer_id is None:
            return result
        if isinstance(result, ToolResult):
            return result.model_copy(update={"content": str(shown)})
        return str(shown)

    def _session(self, run: Any) -> Session:
        if run is None:
            return self.sessions.get()
        return self.sessions.get((run.user_id, run.session_id) if run.user_id else run.session_id)

    def _function(self, tool: Tool) -> Function:
        """A tool that reads back, in the session of the run that calls it."""

        def read(run_context: RunContext, **args: Any) -> str:
            try:
                return run_sync(read_back(self._session(run_context), tool.name, args))
            except ToolError as exc:
                return exc.message

        return Function(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            entrypoint=read,
            skip_entrypoint_processing=True,
        )


def _caller_id(run: Any) -> str | None:
    """Return the id of the message that made the calls."""
    for message in reversed((run.messages if run else None) or []):
        if message.tool_calls:
            return str(message.id) if message.id else None
    return None


def _messages(run: Any) -> list[dict[str, Any]]:
    """Return what the user said and the calls of the model, as chat completions have them."""
    messages = []
    for message in (run.messages if run else None) or []:
        if message.role == "user":
            messages.append({"role": "user", "content": message.get_content_string()})
        elif message.tool_calls:
            calls = [{"function": {"name": "call"}} for _ in message.tool_calls]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    return messages
