"""Tool calls as a model proposes them, each held against the catalogue by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llm_common.core.structured import extract_json
from llm_common.errors import MalformedReplyError, UnserialisableError
from llm_common.plans import ToolCall
from llm_common.selection.catalogue import Catalogue
from llm_common.text.canonical import stable_json
from llm_common.text.fence import one_line
from llm_common.tools.validation import Problem

__all__ = ["CheckedCalls", "DropReason", "DroppedCall", "check_calls", "read_native_calls"]

DropReason = Literal["malformed", "unknown_tool", "invalid_args", "unfilled", "repeat", "over_limit"]

_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class DroppedCall:
    """A proposed call that will not run.

    Attributes:
        tool: The tool as it was named, on one line of at most 64 characters; "" when it was not named.
        reason: `malformed` (no tool, or args that are no object), `unknown_tool`, `invalid_args`, `unfilled` (a chosen
            tool whose required arguments the texts do not hold), `repeat`, or `over_limit` (beyond `max_calls`).
        problems: What is wrong with the arguments, without their values.
    """

    tool: str
    reason: DropReason
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.problems))
        return f"{self.tool or 'a call'}: {self.reason.replace('_', ' ')}{f' ({listed})' if listed else ''}"


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """What is left of the proposed calls, in their order, and what is not."""

    calls: tuple[ToolCall, ...]
    dropped: tuple[DroppedCall, ...]


def check_calls(proposed: Sequence[object], catalogue: Catalogue, *, max_calls: int) -> CheckedCalls:
    """The first `max_calls` valid calls, in order, under the tools' own names.

    Each call stands or falls by itself. It needs `tool` and `args`; `reasoning` is optional. `args` is an object, or a
    string that holds exactly one JSON object, as the chat completions API writes them; null, a list or anything else
    makes the call malformed. Where the catalogue can be checked, the name must be a tool's (case and separators may
    differ if that is unique) and the arguments must fit its schema. A repeat, the same tool with the same canonical
    arguments, is dropped before the limit counts.

    Args:
        proposed: The calls of a reply, as data.
        catalogue: The tools that were offered.
        max_calls: Most calls to keep; what follows is not looked at.
    """
    calls: list[ToolCall] = []
    dropped: list[DroppedCall] = []
    seen: set[str] = set()
    for item in proposed:
        if len(calls) == max_calls:
            dropped.append(DroppedCall(_shown_name(item), "over_limit"))
            continue
        call = _read_call(item, catalogue)
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
            continue
        seen.add(key)
        calls.append(call)
    return CheckedCalls(tuple(calls), tuple(dropped))


def read_native_calls(tool_calls: list[dict[str, Any]]) -> object:
    """Tool calls in the API's own form as the object that the prompt asks for."""
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
    """The arguments as an object, or None when they are something else."""
    if isinstance(args, str) and args.strip().startswith("{") and args.strip().endswith("}"):
        try:
            args = extract_json(args)
        except MalformedReplyError:
            return None
    return args if isinstance(args, dict) and all(isinstance(name, str) for name in args) else None


def _shown_name(item: object) -> str:
    tool = item.get("tool") if isinstance(item, Mapping) else None
    return one_line(tool, max_chars=_MAX_NAME_CHARS) if isinstance(tool, str) else ""
