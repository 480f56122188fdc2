"""Reads arguments that miss a tool's schema by their form alone, such as "5" for a whole number.

Models write `null` for what they leave out, and numbers as texts. Reading these changes no meaning:
only where the schema admits no other reading. Everything else stays as it is, and is refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llm_common.text.display import one_line
from llm_common.tools.signature import properties_of, required_of, resolve

Schema = Mapping[str, Any]

_MAX_LEVELS = 8
_MAX_ALTERNATIVES = 8
_MAX_PATH_CHARS = 120
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_FLAGS = {"true": True, "false": False}
_NUMBERS = frozenset({"integer", "number"})


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
            kinds = self._kinds(properties[name]) if name in properties else None
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
            found = _number(value) if kinds and kinds <= _NUMBERS else None
            if found is None and kinds == {"boolean"}:
                found = _FLAGS.get(value)
            if found is None or (kinds == {"integer"} and not _WHOLE.fullmatch(value)):
                return value
            self._note(
                path, f"a text was read as {'a flag' if isinstance(found, bool) else 'a number'}"
            )
            return found
        only = self._only(schema)
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
        for part in self._alternatives(schema):
            kinds = part.get("type")
            if isinstance(kinds, str):
                found.add(kinds)
            elif isinstance(kinds, list) and kinds:
                found.update(kind for kind in kinds if isinstance(kind, str))
            else:
                return None
        return frozenset(found)

    def _only(self, schema: Schema) -> Schema:
        """The only alternative that is not null, or an empty schema."""
        parts = [part for part in self._alternatives(schema) if part.get("type") != "null"]
        return parts[0] if len(parts) == 1 else {}

    def _alternatives(self, schema: Schema) -> Iterator[Schema]:
        """The schema, or what it offers to choose from.

        Alternatives in alternatives stay closed.
        """
        schema = resolve(schema, self._root)
        for keyword in ("anyOf", "oneOf"):
            offered = schema.get(keyword)
            if isinstance(offered, list) and 0 < len(offered) <= _MAX_ALTERNATIVES:
                yield from (resolve(each, self._root) for each in offered)
                return
        yield schema


def _number(text: str) -> int | float | None:
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else None
