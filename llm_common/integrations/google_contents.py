"""Read contents and declarations of Google's API as messages and definitions, and write contents.

Messages have Anthropic's shape, because its blocks match the parts of a content one to one.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from google.genai import types
from pydantic import BaseModel

from llm_common.integrations.translation import plain_text
from llm_common.text import stable_json
from llm_common.tools import ToolDefinition


def query_of(context: Any) -> str:
    """Return the last text of the user."""
    content = context.user_content
    if not content or not content.parts:
        return ""
    return "\n".join(part.text for part in content.parts if part.text)


def plain_value(result: Any) -> Any:
    """Return a tool's result as plain data, or None if it is an error or holds media."""
    if isinstance(result, Mapping):
        # ADK returns the answer of an MCP tool as a dict with its blocks and `isError`.
        if result.get("error") or result.get("isError"):
            return None
        blocks = result.get("content")
        if isinstance(blocks, list) and all(map(_is_mcp_block, blocks)):
            return plain_text(blocks)
    try:
        # A value that is not JSON may hold media, which a preview would lose.
        orjson.dumps(result, default=_as_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return None
    return result


def _is_mcp_block(block: object) -> bool:
    return isinstance(block, Mapping) and "type" in block


def _as_plain(value: object) -> Any:
    """Return a pydantic model of the application as data. Google's own models hold media."""
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
    """Return a content as a message in Anthropic's shape, with one block per part.

    Media become an empty block.
    """
    role = "assistant" if content.role == "model" else "user"
    return {"role": role, "content": [*map(_block, content.parts or ())]}


def _block(part: types.Part) -> dict[str, Any]:
    if call := part.function_call:
        # ADK removes its own ids from contents, so the name pairs a call with its result.
        args = call.args or {}
        return {"type": "tool_use", "id": call.id or call.name, "name": call.name, "input": args}
    if result := part.function_response:
        response: Any = result.response
        # ADK puts a text into this field, as the hook does with a preview.
        if isinstance(response, dict) and [*response] == ["result"]:
            response = response["result"]
        return {
            "type": "tool_result",
            "tool_use_id": result.id or result.name,
            "content": response if isinstance(response, str) else stable_json(response),
        }
    if part.text is None:
        return {"type": "media"}
    return {"type": "text", "text": part.text}


def write_content(content: types.Content | None, written: Any) -> types.Content:
    """Return a copy of a content with another text or other results.

    Args:
        content: The content to copy. None makes a new one of the user.
        written: A text, or all blocks of the message, some of them shortened.
    """
    if content is None:
        return types.Content(role="user", parts=[types.Part(text=written)])
    parts: list[types.Part] = []
    if isinstance(written, str):
        media = [part for part in content.parts or () if part.text is None]
        parts = [types.Part(text=written), *media]
    else:
        for part, block in zip(content.parts or (), written, strict=True):
            # Only a result that was shortened differs from what was read.
            if block != _block(part):
                result: Any = part.function_response
                result = result.model_copy(update={"response": {"result": block["content"]}})
                part = part.model_copy(update={"function_response": result})  # noqa: PLW2901
            parts.append(part)
    return content.model_copy(update={"parts": parts})
