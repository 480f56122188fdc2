"""The parameters of a session's tools, as JSON Schema."""

from typing import Final

WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that were said or returned."}},
    "required": ["query"],
    "additionalProperties": False,
}
QUERY: Final = {
    "type": "object",
    "properties": {
        "sql": {"type": "string"},
        "cursor": {
            "type": ["string", "null"],
            "description": "From the answer before; pass the same sql.",
        },
    },
    "required": ["sql"],
    "additionalProperties": False,
}
TOOL_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
    "additionalProperties": False,
}
