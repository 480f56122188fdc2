"""Reads a JSON text and writes it again with other strings, and nothing else changed.

A writer of JSON would change numbers such as `0.10`, white space and escapes, and refuse NaN, which
Python writes and reads. A `dict` would keep only the last of two members with the same name.
"""

import json
import re
from io import StringIO
from typing import Any

from llm_common.text.canonical import json_text

# A string, or a number or a constant.
_SCALAR = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s{}\[\]:,"]++')


class Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, with repeated names."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text, with `Members` for objects, or None for another text.

    Raises:
        RecursionError: If the text is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=Members)
    except ValueError:  # it only looks like JSON, or a number has too many digits
        return None


def with_changes(text: str, value: Any, changed: Any) -> str:
    """Return a JSON text with each name and scalar replaced that differs in a changed copy.

    Args:
        text: The text.
        value: Its value, from `read_json`.
        changed: The value with other names and scalars, and the same structure.
    """
    replacements: list[str | None] = []
    _add_replacements(replacements, value, changed)
    parts = StringIO()
    position = 0
    for token, replacement in zip(_SCALAR.finditer(text), replacements, strict=True):
        if replacement is not None:
            parts.write(text[position : token.start()])
            parts.write(replacement)
            position = token.end()
    parts.write(text[position:])
    return parts.getvalue()


def _add_replacements(replacements: list[str | None], value: Any, changed: Any) -> None:
    """Add the new JSON, or None if it stays, for each name and scalar in the order of the text."""
    if isinstance(value, Members):
        for (name, member), (changed_name, changed_member) in zip(value, changed, strict=True):
            _add_replacements(replacements, name, changed_name)
            _add_replacements(replacements, member, changed_member)
    elif isinstance(value, list):
        for item, changed_item in zip(value, changed, strict=True):
            _add_replacements(replacements, item, changed_item)
    elif changed is value or changed == value:  # NaN does not equal itself
        replacements.append(None)
    else:
        replacements.append(json_text(changed))
