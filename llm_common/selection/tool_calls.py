"""Checks the tool calls that a model proposes, each alone, against the catalogue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_common.core.extraction import extract_json
from llm_common.errors import MalformedReplyError, UnserialisableError
from llm_common.plans import ToolCall
from llm_common.selection.catalogue import Catalogue
from llm_common.selection.near_misses import read_leniently
from llm_common.selection.results import DroppedCall
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line

_MAX_NAME_CHARS = 64
_MAX_ID_CHARS = 100
_OTHER_KEYS = (("name", "tool"), ("arguments", "args"))


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """The valid calls in their order, the dropped ones, and what was read leniently.

    Attributes:
        again: Whether the model asked to choose again after it has seen what they return.
    """

    calls: tuple[ToolCall, ...]
    dropped: tuple[DroppedCall, ...]
    notes: tuple[str, ...] = ()
    again: bool = False


def check_calls(
    proposed: Sequence[object], catalogue: Catalogue, *, max_calls: int
) -> CheckedCalls:
    """The first `max_calls` valid calls, in order, under the tools' own names.

    Checks each call alone. It needs `tool` and `args`, or `name` and `arguments`; `reasoning` is
    optional. `args` is an object, or a string that holds exactly one JSON object, as in the chat
    completions API; anything else makes the call malformed. If the catalogue is `checked`, the name
    must be a tool's (see `Catalogue.find`) and the arguments must fit its schema, as they are or as
    `read_leniently` reads them. A repeat, the same tool with the same canonical arguments, does not
    count towards the limit.

    Args:
        proposed: The calls of a reply, as data.
        catalogue: The offered tools.
        max_calls: Most calls to keep; further ones are dropped unread.
    """
    calls: list[ToolCall] = []
    dropped: list[DroppedCall] = []
    notes: list[str] = []
    seen: set[str] = set()
    for item in proposed:
        if len(calls) == max_calls:
            dropped.append(DroppedCall(_shown_name(item), "over_limit"))
            continue
        call, read_as = _read_call(item, catalogue)
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
            notes += [
                f"{one_line(call.tool, max_chars=_MAX_NAME_CHARS)}: {note}" for note in read_as
            ]
    return CheckedCalls(tuple(calls), tuple(dropped), tuple(notes))


class _CallId(str):
    """An id that an API gave a call; what a model writes as one may be any text."""

    __slots__ = ()


def read_native_calls(tool_calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Native tool calls as the object that the prompt asks for.

    A model that makes these expects to see the results.
    """
    calls = []
    for tool_call in tool_calls:
        function = tool_call.get("function", tool_call)
        facts = function if isinstance(function, dict) else {}
        args = facts.get("arguments")
        read = _read_args(args)  # here a string is the form that the API sends
        call_id = _CallId(one_line(str(tool_call.get("id") or ""), max_chars=_MAX_ID_CHARS))
        calls.append(
            {"tool": facts.get("name"), "args": args if read is None else read, "id": call_id}
        )
    return {"calls": calls, "again": True}


def _read_call(item: object, catalogue: Catalogue) -> tuple[ToolCall | DroppedCall, list[str]]:
    """The call, with a note on each thing that was read leniently; or why it is dropped."""
    facts = item if isinstance(item, Mapping) else {}
    notes = [
        f"{key} was read as {wanted}"
        for key, wanted in _OTHER_KEYS
        if key in facts and wanted not in facts
    ]
    tool, reasoning = _tool_of(facts), facts.get("reasoning")
    given = facts["args"] if "args" in facts else facts.get("arguments")
    args = _read_args(given)
    if not isinstance(tool, str) or not tool.strip() or args is None:
        return DroppedCall(_shown_name(item), "malformed"), []
    if isinstance(given, str):
        notes.append("the arguments were a JSON text")
    name = tool.strip()
    if catalogue.checked:
        definition = catalogue.find(name)
        if definition is None:
            return DroppedCall(_shown_name(item), "unknown_tool"), []
        if definition.name != name:
            notes.append("the name was written differently")
            name = definition.name
        problems = definition.find_problems(args)
        if problems:
            args, changes = read_leniently(args, definition.parameters)
            if not changes or definition.find_problems(args):
                return DroppedCall(name, "invalid_args", problems), []
            notes += changes
    call_id = facts.get("id")
    call = ToolCall(
        tool=name,
        args=args,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        id=call_id if isinstance(call_id, _CallId) else "",
    )
    return call, notes


def _tool_of(facts: Mapping[Any, Any]) -> object:
    return facts["tool"] if "tool" in facts else facts.get("name")


def _read_args(args: object) -> dict[str, Any] | None:
    """The arguments as an object, or None."""
    if isinstance(args, str) and args.strip().startswith("{") and args.strip().endswith("}"):
        try:
            args = extract_json(args)
        except MalformedReplyError:
            return None
    return args if isinstance(args, dict) and all(isinstance(name, str) for name in args) else None


def _shown_name(item: object) -> str:
    tool = _tool_of(item) if isinstance(item, Mapping) else None
    return one_line(tool, max_chars=_MAX_NAME_CHARS) if isinstance(tool, str) else ""
