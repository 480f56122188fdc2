"""`signature`: a tool on one line, read from its JSON Schema.

And the parts of a schema with `$ref` resolved.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from llm_common.text.display import one_line, without_headings

Schema = Mapping[str, Any]

_WORDS: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "null",
}
_MAX_NAME_CHARS: Final = 64
# names of third-party tools are longer than ours, and have to come back whole
_MAX_TOOL_NAME_CHARS: Final = 256
_MAX_VALUE_CHARS: Final = 24
_MAX_VALUES: Final = 8
_MAX_NESTED: Final = 8
_MAX_LEVELS: Final = 3
_MAX_TYPES: Final = 1_000
_MAX_SENTENCE_CHARS: Final = 160
_MAX_REFS: Final = 8
_MAX_PARTS: Final = 100  # of `allOf`, `anyOf` and `oneOf`
_MAX_READ: Final = 20_000  # properties of all objects
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")


def signature(name: str, description: str, parameters: Schema) -> str:
    """The tool on one line: name, typed parameters, first sentence of the description.

    A question mark marks an optional parameter. Names at most eight enum values or alternatives,
    and the parameters of objects one level deep; types nested more than three levels deep are
    `any`, and so are those after the first 1,000. Of `allOf` the first 100 parts count.
    Removes line breaks and control characters.

    Args:
        name: The tool's name.
        description: Cut to its first sentence and 160 characters.
        parameters: JSON Schema of the arguments.
    """
    sentence = _SENTENCE_END.split(
        one_line(description, max_chars=_MAX_SENTENCE_CHARS), maxsplit=1
    )[0]
    listed = ", ".join(_Types(parameters).parameters(parameters, limit=None, nested=True))
    shown = f"{without_headings(one_line(name, max_chars=_MAX_TOOL_NAME_CHARS))}({listed})"
    return f"{shown} - {sentence}" if sentence else shown


def properties_of(schema: Schema, root: Schema) -> dict[str, Schema]:
    """The properties of an object schema, resolved; an invalid one becomes empty."""
    found: dict[str, Schema] = {}
    for part in _parts(schema, root):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            found |= {name: resolve(value, root) for name, value in properties.items()}
    return found


def required_of(schema: Schema, root: Schema) -> frozenset[str]:
    """The names that an object schema requires, with `$ref` and `allOf` resolved."""
    required: set[str] = set()
    for part in _parts(schema, root):
        names = part.get("required")
        if isinstance(names, list):
            required.update(name for name in names if isinstance(name, str))
    return frozenset(required)


def resolve(schema: object, root: Schema) -> Schema:
    """The target of a local `$ref`, or the schema itself; else an empty one."""
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _at(root, target)
    return {}


def _at(root: Schema, pointer: str) -> object:
    if not pointer.startswith("#"):
        return None
    found: object = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        if step:
            if not isinstance(found, Mapping):
                return None
            found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    resolved = resolve(schema, root)
    return [resolved, *(resolve(part, root) for part in _schemas(resolved.get("allOf")))]


def value_text(value: object) -> str:
    """A value that a schema names, as text.

    `{…}` or `[…]` for one with parts, which may be of any depth.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{…}"
    if isinstance(value, list):
        return "[…]"
    return json.dumps(value)


class _Types:
    """The types of one tool's parameters in words.

    The work is bounded, also for recursive schemas.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MAX_TYPES
        self._unread = _MAX_READ

    def parameters(
        self, schema: Schema, *, limit: int | None, nested: bool, level: int = 0
    ) -> list[str]:
        """Each parameter with its type."""
        needed = required_of(schema, self._root)
        properties = properties_of(schema, self._root)
        self._unread -= len(needed) + len(properties)
        listed = []
        for name in list(properties)[:limit]:
            mark = "" if name in needed else "?"
            kind = self._type(properties[name], nested, level)
            listed.append(f"{one_line(name, max_chars=_MAX_NAME_CHARS)}{mark}: {kind}")
        if limit is not None and len(properties) > limit:
            listed.append("…")
        return listed

    def _type(self, schema: object, nested: bool, level: int) -> str:
        """The type, alternatives joined by a bar."""
        schema = resolve(schema, self._root)
        self._left -= 1
        values = schema.get("enum")
        if "const" in schema:
            values = [schema["const"]]
        if isinstance(values, list) and values:
            names = [
                one_line(value_text(value), max_chars=_MAX_VALUE_CHARS) or '""'
                for value in values[:_MAX_VALUES]
            ]
            if len(values) > _MAX_VALUES:
                names.append("…")
            return "|".join(names)
        alternatives = _schemas(schema.get("anyOf")) or _schemas(schema.get("oneOf"))
        if alternatives:
            if level > _MAX_LEVELS or self._left < 0:
                return "any"
            types = [
                self._type(alternative, nested, level + 1)
                for alternative in alternatives[:_MAX_VALUES]
            ]
            if len(alternatives) > _MAX_VALUES:
                types.append("…")
            return "|".join(dict.fromkeys(types))
        kinds = schema.get("type")
        if isinstance(kinds, list):
            plain = (
                self._plain({**schema, "type": kind}, nested, level) for kind in kinds[:_MAX_VALUES]
            )
            return "|".join(plain) or "any"
        return self._plain(schema, nested, level)

    def _plain(self, schema: Schema, nested: bool, level: int) -> str:
        kind = schema.get("type")
        deep = level > _MAX_LEVELS or self._left < 0 or self._unread < 0
        if kind == "array":
            items = "any" if deep else self._type(schema.get("items"), nested, level + 1)
            return f"({items})[]" if "|" in items else f"{items}[]"
        if kind == "object" or "properties" in schema or "allOf" in schema:
            inner: list[str] = []
            if nested and not deep:
                inner = self.parameters(schema, limit=_MAX_NESTED, nested=False, level=level + 1)
            return f"{{{', '.join(inner)}}}" if inner else "{…}"
        if isinstance(kind, str):
            return _WORDS.get(kind, "any")
        return "any"


def _schemas(value: object) -> list[Schema]:
    if not isinstance(value, list):
        return []
    return [part for part in value[:_MAX_PARTS] if isinstance(part, Mapping)]
