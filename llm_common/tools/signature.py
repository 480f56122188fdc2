"""`signature`: a tool on one line, as its JSON Schema describes it.

Also reads properties and required names of a schema, with `$ref` and `allOf` resolved.
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
# Schemas come from servers that may be hostile, so everything below is bounded.
_MAX_NAME_CHARS: Final = 64
# The model has to return a tool's whole name, and those of servers are longer than ours.
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
# Chinese and Japanese have no space after a sentence.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")


def signature(name: str, description: str, parameters: Schema) -> str:
    """Return a tool on one line: name, typed parameters, first sentence of the description.

    A question mark marks an optional parameter. At most eight enum values or alternatives are
    named, and the parameters of objects one level deep. Types nested more than three levels deep
    are `any`, and so are those after the first 1,000. Only the first 100 parts of `allOf` count.
    Line breaks and control characters are removed.

    Args:
        name: The tool's name.
        description: Cut to its first sentence and 160 characters.
        parameters: JSON Schema of the arguments.
    """
    line = one_line(description, max_chars=_MAX_SENTENCE_CHARS)
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    typed = ", ".join(_Types(parameters).parameters(parameters, limit=None, nested=True))
    call = f"{without_headings(one_line(name, max_chars=_MAX_TOOL_NAME_CHARS))}({typed})"
    return f"{call} - {sentence}" if sentence else call


def properties_of(schema: Schema, root: Schema) -> dict[str, Schema]:
    """Return the properties of an object schema, resolved. An invalid one becomes empty."""
    resolved: dict[str, Schema] = {}
    for part in _parts(schema, root):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            for name, value in properties.items():
                resolved[name] = resolve(value, root)
    return resolved


def required_of(schema: Schema, root: Schema) -> frozenset[str]:
    """Return the names that an object schema requires, with `$ref` and `allOf` resolved."""
    required: set[str] = set()
    for part in _parts(schema, root):
        names = part.get("required")
        if isinstance(names, list):
            required.update(name for name in names if isinstance(name, str))
    return frozenset(required)


def resolve(schema: object, root: Schema) -> Schema:
    """Return the target of a local `$ref`, or the schema itself, or an empty schema."""
    for _ in range(_MAX_REFS):  # a reference may lead back to itself
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
    target: object = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        if step:
            if not isinstance(target, Mapping):
                return None
            # `~0` is replaced last, or `~01` would become a slash instead of `~1`.
            target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    resolved = resolve(schema, root)
    return [resolved, *(resolve(part, root) for part in _schemas(resolved.get("allOf")))]


def value_text(value: object) -> str:
    """Return a value of an enum as text, an object as `{…}` and a list as `[…]`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{…}"
    if isinstance(value, list):
        return "[…]"
    return json.dumps(value)


class _Types:
    """Describes the types of one tool's parameters, in bounded time for any schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._types_left = _MAX_TYPES
        self._properties_left = _MAX_READ

    def parameters(
        self, schema: Schema, *, limit: int | None, nested: bool, level: int = 0
    ) -> list[str]:
        """Return each parameter with its type."""
        needed = required_of(schema, self._root)
        properties = properties_of(schema, self._root)
        self._properties_left -= len(needed) + len(properties)
        listed = []
        for name in list(properties)[:limit]:
            mark = "" if name in needed else "?"
            kind = self._type(properties[name], nested, level)
            listed.append(f"{one_line(name, max_chars=_MAX_NAME_CHARS)}{mark}: {kind}")
        if limit is not None and len(properties) > limit:
            listed.append("…")
        return listed

    def _type(self, schema: object, nested: bool, level: int) -> str:
        """Return a type, with its alternatives joined by a bar."""
        schema = resolve(schema, self._root)
        self._types_left -= 1
        values = schema.get("enum")
        if "const" in schema:
            values = [schema["const"]]
        names: list[str] = []
        if isinstance(values, list) and values:
            texts = map(value_text, values[:_MAX_VALUES])
            # Quotes for the empty text, which would not be visible between bars.
            names += [one_line(text, max_chars=_MAX_VALUE_CHARS) or '""' for text in texts]
            if len(values) > _MAX_VALUES:
                names.append("…")
            return "|".join(names)
        alternatives = _schemas(schema.get("anyOf")) or _schemas(schema.get("oneOf"))
        if alternatives:
            if level > _MAX_LEVELS or self._types_left < 0:
                return "any"
            names += [self._type(part, nested, level + 1) for part in alternatives[:_MAX_VALUES]]
            if len(alternatives) > _MAX_VALUES:
                names.append("…")
            return "|".join(dict.fromkeys(names))
        kinds = schema.get("type")
        if isinstance(kinds, list):
            plain = [{**schema, "type": kind} for kind in kinds[:_MAX_VALUES]]
            return "|".join(self._plain(part, nested, level) for part in plain) or "any"
        return self._plain(schema, nested, level)

    def _plain(self, schema: Schema, nested: bool, level: int) -> str:
        """Return a type that has no alternatives."""
        kind = schema.get("type")
        is_cut = level > _MAX_LEVELS or self._types_left < 0 or self._properties_left < 0
        if kind == "array":
            items = "any" if is_cut else self._type(schema.get("items"), nested, level + 1)
            # Without brackets `a|b[]` would be an a, or a list of b.
            return f"({items})[]" if "|" in items else f"{items}[]"
        if kind == "object" or "properties" in schema or "allOf" in schema:
            inner: list[str] = []
            if nested and not is_cut:
                inner = self.parameters(schema, limit=_MAX_NESTED, nested=False, level=level + 1)
            return f"{{{', '.join(inner)}}}" if inner else "{…}"
        if isinstance(kind, str):
            return _WORDS.get(kind, "any")
        return "any"


def _schemas(value: object) -> list[Schema]:
    if not isinstance(value, list):
        return []
    return [part for part in value[:_MAX_PARTS] if isinstance(part, Mapping)]
