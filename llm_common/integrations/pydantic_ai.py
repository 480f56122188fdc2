"""Hooks for pydantic-ai agents: `LLMCommonCapability`."""

from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pydantic_ai import FunctionToolset, RunContext, Tool as AgentTool, ToolDefinition, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.delegation import calling, session_of_caller
from llm_common.integrations.pydantic_ai_messages import (
    Piece,
    conversation_of,
    has_generated_id,
    history_of,
    is_conversation,
    join_pieces,
    newest_calls,
    pieces_of,
    read_piece,
    writer_of,
)
from llm_common.integrations.translation import choose_tools, fold_messages, read_back
from llm_common.tools import Tool, ToolDefinition as OurDefinition

# Older versions never call `prepare_model_request`, and would send the whole history.
if not hasattr(AbstractCapability, "prepare_model_request"):
    raise ImportError(
        "LLMCommonCapability needs pydantic-ai 2.64 or newer: pip install -U pydantic-ai"
    )


@dataclass(kw_only=True)
class LLMCommonCapability(AbstractCapability[Any]):
    """A capability that offloads long results, chooses tools and folds the history.

    Use it as `Agent(..., capabilities=[LLMCommonCapability()])`. Both `run` and `run_sync` work. A
    tool's result is stored as data, not as text, and a long text in the `content` of a `ToolReturn`
    as well. Results that the application supplies for deferred calls are offloaded when they are
    sent. Failures, files and `metadata` are not changed. The history keeps every message, and only
    the messages sent to the model are folded.

    The run's `conversation_id` names the session. A run takes it from its `message_history`.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
    """

    store: Sessions | ContextPointerStore | Path | str | None = None
    config: SessionConfig | None = None
    sessions: Sessions = field(init=False)
    executed: set[str] = field(init=False, default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions.over(self.store, self.config)

    async def for_run(self, ctx: RunContext[Any]) -> Self:  # noqa: ARG002 - pydantic-ai's protocol
        """Return a copy that remembers which calls its run has executed."""
        capability = copy(self)
        capability.executed = set()
        return capability

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools that read back from the session of the run that calls them."""
        return FunctionToolset(list(map(self._read_back_tool, self.sessions.tools())))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
        **_: Any,
    ) -> Any:
        """Run a tool. The runs of other agents that it starts belong to this run's session."""
        with calling(self._session(ctx), args):
            return await handler(args)

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        result: Any,
        **_: Any,
    ) -> Any:
        """Return the result, or its preview if it is long."""
        self.executed.add(call.tool_call_id)
        # An output ends the run. pydantic-ai's name for a tool that needs approval is "unapproved".
        if tool_def.kind not in ("function", "unapproved"):
            return result
        # The validated arguments may be objects that cannot be stored as JSON.
        args = call.args_as_dict()
        if not isinstance(result, ToolReturn):
            return await self._offload(ctx, result, call.tool_name, args)
        value = await self._offload(ctx, result.return_value, call.tool_name, args)
        content: Any = result.content
        if isinstance(content, str):
            content = await self._offload(ctx, content, call.tool_name, args)
        elif content is not None:
            content = [await self._offload(ctx, part, call.tool_name, args) for part in content]
        return replace(result, return_value=value, content=content)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Offload the results that the application supplied for deferred calls."""
        newest = ctx.messages[-1]
        args = {call.tool_call_id: call.args_as_dict() for call in newest_calls(ctx.messages)}
        # Only parts that this run made: others are the application's own objects.
        for part in newest.parts if newest.run_id == ctx.run_id else ():
            if not isinstance(part, ToolReturnPart) or part.outcome != "success":
                continue
            if part.tool_call_id in args and part.tool_call_id not in self.executed:
                # The history and the request share the part, so both get the preview.
                part.content = await self._offload(
                    ctx, part.content, part.tool_name, args[part.tool_call_id]
                )
        return request_context

    async def _offload(
        self, ctx: RunContext[Any], value: Any, tool_name: str, args: dict[str, Any]
    ) -> Any:
        """Return a value, or its preview if it is long. Media cannot be shortened."""
        if ToolReturnPart(tool_name=tool_name, content=value).files:
            return value
        preview = await self._session(ctx).offload(
            value,
            tool=tool_name,
            args=args,
            # All calls of one model response have the same step.
            turn=f"{ctx.run_id} {ctx.run_step}",
            messages=history_of(ctx),
        )
        return value if preview.is_whole else str(preview)

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Return the tools that fit the user's request, and those that were called before."""
        return await choose_tools(
            self._session(ctx), tool_defs, describe=_describe, messages=conversation_of(ctx)
        )

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with its history folded. The operator's instructions stay."""
        conversation: list[Piece] = []
        instructions: list[Piece] = []
        for piece in pieces_of(request_context.messages, ctx.prompt):
            if is_conversation(piece):
                conversation.append(piece)
            else:
                instructions.append(piece)
        folded = await fold_messages(
            self._session(ctx), conversation, read=read_piece, write=writer_of(conversation)
        )
        if folded == conversation:
            return request_context
        return replace(request_context, messages=join_pieces([*instructions, *folded]))

    def _session(self, ctx: RunContext[Any]) -> Session:
        if has_generated_id(ctx) and (caller := session_of_caller(self.sessions)):
            return caller
        return self.sessions.get(ctx.conversation_id)

    def _read_back_tool(self, tool: Tool) -> AgentTool[Any]:
        async def read(ctx: RunContext[Any], **args: Any) -> str:
            try:
                return await read_back(self._session(ctx), tool.name, args)
            except ToolError as exc:
                # The model sees the text, and the tool's retries are not used up.
                raise ToolFailed(exc.message) from exc

        return AgentTool.from_schema(
            read, tool.name, tool.description, dict(tool.parameters), takes_ctx=True
        )


def _describe(tool: ToolDefinition) -> OurDefinition:
    return OurDefinition(tool.name, tool.description or "", tool.parameters_json_schema)
