"""`unwrapped`: a text without what a terminal or an editor has added to it."""

import re
from typing import Final

# Escape sequences of ECMA-48: colours, movements of the cursor, and titles of a window.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_SAME_CHARS: Final = 4  # with which the forms of a progress bar begin


def unwrapped(text: str) -> str:
    """Return a text as it would be read: without a byte order mark, colours and overwritten parts.

    Line ends become line feeds, and each line keeps its number. Of a line that a progress bar has
    written again and again, the last form stays.
    """
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" not in text:
        return text
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        return text.replace("\r", "\n")
    return "\n".join(map(_last_form, text.split("\n")))


def _last_form(line: str) -> str:
    """Return what a progress bar has left of a line. A single carriage return may be data."""
    forms = line.rstrip("\r").split("\r")
    is_progress = len(forms) > 2 or forms[0][:_SAME_CHARS] == forms[-1][:_SAME_CHARS]  # noqa: PLR2004
    return forms[-1] if is_progress else line
