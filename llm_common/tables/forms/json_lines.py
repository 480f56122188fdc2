"""Lines that are JSON objects."""

from dataclasses import dataclass

import orjson

from llm_common.tables.forms.fit import MAX_TEXT_CHARS, MOST, SAMPLE_LINES, share_of
from llm_common.text.canonical import Json


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The lines of a text with one JSON object per line.

    Attributes:
        objects: The objects.
        others: The lines that are something else, such as a cut last one.
    """

    objects: list[dict[str, Json]]
    others: list[str]


def json_lines(text: str) -> JsonLines | None:
    """Return the objects of a text with one JSON object per line, or None.

    At most a tenth of the lines may be something else.
    """
    lines = text.split("\n") if len(text) <= MAX_TEXT_CHARS else []
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2 or not lines[0].lstrip().startswith("{"):  # noqa: PLR2004
        return None
    if share_of(lines[:SAMPLE_LINES], lambda line: _object_in(line) is not None) < MOST:
        return None
    objects: list[dict[str, Json]] = []
    others: list[str] = []
    for line in lines:
        value = _object_in(line)
        if value is not None:
            objects.append(value)
        else:
            others.append(line)
    return JsonLines(objects, others) if len(objects) >= MOST * len(lines) else None


def _object_in(line: str) -> dict[str, Json] | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
