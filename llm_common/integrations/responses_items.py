"""The items of OpenAI's Responses API as messages of chat completions, which is what folding reads.

An item is a message, a call, an output or a piece of reasoning. What the model answered at once is
folded together: reasoning without its call, or a call without its output, is refused.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llm_common.integrations.translation import plain_text


def question_in(items: Sequence[Any]) -> str:
    """Return what the user said last."""
    for item in reversed(items):
        text = plain_text(item.get("content")) if item.get("role") == "user" else None
        if text:
            return text
    return ""


def _is_alone(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call_output" or item.get("role") in (
        "user",
        "system",
        "developer",
    )


def grouped(items: Sequence[Any]) -> list[list[Any]]:
    """What the model answered at once, and each output and message by itself."""
    groups: list[list[Any]] = []
    for item in items:
        if groups and not _is_alone(item) and not _is_alone(groups[-1][0]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def read_group(group: list[Any]) -> Mapping[str, Any]:
    """A group as one message."""
    first = group[0]
    if first.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": first["call_id"], "content": first["output"]}
    if _is_alone(first):
        return {"role": first["role"], "content": first["content"]}
    content = [part for item in group for part in _blocks(item)]
    calls = [
        {"id": item["call_id"], "function": {"name": item["name"], "arguments": item["arguments"]}}
        for item in group
        if item.get("type") == "function_call"
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _blocks(item: Mapping[str, Any]) -> list[Any]:
    if item.get("type") == "function_call":
        return []
    if not item.get("role"):  # such as reasoning
        return [item]
    content = item.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else [*(content or ())]


def write_group(group: list[Any] | None, text: str) -> list[Any]:
    """A copy of a group that says another text, or, for None, a message of the user."""
    if group is None:
        return [{"role": "user", "content": text}]
    if group[0].get("type") == "function_call_output":
        return [{**group[0], "output": text}]
    role = group[0].get("role", "assistant")
    parts = group[0].get("content")
    images = []
    if role == "user" and isinstance(parts, list):
        images = [part for part in parts if "text" not in part]
    content = [{"type": "input_text", "text": text}, *images] if images else text
    return [{"role": role, "content": content}]


def arguments_of(text: str) -> dict[str, Any]:
    """What the model wrote as arguments; whatever is no object is the value of `arguments`."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"arguments": value}
