"""Messages of pydantic-ai in the shape of chat completions, which is what folding reads, and back.

A request holds prompts, outputs and instructions in one message. It is folded in pieces: a
response, or a request of one part, each with its place in the history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import ModelMessage
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

# The others are the operator's or the framework's.
_SPOKEN: Final = frozenset({"user-prompt", "tool-return", "retry-feedback"})


def pieces_of(messages: Sequence[ModelMessage]) -> list[Piece]:
    """Return the pieces of a history."""
    pieces: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            pieces.append(message)
        else:
            pieces += [replace(message, parts=[part]) for part in message.parts]
    return [*enumerate(pieces)]


def is_spoken(piece: Piece) -> bool:
    """Return whether a piece is of the conversation."""
    message = piece[1]
    return isinstance(message, ModelResponse) or message.parts[0].part_kind in _SPOKEN


def joined(pieces: Sequence[Piece]) -> list[ModelMessage]:
    """Return the history of pieces, in their order, with requests that follow each other as one."""
    messages: list[ModelMessage] = []
    for _, message in sorted(pieces, key=lambda piece: piece[0]):
        last = messages[-1] if messages else None
        if isinstance(last, ModelRequest) and isinstance(message, ModelRequest):
            messages[-1] = replace(message, parts=[*last.parts, *message.parts])
        else:
            messages.append(message)
    return messages


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
        answer = to_plain([*part.content_items()]) if part.files else part.model_response_str()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": answer}
    prompt = part.content if isinstance(part, UserPromptPart) else part.model_response()
    if not isinstance(prompt, str):
        prompt = [*map(_block, prompt)]
    return {"role": "user", "content": prompt}


def _block(part: Any) -> Any:
    text = part.content if isinstance(part, TextPart) else part
    return {"type": "text", "text": text} if isinstance(text, str) else to_plain(part)


def writer_of(spoken: Sequence[Piece]) -> Callable[[Piece | None, str], Piece]:
    """Return what writes a piece with another text, or a new one before the others for None."""
    before = spoken[0][0] - 0.5 if spoken else 0.0

    def write(piece: Piece | None, text: str) -> Piece:
        place, message = piece or (before, ModelRequest([UserPromptPart("")]))
        if isinstance(message, ModelResponse):
            return place, replace(message, parts=[TextPart(text)])
        part: Any = message.parts[0]
        images = []
        if part.part_kind == "user-prompt":
            images = [block for block in part.content if not isinstance(block, str)]
        content = [text, *images] if images else text
        return place, replace(message, parts=[replace(part, content=content)])

    return write
