"""Clean the texts of what servers list, because hosts show them to people and to models.

Names stay as they are, because calls use them.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from llm_common.text import visible

EntryT = TypeVar("EntryT", bound=BaseModel)

_TEXTS: Final = ("title", "description")
# Keywords of JSON Schema that hold data of calls, or one schema for each name.
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)


def visible_entry(entry: EntryT, *more: str) -> EntryT:
    """Return an entry of a list with a visible title and description.

    Args:
        entry: A tool, prompt, resource or one of their parts.
        more: Other fields to clean.
    """
    changes: dict[str, str] = {}
    for field in (*_TEXTS, *more):
        text = getattr(entry, field, None)
        if isinstance(text, str) and visible(text) != text:
            changes[field] = visible(text)
    return entry.model_copy(update=changes) if changes else entry


def visible_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema with visible titles and descriptions, also in its subschemas."""
    cleaned: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _DATA:
            cleaned[keyword] = value
        elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            cleaned[keyword] = {name: _visible(schema) for name, schema in value.items()}
        elif keyword in _TEXTS and isinstance(value, str):
            cleaned[keyword] = visible(value)
        else:
            cleaned[keyword] = _visible(value)
    return cleaned


def _visible(value: Any) -> Any:
    if isinstance(value, dict):
        return visible_schema(value)
    if isinstance(value, list):
        return [_visible(item) for item in value]
    return value
