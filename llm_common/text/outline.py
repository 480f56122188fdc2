"""`outline`: the lines of a long text that say what follows them, with their numbers."""

import re
from typing import Final, NamedTuple

from llm_common.text.display import one_line

# What begins a section: a heading of Markdown, a file of a diff, a section of an INI or TOML file,
# and a definition at the left margin of a program.
_HEADING: Final = re.compile(
    r"^(?:(?P<marks>\#{1,6})[ \t]+\S"
    r"|\+\+\+ \S"
    r"|\[[^\[\]\n]{1,80}\]$"
    r"|(?:(?:export|default|public|pub|abstract|async|static)[ \t]+){0,3}"
    r"(?:class|def|fn|func|function|interface|struct|enum|trait|impl|module)[ \t]+\w"
    r")",
    re.MULTILINE,
)
_MAX_HEADINGS: Final = 5_000
_MAX_LINE_CHARS: Final = 80
_DEEPEST: Final = 6


class _Heading(NamedTuple):
    level: int  # of Markdown, 0 for a heading without `#`
    line: str


def outline(text: str, max_chars: int) -> str:
    """Return the headings of a text with their line numbers, in about `max_chars` characters.

    If they do not fit, the deepest levels are left out first, then every second heading or more.
    The first line says how many are shown.

    Args:
        text: The text, of which the first 5,000 headings are read.
        max_chars: Maximum characters of the outline.

    Returns:
        One line per heading, or "" if the text has fewer than two headings or too little fits.
    """
    headings = _without_comments(_headings_of(text))
    total = len(headings)
    if total < 2:  # noqa: PLR2004 - one heading says no more than the beginning of the text
        return ""
    shown = headings
    deepest = _DEEPEST
    while deepest > 1 and _chars_of(shown) > max_chars:
        deepest -= 1
        shown = [heading for heading in headings if heading.level <= deepest] or shown
    step = 1
    while len(shown[::step]) > 1 and _chars_of(shown[::step]) > max_chars:
        step += 1
    lines = [heading.line for heading in shown[::step]]
    if len(lines) < 2:  # noqa: PLR2004
        return ""
    head = "Headings by line:"
    if len(lines) < total:
        head = f"{len(lines):,} of {total:,} headings by line:"
    return "\n".join([head, *lines])


def _headings_of(text: str) -> list[_Heading]:
    headings: list[_Heading] = []
    line_number, counted_to = 1, 0
    for match in _HEADING.finditer(text):
        if len(headings) == _MAX_HEADINGS:
            break
        line_number += text.count("\n", counted_to, match.start())
        counted_to = match.start()
        end = text.find("\n", match.start(), match.start() + 4 * _MAX_LINE_CHARS)
        line = text[match.start() : end if end >= 0 else match.start() + 4 * _MAX_LINE_CHARS]
        level = len(match["marks"] or "")
        headings.append(
            _Heading(level, f"{line_number}: {one_line(line, max_chars=_MAX_LINE_CHARS)}")
        )
    return headings


def _without_comments(headings: list[_Heading]) -> list[_Heading]:
    """Return the headings of a document, or those of a program or diff without its comments."""
    levels = {heading.level for heading in headings}
    # A document has a second level, and definitions only in its examples.
    is_document = max(levels, default=0) > 1 or 0 not in levels
    return [heading for heading in headings if is_document == (heading.level > 0)]


def _chars_of(headings: list[_Heading]) -> int:
    return sum(len(heading.line) + 1 for heading in headings)
