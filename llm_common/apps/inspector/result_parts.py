"""Cuts a stored result into parts that a page can show."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import orjson

from llm_common.text.canonical import decode_json

View = Literal["pretty", "stored"]

MAX_INDENTED_BYTES: Final = 4_000_000
"""A larger result is shown as it is stored: its values and their indentation take much memory."""

PART_CHARS: Final = 20_000
"""About so many characters are on a page."""

_MAX_LINE_CHARS: Final = 2 * PART_CHARS
_MAX_INDENT_CHARS: Final = 50_000_000  # 4 MB of numbers at the 250th level would take 1 GB


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a result.

    Attributes:
        text: What the page shows.
        number: Which part it is, from 1.
        count: How many parts there are.
        first_line: Its first line, from 1.
        last_line: Its last line.
        lines: Lines of all parts.
        form: What the text is, in words.
    """

    text: str
    number: int
    count: int
    first_line: int
    last_line: int
    lines: int
    form: str


def read_part(payload: bytes, *, view: View, number: int, line: int = 0) -> ResultPart:
    """Return a part of a result, or the nearest one where none has this number.

    Args:
        payload: The stored bytes.
        view: `pretty` indents JSON, `stored` shows the bytes as they are.
        number: Which part, from 1.
        line: Returns the part that holds this line, from 1. 0 goes by the number.
    """
    if view == "stored":
        text, form = payload.decode("utf-8", "replace"), "as stored"
    else:
        text, form = _indented(payload)
    bounds = [0, *_part_ends(text)]
    line_counts = [0]  # line ends before each bound
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
    """Return a result as indented JSON or as its text, and what that is in words."""
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
            value, form = orjson.loads(text), "a text that holds JSON, indented"
        except orjson.JSONDecodeError:
            return text, "a text"
    if _indent_chars(value) > _MAX_INDENT_CHARS:
        return stored, "as stored: indented it would be too long"
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), form
    except TypeError:  # a number over 64 bits, or half a surrogate pair
        return stored, "as stored: it cannot be indented"


def _indent_chars(value: object) -> int:
    """Return about how many spaces a value has with each member on a line, two for each level."""
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
    """Return where parts end: at line ends, or within a line that is far longer than a part."""
    ends, start = [], 0
    while len(text) - start > PART_CHARS:
        line_end = text.find("\n", start + PART_CHARS, start + _MAX_LINE_CHARS)
        start = start + PART_CHARS if line_end < 0 else line_end + 1
        ends.append(start)
    ends.append(len(text))
    return ends
