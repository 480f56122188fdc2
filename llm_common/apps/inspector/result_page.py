"""Cuts a stored result into parts that a page can show."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import orjson

from llm_common.text import decode_json

View = Literal["pretty", "stored"]

MAX_INDENTED_BYTES: Final = 4_000_000
"""A larger result is shown as stored, because decoding and indenting it takes much memory."""

PART_CHARS: Final = 20_000
"""Approximate number of characters on a page."""

_MAX_LINE_CHARS: Final = 2 * PART_CHARS
_MAX_INDENT_CHARS: Final = 50_000_000  # 4 MB of numbers at the 250th level would take 1 GB


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result.

    Attributes:
        text: The text.
        number: Number of the part, from 1.
        count: Number of parts.
        first_line: Number of its first line, from 1.
        last_line: Number of its last line.
        lines: Number of lines of all parts.
        form: Description of the text's form.
    """

    text: str
    number: int
    count: int
    first_line: int
    last_line: int
    lines: int
    form: str


def read_part(payload: bytes, *, view: View, number: int, line: int = 0) -> ResultPart:
    """Return a part of a result.

    Args:
        payload: The stored bytes.
        view: `pretty` indents JSON, `stored` shows the stored text.
        number: Number of the part, from 1. A number beyond the last part means the last part.
        line: Number of a line, from 1, to return the part that contains it. 0 uses `number`.
    """
    if view == "stored":
        text, form = payload.decode("utf-8", "replace"), "as stored"
    else:
        text, form = _indented(payload)
    bounds = [0, *_part_ends(text)]
    line_counts = [0]  # number of line ends before each bound
    for start, end in pairwise(bounds):
        line_counts.append(line_counts[-1] + text.count("\n", start, end))
    if line:
        number = sum(count < line for count in line_counts[:-1])
    count = len(bounds) - 1
    number = min(max(number, 1), count)
    part = text[bounds[number - 1] : bounds[number]]
    last_line = line_counts[number]
    if not part.endswith("\n"):
        last_line += 1
    return ResultPart(
        text=part,
        number=number,
        count=count,
        first_line=line_counts[number - 1] + 1,
        last_line=last_line,
        lines=line_counts[-1] + 1,
        form=form,
    )


def _indented(payload: bytes) -> tuple[str, str]:
    """Return a result as indented JSON or as text, and a description of that form."""
    stored = payload.decode("utf-8", "replace")
    if len(payload) > MAX_INDENTED_BYTES:
        return stored, "as stored: it is too long to be indented"
    value: object = decode_json(payload)
    form = "JSON, indented"
    if isinstance(value, str):
        text = value
        if not text.lstrip().startswith(("{", "[")):
            return text, "a text"
        try:
            value, form = orjson.loads(text), "a text that contains JSON, indented"
        except orjson.JSONDecodeError:
            return text, "a text"
    if _indent_chars(value) > _MAX_INDENT_CHARS:
        return stored, "as stored: indented it would be too long"
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), form
    except TypeError:  # a number over 64 bits, or half a surrogate pair
        return stored, "as stored: it cannot be indented"


def _indent_chars(value: object) -> int:
    """Estimate the spaces of an indented value, two for each level and member."""
    # Level by level and not recursively, since a result can be nested deeper than Python's stack.
    total, depth, level = 0, 0, [value]
    while level and total <= _MAX_INDENT_CHARS:
        total += 2 * depth * len(level)
        depth += 1
        members: list[object] = []
        for part in level:
            if isinstance(part, dict):
                members.extend(part.values())
            elif isinstance(part, list):
                members.extend(part)
        level = members
    return total


def _part_ends(text: str) -> list[int]:
    """Return the ends of parts: at line ends, or within a line that is far too long."""
    ends, start = [], 0
    while len(text) - start > PART_CHARS:
        line_end = text.find("\n", start + PART_CHARS, start + _MAX_LINE_CHARS)
        start = start + PART_CHARS if line_end < 0 else line_end + 1
        ends.append(start)
    ends.append(len(text))
    return ends
