"""Checks the tool calls that a model proposes, each by itself, against the catalogue.

Models write `null` for arguments they leave out, and numbers as texts. Such arguments are converted
if the schema admits no other reading, so that no meaning changes. All other invalid calls are
dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_common.core.extraction import extract_json
from llm_common.errors import MalformedReplyError, UnserialisableError
from llm_common.plans import ToolCall
from llm_common.selection.catalogue import Catalogue
from llm_common.selection.results import DroppedCall
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line
from llm_common.tools.signature import properties_of, required_of, resolve

Schema = Mapping[str, Any]

_MAX_NAME_CHARS = 64  # shown in reports
_MAX_ID_CHARS = 100
_OTHER_KEYS = (("name", "tool"), ("arguments", "args"))  # as in the chat completions API
_MAX_LEVELS = 8  # of nested arguments that are converted
_MAX_ALTERNATIVES = 8  # a schema with more is not read, and the value not converted
_MAX_PATH_CHARS = 120
# Without leading zeros, since "007" is an id. A float represents 15 digits exactly.
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_FLAGS = {"true": True, "false": False}
_NUMBERS = frozenset({"integer", "number"})


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """The valid calls in order, the dropped calls, and notes on converted arguments.

    Attributes:
        again: Whether the model asked to choose again after these calls return.
    """

    calls: tuple[ToolCall, ...]
    dropped: tuple[DroppedCall, ...]
    notes: tuple[str, ...] = ()
    again: bool = False


def check_calls(
    proposed: Sequence[object], catalogue: Catalogue, *, max_calls: int
) -> CheckedCalls:
    """Return the first `max_calls` valid calls in order, with the names of the tools.

    Checks each call by itself. It needs `tool` and `args`, or `name` and `arguments`. `reasoning`
    is optional. `args` is an object, or a string with exactly one JSON object as in the chat
    completions API. Any other call is malformed. If the catalogue is `checked`, the name must be
    that of a tool (see `Catalogue.find`). Its arguments must fit the tool's schema, if need be
    after `read_leniently`. A repeat has the same tool and the same canonical arguments, and does
    not count towards the limit.

    Args:
        proposed: The calls of a reply, as data.
        catalogue: The offered tools.
        max_calls: Maximum number of calls to keep. Further calls are dropped unread.
    """
    calls: list[ToolCall] = []
    dropped: list[DroppedCall] = []
    notes: list[str] = []
    seen: set[str] = set()
    for proposal in proposed:
        if len(calls) == max_calls:  # goes on, to report each call
            dropped.append(DroppedCall(_printable_name(proposal), "over_limit"))
            continue
        if not isinstance(proposal, Mapping):
            dropped.append(DroppedCall("", "malformed"))
            continue
        call, call_notes = _read_call(proposal, catalogue)
        if isinstance(call, DroppedCall):
            dropped.append(call)
            continue
        try:
            # Canonical, so that the order of arguments does not matter.
            key = stable_json([call.tool, call.args])
        except UnserialisableError:
            dropped.append(DroppedCall(_printable_name(proposal), "malformed"))
            continue
        if key in seen:
            dropped.append(DroppedCall(_printable_name(proposal), "repeat"))
        else:
            seen.add(key)
            calls.append(call)
            tool = one_line(call.tool, max_chars=_MAX_NAME_CHARS)
            notes += [f"{tool}: {note}" for note in call_notes]
    return CheckedCalls(tuple(calls), tuple(dropped), tuple(notes))


class _CallId(str):
    """The id of a native tool call. An `id` in a model's own JSON may be any text."""

    __slots__ = ()


