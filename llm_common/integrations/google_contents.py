"""What is read of Google's contents, and of what an agent of its ADK is given by tools."""

from collections.abc import Mapping
from typing import Any

import orjson
from google.genai import types
from pydantic import BaseModel

from llm_common.integrations.translation import plain_text
from llm_common.text.canonical import stable_json
from llm_common.tools.definitions import ToolDefinition


def query_of(context: Any) -> str:
    """What the user said last."""
    parts = context.user_content.parts if context.user_content else None
    return "\n".join(part.text for part in parts or () if part.text)


def plain_value(result: Any) -> Any:
    """A result as plain data; None for an error, and for what holds media."""
    if isinstance(result, Mapping):
        if result.get("error") or result.get("isError"):
            return None
        blocks = result.get("content")  # of a server of MCP
        if isinstance(blocks, list) and all(
            isinstance(block, Mapping) and "type" in block for block in blocks
        ):
            return plain_text(blocks)
    try:
        orjson.dumps(result, default=_dumped, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return None
    return result


def _dumped(value: object) -> Any:
    """A model of the application as data; Google's own are media."""
    if isinstance(value, BaseModel) and not type(value).__module__.startswith("google."):
        return value.model_dump(mode="json")
    raise TypeError


def definition_of(tool: types.FunctionDeclaration) -> ToolDefinition:
    """Return a declared function as our definition."""
    schema = tool.parameters_json_schema
    if not schema and tool.parameters:
        schema = tool.parameters.model_dump(mode="json", exclude_none=True)
    return ToolDefinition(tool.name or "", tool.description or "", schema or {})


def read_content(content: types.Content) -> dict[str, Any]:
    """A message in the shape of Anthropic's, whose blocks are in the same order.

    Media are named only.
    """
    role = "assistant" if content.role == "model" else "user"
    return {"role": role, "content": [_block(part) for part in content.parts or ()]}


def _block(part: types.Part) -> dict[str, Any]:
    if call := part.function_call:
        return {
            "type": "tool_use",
            "id": call.id or call.name,
            "name": call.name,
            "input": call.args or {},
        }
    if result := part.function_response:
        return {
            "type": "tool_result",
            "tool_use_id": result.id or result.name,
            "content": stable_json(result.response),
        }
    return {"type": "media"} if part.text is None else {"type": "text", "text": part.text}


def write_content(content: types.Content | None, shown: Any) -> types.Content:
    """A content with a shorter text, or with shorter results.

    A new one of the user without a content.
    """
    if content is None:
        return types.Content(role="user", parts=[types.Part(text=shown)])
    old = content.parts or []
    if isinstance(shown, str):
        parts = [types.Part(text=shown), *(part for part in old if part.text is None)]
    else:
        parts = [
            part if block == _block(part) else _result(part, block)
            for part, block in zip(old, shown, strict=True)
        ]
    return content.model_copy(update={"parts": parts})


def _result(part: types.Part, block: Mapping[str, Any]) -> types.Part:
    old: Any = part.function_response
    response = old.model_copy(update={"response": {"result": block["content"]}})
    return part.model_copy(update={"function_response": response})
