"""Read pydantic-ai's messages in the shape of chat completions, and write them back.

A pydantic-ai request holds prompts, outputs and instructions in one message. It is folded in
pieces: a response, or a request with one part, each with its position in the history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import ModelMessage, RunContext
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from llm_common.text.canonical import to_plain

Piece = tuple[float, ModelMessage]
"""A position in the history, and a response or a request with one part."""

# Parts of other kinds are the operator's instructions or the framework's own.
_CONVERSATION: Final = frozenset({"user-prompt", "tool-return", "retry-feedback"})


def pieces_of(messages: Sequence[ModelMessage]) -> list[Piece]:
    """Return the pieces of a history, in order."""
    pieces: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            pieces.append(message)
        else:
            pieces += [replace(message, parts=[part]) for part in message.parts]
    return [*enumerate(pieces)]


def is_conversation(piece: Piece) -> bool:
    """Return whether a piece comes from the user, the model or a tool."""
    message = piece[1]
    return isinstance(message, ModelResponse) or message.parts[0].part_kind in _CONVERSATION


def join_pieces(pieces: Sequence[Piece]) -> list[ModelMessage]:
    """Return the history of pieces, in their order. Adjacent requests become one."""
    messages: list[ModelMessage] = []
    for _, message in sorted(pieces, key=lambda piece: piece[0]):
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
    for piece in pieces_of(ctx.messages):
        message = piece[1]
        if isinstance(message, ModelResponse):
            messages.append(read_piece(piece))
        elif isinstance(message.parts[0], UserPromptPart):
            prompts.append(piece)
    prompt: Any = ctx.prompt
    if prompt is not None:
        prompts.append((0.0, ModelRequest([UserPromptPart(prompt)])))
    return [*messages, *map(read_piece, prompts[-1:])]


def read_piece(piece: Piece) -> dict[str, Any]:
    """Return a piece as a message of chat completions."""
    message = piece[1]
    if isinstance(message, ModelResponse):
        content = [_block(part) for part in message.parts if not isinstance(part, ToolCallPart)]
        calls = []
        for call in message.tool_calls:
            function = {"name": call.tool_name, "arguments": call.args}
            calls.append({"id": call.tool_call_id, "function": function})
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
    return {"role": "user", "content": prompt}


def _block(part: Any) -> Any:
    text = part.content if isinstance(part, TextPart) else part
    return {"type": "text", "text": text} if isinstance(text, str) else to_plain(part)


def writer_of(pieces: Sequence[Piece]) -> Callable[[Piece | None, str], Piece]:
    """Return a function that writes a piece with another text.

    Called with None, it returns a new user prompt that comes before all pieces.
    """
    # Half a position: after the instructions that come before the conversation.
    start = pieces[0][0] - 0.5 if pieces else 0.0

    def write(piece: Piece | None, text: str) -> Piece:
        position, message = piece or (start, ModelRequest([UserPromptPart("")]))
        if isinstance(message, ModelResponse):
            # Folding shortens no response with calls, so there are none to copy.
            return position, replace(message, parts=[TextPart(text)])
        part: Any = message.parts[0]
        images = []
        if part.part_kind == "user-prompt":
            images = [block for block in part.content if not isinstance(block, str)]
        content = [text, *images] if images else text
        return position, replace(message, parts=[replace(part, content=content)])

    return write