def read_native_calls(tool_calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return native tool calls as the object that the prompt asks for."""
    calls = []
    for tool_call in tool_calls:
        function = tool_call.get("function", tool_call)
        if not isinstance(function, dict):
            function = {}
        args = function.get("arguments")
        parsed = _read_args(args)  # the API sends the arguments as a string
        if parsed is not None:
            args = parsed
        call_id = _CallId(one_line(str(tool_call.get("id") or ""), max_chars=_MAX_ID_CHARS))
        calls.append({"tool": function.get("name"), "args": args, "id": call_id})
    return {"calls": calls, "again": True}  # the model expects to see the results


def _read_call(
    proposal: Mapping[Any, Any], catalogue: Catalogue
) -> tuple[ToolCall | DroppedCall, list[str]]:
    """Return a call and a note on each conversion, or why it is dropped."""
    notes: list[str] = []
    for other_key, key in _OTHER_KEYS:
        if other_key in proposal and key not in proposal:
            notes.append(f"{other_key} was read as {key}")
    tool = proposal.get("tool", proposal.get("name"))
    reasoning = proposal.get("reasoning")
    raw_args = proposal.get("args", proposal.get("arguments"))
    args = _read_args(raw_args)
    if not isinstance(tool, str) or not tool.strip() or args is None:
        return DroppedCall(_printable_name(proposal), "malformed"), []
    if isinstance(raw_args, str):
        notes.append("the arguments were a JSON text")
    name = tool.strip()
    if catalogue.checked:
        definition = catalogue.find(name)
        if definition is None:
            return DroppedCall(_printable_name(proposal), "unknown_tool"), []
        if definition.name != name:
            notes.append("the name was written differently")
            name = definition.name
        problems = definition.find_problems(args)
        if problems:  # valid arguments are never converted
            args, changes = read_leniently(args, definition.parameters)
            if not changes or definition.find_problems(args):
                return DroppedCall(name, "invalid_args", problems), []
            notes += changes
    call_id = proposal.get("id")
    call = ToolCall(
        tool=name,
        args=args,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        id=call_id if isinstance(call_id, _CallId) else "",
    )
    return call, notes


def _read_args(args: object) -> dict[str, Any] | None:
    """Return the arguments as an object, or None if they are not one."""
    # `extract_json` also finds an object inside prose, which is not an argument.
    if isinstance(args, str) and args.strip().startswith("{") and args.strip().endswith("}"):
        try:
            args = extract_json(args)
        except MalformedReplyError:
            return None
    if isinstance(args, dict) and all(isinstance(name, str) for name in args):
        return args
    return None


def _printable_name(proposal: object) -> str:
    if isinstance(proposal, Mapping):
        tool = proposal.get("tool", proposal.get("name"))
        if isinstance(tool, str):
            return one_line(tool, max_chars=_MAX_NAME_CHARS)
    return ""


def read_leniently(
    args: Mapping[str, Any], parameters: Schema
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Convert arguments to the types of the schema where only one reading is possible.

    Leaves out a `null` for an optional parameter that admits no null. Converts a text to a number
    or a flag if the parameter admits nothing else, and the text is exactly one. Looks into objects
    and arrays.

    Args:
        args: The arguments as the model wrote them.
        parameters: The JSON Schema of the arguments.

    Returns:
        The arguments, and a note on each change, without values.
    """
    reader = _Reader(parameters)
    return reader.members(args, parameters, path="", levels=_MAX_LEVELS), tuple(reader.notes)


class _Reader:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self.notes: list[str] = []

    def members(
        self, members: Mapping[str, Any], schema: Schema, *, path: str, levels: int
    ) -> dict[str, Any]:
        """Return the converted members of an object."""
        properties = properties_of(schema, self._root)
        required = required_of(schema, self._root)
        converted: dict[str, Any] = {}
        for name, value in members.items():
            member_path = f"{path}.{name}" if path else name
            schema = properties.get(name, {})
            kinds = self._kinds(schema)
            if value is None and kinds and "null" not in kinds and name not in required:
                self._note(member_path, "null was read as left out")
            else:
                converted[name] = self._value(value, schema, path=member_path, levels=levels)
        return converted

    def _value(self, value: Any, schema: Schema, *, path: str, levels: int) -> Any:
        # Deeper arguments are checked as they are: a model may nest without end.
        if not levels or not isinstance(value, str | dict | list):
            return value
        # A schema without a type admits anything, so nothing is converted for it.
        kinds = (self._kinds(schema) or frozenset()) - {"null"}
        if isinstance(value, str):
            converted: float | None = None
            form = "a number"
            if kinds == {"boolean"}:
                converted = _FLAGS.get(value)
                form = "a flag"
            elif kinds and kinds <= _NUMBERS:
                if _WHOLE.fullmatch(value):
                    converted = int(value)
                elif "number" in kinds and _NUMBER.fullmatch(value):
                    converted = float(value)
            if converted is None:
                return value
            self._note(path, f"a text was read as {form}")
            return converted
        only = only_alternative(schema, self._root)
        if isinstance(value, dict) and kinds == {"object"}:
            return self.members(value, only, path=path, levels=levels - 1)
        if isinstance(value, list) and kinds == {"array"}:
            items = resolve(only.get("items"), self._root)
            return [
                self._value(item, items, path=f"{path}.{index}", levels=levels - 1)
                for index, item in enumerate(value)
            ]
        return value

    def _note(self, path: str, note: str) -> None:
        self.notes.append(f"{one_line(path, max_chars=_MAX_PATH_CHARS)}: {note}")

    def _kinds(self, schema: Schema) -> frozenset[str] | None:
        """Return the JSON types that a schema admits, or None if it does not name them."""
        admitted: set[str] = set()
        for part in _alternatives(schema, self._root):
            kinds = part.get("type")
            if isinstance(kinds, str):
                admitted.add(kinds)
            elif isinstance(kinds, list) and kinds:
                admitted.update(kind for kind in kinds if isinstance(kind, str))
            else:
                return None
        return frozenset(admitted)


def only_alternative(schema: Schema, root: Schema) -> Schema:
    """Return the only alternative of a schema that is not null, with one type or none.

    Of several alternatives or types, returns a schema whose type is None.
    """
    parts = [part for part in _alternatives(schema, root) if part.get("type") != "null"]
    if len(parts) != 1:
        return {"type": None}
    kinds = parts[0].get("type")
    if isinstance(kinds, list):
        kinds = [kind for kind in kinds if kind != "null"]
        return {**parts[0], "type": kinds[0] if len(kinds) == 1 else None}
    return parts[0]


def _alternatives(schema: Schema, root: Schema) -> list[Schema]:
    """Return what a schema offers to choose from, else the schema itself.

    Alternatives inside alternatives stay closed.
    """
    schema = resolve(schema, root)
    for keyword in ("anyOf", "oneOf"):
        alternatives = schema.get(keyword)
        if isinstance(alternatives, list) and 0 < len(alternatives) <= _MAX_ALTERNATIVES:
            return [resolve(alternative, root) for alternative in alternatives]
    return [schema]
