"""`LLMCommonCapability`: offloading, choosing and reading back in an agent of pydantic-ai."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext

from llm_common.errors import ToolError
from llm_common.integrations.session_hooks import SessionHooks, ToolFacts
from llm_common.text.canonical import to_plain
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
        hooks: Store, limits and policies; the defaults of `SessionHooks` keep results in memory.
    """

    hooks: SessionHooks = field(default_factory=SessionHooks)

    def get_toolset(self) -> FunctionToolset[Any]:
        """The tools that read back, each in the session of the run that calls it."""
        return FunctionToolset(
            [self._readable(tool) for tool in self.hooks.tools(self.hooks.session_id)]
        )

    async def after_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        result: Any,
        **_: Any,
    ) -> Any:
        """The result, or its preview if it is long."""
        value = result.return_value if isinstance(result, ToolReturn) else result
        if (
            tool_def.kind != "function"
            or ToolReturnPart(tool_name=call.tool_name, content=value).files
        ):
            return result
        caller = next(
            (one for one in reversed(ctx.messages) if isinstance(one, ModelResponse)), None
        )
        shown = await self.hooks.offload(
            value,
            tool_name=call.tool_name,
            # as the model wrote them: validated ones may be no plain data
            args=call.args_as_dict(),
            session_id=self.hooks.session(ctx.conversation_id),
            query=_query(ctx),
            turn_id=f"{ctx.run_id} {ctx.run_step}",
            calls=len(caller.tool_calls) if caller else 1,
        )
        if shown is None:
            return result
        return (
            replace(result, return_value=shown.text)
            if isinstance(result, ToolReturn)
            else shown.text
        )

    async def prepare_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """The tools that fit what the user asked, and those that the conversation has called."""
        called = {
            call.tool_name
            for one in ctx.messages
            if isinstance(one, ModelResponse)
            for call in one.tool_calls
        }
        return await self.hooks.choose_tools(
            tool_defs,
            query=_query(ctx),
            facts_of=lambda tool: ToolFacts(
                tool.name, tool.description or "", tool.parameters_json_schema
            ),
            keep=called,
        )

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """The request with its history folded; what the operator says in it stays."""
        pieces: list[_Piece] = [
            *enumerate(piece for message in request_context.messages for piece in _split(message))
        ]
        spoken, operator = (
            [piece for piece in pieces if _is_spoken(piece[1]) is kind] for kind in (True, False)
        )
        session = self.hooks.session(ctx.conversation_id)
        before = spoken[0][0] - 0.5 if spoken else 0.0

        def write(piece: _Piece | None, text: str) -> _Piece:
            place, message = piece or (before, ModelRequest([UserPromptPart("")]))
            if isinstance(message, ModelResponse):
                return place, replace(message, parts=[TextPart(text)])
            part: Any = message.parts[0]
            rest = (
                [one for one in part.content if not isinstance(one, str)]
                if part.part_kind == "user-prompt"
                else []
            )
            return place, replace(
                message, parts=[replace(part, content=[text, *rest] if rest else text)]
            )

        folded = await self.hooks.fold_messages(spoken, session_id=session, read=_read, write=write)
        if folded == spoken:
            return request_context
        return replace(
            request_context,
            messages=_joined(sorted([*operator, *folded], key=lambda piece: piece[0])),
        )

    def _readable(self, tool: Tool) -> AgentTool[Any]:
        async def read(ctx: RunContext[Any], **args: Any) -> str:
            try:
                return await self.hooks.read_back(
                    tool.name, args, session_id=self.hooks.session(ctx.conversation_id)
                )
            except ToolError as exc:
                raise ToolFailed(exc.message) from exc

        return AgentTool.from_schema(
            read, tool.name, tool.description, dict(tool.parameters), takes_ctx=True
        )


def _query(ctx: RunContext[Any]) -> str:
    """What the user said last."""
    prompts = (
        part
        for one in reversed(ctx.messages)
        for part in one.parts
        if isinstance(part, UserPromptPart)
    )
    content = ctx.prompt or next((part.content for part in prompts), "")
    return (
        content
        if isinstance(content, str)
        else " ".join(part for part in content if isinstance(part, str))
    )


def _split(message: ModelMessage) -> Sequence[ModelMessage]:
    return (
        [message]
        if isinstance(message, ModelResponse)
        else [replace(message, parts=[p]) for p in message.parts]
    )


def _joined(pieces: Sequence[_Piece]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for _, message in pieces:
        if (
            messages
            and isinstance(last := messages[-1], ModelRequest)
            and isinstance(message, ModelRequest)
        ):
            messages[-1] = replace(message, parts=[*last.parts, *message.parts])
        else:
            messages.append(message)
    return messages


def _is_spoken(message: ModelMessage) -> bool:
    """Whether it is of the conversation, not of the operator or the framework."""
    return message.kind == "response" or message.parts[0].part_kind in (
        "user-prompt",
        "tool-return",
        "retry-feedback",
    )


def _read(piece: _Piece) -> Mapping[str, Any]:
    message = piece[1]
    if isinstance(message, ModelResponse):
        content = [_block(part) for part in message.parts if not isinstance(part, ToolCallPart)]
        functions = (
            (one.tool_call_id, {"name": one.tool_name, "arguments": one.args})
            for one in message.tool_calls
        )
        calls = [{"id": call_id, "function": function} for call_id, function in functions]
        return {"role": "assistant", "content": content, "tool_calls": calls}
    part: Any = message.parts[0]
    if isinstance(part, ToolReturnPart):
        answer = to_plain([*part.content_items()]) if part.files else part.model_response_str()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": answer}
    said = part.content if isinstance(part, UserPromptPart) else part.model_response()
    return {"role": "user", "content": said if isinstance(said, str) else [*map(_block, said)]}


def _block(part: Any) -> Any:
    text = part if isinstance(part, str) else part.content if isinstance(part, TextPart) else None
    return to_plain(part) if text is None else {"type": "text", "text": text}
