"""Checks the tool calls that a model proposes, each alone, against the catalogue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llm_common.core.extraction import extract_json
from llm_common.errors import MalformedReplyError, UnserialisableError
from llm_common.plans import ToolCall
from llm_common.selection.catalogue import Catalogue
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line
from llm_common.tools.validation import Problem

DropReason = Literal["malformed", "unknown_tool", "invalid_args", "unfilled", "repeat", "over_limit"]

_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class DroppedCall:
    """A proposed call that will not run.

    Attributes:
        tool: The proposed name, on one line of at most 64 characters; "" without one.
        reason: `malformed` (no tool, or args that are not an object), `unknown_tool`, `invalid_args`, `unfilled` (the
            texts do not hold the required arguments), `repeat`, or `over_limit` (beyond `max_calls`).
        problems: The problems of the arguments, without their values.
    """

    tool: str
    reason: DropReason
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.problems))
        return f"{self.tool or 'a call'}: {self.reason.replace('_', ' ')}{f' ({listed})' if listed else ''}"


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """The valid calls in their order, and the dropped ones."""

    calls: tuple[ToolCall, ...]
    dropped: tuple[DroppedCall, ...]


def check_calls(proposed: Sequence[object], catalogue: Catalogue, *, max_calls: int) -> CheckedCalls:
    """The first `max_calls` valid calls, in order, under the tools' own names.

    Checks each call alone. It needs `tool` and `args`; `reasoning` is optional. `args` is an object, or a string that
    holds exactly one JSON object, as in the chat completions API; anything else makes the call malformed. If the
    catalogue is `checked`, the name must be a tool's (case and separators may differ if that is unique) and the
    arguments must fit its schema. A repeat, the same tool with the same canonical arguments, does not count towards
    the limit.

    Args:
        proposed: The calls of a reply, as data.
        catalogue: The offered tools.
        max_calls: Most calls to keep; further ones are dropped unread.
    """
    calls: list[ToolCall] = []
    dropped: list[DroppedCall] = []
    seen: set[str] = set()
    for item in proposed:
        call = DroppedCall(_shown_name(item), "over_limit") if len(calls) == max_calls else _read_call(item, catalogue)
        if isinstance(call, DroppedCall):
            dropped.append(call)
            continue
        try:
            key = stable_json([call.tool, call.args])
        except UnserialisableError:
            dropped.append(DroppedCall(_shown_name(item), "malformed"))
            continue
        if key in seen:
            dropped.append(DroppedCall(_shown_name(item), "repeat"))
        else:
            seen.add(key)
            calls.append(call)
    return CheckedCalls(tuple(calls), tuple(dropped))


def read_native_calls(tool_calls: list[dict[str, Any]]) -> object:
    """Native tool calls as the object that the prompt asks for."""
    calls = []
    for tool_call in tool_calls:
        function = tool_call.get("function", tool_call)
        facts = function if isinstance(function, dict) else {}
        calls.append({"tool": facts.get("name"), "args": facts.get("arguments")})
    return {"calls": calls}


def _read_call(item: object, catalogue: Catalogue) -> ToolCall | DroppedCall:
    facts = item if isinstance(item, Mapping) else {}
    tool, args, reasoning = facts.get("tool"), _read_args(facts.get("args")), facts.get("reasoning")
    if not isinstance(tool, str) or not tool.strip() or args is None:
        return DroppedCall(_shown_name(item), "malformed")
    name = tool.strip()
    if catalogue.checked:
        definition = catalogue.find(name)
        if definition is None:
            return DroppedCall(_shown_name(item), "unknown_tool")
        problems = definition.find_problems(args)
        if problems:
            return DroppedCall(definition.name, "invalid_args", problems)
        name = definition.name
    return ToolCall(tool=name, args=args, reasoning=reasoning if isinstance(reasoning, str) else "")


def _read_args(args: object) -> dict[str, Any] | None:
    """The arguments as an object, or None."""
    if isinstance(args, str) and args.strip().startswith("{") and args.strip().endswith("}"):
        try:
            args = extract_json(args)
        except MalformedReplyError:
            return None
    return args if isinstance(args, dict) and all(isinstance(name, str) for name in args) else None


def _shown_name(item: object) -> str:
    tool = item.get("tool") if isinstance(item, Mapping) else None
    return one_line(tool, max_chars=_MAX_NAME_CHARS) if isinstance(tool, str) else ""
