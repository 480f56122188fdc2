"""Finds the last state of a plan: a list of steps with their states, in a text or in a call."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from llm_common.history.message_shapes import HistoryMessage, ToolCall

_MIN_ITEMS: Final = 3
# "- [x] step", as in Markdown. A numbered list may be anything, so it is no plan. A `\s*` in front
# would search a run of blank lines again from each of them.
_CHECKBOX = re.compile(r"^[^\S\n]*(?:[-*+]|\d+[.)])\s*\[[ xX~/-]\]\s+\S.*$", re.MULTILINE)
# The field names of the planning tools of Claude Code, Codex, LangChain and opencode.
_STATE_FIELDS: Final = ("status", "state")
_TEXT_FIELDS: Final = ("content", "step", "task", "title", "text", "description")


def last_plan(messages: Sequence[HistoryMessage]) -> list[str]:
    """Return the items of the newest plan in messages, or no items."""
    for message in reversed(messages):
        for call in reversed(message.calls):
            if items := [*_items_of_call(call)]:
                return items
        items = [item.strip() for item in _CHECKBOX.findall(message.text)]
        if len(items) >= _MIN_ITEMS:
            return items
    return []


def _items_of_call(call: ToolCall) -> Iterator[str]:
    """Yield the steps in the arguments of a call, such as `write_todos`."""
    for value in call.arguments.values():
        for item in value if isinstance(value, list) else ():
            if not isinstance(item, dict):
                continue
            state = next((item[name] for name in _STATE_FIELDS if name in item), None)
            text = next((item[name] for name in _TEXT_FIELDS if name in item), None)
            if isinstance(state, str) and isinstance(text, str):
                yield f"- [{state}] {text}"
