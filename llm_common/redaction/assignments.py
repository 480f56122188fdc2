"""Secrets that the name before them gives away: `password=…`, `"api_key": "…"`, `--token …`, `Cookie: …`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from llm_common.redaction.patterns import REDACTED, Rule, Span

_SEPARATOR = re.compile(r"[:=]{1,3}>?[*]{0,2}[ \t]{0,9}")
_NAME_BACKWARDS = re.compile(r"[ \t]{0,9}[\]*]{0,2}(?P<quote>(?:[\"'`]\\{0,9})?)(?P<key>[\w.-]++)")
_FLAG = re.compile(r"(?<![\w-])(?P<key>--[A-Za-z][\w-]*+)(?:[ \t]{1,3}|\\{0,9}[\"'],[ \t]{0,3})(?![-\s])")
_QUOTE = re.compile(r"(?:[bBrRfFuU]{1,2}(?=[\"']))?(?P<mark>(\\{0,9})([\"'`]))(?P<triple>(?P=mark){2})?")
_SOFT_END = r"[&,;)}\]\"'`<\\](?=[\s,;:)}\]\"'`&\\]|\Z|/?[\w.-]{0,40}[\"'`]?[:=>])"
_BARE = re.compile(rf"(?:(?!{_SOFT_END})\S)*+")
_ASSIGNED = re.compile(r"[ \t]{0,3}=[ \t]{0,3}")
_NEW_LINE = re.compile(r"\r?\n|\\{1,9}n")  # or as JSON writes it
_BLOCK = re.compile(rf"(?:[|>][+-]?\d?)?[ \t]{{0,9}}(?:{_NEW_LINE.pattern})(?P<indent>[ \t]{{1,40}}+)(?=\S)")
_BRACKETS = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|[\[\]{}]")
_LINE_KEYS = ("authorization", "cookie")
_LINE_END = re.compile(r"[\r\n]|\Z")
_NO_SECRET = frozenset({"", "true", "false", "null", "none", "nil", "undefined"})
_PROSE = frozenset(
    (
        *("a", "an", "and", "argument", "be", "can", "cannot", "flag", "for", "from", "if", "in", "is", "may", "must"),
        *("of", "on", "option", "or", "parameter", "should", "so", "the", "then", "to", "value", "was", "when", "with"),
    )
)
_NAME_CHARS = 96  # what is read before a sign
_WORD_CHARS = 16  # before `key`, which may say what key: `api key: …`


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedSecrets(Rule):
    """Finds the values of secret names, after `:` or `=` and after a flag.

    The quotes around a value stay, at any depth of escaping. A bare value after a quoted name gets quotes, so that
    JSON stays JSON. One value is: a header of credentials up to the end of its line or quote, a block indented below
    its name, and the content of brackets.

    Attributes:
        is_secret_key: Recognises the names.
    """

    expression: str | re.Pattern[str] = r"[:=]|--"
    is_secret_key: Callable[[str], bool]

    def spans(self, text: str) -> Iterator[Span]:
        """The values in a text, in the order of their starts."""
        return merge(self._after_signs(text), self._after_flags(text))

    def _after_signs(self, text: str) -> Iterator[Span]:
        position = 0
        while separator := _SEPARATOR.search(text, position):
            name, position = _name_before(text, separator.start()), separator.end()
            if name is not None and self.is_secret_key(name.key):
                for span in _values(text, position, name):
                    yield span
                    position = max(position, span[1])

    def _after_flags(self, text: str) -> Iterator[Span]:
        position = 0
        while (dashes := text.find("--", position)) >= 0:
            flag = _FLAG.match(text, dashes)
            position = flag.end() if flag else dashes + len("--")
            if flag and self.is_secret_key(flag["key"]):
                begin, end, shown = _value(text, position, "")
                if text[begin:end].lower() not in _PROSE:
                    yield begin, end, shown
                position = max(position, end)


class _Name(NamedTuple):
    """The name before a value, the quote around the name, and its start."""

    key: str
    quote: str
    start: int


def _name_before(text: str, end: int) -> _Name | None:
    """The name that ends at the position; `key` is read with the word before it, as in `api key`."""
    match = _NAME_BACKWARDS.match(text[max(end - _NAME_CHARS, 0) : end][::-1])
    if match is None:
        return None
    start = end - match.end()
    key = match["key"][::-1]
    if key.lower() == "key":
        before = text[max(start - _WORD_CHARS, 0) : start]
        key = before.split()[-1] + key if before.endswith(" ") and before.strip() else key
    return _Name(key, match["quote"][::-1], start)


def _values(text: str, position: int, name: _Name) -> Iterator[Span]:
    """The value of a name from the position on, and a value assigned after it, as in `password: str = "…"`."""
    if not name.quote and name.key.lower().endswith(_LINE_KEYS):
        yield position, _line_end(text, position, quote=text[name.start - 1 : name.start]), REDACTED
    elif block := _BLOCK.match(text, position):
        yield block.end(), _block_end(text, block.end(), block["indent"]), REDACTED
    else:
        while True:
            begin, end, shown = _value(text, position, name.quote)
            if text[begin:end].lower() not in _NO_SECRET:
                yield begin, end, shown
            assigned = _ASSIGNED.match(text, end) if "=" in text[end : end + 4] else None
            if assigned is None:
                return
            position = assigned.end()


def _value(text: str, position: int, quote: str) -> Span:
    """The value that begins at the position; `quote` is the quote around its name."""
    if text.startswith(REDACTED, position):
        return position, position + len(REDACTED), REDACTED
    opening = _QUOTE.match(text, position)
    if opening is not None:
        end = _closing(text, opening)
        if end is not None or opening[3] == '"':  # an apostrophe may open nothing
            return opening.end(), len(text) if end is None else end, REDACTED
    if text.startswith(("{", "["), position):
        return position, _bracket_end(text, position), f"{quote}{REDACTED}{quote}"
    bare = _BARE.match(text, position)
    return position, bare.end() if bare else position, f"{quote}{REDACTED}{quote}"


def _closing(text: str, opening: re.Match[str]) -> int | None:
    """Start of the quote that closes a value, with its backslashes; None if there is none.

    In JSON within JSON the quotes of a value have more backslashes than those around it, and fewer than its own.
    """
    position = opening.end()
    if opening["triple"]:
        found = text.find(3 * opening["mark"], position)
        return None if found < 0 else found
    depth = len(opening[2])
    while (found := text.find(opening[3], position)) >= 0:
        slashes = found - position - len(text[position:found].rstrip("\\"))
        if slashes <= depth or (depth == 0 and slashes % 2 == 0):
            return found - min(slashes, depth)
        position = found + 1
    return None


def _bracket_end(text: str, position: int) -> int:
    """The end of the brackets, or of the text if they never close."""
    depth = 0
    for token in _BRACKETS.finditer(text, position):
        depth += 1 if token[0] in "[{" else -1 if token[0] in "]}" else 0
        if depth == 0:
            return token.end()
    return len(text)


def _line_end(text: str, position: int, *, quote: str) -> int:
    """The end of a header: the end of its line, or the quote that closes it."""
    closing = text.find(quote, position) if quote and quote in "\"'" else -1
    end = len(text) if closing < 0 else position + len(text[position:closing].rstrip("\\"))
    found = _LINE_END.search(text, position, end)
    return found.start() if found else end


def _block_end(text: str, position: int, indent: str) -> int:
    """The end of the last line that is indented like the first."""
    while line_end := _NEW_LINE.search(text, position):
        if not text.startswith(indent, line_end.end()):
            return line_end.start()
        position = line_end.end()
    return len(text)
