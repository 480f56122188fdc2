"""Read messages of Strands in Anthropic's shape, and write them back.

Anthropic's blocks match those of Strands one to one.
"""

from collections.abc import Mapping
from typing import Any

from llm_common.integrations.translation import plain_text


def content_of(block: Mapping[str, Any]) -> Any:
    """Return the text or data of a block in a tool result, or None for an image or a document."""
    return block.get("text") or block.get("json")


def calls_in(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool calls of a message."""
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in Anthropic's shape, with its blocks in the same order.

    An image becomes a block with its type only.
    """
    return {"role": message["role"], "content": [*map(_block, message["content"])]}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if call := block.get("toolUse"):
        return {
            "type": "tool_use",
            "id": call["toolUseId"],
            "name": call["name"],
            "input": call["input"],
        }
    if result := block.get("toolResult"):
        parts: list[Any] = []
        for part in result["content"]:
            parts.append(_block(part) if content_of(part) is None else part)
        return {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": plain_text(parts) or parts,
        }
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    return {"type": next(iter(block), "")}


def write_message(message: Any, content: Any) -> Any:
    """Return a copy of a message with another text or other tool results.

    Args:
        message: The message to copy. None makes a new one of the user.
        content: A text, or all blocks of the message, some of them shortened.
    """
    if message is None:
        return {"role": "user", "content": [{"text": content}]}
    blocks: list[Any] = []
    if isinstance(content, str):
        blocks = [block for block in message["content"] if "text" not in block]
        return {"role": message["role"], "content": [{"text": content}, *blocks]}
    for original, written in zip(message["content"], content, strict=True):
        # Only a result that was shortened differs from what was read.
        if "toolResult" in original and written != _block(original):
            shorter = {**original["toolResult"], "content": [{"text": written["content"]}]}
            blocks.append({"toolResult": shorter})
        else:
            blocks.append(original)
    return {**message, "content": blocks}


def alternating(messages: list[Any]) -> list[Any]:
    """Return the messages with adjacent ones of the same role joined, as Bedrock requires."""
    joined: list[Any] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined
