"""`LLMCommonCapability`: offloading, choosing and reading back in an agent of pydantic-ai."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic_ai import (
    FunctionToolset,
    ModelMessage,
    RunContext,
    Tool as AgentTool,
    ToolDefinition,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.pydantic_ai_messages import (
    Piece,
    is_spoken,
    joined,
    pieces_of,
    read_piece,
    writer_of,
)
from llm_common.integrations.translation import fold_messages, read_back
from llm_common.pointers.store import ContextPointerStore
from llm_common.tools.definitions import ToolDefinition as OurDefinition
from llm_common.tools.tool import Tool

if not hasattr(AbstractCapability, "prepare_model_request"):
    raise ImportError(
        "LLMCommonCapability needs pydantic-ai 2.64 or newer: pip install -U pydantic-ai"
    )

# a response, or a request of one part, with its place in the history
_Piece = tuple[float, ModelMessage]


@dataclass(kw_only=True)
class LLMCommonCapability(AbstractCapability[Any]):
    """Long results behind pointers, a history within a limit, and the tools that fit, for `Agent`.

    Give it as `capabilities=[LLMCommonCapability()]`; `run` and `run_sync` both work. What a tool
    returns is stored as data, not as text; its `ToolReturn` keeps `content` and `metadata`.
    Failures and files stay as they are. The history keeps every message; only what the model is
    sent is folded.

    A session is the run's `conversation_id`, which a run takes from the `message_history` that it
    is given.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
    """

    store: Sessions | ContextPointerStore | Path | str | None = None
    config: SessionConfig | None = None
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions.over(self.store, self.config)

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools that read back, each in the session of the run that calls it."""
        return FunctionToolset([self._readable(tool) for tool in self.sessions.get().tools()])

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
        value = result.return_value if isinstance(result, ToolReturn) else result
        has_files = ToolReturnPart(tool_name=call.tool_name, content=value).files
        if tool_def.kind != "function" or has_files:
            return result
        shown = await self._session(ctx).offload(
            value,
            tool=call.tool_name,
            # as the model wrote them: validated ones may be no plain data
            args=call.args_as_dict(),
            turn=f"{ctx.run_id} {ctx.run_step}",
            messages=_conversation(ctx),
        )
        if shown.pointer_id is None:
            return result
        if isinstance(result, ToolReturn):
            return replace(result, return_value=str(shown))
        return str(shown)

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Return the tools that fit what the user asked, and those that were called."""
        definitions = []
        for tool in tool_defs:
            schema = tool.parameters_json_schema
            definitions.append(OurDefinition(tool.name, tool.description or "", schema))
        chosen = await self._session(ctx).choose_tools(definitions, messages=_conversation(ctx))
        names = {definition.name for definition in chosen}
        return [tool for tool in tool_defs if tool.name in names]

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with its history folded. What the operator says in it stays."""
        pieces = pieces_of(request_context.messages)
        spoken = [piece for piece in pieces if is_spoken(piece)]
        operator = [piece for piece in pieces if not is_spoken(piece)]
        folded = await fold_messages(
            self._session(ctx), spoken, read=read_piece, write=writer_of(spoken)
        )
        if folded == spoken:
            return request_context
        return replace(request_context, messages=joined([*operator, *folded]))

    def _session(self, ctx: RunContext[Any]) -> Session:
        return self.sessions.get(ctx.conversation_id)

    def _readable(self, tool: Tool) -> AgentTool[Any]:
        async def read(ctx: RunContext[Any], **args: Any) -> str:
            try:
                return await read_back(self._session(ctx), tool.name, args)
            except ToolError as exc:
                raise ToolFailed(exc.message) from exc

        return AgentTool.from_schema(
            read, tool.name, tool.description, dict(tool.parameters), takes_ctx=True
        )


def _conversation(ctx: RunContext[Any]) -> list[dict[str, Any]]:
    """Return the conversation as chat completions have it, with what the user asks last."""
    asked: list[Piece] = []
    messages = []
    for piece in pieces_of(ctx.messages):
        message = piece[1]
        if isinstance(message, ModelResponse):
            messages.append(read_piece(piece))
        elif isinstance(message.parts[0], UserPromptPart):
            asked.append(piece)
    prompt: Any = ctx.prompt
    if prompt is not None:
        asked.append((0.0, ModelRequest([UserPromptPart(prompt)])))
    return [*messages, *map(read_piece, asked[-1:])]
