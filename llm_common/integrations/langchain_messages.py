"""Read LangChain's messages and tools as folding and choosing expect them, and write messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain.tools import BaseTool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from llm_common.integrations.translation import chat_call
from llm_common.tools import ToolDefinition

# By message type. Other types, such as `chat`, count as messages of the user.
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}


def describe(tool: Any) -> ToolDefinition | None:
    """Return the definition of a tool, or None for a dict, which is a tool of the provider."""
    if not isinstance(tool, BaseTool):
        return None
    # This leaves out arguments that LangChain fills in, such as the runtime.
    function = convert_to_openai_tool(tool)["function"]
    return ToolDefinition(tool.name, tool.description, function.get("parameters", {}))


def caller_id(messages: Sequence[BaseMessage]) -> str | None:
    """Return the id of the message that made the calls, whose previews share one budget."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return str(message.id) if message.id else None
    return None


def read_message(message: BaseMessage) -> Mapping[str, Any]:
    """Return a message in the shape of chat completions."""
    fields: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        fields["tool_calls"] = [
            chat_call(call["id"], call["name"], call["args"]) for call in message.tool_calls
        ]
    return fields


def write_message(message: Any, text: str) -> Any:
    """Return a copy of a message with another text and its images, or a new user message."""
    if message is None:
        return HumanMessage(text)
    images: list[Any] = []
    if isinstance(message.content, list) and not isinstance(message, ToolMessage):
        for block in message.content:
            if isinstance(block, dict) and "text" not in block:
                images.append(block)
    content = [{"type": "text", "text": text}, *images] if images else text
    return message.model_copy(update={"content": content})
