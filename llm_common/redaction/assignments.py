"""Finds secrets by the name before them: `password=…`, `"api_key": "…"`, `--token …`."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from llm_common.redaction.patterns import REDACTED, Rule, Span, alternation
from llm_common.redaction.secret_values import (
    CERTAIN,
    LIKELY,
    MAX_CHECKED_CHARS,
    PROSE,
    STRONG,
    WEAK,
    compiled,
    is_other,
    is_secret_value,
    looks_random,
)

_AFTER_NAME = r"[\w.-]{0,32}(?:%5d|[\]*\\\"'` \t]){0,16}(?P<sign>[:=])"
_CELL_END = r"[\w.-]{0,32}[ \"]{0,3}(?=[,;\t|\n])"
_SEPARATOR = r"[:=]{1,3}>?[*]{0,2}[ \t]{0,9}"
_NAME_BACKWARDS = (
    r"(?P<space>[ \t]{0,9})(?:D5%|[\]*]){0,2}(?P<quote>(?:[\"'`]\\{0,9})?)(?P<key>[\w.-]++)"
)
_FLAG = r"(?<![\w-])(?P<key>--[A-Za-z][\w-]*+)(?:[ \t]{1,3}|\\{0,9}[\"'],[ \t]{0,3})(?![-\s])"
_QUOTE = r"(?:[bBrRfFuU]{1,2}(?=[\"']))?(?P<mark>(\\{0,9})([\"'`]))(?P<triple>(?P=mark){2})?"
_SOFT_END = r"[&,;)}\]\"'`<\\](?=[\s,;:)}\]\"'`&\\]|\Z|/?[\w.-]{0,40}[\"'`]?[:=>])"
# a colour of a terminal ends a value
_BARE = rf"(?:[^\s&,;)}}\]\"'`<\\\x1b]++|(?!{_SOFT_END})[^\s\x1b])*+"
_ASSIGNED = r"[ \t]{0,3}=[ \t]{0,3}"
_NEW_LINE = r"\r?\n|\\{1,9}n"  # or as JSON writes it
_BLOCK = rf"(?:[|>][+-]?\d?)?[ \t]{{0,9}}(?:{_NEW_LINE})(?P<indent>[ \t]{{1,40}}+)(?=\S)"
_BRACKETS = r"\\[\\\"]|\"(?:[^\"\\]|\\.)*+\"|[\[\]{}]"  # an escaped quote opens no string
_BRACKET = r"[()\[\]{}]"
_WORD_IN_REGION = r"[^\s\"'`,;:=\\()\[\]{}<>]{8,}+"
# up to its quote, or its line's end
_HEADER = r"(?:[^\"'\r\n\\=]++|=\\{0,3}\"(?![\s,)\]])[^\"\r\n]*+\"|=)*+"
_COOKIE = r"[\w!#$%&'*+.^|~-]{1,64}=\S"
_CODE = r"[()\[\]{}<>]"
# a word, or a path of attributes
_NO_VALUE = r"[A-Za-z_][A-Za-z_.-]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "x-authorization", "cookie", "set-cookie", "cookie2")
)
_NAME_CHARS = 96  # what is read before a sign
_WORD_CHARS = 16  # before `key`, which may say what key: `api key: …`
_REGION_CHARS = 4_096
_HEADER_CHARS = 1_024
_CLOSING_QUOTES = 64  # quotes with other backslashes that are passed over
_MAX_COLUMNS = 40
_MAX_NAMES_IN_VALUE = 8
_MIN_DIGITS = 6
_MIN_WEAK_CHARS = 8
_MIN_NAMED_CHARS = 6  # `pw=abcd` has seven
_MIN_PHRASE_CHARS = 20

_KEY = r"[\w.-]{2,64}"
_REST_OF_WORD = r"[^\s&\"'<>,;}\\]*+"

# Names and values that stand beside each other in other ways, with a literal that each has. A value
# that may hold further names has 256 characters at most; a longer secret is read on.
_PAIRS = (
    # `("Cookie", "…")`, `["X-Api-Key", "…"]`, `define('DB_PASSWORD', '…')`, `setdefault("TOKEN",
    # "…")`
    (
        ",",
        (
            rf"[\"'](?P<key>{_KEY})\\{{0,3}}[\"']\s{{0,3}},\s{{0,9}}"
            r"[bru]{0,2}\\{0,3}[\"'](?P<secret>[^\"'\n\\]{4,}+)"
        ),
    ),
    # `name: X, value: Y` in JSON, YAML and HTML, and as attributes
    (
        "val",
        (
            r"(?i)\b(?:name|key|type|header)\\{0,3}[\"']?\s{0,2}[:=]\s{0,2}"
            r"\\{0,3}[\"']?(?P<key>[\w.-]{2,64})\\{0,3}[\"']?"
            r"(?:[\s,;]|[a-z]{1,16}=[\"'][^\"']{0,40}[\"']|\\n|-){1,40}?"
            r"\\{0,3}[\"']?(?:value|val)\\{0,3}[\"']?"
            r"\s{0,2}[:=]\s{0,2}(?P<quote>\\{0,3}[\"'])?"
            r"(?P<secret>(?(quote)[^\"'\\\n]{4,4096}+|[^\s\"'\\<>,;}]{4,256}+))"
        ),
    ),
    # XML, property lists, Android's resources
    (
        "</",
        (
            r"<(?:[\w-]{1,32}:)?(?P<key>[\w.-]{2,64})(?:\s[^<>]{0,100})?>\s{0,9}"
            r"(?P<secret>[^<>]{4,4096})</"
        ),
    ),
    ("</", r"<key>(?P<key>[\w .-]{2,64})</key>\s{0,40}<string>(?P<secret>[^<>]{4,4096})</"),
    ("</", r"\s(?:name|key)=\"(?P<key>[\w.-]{2,64})\"[^<>]{0,100}>(?P<secret>[^<>]{4,4096})</"),
    # Percent-encoded forms and JSON; https://www.rfc-editor.org/rfc/rfc3986#section-2.1
    (
        "%3",
        (
            r"(?P<key>[\w.-]{2,64})(?:%5D|%22){0,2}%3[AaDd](?:%20|%22|\+){0,2}"
            r"(?P<secret>(?:(?!%2[26Cc]|%7D)[^\s&\"'<>]){4,256}+)"
        ),
    ),
    # https://www.rfc-editor.org/rfc/rfc7578
    (
        "form-data",
        (
            r"form-data;\s?name=\\?\"(?P<key>[\w.-]{2,64})\\?\"[^\r\n\\]{0,100}"
            r"(?:(?:\\r|\r)?(?:\\n|\n)[^\r\n\\]{1,200}){0,3}"
            r"(?:(?:\\r|\r)?(?:\\n|\n)){2}(?P<secret>[^\r\n\\]{4,4096}+)"
        ),
    ),
    # Dockerfile, Apache, nginx, Windows, shells
    (
        "env",
        (
            r"(?:\b|(?<=\\n))(?:ENV|ARG|SetEnv|setenv)[ \t]{1,9}(?P<key>[\w.-]{2,64})[ \t]{1,9}"
            r"[\"']?(?P<secret>[^\s\"'\\]{4,}+)"
        ),
    ),
    ("setx", r"(?i)\bsetx[ \t]{1,9}(?P<key>\w{2,64})[ \t]{1,9}[\"']?(?P<secret>[^\s\"'\\]{4,}+)"),
    (
        "_set_header",
        r"_set_header[ \t]{1,9}(?P<key>[\w-]{2,64})[ \t]{1,9}[\"']?(?P<secret>[^\s\"'\\;]{4,}+)",
    ),
    (
        "config",
        (
            r"\bconfig(?:ure)?[ :]set[ \t]{1,9}(?P<key>\w{2,64})[ \t]{1,9}"
            r"[\"']?(?P<secret>[^\s\"'\\]{4,}+)"
        ),
    ),
    ("requirepass", r"(?P<key>requirepass)[ \t]{1,9}[\"']?(?P<secret>[^\s\"'\\]{4,}+)"),
)
_COLUMN = r"[\w.-]{1,40}(?: [\w.-]{1,20}){0,3}"
_MAX_HEADER_CHARS = 400


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedSecrets(Rule):
    """Finds the values of secret names: after a sign or a flag, beside the name, in columns.

    How much a value must look like a secret depends on its name; see `secret_names`. The quotes
    around a value stay, at any depth of escaping. A bare value after a quoted name gets quotes, so
    that JSON stays JSON. Below a secret name in brackets, or indented, the words that look random
    are secrets. A value that holds eight further names, none with a secret, is a secret from there
    on, so that `token=token=…` is not read again from each name.

    Attributes:
        strength: What a name says about its value.
    """

    expression: str | re.Pattern[str] = ""
    strength: Callable[[str], int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", f"(?:{alternation(self.literals)})")

    def may_match(self, text: str) -> bool:
        """Whether a text holds the name of a secret."""
        return (
            len(text) > _MIN_NAMED_CHARS
            and compiled(str(self.expression)).search(text.lower()) is not None
        )

    def spans(self, text: str) -> Iterator[Span]:
        """The values in a text, in the order of their starts."""
        low = _lower(text)
        spans = [
            self._after_signs(text, low, 0, len(text), is_region=False),
            self._after_flags(text),
        ]
        for literal, pattern in _PAIRS:
            if literal in low:
                spans.append(self._beside(text, compiled(pattern)))
        if "\n" in text or "\\n" in text:  # each character stays at its place
            spans.append(self._in_columns(text.replace("\\n", " \n"), low.replace("\\n", " \n")))
        return merge(*spans)

    def _after_signs(
        self, text: str, low: str, position: int, limit: int, *, is_region: bool
    ) -> Iterator[Span]:
        named = compiled(f"{self.expression}{_AFTER_NAME}")
        value_end = names_in_value = 0
        while found := named.search(low, position, limit):
            separator = compiled(_SEPARATOR).match(text, found.start("sign"))
            assert separator is not None
            position = separator.end()
            name = _name_before(text, separator)
            if name is None:
                continue
            strength = self.strength(name.key)
            if not strength:
                continue
            region = None if is_region else _region(text, position)
            if region is not None:
                inner = self._after_signs(text, low, *region, is_region=True)
                position = region[1]
                for span in merge(_random_words(text, *region), inner):
                    yield span
                    position = max(position, span[1])  # a long secret ends after its region
                continue
            is_new = position >= value_end
            names_in_value = 0 if is_new else names_in_value + 1
            if names_in_value > _MAX_NAMES_IN_VALUE:
                strength = CERTAIN
            for value in _values(text, position, name, strength):
                if is_new:
                    value_end = max(value_end, value.end)
                if value.is_secret:
                    yield value.begin, value.end, value.shown
                    position = max(position, value.end)

    def _after_flags(self, text: str) -> Iterator[Span]:
        position = 0
        while (dashes := text.find("--", position)) >= 0:
            position = dashes + len("--")
            flag = compiled(_FLAG).match(text, dashes)
            if flag is None:
                continue
            position = flag.end()
            strength = self.strength(flag["key"])
            if not strength:
                continue
            name = _Name(flag["key"], "", dashes, is_tight=True)
            value = _value(text, position, name, strength)
            word = text[value.begin : value.end]
            is_placeholder = word.isalpha() and word.isupper()
            if value.is_secret and word.lower() not in PROSE and not is_placeholder:
                yield value.begin, value.end, value.shown
                position = value.end

    def _beside(self, text: str, pattern: re.Pattern[str]) -> Iterator[Span]:
        position = value_end = names_in_value = 0
        while match := pattern.search(text, position):
            position = match.end("key")
            begin, end = match.span("secret")
            is_quoted = text[position] in "\"'\\"
            strength = min(self.strength(match["key"]), LIKELY if is_quoted else STRONG)
            if begin >= value_end:
                names_in_value, value_end = 0, end
            elif strength:
                names_in_value += 1
            if not strength:
                continue
            if names_in_value > _MAX_NAMES_IN_VALUE:
                strength = CERTAIN
            if is_secret_value(text[begin : min(end, begin + MAX_CHECKED_CHARS)], strength):
                if end - begin == MAX_CHECKED_CHARS:  # the pattern stops there
                    end = _end_of(compiled(_REST_OF_WORD), text, end)
                position = end
                yield begin, end, REDACTED

    def _in_columns(self, text: str, low: str) -> Iterator[Span]:
        """Yield the cells of a table under the names of secrets."""
        position = 0
        while found := compiled(f"{self.expression}{_CELL_END}").search(low, position):
            begin = max(text.rfind("\n", position, found.start()) + 1, position)
            end = text.find("\n", found.end())
            position = end + 1
            if end < 0:
                return
            header = text[max(begin, end - _MAX_HEADER_CHARS) : end]
            sign = max(",;\t|", key=header.count)
            names = [cell.strip(' "\r') for cell in header.split(sign)]
            strengths = [0] * len(names)
            for number, name in enumerate(names):
                if compiled(_COLUMN).fullmatch(name):
                    strengths[number] = self.strength(name)
            is_code = sign == "," and not names[-1]
            if (
                is_code
                or not any(strengths)
                or len([*filter(None, names)]) < 2  # noqa: PLR2004
                or len(names) > _MAX_COLUMNS
            ):
                continue
            while position < len(text):
                line = text[position : _end_of(compiled(r".*"), text, position)]
                cells = line.split(sign, _MAX_COLUMNS)
                if len(cells) != len(names):
                    break
                for cell, strength in zip(cells, strengths, strict=True):
                    word = cell.strip(' "\r')
                    if strength and is_secret_value(word, min(strength, LIKELY)):
                        begin = position + cell.index(word)
                        yield begin, begin + len(word), REDACTED
                    position += len(cell) + 1


def _lower(text: str) -> str:
    """Return the text in lower case, each letter at its position."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(letter.lower()[:1] for letter in text)  # a few letters become two


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    """Return where a match at the position ends, or the position itself."""
    match = pattern.match(text, position)
    return position if match is None else match.end()


