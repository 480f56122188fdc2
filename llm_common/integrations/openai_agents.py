"""Hooks for agents of the OpenAI Agents SDK: `LLMCommonSession`."""

import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from inspect import isawaitable
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    RunConfig,
    RunContextWrapper,
    SessionSettings,
    Tool,
    tool as sdk,
)
from agents.run import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ConfigError
from llm_common.integrations.delegation import inlined
from llm_common.integrations.responses_items import (
    arguments_of,
    group_items,
    read_group,
    write_group,
)
from llm_common.integrations.stored_items import StoredItems
from llm_common.integrations.translation import (
    chat_call,
    choose_tools,
    fold_messages,
    plain_text,
    read_back_or_explain,
)
from llm_common.tools import Tool as SessionTool, ToolDefinition

AgentT = TypeVar("AgentT", bound=Agent[Any])

_SESSION = "_llm_common_session"  # the attribute of an equipped agent's class


class LLMCommonSession(StoredItems):
    """A session for `Runner` that offloads long results, chooses tools and folds the history.

    Pass it three times: `Runner.run(session.equip(agent), text, session=session,
    run_config=session.run_config())`. `run_sync` and `run_streamed` work too. Another session of
    the SDK may keep the items. Images, files and the texts of a `failure_error_function` do not
    change. The session keeps every item, and only the items sent to the model are folded.

    Args:
        session_id: Names the conversation. Results of other conversations cannot be read.
        store: A store, the folder of one, or the `Sessions` that the sessions of an application
            share. None takes `.llm-common/context`: items stay until `clear_session`, results for
            a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
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
        # The SDK's session protocol requires this attribute.
        self.session_settings: SessionSettings | None = None
        self.session = sessions.get(session_id)
        self._called = set[str]()
        self._turn = ""
        self._input: list[Any] = []  # of the newest model call

    def equip(self, agent: AgentT) -> AgentT:
        """Return a copy of the agent that offloads and reads back in this session.

        Tools of MCP servers are included, and so are the agents that it hands off to. An agent as a
        tool without a session of ours gets results instead of their pointers. The copy runs with
        this session's `run_config` only.
        """
        return self._equip(agent, {})

    def _equip(self, agent: AgentT, copies: dict[int, Any]) -> AgentT:
        """Return a copy of an agent. `copies` has those that were made, by the agent's `id`."""
        if hasattr(agent, _SESSION):
            return agent
        if id(agent) in copies:  # two agents may hand off to each other
            return cast(AgentT, copies[id(agent)])
        session, kind = self, type(agent)

        async def get_all_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[Tool]:
            tools = await kind.get_all_tools(self, run_context)
            return await session._prepare(tools, self.tool_use_behavior, run_context)

        # A subclass, because the SDK has no hook that returns an agent's tools for one call.
        attributes = {"get_all_tools": get_all_tools, _SESSION: self.session}
        equipped = type(kind.__name__, (kind,), attributes)
        settings = {field.name: getattr(agent, field.name) for field in fields(agent) if field.init}
        copy: AgentT = equipped(**settings)
        copies[id(agent)] = copy
        copy.handoffs = [self._equip_target(target, copies) for target in agent.handoffs]
        return copy

    def _equip_target(self, target: Any, copies: dict[int, Any]) -> Any:
        if not isinstance(target, Handoff):
            return self._equip(target, copies)

        async def invoke(context: RunContextWrapper[Any], arguments: str) -> Any:
            # Only the handoff knows its agent, so that is equipped when it is returned.
            return self._equip(await target.on_invoke_handoff(context, arguments), copies)

        return replace(target, on_invoke_handoff=invoke)

    def run_config(self, run_config: RunConfig | None = None) -> RunConfig:
        """Return a copy of a run's configuration that folds the input of each model call."""
        return replace(run_config or RunConfig(), call_model_input_filter=self._fold)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest items, oldest first. `session_settings` may set the limit."""
        if limit is None and self.session_settings:
            limit = self.session_settings.limit
        return await super().get_items(limit)

    async def _fold(self, data: CallModelData[Any]) -> ModelInputData:
        equipped: Session | None = getattr(data.agent, _SESSION, None)
        # With two sessions, one user's results would be stored in and read from another's.
        if equipped is not None and equipped.session_id != self.session.session_id:
            raise ConfigError(
                f"the agent {data.agent.name!r} was equipped for another session; pass "
                "session.equip(agent) of the session whose run_config() the run has",
                variable="session",
            )
        self._input = [*data.model_data.input]
        groups = await fold_messages(
            self.session, group_items(data.model_data.input), read=read_group, write=write_group
        )
        return replace(data.model_data, input=[*chain.from_iterable(groups)])

    async def _prepare(
        self, tools: list[Tool], behavior: Any, run_context: RunContextWrapper[Any]
    ) -> list[Tool]:
        """Return the tools of the next call, which offload the results that the model reads."""
        self._turn = secrets.token_hex(8)  # the SDK asks for the tools once per model call
        hosted_first = sorted(tools, key=lambda tool: isinstance(tool, FunctionTool))
        chosen = await choose_tools(
            self.session,
            [*hosted_first, *map(self._read_back_tool, self.session.tools())],
            describe=_describe,
            messages=[*map(read_group, group_items(run_context.turn_input))],
            keep=self._called,
        )
        return [self._offloading(tool, behavior) for tool in chosen]

    def _offloading(self, tool: Tool, behavior: Any) -> Tool:
        if not isinstance(tool, FunctionTool) or tool.name in self.session.tool_names:
            return tool
        if _is_final_output(tool.name, behavior):  # the user gets the result as the answer
            return tool
        if tool.output_json_schema is not None:  # a program reads the result, not the model
            return tool
        agent = tool._agent_instance  # noqa: SLF001 - how the SDK marks an agent as a tool
        prepare = None
        if agent is not None and not hasattr(agent, _SESSION):
            prepare = self._inlined
        return replace(tool, on_invoke_tool=_OffloadingInvoker(tool, self._offload, prepare))

    async def _inlined(self, arguments: str) -> str:
        """Return a call's arguments with the results that they name."""
        args = arguments_of(arguments)
        return json.dumps(await inlined(self.session, args)) if args else arguments

    async def _offload(self, result: Any, ctx: ToolContext[Any]) -> Any:
        self._called.add(ctx.tool_name)
        content = _content_of(result)
        if content is None:
            return result
        # The input of a model call ends before the response that made the tool call.
        messages = [*map(read_group, group_items(self._input))]
        call = chat_call(ctx.tool_call_id, ctx.tool_name, ctx.tool_arguments)
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        preview = await self.session.offload(
            content,
            tool=ctx.tool_name,
            args=arguments_of(ctx.tool_arguments),
            turn=self._turn,
            messages=messages,
        )
        if preview.is_whole:
            return result
        return str(preview)

    def _read_back_tool(self, tool: SessionTool) -> FunctionTool:
        async def read(_: ToolContext[Any], arguments: str) -> str:
            return await read_back_or_explain(self.session, tool.name, arguments_of(arguments))

        return FunctionTool(
            tool.name, tool.description, dict(tool.parameters), read, strict_json_schema=False
        )


