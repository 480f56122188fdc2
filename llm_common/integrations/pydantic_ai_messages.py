"""Read pydantic-ai's messages in the shape of chat completions, and write them back.

A pydantic-ai request holds prompts, outputs and instructions in one message. It is folded in
pieces: a response, or a request with one part, each with its position in the history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from pydantic_ai import ModelMessage, RunContext
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from llm_common.integrations.translation import chat_call
from llm_common.text import to_plain


class Piece(NamedTuple):
    """A response, or a request with one part.

    Attributes:
        position: The position in the history.
        message: The response or request.
        call_id: The call whose result the part belongs to, for the `content` of a `ToolReturn`.
            None for anything else.
    """

    position: float
    message: ModelMessage
    call_id: str | None = None


# Parts of other kinds are the operator's instructions or the framework's own.
_CONVERSATION: Final = frozenset({"user-prompt", "tool-return", "retry-feedback"})


def pieces_of(messages: Sequence[ModelMessage], prompt: object = None) -> list[Piece]:
    """Return the pieces of a history, in order.

    Args:
        messages: The history.
        prompt: What the user wrote in this run, if anything.
    """
    pieces: list[Piece] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            pieces.append(Piece(len(pieces), message))
            continue
        call_id = None
        for part in message.parts:
            request = replace(message, parts=[part])
            if isinstance(part, ToolReturnPart):
                call_id = part.tool_call_id
            # pydantic-ai puts the `content` of a `ToolReturn` into a prompt after the results.
            # A run that gets results and a prompt puts the user's own words there too.
            is_content = isinstance(part, UserPromptPart) and part.content != prompt
            pieces.append(Piece(len(pieces), request, call_id if is_content else None))
    return pieces


def is_conversation(piece: Piece) -> bool:
    """Return whether a piece comes from the user, the model or a tool."""
    message = piece.message
    return isinstance(message, ModelResponse) or message.parts[0].part_kind in _CONVERSATION


def join_pieces(pieces: Sequence[Piece]) -> list[ModelMessage]:
    """Return the history of pieces, in their order. Adjacent requests become one."""
    messages: list[ModelMessage] = []
    for piece in sorted(pieces, key=lambda piece: piece.position):
        message = piece.message
        last = messages[-1] if messages else None
        if isinstance(last, ModelRequest) and isinstance(message, ModelRequest):
            # The later request keeps its fields: a new prompt before it has no instructions.
            messages[-1] = replace(message, parts=[*last.parts, *message.parts])
        else:
            messages.append(message)
    return messages


def conversation_of(ctx: RunContext[Any]) -> list[dict[str, Any]]:
    """Return the model's responses in the shape of chat completions, then the last prompt."""
    prompts: list[Piece] = []
    messages: list[dict[str, Any]] = []
    prompt: Any = ctx.prompt
    for piece in pieces_of(ctx.messages, prompt):
        message = piece.message
        if isinstance(message, ModelResponse):
            messages.append(read_piece(piece))
        elif isinstance(message.parts[0], UserPromptPart) and piece.call_id is None:
            prompts.append(piece)
    if prompt is not None:
        prompts.append(Piece(0.0, ModelRequest([UserPromptPart(prompt)])))
    return [*messages, *map(read_piece, prompts[-1:])]


def history_of(ctx: RunContext[Any]) -> list[dict[str, Any]]:
    """Return all messages of the conversation with the outputs, in their order."""
    pieces = filter(is_conversation, pieces_of(ctx.messages, ctx.prompt))
    return [*map(read_piece, pieces)]


def has_generated_id(ctx: RunContext[Any]) -> bool:
    """Return whether pydantic-ai, and not the application, named the run's conversation."""
    try:
        # pydantic-ai generates version 7. Ids that applications generate are usually version 4.
        return UUID(ctx.conversation_id or "").version == 7  # noqa: PLR2004
    except ValueError:
        return not ctx.conversation_id


def newest_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """Return the calls of the newest response."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [*message.tool_calls]
    return []


def read_piece(piece: Piece) -> dict[str, Any]:
    """Return a piece as a message of chat completions."""
    message = piece.message
    if isinstance(message, ModelResponse):
        content = [_block(part) for part in message.parts if not isinstance(part, ToolCallPart)]
        calls = [
            chat_call(call.tool_call_id, call.tool_name, call.args) for call in message.tool_calls
        ]
        return {"role": "assistant", "content": content, "tool_calls": calls}
    part: Any = message.parts[0]
    if isinstance(part, ToolReturnPart):
        answer: Any = part.model_response_str()
        if part.files:
            answer = to_plain([*part.content_items()])
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": answer}
    prompt = part.content if isinstance(part, UserPromptPart) else part.model_response()
    if not isinstance(prompt, str):
        prompt = [*map(_block, prompt)]
    if piece.call_id is not None:
        # As an output of the call, so that the user's own question stays the newest one.
        return {"role": "tool", "tool_call_id": piece.call_id, "content": prompt}
    return {"role": "user", "content": prompt}


def _block(part: Any) -> Any:
    text = part.content if isinstance(part, TextPart) else part
    return {"type": "text", "text": text} if isinstance(text, str) else to_plain(part)


def writer_of(pieces: Sequence[Piece]) -> Callable[[Piece | None, str], Piece]:
    """Return a function that writes a piece with another text.

    Called with None, it returns a new user prompt that comes before all pieces.
    """
    # Half a position: after the instructions that come before the conversation.
    start = pieces[0].position - 0.5 if pieces else 0.0

    def write(piece: Piece | None, text: str) -> Piece:
        if piece is None:
            return Piece(start, ModelRequest([UserPromptPart(text)]))
        message = piece.message
        if isinstance(message, ModelResponse):
            # Folding shortens no response with calls, so there are none to copy.
            return piece._replace(message=replace(message, parts=[TextPart(text)]))
        part: Any = message.parts[0]
        images = []
        if part.part_kind == "user-prompt":
            images = [block for block in part.content if not isinstance(block, str)]
        content = [text, *images] if images else text
        return piece._replace(message=replace(message, parts=[replace(part, content=content)]))

    return write
