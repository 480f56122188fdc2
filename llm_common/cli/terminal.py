"""Text from outside as a terminal may show it."""

import re

from rich.text import Text

__all__ = ["safe_text"]

# Files hold whatever they like, also what would make a terminal do things.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def safe_text(value: str, *, style: str = "") -> Text:
    """The text with its control characters replaced, and nothing in it read as markup."""
    return Text(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", value), style=style)
