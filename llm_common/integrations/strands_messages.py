"""Messages of Strands in the shape of Anthropic's, which is what folding reads, and back."""

from collections.abc import Mapping
from typing import Any

from llm_common.integrations.translation import plain_text


def content_of(block: Mapping[str, Any]) -> Any:
    """Return the text or data of a block of a tool result, or None for an image or a document."""
    return block.get("text") or block.get("json")


def uses_in(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls that a message makes."""
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the shape of Anthropic's, whose blocks are in the same order.

    Images are named only.
    """
    return {"role": message["role"], "content": [_block(block) for block in message["content"]]}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if use := block.get("toolUse"):
        return {
            "type": "tool_use",
            "id": use["toolUseId"],
            "name": use["name"],
            "input": use["input"],
        }
    if result := block.get("toolResult"):
        parts = [_block(part) if content_of(part) is None else part for part in result["content"]]
        return {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": plain_text(parts) or parts,
        }
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    return {"type": next(iter(block), "")}


def write_message(message: Any, content: Any) -> Any:
    """Return a message with a shorter text, or with shorter tool results. None makes a new one."""
    if message is None or isinstance(content, str):
        rest = [block for block in message["content"] if "text" not in block] if message else []
        return {
            "role": message["role"] if message else "user",
            "content": [{"text": content}, *rest],
        }
    blocks = []
    for old, new in zip(message["content"], content, strict=True):
        if "toolResult" in old and new != _block(old):
            shorter = {**old["toolResult"], "content": [{"text": new["content"]}]}
            blocks.append({"toolResult": shorter})
        else:
            blocks.append(old)
    return {**message, "content": blocks}


def alternating(messages: list[Any]) -> list[Any]:
    """Return the messages with neighbours of one role joined, as Bedrock requires."""
    joined: list[Any] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined
