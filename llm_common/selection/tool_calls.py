"""Checks the tool calls that a model proposes, each alone, against the catalogue.

Models write `null` for what they leave out, and numbers as texts. Such arguments are read by their
form where the schema admits no other reading, which changes no meaning. Everything else stays as
it is, and is refused.
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

_MAX_NAME_CHARS = 64
_MAX_ID_CHARS = 100
_OTHER_KEYS = (("name", "tool"), ("arguments", "args"))
_MAX_LEVELS = 8
_MAX_ALTERNATIVES = 8
_MAX_PATH_CHARS = 120
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_FLAGS = {"true": True, "false": False}
_NUMBERS = frozenset({"integer", "number"})


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
        if not isinstance(item, Mapping):
            dropped.append(DroppedCall("", "malformed"))
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
            tool = one_line(call.tool, max_chars=_MAX_NAME_CHARS)
            notes += [f"{tool}: {note}" for note in read_as]
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
        if not isinstance(function, dict):
            function = {}
        args = function.get("arguments")
        read = _read_args(args)  # here a string is the form that the API sends
        if read is not None:
            args = read
        call_id = _CallId(one_line(str(tool_call.get("id") or ""), max_chars=_MAX_ID_CHARS))
        calls.append({"tool": function.get("name"), "args": args, "id": call_id})
    return {"calls": calls, "again": True}


def _read_call(
    item: Mapping[Any, Any], catalogue: Catalogue
) -> tuple[ToolCall | DroppedCall, list[str]]:
    """The call, with a note on each thing that was read leniently; or why it is dropped."""
    notes: list[str] = []
    for key, wanted in _OTHER_KEYS:
        if key in item and wanted not in item:
            notes.append(f"{key} was read as {wanted}")
    tool, reasoning = _tool_of(item), item.get("reasoning")
    given = item.get("args", item.get("arguments"))
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
    call_id = item.get("id")
    call = ToolCall(
        tool=name,
        args=args,
        reasoning=reasoning if isinstance(reasoning, str) else "",
        id=call_id if isinstance(call_id, _CallId) else "",
    )
    return call, notes


def _tool_of(call: Mapping[Any, Any]) -> object:
    return call.get("tool", call.get("name"))


def _read_args(args: object) -> dict[str, Any] | None:
    """The arguments as an object, or None."""
    if isinstance(args, str) and args.strip().startswith("{") and args.strip().endswith("}"):
        try:
            args = extract_json(args)
        except MalformedReplyError:
            return None
    if isinstance(args, dict) and all(isinstance(name, str) for name in args):
        return args
    return None


def _shown_name(item: object) -> str:
    if isinstance(item, Mapping):
        tool = _tool_of(item)
        if isinstance(tool, str):
            return one_line(tool, max_chars=_MAX_NAME_CHARS)
    return ""


def read_leniently(
    args: Mapping[str, Any], parameters: Schema
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments in the form that the schema takes, and a note for each change, without values.

    Leaves out a `null` for an optional parameter that takes no null. Reads a text as a number or a
    flag if the parameter takes nothing else and the text is exactly one. Looks into objects and
    arrays.

    Args:
        args: As the model gave them.
        parameters: JSON Schema of the arguments.
    """
    reader = _Reader(parameters)
    return reader.members(args, parameters, path="", levels=_MAX_LEVELS), tuple(reader.notes)


class _Reader:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self.notes: list[str] = []

    def members(
        self, given: Mapping[str, Any], schema: Schema, *, path: str, levels: int
    ) -> dict[str, Any]:
        """The members of an object."""
        properties = properties_of(schema, self._root)
        required = required_of(schema, self._root)
        read: dict[str, Any] = {}
        for name, value in given.items():
            place = f"{path}.{name}" if path else name
            kinds = None
            if name in properties:
                kinds = self._kinds(properties[name])
            if value is None and kinds and "null" not in kinds and name not in required:
                self._note(place, "null was read as left out")
            else:
                read[name] = self._value(value, properties.get(name, {}), path=place, levels=levels)
        return read

    def _value(self, value: Any, schema: Schema, *, path: str, levels: int) -> Any:
        if not levels or not isinstance(value, str | dict | list):
            return value
        kinds = (self._kinds(schema) or frozenset()) - {"null"}
        if isinstance(value, str):
            read: float | None = None
            form = "a number"
            if kinds == {"boolean"}:
                read = _FLAGS.get(value)
                form = "a flag"
            elif kinds and kinds <= _NUMBERS:
                if _WHOLE.fullmatch(value):
                    read = int(value)
                elif "number" in kinds and _NUMBER.fullmatch(value):
                    read = float(value)
            if read is None:
                return value
            self._note(path, f"a text was read as {form}")
            return read
        only = only_alternative(schema, self._root)
        if isinstance(value, dict) and kinds == {"object"}:
            return self.members(value, only, path=path, levels=levels - 1)
        if isinstance(value, list) and kinds == {"array"}:
            items = resolve(only.get("items"), self._root)
            return [
                self._value(item, items, path=f"{path}.{number}", levels=levels - 1)
                for number, item in enumerate(value)
            ]
        return value

    def _note(self, path: str, note: str) -> None:
        self.notes.append(f"{one_line(path, max_chars=_MAX_PATH_CHARS)}: {note}")

    def _kinds(self, schema: Schema) -> frozenset[str] | None:
        """The JSON types that a schema admits; None if it does not say."""
        found: set[str] = set()
        for part in _alternatives(schema, self._root):
            kinds = part.get("type")
            if isinstance(kinds, str):
                found.add(kinds)
            elif isinstance(kinds, list) and kinds:
                found.update(kind for kind in kinds if isinstance(kind, str))
            else:
                return None
        return frozenset(found)


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
