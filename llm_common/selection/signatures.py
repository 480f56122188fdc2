"""A tool on one line: `search(query: str, limit?: int, sort?: new|top) - Finds pages.`, a fifth of its JSON Schema."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llm_common.text.fence import one_line

__all__ = ["properties_of", "required_of", "resolve", "signature"]

_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}
_MAX_NAME_CHARS = 64
_MAX_TOOL_NAME_CHARS = 256  # foreign names are longer than ours, and have to come back whole
_MAX_VALUE_CHARS = 24
_MAX_VALUES = 8
_MAX_NESTED = 8
_MAX_SENTENCE_CHARS = 160
_MAX_REFS = 8

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")

Schema = Mapping[str, Any]


def signature(name: str, description: str, parameters: Schema) -> str:
    """The tool on one line: its name, every parameter with its type, and the first sentence of its description.

    A question mark stands for "may be left out"; enum values are named, eight at most; objects show their own
    parameters one level deep. What the tool's author wrote is cleaned of line breaks and control characters.

    Args:
        name: The tool's name.
        description: Cut to its first sentence and 160 characters.
        parameters: JSON Schema of the arguments.
    """
    sentence = _SENTENCE_END.split(one_line(description, max_chars=_MAX_SENTENCE_CHARS), maxsplit=1)[0]
    listed = ", ".join(_parameters(parameters, parameters, limit=None, nested=True))
    shown = f"{one_line(name, max_chars=_MAX_TOOL_NAME_CHARS)}({listed})"
    return f"{shown} - {sentence}" if sentence else shown


def properties_of(schema: Schema, root: Schema) -> dict[str, Schema]:
    """The named properties of an object schema, `$ref` and `allOf` followed; what is no schema becomes an empty one."""
    found: dict[str, Schema] = {}
    for part in _parts(schema, root):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            found |= {name: resolve(value, root) for name, value in properties.items()}
    return found


def required_of(schema: Schema, root: Schema) -> frozenset[str]:
    """The names that an object schema requires, `$ref` and `allOf` followed."""
    lists = [part.get("required") for part in _parts(schema, root)]
    return frozenset(name for names in lists if isinstance(names, list) for name in names if isinstance(name, str))


def resolve(schema: object, root: Schema) -> Schema:
    """The schema that a local `$ref` stands for, or the schema itself; an empty one for anything else."""
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _at(root, target)
    return {}


def _at(root: Schema, pointer: str) -> object:
    found: object = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        if step:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    return found if pointer.startswith("#") else None


def _parts(schema: Schema, root: Schema) -> list[Schema]:
    resolved = resolve(schema, root)
    return [resolved, *(resolve(part, root) for part in _schemas(resolved.get("allOf")))]


def _parameters(schema: Schema, root: Schema, *, limit: int | None, nested: bool) -> list[str]:
    needed = required_of(schema, root)
    properties = properties_of(schema, root)
    shown = [
        f"{one_line(name, max_chars=_MAX_NAME_CHARS)}{'' if name in needed else '?'}: {_type(value, root, nested)}"
        for name, value in list(properties.items())[:limit]
    ]
    return shown if limit is None or len(properties) <= limit else [*shown, "…"]


def _type(schema: Schema, root: Schema, nested: bool) -> str:
    """The type in words, alternatives joined by a bar."""
    schema = resolve(schema, root)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        shown = [_value(value) for value in values[:_MAX_VALUES]]
        return "|".join([*shown, "…"] if len(values) > _MAX_VALUES else shown)
    alternatives = _schemas(schema.get("anyOf")) or _schemas(schema.get("oneOf"))
    if alternatives:
        return "|".join(dict.fromkeys(_type(alternative, root, nested) for alternative in alternatives))
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return "|".join(_plain_type({**schema, "type": kind}, root, nested) for kind in kinds) or "any"
    return _plain_type(schema, root, nested)


def _plain_type(schema: Schema, root: Schema, nested: bool) -> str:
    kind = schema.get("type")
    if kind == "array":
        items = _type(resolve(schema.get("items"), root), root, nested)
        return f"({items})[]" if "|" in items else f"{items}[]"
    if kind == "object" or "properties" in schema or "allOf" in schema:
        inner = _parameters(schema, root, limit=_MAX_NESTED, nested=False) if nested else []
        return f"{{{', '.join(inner)}}}" if inner else "{…}"
    return _WORDS.get(kind, "any") if isinstance(kind, str) else "any"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return one_line(text, max_chars=_MAX_VALUE_CHARS) or '""'


def _schemas(value: object) -> list[Schema]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