class _Name(NamedTuple):
    """The name before a value.

    Attributes:
        quote: The quote around the name.
        is_tight: Whether no space is beside its sign.
    """

    key: str
    quote: str
    start: int
    is_tight: bool

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable of a shell: `DB_PASSWORD=…`."""
        return self.is_tight and self.key.isupper()


class _Value(NamedTuple):
    """A value, what stands for it, and whether it is a secret."""

    begin: int
    end: int
    shown: str
    is_secret: bool


def _name_before(text: str, separator: re.Match[str]) -> _Name | None:
    """The name before a sign; `key` is read with the word before it, as in `api key`."""
    end = separator.start()
    match = compiled(_NAME_BACKWARDS).match(text[max(end - _NAME_CHARS, 0) : end][::-1])
    if match is None:
        return None
    start = end - match.end()
    key = match["key"][::-1]
    if key.lower() == "key":
        before = text[max(start - _WORD_CHARS, 0) : start]
        if before.endswith(" ") and (word := before.split()[-1:]) and word[0].isalpha():
            key = f"{word[0]} {key}"
    # a new line, as JSON writes it
    if text[start - 1 : start] == "\\" and key[0] in "nrt" and key[1:]:
        start, key = start + 1, key[1:]
    is_tight = separator[0] == "=" and not match["space"]
    return _Name(key, match["quote"][::-1], start, is_tight)


def _region(text: str, position: int) -> tuple[int, int] | None:
    """Brackets, or an indented block, that begin at the position.

    At most some 4,000 characters of them.
    """
    limit = min(len(text), position + _REGION_CHARS)
    if text.startswith(("{", "["), position) and not text.startswith(REDACTED, position):
        depth = 0
        for token in compiled(_BRACKETS).finditer(text, position, limit):
            if token[0] in "[{":
                depth += 1
            elif token[0] in "]}":
                depth -= 1
            if depth == 0:
                return position, token.end()
        return position, limit
    if text[position : position + 1] not in "|>\r\n\\":
        return None
    if block := compiled(_BLOCK).match(text, position):
        end = block.end()
        while line_end := compiled(_NEW_LINE).search(text, end, limit):
            if not text.startswith(block["indent"], line_end.end()):
                return block.end(), line_end.start()
            end = line_end.end()
        return block.end(), limit
    return None


def _random_words(text: str, begin: int, end: int) -> Iterator[Span]:
    for word in compiled(_WORD_IN_REGION).finditer(text, begin, end):
        if is_secret_value(
            text[word.start() : min(word.end(), word.start() + MAX_CHECKED_CHARS)], WEAK
        ):
            yield *word.span(), REDACTED


def _values(text: str, position: int, name: _Name, strength: int) -> Iterator[_Value]:
    """Yield a name's value, and one assigned after it, as in `password: str = "…"`.

    A header that holds no credentials comes first as a whole, then by its first word.
    """
    is_header = not name.quote and not name.is_tight and name.key.lower() in _HEADERS
    header = None
    if is_header:
        header = compiled(_HEADER).match(text, position, position + _HEADER_CHARS)
    if header is not None:
        end = header.end()
        line = text[position : min(end, position + 2 * MAX_CHECKED_CHARS)]
        is_cookie = "cookie" in name.key.lower() and compiled(_COOKIE).match(line)
        if is_cookie or strength == CERTAIN or _is_header(line):
            if end == position + _HEADER_CHARS:
                end = _end_of(compiled(_HEADER), text, end)
            yield _Value(position, end, REDACTED, is_secret=True)
            return
        yield _Value(position, end, REDACTED, is_secret=False)
    while True:
        value = _value(text, position, name, strength)
        yield value
        position = _end_of(compiled(_ASSIGNED), text, value.end)
        if position == value.end:
            return


def _value(text: str, position: int, name: _Name, strength: int) -> _Value:
    """The value that begins at the position; only its head is checked."""
    if text.startswith(REDACTED, position):
        return _Value(position, position + len(REDACTED), REDACTED, is_secret=False)
    opening = None
    if not text[position : position + 1].isdigit():
        opening = compiled(_QUOTE).match(text, position)
    if opening is not None:
        begin = opening.end()
        end = _closing(text, opening, begin + _REGION_CHARS)
        if end is None and opening[3] == '"':  # an apostrophe may open nothing
            end = _end_of(compiled(r"[^\r\n]*"), text, begin)
        if end is not None:
            checked_end = min(end, begin + MAX_CHECKED_CHARS)
            is_secret = is_secret_value(text[begin:checked_end], strength)
            return _Value(begin, end if is_secret else checked_end, REDACTED, is_secret)
    limit = position + MAX_CHECKED_CHARS
    bare = compiled(_BARE).match(text, position, limit)
    end = position if bare is None else bare.end()
    is_secret = False
    if end > position:
        if not name.is_variable:
            end = position + _balanced_chars(text[position:end])
        if strength > WEAK or end - position >= _MIN_WEAK_CHARS:
            is_secret = _is_bare_secret(text, position, end, name, strength)
        if is_secret and end == limit:
            end = _end_of(compiled(_BARE), text, end)
    return _Value(position, end, f"{name.quote}{REDACTED}{name.quote}", is_secret)


def _is_bare_secret(text: str, begin: int, end: int, name: _Name, strength: int) -> bool:
    """Whether a value without quotes is a secret, and no code."""
    value = text[begin:end].lstrip("'\"`")
    is_code = is_other(value) or (not name.is_variable and compiled(_CODE).search(value))
    if strength != CERTAIN and (is_code or (value.isdigit() and len(value) < _MIN_DIGITS)):
        return False
    if strength == WEAK and not name.is_tight and not name.quote:
        return looks_random(value)  # else `token = Http2Token`
    if strength in (WEAK, CERTAIN) or looks_random(value):
        return is_secret_value(value, strength)
    if compiled(_NO_VALUE).fullmatch(value):
        before = text[max(name.start - 2, 0) : name.start].strip()
        is_argument = before.endswith(("(", ",")) or text.startswith((",", ")"), end)
        is_phrase = value.isalpha() and value.islower() and len(value) >= _MIN_PHRASE_CHARS
        return is_phrase or name.is_variable or (name.is_tight and not is_argument)
    if not name.is_tight and not value.isdigit() and is_other(value.rstrip("0123456789_")):
        return False
    return is_secret_value(value, strength)


def _balanced_chars(value: str) -> int:
    """The characters before the first bracket that closes one opened outside the value."""
    depth = 0
    for bracket in compiled(_BRACKET).finditer(value):
        depth += 1 if bracket[0] in "([{" else -1
        if depth < 0:
            return bracket.start()
    return len(value)


def _closing(text: str, opening: re.Match[str], limit: int) -> int | None:
    """Start of the quote that closes a value, with its backslashes.

    None if there is none before the limit. In JSON within JSON the quotes of a value have more
    backslashes than those around it, and fewer than its own.
    """
    position = opening.end()
    if opening["triple"]:
        end = text.find(3 * opening["mark"], position, limit)
        return None if end < 0 else end
    depth = len(opening[2])
    for _ in range(_CLOSING_QUOTES):
        quote = text.find(opening[3], position, limit)
        if quote < 0:
            return None
        slashes = quote - position - len(text[position:quote].rstrip("\\"))
        if slashes <= depth or (depth == 0 and slashes % 2 == 0):
            return quote - min(slashes, depth)
        position = quote + 1
    return None


def _is_header(line: str) -> bool:
    """Return whether a header's value has credentials: a scheme with a word, or a random word."""
    if is_other(line):
        return False
    words = line.split()
    if len(words) <= 2:  # noqa: PLR2004
        return is_secret_value(words[-1], LIKELY)
    return any(looks_random(word) and not is_other(word) for word in words[:32])
