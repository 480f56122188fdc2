"""Read items of OpenAI's Responses API as messages of chat completions, and write them back.

An item is a message, a call, an output or a piece of reasoning. All items of one model response are
folded as one group, because the API refuses reasoning without its call and a call without its
output.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llm_common.integrations.translation import chat_call


def group_items(items: Sequence[Any]) -> list[list[Any]]:
    """Return the items of each model response as one group, and any other item as its own."""
    groups: list[list[Any]] = []
    for item in items:
        if groups and not _is_alone(item) and not _is_alone(groups[-1][0]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _is_alone(item: Mapping[str, Any]) -> bool:
    is_output = item.get("type") == "function_call_output"
    return is_output or item.get("role") in ("user", "system", "developer")


def read_group(group: list[Any]) -> Mapping[str, Any]:
    """Return a group as one message of chat completions."""
    first = group[0]
    if first.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": first["call_id"], "content": first["output"]}
    if _is_alone(first):
        return {"role": first["role"], "content": first["content"]}
    blocks: list[Any] = []
    calls: list[Any] = []
    for item in group:
        content = item.get("content")
        if item.get("type") == "function_call":
            calls.append(chat_call(item["call_id"], item["name"], item["arguments"]))
        elif not item.get("role"):  # such as reasoning
            blocks.append(item)
        elif isinstance(content, str):
            blocks.append({"type": "text", "text": content})
        else:
            blocks += content or ()
    return {"role": "assistant", "content": blocks, "tool_calls": calls}


def write_group(group: list[Any] | None, text: str) -> list[Any]:
    """Return a copy of a group with another text, or a new user message for None."""
    if group is None:
        return [{"role": "user", "content": text}]
    first = group[0]
    if first.get("type") == "function_call_output":
        return [{**first, "output": text}]
    role, parts = first.get("role", "assistant"), first.get("content")
    images = []
    if role == "user" and isinstance(parts, list):
        images = [part for part in parts if "text" not in part]
    content = [{"type": "input_text", "text": text}, *images] if images else text
    return [{"role": role, "content": content}]


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments. A text that is not a JSON object is the value of `arguments`."""
    try:
        # Some models send no text for a call without arguments.
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