class _FormattedError(str):
    """The text that a tool's own `failure_error_function` returned for an error."""

    __slots__ = ()


class _OffloadingInvoker:
    """Call a tool, then hand its result to `finish`.

    The SDK reads attributes of `on_invoke_tool`. Those of the tool's own function are passed on.

    Args:
        tool: The tool.
        finish: Returns what the model sees of a result.
        prepare: Returns the arguments that the tool gets, or None for those of the model.
    """

    def __init__(
        self,
        tool: FunctionTool,
        finish: Callable[[Any, ToolContext[Any]], Awaitable[Any]],
        prepare: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._prepare = prepare
        # A copy, because its formatter is changed below, and other agents may share the tool.
        self._tool, self._finish = replace(tool), finish
        formatter = sdk.resolve_function_tool_failure_error_function(tool)
        # The SDK returns an error's text like any result. Marked, it is not offloaded.
        if formatter not in (None, sdk.default_tool_error_function):
            sdk.set_function_tool_failure_error_function(self._tool, _marking(formatter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool.on_invoke_tool, name)

    def __agents_bind_function_tool__(self, _: FunctionTool) -> Self:
        # The SDK calls this for each copy of a tool. The tool to run stays the same.
        return self

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Run the tool and return what `finish` makes of its result."""
        if self._prepare is not None:
            arguments = await self._prepare(arguments)
        return await self._finish(await self._tool.on_invoke_tool(ctx, arguments), ctx)


def _marking(formatter: Any) -> Any:
    async def mark(ctx: RunContextWrapper[Any], error: Exception) -> str:
        text = formatter(ctx, error)
        return _FormattedError(await text if isawaitable(text) else text)

    return mark


def _describe(tool: Any) -> ToolDefinition | None:
    """Return the definition of a function tool, or None for a tool that runs at the provider."""
    if not isinstance(tool, FunctionTool):
        return None
    return ToolDefinition(tool.name, tool.description, tool.params_json_schema)


def _is_final_output(tool_name: str, behavior: Any) -> bool:
    """Return whether an agent's `tool_use_behavior` makes the tool's result the run's output.

    A function as the behaviour decides by the results, so it is not known before the call.
    """
    if isinstance(behavior, dict):
        return tool_name in behavior.get("stop_at_tool_names", ())
    return bool(behavior == "stop_on_first_tool")


def _content_of(result: Any) -> Any:
    """Return a tool's result as text or data, or None if it is an error or holds media."""
    if isinstance(result, _FormattedError):
        return None
    blocks: list[dict[str, Any]] = []
    for part in result if isinstance(result, list) else [result]:
        # The SDK has a pydantic model and a dict for each kind of output.
        blocks.append(part if isinstance(part, dict) else getattr(part, "__dict__", {}))
    types = {block.get("type") for block in blocks}
    if types & {"image", "file"}:
        return None
    if types == {"text"}:
        return plain_text(blocks)
    return result
