"""`LLMCommonSession`: offloading, choosing and reading back in agents of the OpenAI Agents SDK."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from inspect import isawaitable
from typing import Any, Self, TypeVar

from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, SessionSettings, tool as sdk
from agents.run import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from llm_common.errors import ToolError
from llm_common.integrations.responses_items import (
    arguments_of,
    grouped,
    read_group,
    said,
    write_group,
)
from llm_common.integrations.session_hooks import SessionHooks, StoredItems, ToolFacts, plain_text
from llm_common.tools.tool import Tool

AgentT = TypeVar("AgentT", bound=Agent[Any])


class LLMCommonSession(StoredItems):
    """A conversation with long results behind pointers, a folded history and the tools that fit, for `Runner`.

    Give it three times: `Runner.run(session.equip(agent), text, session=session,
    run_config=session.run_config())`; `run_sync` and `run_streamed` work too. Another session of
    the SDK may keep the items instead. What a `failure_error_function` answers, images and files
    stay as they are. The session keeps every item; only what the model is sent is folded.

    Args:
        session_id: Names the conversation; nothing of another one can be read.
        hooks: Store, limits and policies, shared by the sessions of an application; None takes the
            defaults of `SessionHooks`, which keep results and items in memory.
    """

    def __init__(self, session_id: str, hooks: SessionHooks | None = None) -> None:
        self.hooks = hooks or SessionHooks()
        super().__init__(self.hooks, session_id)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self._results = self.hooks.session(session_id)
        self._called, self._turn_id = set[str](), ""

    def equip(self, agent: AgentT) -> AgentT:
        """A copy of the agent that offloads and reads back in this session, also what tools of MCP servers return.

        Agents to which it hands off are not equipped: pass equipped ones as its `handoffs`.
        """
        session, kind = self, type(agent)

        async def get_all_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[sdk.Tool]:
            return await session._chosen(await kind.get_all_tools(self, run_context), run_context)

        equipped = type(kind.__name__, (kind,), {"get_all_tools": get_all_tools})
        copy: AgentT = equipped(
            **{one.name: getattr(agent, one.name) for one in fields(agent) if one.init}
        )
        return copy

    def run_config(self, run_config: RunConfig | None = None) -> RunConfig:
        """A copy of the run's configuration that folds what the model is sent."""
        return replace(run_config or RunConfig(), call_model_input_filter=self._fold)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest items, oldest first; without a limit those of `session_settings`, else all."""
        settings = self.session_settings
        return await super().get_items(settings.limit if limit is None and settings else limit)

    async def _fold(self, data: CallModelData[Any]) -> ModelInputData:
        groups = grouped(data.model_data.input)
        folded = await self.hooks.fold_messages(
            groups, session_id=self._results, read=read_group, write=write_group
        )
        return replace(data.model_data, input=[item for group in folded for item in group])

    async def _chosen(
        self, tools: list[sdk.Tool], run_context: RunContextWrapper[Any]
    ) -> list[sdk.Tool]:
        """The tools of the next call, which offload what they return."""
        self._turn_id = secrets.token_hex(8)
        query, called = said(run_context.turn_input)
        # others run at the provider
        own = [tool for tool in tools if isinstance(tool, FunctionTool)]
        own += [self._readable(tool) for tool in self.hooks.tools(self._results)]
        chosen = await self.hooks.choose_tools(
            own, query=query, facts_of=_facts, keep=called | self._called
        )
        return [
            *(tool for tool in tools if not isinstance(tool, FunctionTool)),
            *map(self._offloading, chosen),
        ]

    def _offloading(self, tool: FunctionTool) -> FunctionTool:
        # a program reads the latter
        if tool.name in self.hooks.tool_names or tool.output_json_schema is not None:
            return tool
        return replace(tool, on_invoke_tool=_Invoker(tool, self._offloaded))

    async def _offloaded(self, result: Any, ctx: ToolContext[Any]) -> Any:
        self._called.add(ctx.tool_name)
        parts = result if isinstance(result, list) else [result]
        blocks = [
            part if isinstance(part, dict) else getattr(part, "__dict__", {}) for part in parts
        ]
        kinds = [block.get("type") for block in blocks]
        if isinstance(result, _Failure) or any(kind in ("image", "file") for kind in kinds):
            return result
        text = plain_text(blocks) if all(kind == "text" for kind in kinds) else None
        shown = await self.hooks.offload(
            result if text is None else text,
            tool_name=ctx.tool_name,
            args=arguments_of(ctx.tool_arguments),
            session_id=self._results,
            query=said(ctx.turn_input)[0],
            turn_id=self._turn_id,
        )
        return shown.text if shown else result

    def _readable(self, tool: Tool) -> FunctionTool:
        async def read(_: ToolContext[Any], arguments: str) -> str:
            try:
                return await self.hooks.read_back(
                    tool.name, arguments_of(arguments), session_id=self._results
                )
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
        said = formatter(ctx, error)
        return _Failure(await said if isawaitable(said) else said)

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


def _facts(tool: FunctionTool) -> ToolFacts:
    return ToolFacts(tool.name, tool.description, tool.params_json_schema)
