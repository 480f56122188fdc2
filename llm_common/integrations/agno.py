"""Hooks for Agno agents: `LLMCommonToolHook`."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

from agno.run import RunContext
from agno.tools.function import Function, ToolResult
from pydantic import BaseModel

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import UnserialisableError
from llm_common.integrations.translation import read_back_or_explain, run_sync
from llm_common.tools import Tool

# Streams, media and exceptions have other types, and pass unchanged.
_PLAIN: Final = (str, list, tuple, dict, BaseModel)


class LLMCommonToolHook:
    """A tool hook that keeps long results behind pointers, with the tools that read them back.

    Use `hook = LLMCommonToolHook()`, then `Agent(..., tools=[..., *hook.tools],
    tool_hooks=[hook])`. Both `run` and `arun` work. Exceptions, streams and media are not changed.
    A session belongs to the run's session id and user. With several tool hooks, put this one first:
    it then sees the result that the other hooks return. Agno has no hook around a model call, so
    this hook neither chooses tools nor folds the history.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.

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
        finder_name = self.sessions.config.finder_name
        # Definitions only, because each call reads from the session of its run.
        self.tools = [
            self._function(tool)
            for tool in self.sessions.tools()
            if tool.name != finder_name  # Agno has no hook that hides tools
        ]

    def __call__(
        self,
        name: str,
        function: Callable[..., Any],
        args: Mapping[str, Any],
        run_context: RunContext | None = None,
    ) -> Any:
        """Call the tool and return its result or a preview. Agno calls this method.

        An asynchronous tool makes it return an awaitable.
        """
        result = function(**args)
        if isawaitable(result):
            return self._offload_awaited(result, name, args, run_context)
        # Agno's `run` does not await a hook, even where an event loop is running.
        return run_sync(self._offload(result, name, args, run_context))

    async def _offload_awaited(
        self, result: Awaitable[Any], name: str, args: Mapping[str, Any], run: Any
    ) -> Any:
        return await self._offload(await result, name, args, run)

    async def _offload(self, result: Any, name: str, args: Mapping[str, Any], run: Any) -> Any:
        value = result.content if isinstance(result, ToolResult) else result
        if not isinstance(value, _PLAIN):
            return result
        session, messages = self._session(run), _messages(run)
        turn = _caller_id(run)
        try:
            preview = await session.offload(
                value, tool=name, args=args, turn=turn, messages=messages
            )
        except UnserialisableError:
            # Agno shows the model the `str()` of such a value, so that text is what is stored.
            preview = await session.offload(
                str(value), tool=name, args=args, turn=turn, messages=messages
            )
        if preview.is_whole:
            return result
        if isinstance(result, ToolResult):
            return result.model_copy(update={"content": str(preview)})
        return str(preview)

    def _session(self, run: Any) -> Session:
        if run is None:
            return self.sessions.get()
        # Two users may have the same session id.
        if run.user_id:
            return self.sessions.get((run.user_id, run.session_id))
        return self.sessions.get(run.session_id)

    def _function(self, tool: Tool) -> Function:
        """Return a tool that reads back from the session of the run that calls it."""

        def read(run_context: RunContext, **args: Any) -> str:
            return run_sync(read_back_or_explain(self._session(run_context), tool.name, args))

        return Function(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            entrypoint=read,
            skip_entrypoint_processing=True,  # Agno would derive the parameters from `read`
        )


def _caller_id(run: Any) -> str | None:
    """Return the id of the message that made the calls."""
    for message in reversed(_history(run)):
        if message.tool_calls:
            return str(message.id) if message.id else None
    return None


def _messages(run: Any) -> list[dict[str, Any]]:
    """Return the user's messages and the model's calls in the shape of chat completions."""
    messages: list[dict[str, Any]] = []
    for message in _history(run):
        if message.role == "user":
            messages.append({"role": "user", "content": message.get_content_string()})
        elif message.tool_calls:
            # Only the count of the calls matters here: the calls of a turn share one budget.
            calls = [{"function": {"name": "call"}}] * len(message.tool_calls)
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    return messages


def _history(run: Any) -> list[Any]:
    return (run and run.messages) or []
