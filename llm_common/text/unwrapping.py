"""`unwrapped`: a text without what a terminal or an editor has added to it."""

import re
from typing import Final

# Escape sequences of ECMA-48: colours, movements of the cursor, and titles of a window.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])"
)


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
    return "\n".join([line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")])
