"""`LLMCommonSession`: offloading, choosing and reading back in agents of the OpenAI Agents SDK."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, Self, TypeVar

from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, SessionSettings, tool as sdk
from agents.run import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ConfigError, ToolError
from llm_common.integrations.responses_items import (
    arguments_of,
    grouped,
    question_in,
    read_group,
    write_group,
)
from llm_common.integrations.stored_items import StoredItems
from llm_common.integrations.translation import fold_messages, plain_text, read_back
from llm_common.pointers.store import ContextPointerStore
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.tool import Tool

AgentT = TypeVar("AgentT", bound=Agent[Any])

_SESSION = "_llm_common_session"  # the attribute of an equipped agent's class


class LLMCommonSession(StoredItems):
    """A conversation for `Runner`: results behind pointers, folded history, the tools that fit.

    Give it three times: `Runner.run(session.equip(agent), text, session=session,
    run_config=session.run_config())`; `run_sync` and `run_streamed` work too. Another session of
    the SDK may keep the items instead. What a `failure_error_function` answers, images and files
    stay as they are. The session keeps every item; only what the model is sent is folded.

    Args:
        session_id: Names the conversation. Nothing of another one can be read.
        store: A store, the folder of one, or the `Sessions` that the sessions of an application
            share. None keeps results and items in memory, for this session alone.
        config: Limits and policies, unless `store` has them.
    """

    def __init__(
        self,
        session_id: str,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        sessions = Sessions.over(store, config)
        super().__init__(sessions, session_id)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.session = sessions.get(session_id)
        self._called = set[str]()
        self._turn = ""

    def equip(self, agent: AgentT) -> AgentT:
        """Return a copy of the agent that offloads and reads back in this session.

        That holds for tools of MCP servers too. Agents to which it hands off are not equipped:
        pass equipped ones as its `handoffs`. The copy runs with no other session's `run_config`.
        """
        session, kind = self, type(agent)

        async def get_all_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[sdk.Tool]:
            return await session._chosen(await kind.get_all_tools(self, run_context), run_context)

        methods = {"get_all_tools": get_all_tools, _SESSION: self.session}
        equipped = type(kind.__name__, (kind,), methods)
        settings = {one.name: getattr(agent, one.name) for one in fields(agent) if one.init}
        copy: AgentT = equipped(**settings)
        return copy

    def run_config(self, run_config: RunConfig | None = None) -> RunConfig:
        """Return a copy of the run's configuration that folds what the model is sent."""
        return replace(run_config or RunConfig(), call_model_input_filter=self._fold)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items, oldest first. `session_settings` may set the limit."""
        settings = self.session_settings
        return await super().get_items(settings.limit if limit is None and settings else limit)

    async def _fold(self, data: CallModelData[Any]) -> ModelInputData:
        equipped: Session | None = getattr(data.agent, _SESSION, None)
        # Else the results of this user would be stored in, and read from, another user's session.
        if equipped is not None and equipped.session_id != self.session.session_id:
            raise ConfigError(
                f"the agent {data.agent.name!r} was equipped for another session; pass "
                "session.equip(agent) of the session whose run_config() the run has",
                variable="session",
            )
        groups = await fold_messages(
            self.session, grouped(data.model_data.input), read=read_group, write=write_group
        )
        return replace(data.model_data, input=[item for group in groups for item in group])

    async def _chosen(
        self, tools: list[sdk.Tool], run_context: RunContextWrapper[Any]
    ) -> list[sdk.Tool]:
        """Return the tools of the next call, which offload what they return."""
        self._turn = secrets.token_hex(8)
        own = [tool for tool in tools if isinstance(tool, FunctionTool)]
        hosted = [tool for tool in tools if not isinstance(tool, FunctionTool)]
        own += [self._readable(tool) for tool in self.session.tools()]
        chosen = await self.session.choose_tools(
            [ToolDefinition(one.name, one.description, one.params_json_schema) for one in own],
            messages=[*map(read_group, grouped(run_context.turn_input))],
            keep=self._called,
        )
        names = {definition.name for definition in chosen}
        return [*hosted, *(self._offloading(tool) for tool in own if tool.name in names)]

    def _offloading(self, tool: FunctionTool) -> FunctionTool:
        # What has an output schema is read by a program, not by the model.
        if tool.name in self.session.tool_names or tool.output_json_schema is not None:
            return tool
        return replace(tool, on_invoke_tool=_Invoker(tool, self._offloaded))

    async def _offloaded(self, result: Any, ctx: ToolContext[Any]) -> Any:
        self._called.add(ctx.tool_name)
        parts = result if isinstance(result, list) else [result]
        blocks = [
            part if isinstance(part, dict) else getattr(part, "__dict__", {}) for part in parts
        ]
        kinds = {block.get("type") for block in blocks}
        if isinstance(result, _Failure) or kinds & {"image", "file"}:
            return result
        text = plain_text(blocks) if kinds == {"text"} else None
        shown = await self.session.offload(
            result if text is None else text,
            tool=ctx.tool_name,
            args=arguments_of(ctx.tool_arguments),
            query=question_in(ctx.turn_input),
            turn=self._turn,
        )
        return result if shown.pointer_id is None else str(shown)

    def _readable(self, tool: Tool) -> FunctionTool:
        async def read(_: ToolContext[Any], arguments: str) -> str:
            try:
                return await read_back(self.session, tool.name, arguments_of(arguments))
            except ToolError as exc:
                return exc.message

        return FunctionTool(
            tool.name, tool.description, dict(tool.parameters), read, strict_json_schema=False
        )


class _Failure(str):
    """What a tool's own formatter says of an error."""

    __slots__ = ()


def _marking(formatter: Any) -> Any:
    async def mark(ctx: RunContextWrapper[Any], error: Exception) -> str:
        text = formatter(ctx, error)
        return _Failure(await text if isawaitable(text) else text)

    return mark


class _Invoker:
    """Runs a tool; for what the SDK asks of the function itself, it is that of the tool."""

    def __init__(
        self, tool: FunctionTool, finish: Callable[[Any, ToolContext[Any]], Awaitable[Any]]
    ) -> None:
        self._tool, self._finish = replace(tool), finish
        formatter = sdk.resolve_function_tool_failure_error_function(tool)
        if formatter not in (None, sdk.default_tool_error_function):
            sdk.set_function_tool_failure_error_function(self._tool, _marking(formatter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool.on_invoke_tool, name)

    def __agents_bind_function_tool__(self, _: FunctionTool) -> Self:
        return self

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        return await self._finish(await self._tool.on_invoke_tool(ctx, arguments), ctx)
