"""Translates Haystack's messages to those of chat completions, and back."""

import json
from typing import Any

from haystack.dataclasses import ChatMessage, ChatRole, TextContent

from llm_common.integrations.translation import chat_call


def read_message(message: ChatMessage) -> dict[str, Any]:
    """Return a message in the shape of chat completions, without images."""
    if result := message.tool_call_result:
        text = result_text(result) or ""
        return {"role": "tool", "tool_call_id": _call_id(result.origin), "content": text}
    fields: dict[str, Any] = {"role": message.role.value, "content": "\n".join(message.texts)}
    if message.tool_calls:
        fields["tool_calls"] = [
            chat_call(_call_id(call), call.tool_name, json.dumps(call.arguments))
            for call in message.tool_calls
        ]
    return fields


def _call_id(call: Any) -> str:
    # Some generators give their calls no ids.
    return str(call.id or call.tool_name)


def write_message(message: ChatMessage | None, content: str) -> ChatMessage:
    """Return a copy of a message with another text, or a new user message for None."""
    if message is None:
        return ChatMessage.from_user(content)
    if result := message.tool_call_result:
        return ChatMessage.from_tool(
            content, origin=result.origin, error=result.error, meta=message.meta
        )
    if message.is_from(ChatRole.USER):
        parts: list[Any] = [TextContent(content), *message.images, *message.files]
        return ChatMessage.from_user(content_parts=parts, meta=message.meta, name=message.name)
    # Folding shortens no message with calls, so there are none to copy.
    return ChatMessage.from_assistant(content, meta=message.meta, name=message.name)


def result_text(result: Any) -> str | None:
    """Return a tool's result as a text, or None if it holds an image or a file."""
    if isinstance(result.result, str):
        return str(result.result)
    texts = [part.text for part in result.result if isinstance(part, TextContent)]
    return "\n".join(texts) if texts and len(texts) == len(result.result) else None
