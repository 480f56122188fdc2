"""`unwrapped`: a text without what a terminal or an editor has added to it."""

import json
import re
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Final

# Escape sequences of ECMA-48: colours, movements of the cursor, and titles of a window.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_ESCAPE_OR_RETURN: Final = re.compile(rf"{_ESCAPE.pattern}|\r(?=\n)")
# Colours in JSON, and its escapes. Two are one letter of a plane beyond the first.
_JSON_ESCAPE: Final = re.compile(
    r"\\u001[bB]\[[0-?]{0,40}[ -/]{0,4}[@-~]|\\r(?=\\n)"
    r"|(?P<letter>\\(?:(?i:u(?:d[89ab][\da-f]{2}\\ud[c-f]|[\da-f]{2})[\da-f]{2})|[bfnrt\"\\/]))"
)
_LETTERS: Final = {r"\n": "\n", r"\"": '"', r"\\": "\\"}  # the most frequent ones
# More than a bracket: the line of a log begins with one too.
_JSON_START: Final = re.compile(
    r"\s*(?:\{\s*[\"}]|\[\s*(?:[\"{\[\]]|(?:-?\d[\d.eE+-]{0,30}|true|false|null)\s*[,\]]))"
)
_TAG: Final = re.compile(r"<(?P<name>[A-Za-z][\w-]{0,40})(?:\s[^<>\n]{0,500})?>")
_FENCE: Final = re.compile(r"```[\w+-]{0,20}")
# A line that says that a tool has cut its output: "... [truncated, 500 more lines]".
_CUT: Final = re.compile(
    r"(?:\.{3}|…|[\[(<]).{0,100}\b(?:truncated|omitted|cut off"
    r"|more (?:lines|rows|records|results|items|entries|characters|bytes))\b.{0,100}",
    re.IGNORECASE,
)
# As `cat -n` and the file tools of agents write them.
_NUMBERED: Final = re.compile(r"[^\S\n]{0,9}(?P<number>\d{1,9})(?:\t|\u2192|: |\| )")
_SAME_CHARS: Final = 4  # with which the forms of a progress bar begin


def line_end_of(text: str) -> str:
    """Return the character that ends the lines of a text. Old files have carriage returns alone."""
    return "\r" if "\r" in text and "\n" not in text else "\n"


def count_lines(text: str) -> int:
    """Return the number of lines. A last line end begins no further line."""
    return text.removesuffix(line_end_of(text)).count(line_end_of(text)) + 1


def is_json_text(text: str) -> bool:
    """Return whether a text begins as JSON does."""
    return _JSON_START.match(text) is not None


def unwrapped(text: str) -> str:
    """Return a text as it would be read: without a byte order mark, colours and overwritten parts.

    Line ends become line feeds, and each line keeps its number. Of a line that a progress bar has
    written again and again, the last form stays.
    """
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace(line_end_of(text), "\n")
        text = "\n".join(map(_last_form, text.split("\n")))
    return text


class ReadLetters:
    r"""A text as it is read: without colours, and with the escapes of JSON as their characters.

    Args:
        stored: The text.
        is_json: Whether the text is JSON, or a part of it. None leaves it as it is stored.

    Attributes:
        text: The text as it is read.
    """

    def __init__(self, stored: str, *, is_json: bool | None) -> None:
        self._stored = stored
        self._pattern = _JSON_ESCAPE if is_json else _ESCAPE_OR_RETURN
        self.text = stored if is_json is None else self._pattern.sub(_letter, stored)

    @cached_property
    def _longer(self) -> tuple[list[int], list[int]]:
        """Where each letter ends in the text as read, and how much longer the stored one is."""
        ends, chars_longer = [0], [0]
        if self.text != self._stored:
            for escape in self._pattern.finditer(self._stored):
                chars_longer.append(chars_longer[-1] + len(escape[0]) - len(_letter(escape)))
                ends.append(escape.end() - chars_longer[-1])
        return ends, chars_longer

    def place(self, index: int) -> int:
        """Return where a character of the text as read begins in the stored text."""
        ends, chars_longer = self._longer
        return index + chars_longer[bisect_right(ends, index) - 1]


def _letter(escape: re.Match[str]) -> str:
    if escape.lastgroup is None:  # a colour, or the first character of a line end
        return ""
    return _LETTERS.get(escape[0]) or str(json.loads(f'"{escape[0]}"'))


def without_line_numbers(text: str) -> str:
    """Return a text without the numbers that a tool has written before all of its lines."""
    lines = text.split("\n")
    matches = [_NUMBERED.match(line) for line in lines if line.strip()]
    numbers = [int(match["number"]) for match in matches if match]
    is_numbered = len(numbers) == len(matches) > 1
    if not is_numbered or any(after - before != 1 for before, after in pairwise(numbers)):
        return text
    return "\n".join(_NUMBERED.sub("", line) for line in lines)


def without_cut_note(text: str) -> tuple[str, str]:
    """Return a text without a last line that says that it was cut, and this line or ""."""
    body, _, last = text.rstrip().rpartition("\n")
    # A line that begins with a bracket and goes on behind it may be the entry of a log.
    is_note = _CUT.fullmatch(last.strip()) and (last.strip()[0] in ".…" or last[-1] in "])>")
    return (body, last.strip()) if is_note else (text, "")


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
