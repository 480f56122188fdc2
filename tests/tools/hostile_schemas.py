"""Small JSON Schemas that take a long time to follow."""

from typing import Any

ANY_JSON: dict[str, Any] = {  # as zod's recipe for any JSON value comes through an MCP server
    "type": "object",
    "properties": {"x": {"$ref": "#/definitions/json"}},
    "definitions": {
        "json": {
            "anyOf": [
                *({"type": kind} for kind in ("string", "number", "boolean", "null")),
                {"type": "array", "items": {"$ref": "#/definitions/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/definitions/json"}},
            ]
        }
    },
    "$schema": "http://json-schema.org/draft-07/schema#",
}

AMBIGUOUS: dict[str, Any] = {  # a list nested n deep can be read in 2 ** n ways
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/j"}},
    "$defs": {
        "j": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/$defs/j"}},
                {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/j"}},
                {"type": "string"},
            ]
        }
    },
}


def _nested(depth: int, alternatives: Any) -> dict[str, Any]:
    levels = {
        f"n{level}": alternatives({"$ref": f"#/$defs/n{level + 1}"}) for level in range(depth)
    }
    root = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n0"}}}
    return {**root, "$defs": {**levels, f"n{depth}": {"type": "string"}}}


def nested_alternatives(depth: int) -> dict[str, Any]:
    """Return a schema with 2 ** depth paths to the type of its parameter `x`."""
    return _nested(depth, lambda inner: {"anyOf": [inner, inner]})


def nested_objects(depth: int) -> dict[str, Any]:
    """Return such a schema with a level of objects for each level of alternatives."""
    return _nested(
        depth,
        lambda inner: {
            "anyOf": [{"properties": {"p": inner}}, {"type": "object", "properties": {"p": inner}}]
        },
    )
