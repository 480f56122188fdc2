"""`unwrapped`: a text without what a terminal or an editor has added to it."""

import json
import re
from bisect import bisect_right
from itertools import pairwise
from typing import Final

# Escape sequences of ECMA-48: colours, movements of the cursor, and titles of a window.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
# No control characters, which a text of JSON cannot have.
_LETTERS: Final = re.compile(r"(?<!\\)(?:\\u(?!00[01])[0-9a-fA-F]{4})+")
_TAG: Final = re.compile(r"<(?P<name>[A-Za-z][\w-]{0,40})(?:\s[^<>\n]{0,500})?>")
_FENCE: Final = re.compile(r"```[\w+-]{0,20}")
# As `cat -n` and the file tools of agents write them.
_NUMBERED: Final = re.compile(r"[^\S\n]{0,9}(?P<number>\d{1,9})(?:\t|\u2192|: |\| )")
_ESCAPE_CHARS: Final = 6
_SAME_CHARS: Final = 4  # with which the forms of a progress bar begin


def unwrapped(text: str) -> str:
    """Return a text as it would be read: without a byte order mark, colours and overwritten parts.

    Line ends become line feeds, and each line keeps its number. Of a line that a progress bar has
    written again and again, the last form stays.
    """
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        if "\n" not in text:
            text = text.replace("\r", "\n")
        text = "\n".join(map(_last_form, text.split("\n")))
    return text


class ReadLetters:
    r"""A text whose escapes such as `\u7f16` are read as letters if it is JSON.

    Args:
        stored: The text.
        is_json: Whether the text is JSON, or a part of it. Otherwise it stays as it is.

    Attributes:
        text: The text as it is read.
    """

    def __init__(self, stored: str, *, is_json: bool) -> None:
        parts: list[str] = []
        # Where each run of escapes begins in the text as read, and in the stored one.
        self._runs: list[int] = [0]
        self._stored: list[int] = [0]
        self._is_escape: list[bool] = [False]
        read = end = 0
        for match in _LETTERS.finditer(stored) if is_json else ():
            letters = str(json.loads(f'"{match[0]}"'))
            read += match.start() - end
            end = match.end()
            parts += [stored[self._stored[-1] : match.start()], letters]
            self._runs += [read, read + len(letters)]
            self._stored += [match.start(), end]
            self._is_escape += [True, False]
            read += len(letters)
        parts.append(stored[end:])
        self.text = "".join(parts)

    def place(self, index: int) -> int:
        """Return where a character of the text as read begins in the stored text."""
        run = bisect_right(self._runs, index) - 1
        chars = index - self._runs[run]
        if self._is_escape[run]:  # a letter outside the basic plane has two escapes
            letters = self.text[self._runs[run] : index].encode("utf-16-le", "surrogatepass")
            chars = _ESCAPE_CHARS * len(letters) // 2
        return self._stored[run] + chars


def without_line_numbers(text: str) -> str:
    """Return a text without the numbers that a tool has written before all of its lines."""
    lines = text.split("\n")
    matches = [_NUMBERED.match(line) for line in lines if line.strip()]
    numbers = [int(match["number"]) for match in matches if match]
    is_numbered = len(numbers) == len(matches) > 1
    if not is_numbered or any(after - before != 1 for before, after in pairwise(numbers)):
        return text
    return "\n".join(_NUMBERED.sub("", line) for line in lines)


def without_frame(text: str) -> str:
    """Return a text with an empty line before it for the fence or the tags that stand around it."""
    inner = text.strip()
    first, _, rest = inner.partition("\n")
    body, _, last = rest.rpartition("\n")
    tag = _TAG.fullmatch(first)
    # A document of tags is no text in a tag.
    is_tagged = tag is not None and last == f"</{tag['name']}>" and "\n<" not in f"\n{body}"
    is_fenced = _FENCE.fullmatch(first) is not None and last == "```" and "\n```" not in body
    return f"\n{body}\n" if is_tagged or is_fenced else text


def _last_form(line: str) -> str:
    """Return what a progress bar has left of a line. A single carriage return may be data."""
    forms = line.rstrip("\r").split("\r")
    is_progress = len(forms) > 2 or forms[0][:_SAME_CHARS] == forms[-1][:_SAME_CHARS]  # noqa: PLR2004
    return forms[-1] if is_progress else line
