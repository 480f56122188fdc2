"""Finds secrets by the name before them: `password=…`, `"api_key": "…"`, `--token …`."""

import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from llm_common.redaction.patterns import (
    CHARS_OF_A_UNIT,
    NAME_UNITS,
    REDACTED,
    Rule,
    Span,
    Work,
    alternation,
    unchecked,
)
from llm_common.redaction.secret_values import (
    BARE,
    CERTAIN,
    DATA,
    LIKELY,
    MAX_CHECKED_CHARS,
    PROSE,
    QUOTED,
    STRONG,
    WEAK,
    compiled,
    is_harmless,
    is_secret_value,
    looks_random,
)

_AFTER_NAME = r"[\w.-]{0,32}(?:%5d|[\]*\\\"'` \t]){0,16}(?P<sign>[:=])"
_CELL_END = r"[\w.-]{0,32}[ \"]{0,3}(?=[,;\t|\n])"
_SEPARATOR = r"[:=]{1,3}>?[*]{0,2}[ \t]{0,9}"
_NAME_BACKWARDS = (
    r"(?P<space>[ \t]{0,9})(?:D5%|[\]*]){0,2}(?P<quote>(?:[\"'`]\\{0,9})?)(?P<key>[\w.-]++)"
)
_QUOTE = r"(?:[bBrRfFuU]{1,2}(?=[\"']))?(?P<mark>(\\{0,9})([\"'`]))(?P<triple>(?P=mark){2})?"
_SOFT_END = r"[&,;)}\]\"'`<\\](?=[\s,;:)}\]\"'`&\\]|\Z|/?[\w.-]{0,40}[\"'`]?[:=>])"
# A colour code of a terminal (\x1b) ends a value.
_BARE = rf"(?:[^\s&,;)}}\]\"'`<\\\x1b]++|(?!{_SOFT_END})[^\s\x1b])*+"
_ASSIGNED = r"[ \t]{0,3}=[ \t]{0,3}"
_NEW_LINE = r"\r?\n|\\{1,9}n"  # also as JSON escapes it
_BLOCK = rf"(?:[|>][+-]?\d?)?[ \t]{{0,9}}(?:{_NEW_LINE})(?P<indent>[ \t]{{1,40}}+)(?=\S)"
_BRACKETS = r"\\[\\\"]|\"(?:[^\"\\]|\\.)*+\"|[\[\]{}]"  # an escaped quote opens no string
_WORD_IN_REGION = r"[^\s\"'`,;:=\\()\[\]{}<>]{8,}+"
# A header ends at a quote or with its line.
_HEADER = r"(?:[^\"'\r\n\\=]++|=\\{0,3}\"(?![\s,)\]])[^\"\r\n]*+\"|=)*+"
_LINE = r"[^\r\n]*+"
_COOKIE = r"[\w!#$%&'*+.^|~-]{1,64}=\S"
_CODE = r"[()\[\]{}<>]"
# Code rather than a value: an identifier, or a path of attributes.
_NO_VALUE = r"[A-Za-z_][A-Za-z_.-]*|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
_HEADERS = frozenset(
    ("authorization", "proxy-authorization", "x-authorization", "cookie", "set-cookie", "cookie2")
)
_NAME_CHARS = 96  # read before a sign
_WORD_CHARS = 16  # read before `key`, for names such as `api key: …`
# Limits of one search, so that hostile text takes linear time.
_REGION_CHARS = 4_096
_HEADER_CHARS = 1_024
_CLOSING_QUOTES = 64  # quotes with another number of backslashes that are passed over
_MAX_COLUMNS = 40
_MAX_CHAINED = 3  # values of one name, as in `password: str = default = "…"`
_MAX_NAMES_IN_VALUE = 8
_MIN_DIGITS = 6
_MIN_NAMED_CHARS = 6  # `pw=abcd` has seven
_MIN_PHRASE_CHARS = 20

_KEY = r"[\w.-]{2,64}"
_REST_OF_WORD = r"[^\s&\"'<>,;}\\]*+"

# Other ways to write a name and its value, each with a literal that every match contains. A value
# that may contain further names is read to 256 characters, and further if it is a secret.
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
    # `user.setPassword("…")`, `builder.api_key("…")`
    (
        "(",
        (
            r"(?i)(?:(?<![a-z])(?:set|with)_?\w{0,24}|\.)"
            r"(?P<key>password|passwd|passphrase|pwd|api_?key|secret_?key)\(\s{0,9}"
            r"\\{0,3}[\"'](?P<secret>[^\"'\s\\]{4,256}+)\\{0,3}[\"']\s{0,9}\)"
        ),
    ),
    # `--password …`, and `"--password", "…"`
    (
        "--",
        (
            r"(?<![\w-])--(?P<key>[A-Za-z][\w-]{1,63}+)"
            r"(?:[ \t]{1,3}|\\{0,9}[\"'],[ \t]{0,3})(?P<quote>\\{0,3}[\"'])?"
            r"(?P<secret>(?(quote)[^\"'\\\n]{1,4096}+|(?!-)[^\s&,;)}\]\"'`<\\\x1b]{1,256}+))"
        ),
    ),
    ("requirepass", r"(?P<key>requirepass)[ \t]{1,9}[\"']?(?P<secret>[^\s\"'\\]{4,}+)"),
)
_COLUMN = r"[\w.-]{1,40}(?: [\w.-]{1,20}){0,3}"
_MAX_HEADER_CHARS = 400


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedSecrets(Rule):
    """Finds the values of secret names: after a sign or a flag, next to the name, in columns.

    How much a value must look like a secret depends on its name (see `secret_values`). The quotes
    around a value stay, at any depth of escaping. A bare value after a quoted name gets quotes, so
    that JSON stays JSON. After a secret name, brackets or an indented block lose their random
    words.

    Attributes:
        strength: Returns what a name says about its value.
    """

    expression: str | re.Pattern[str] = ""
    strength: Callable[[str], int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", f"(?:{alternation(self.literals)})")

    def may_match(self, text: str) -> bool:
        """Return whether a text contains the name of a secret."""
        return (
            len(text) > _MIN_NAMED_CHARS
            and compiled(str(self.expression)).search(text.lower()) is not None
        )

    def spans(self, text: str, work: Work) -> Iterator[Span]:
        """Yield the values in a text, in the order of their starts."""
        low = text.lower()
        if len(low) != len(text):  # a few letters become two: keep each at its position
            low = "".join(letter.lower()[:1] for letter in text)
        spans = [self._after_signs(text, low, 0, len(text), work)]
        for literal, pattern in _PAIRS:
            if literal in low:
                spans.append(self._in_pairs(text, compiled(pattern), work))
        if "\n" in text or "\\n" in text:  # the replacement has two characters as well
            spans.append(
                self._in_columns(text.replace("\\n", " \n"), low.replace("\\n", " \n"), work)
            )
        return merge(*spans) if len(spans) > 1 else spans[0]

    def _after_signs(
        self,
        text: str,
        low: str,
        position: int,
        limit: int,
        work: Work,
        *,
        is_region: bool = False,
    ) -> Iterator[Span]:
        """Yield the secrets after `name=` and `name:`, and what is too dense to be checked."""
        name_and_sign = compiled(f"{self.expression}{_AFTER_NAME}")
        value_end = names_in_value = 0
        while match := name_and_sign.search(low, position, limit):
            separator = compiled(_SEPARATOR).match(text, match.start("sign"))
            assert separator is not None
            position = separator.end()
            name = _name_before(text, separator)
            strength = 0 if name is None else self._strength_before(separator, name.key)
            if work.is_too_much(position, NAME_UNITS if strength else 1):
                position = limit if is_region else work.unchecked_end(text, position)
                yield match.start(), position, unchecked(position - match.start())
                continue
            if name is None or not strength:
                continue
            region = None if is_region else _region(text, position)
            if region is not None:
                inner = self._after_signs(text, low, *region, work, is_region=True)
                position = region[1]
                for span in merge(_random_words(text, *region, work), inner):
                    yield span
                    position = max(position, span[1])  # a long secret ends after its region
                continue
            is_new = position >= value_end
            names_in_value = 0 if is_new else names_in_value + 1
            # Else `token=token=token=…` would be read again from each name, in quadratic time.
            if names_in_value > _MAX_NAMES_IN_VALUE:
                strength = CERTAIN
            for value in _Assignment(text, name, strength).values(position):
                if is_new:
                    value_end = max(value_end, value.end)
                work.is_too_much(position, 1 + (value.end - value.begin) // CHARS_OF_A_UNIT)
                if value.is_secret:
                    yield value.begin, value.end, value.replacement
                    position = max(position, value.end)

    def _strength_before(self, separator: re.Match[str], key: str) -> int:
        strength = self.strength(key)
        is_quoted = separator.string.startswith(("'", '"'), separator.end())
        if strength == CERTAIN or is_quoted or "==" not in separator[0]:
            return strength
        # In a comparison, a word without quotes is another name.
        return min(strength, WEAK)

    def _in_pairs(self, text: str, pattern: re.Pattern[str], work: Work) -> Iterator[Span]:
        """Yield the secrets of a pattern that has the groups `key` and `secret`."""
        position = value_end = names_in_value = 0
        while match := pattern.search(text, position):
            position = match.end("key")
            begin, end = match.span("secret")
            strength = self.strength(match["key"])
            # As a name that is no secret takes little work, the flags of a build log stay.
            if work.is_too_much(begin, NAME_UNITS if strength else 1):
                position = work.unchecked_end(text, end)
                yield begin, position, unchecked(position - begin)
                continue
            is_quoted = text[position] in "\"'\\("
            if strength != CERTAIN:
                strength = min(strength, LIKELY if is_quoted else STRONG)
            if begin >= value_end:
                names_in_value, value_end = 0, end
            elif strength:
                names_in_value += 1
            if not strength:
                continue
            if names_in_value > _MAX_NAMES_IN_VALUE:
                strength = CERTAIN
            forms = QUOTED if is_quoted else BARE
            value = text[begin : min(end, begin + MAX_CHECKED_CHARS)]
            is_prose = value.lower() in PROSE  # `--password must be set`
            if not is_prose and is_secret_value(value, strength, forms):
                if end - begin == MAX_CHECKED_CHARS:  # the pattern stops there, the secret may not
                    end = _end_of(compiled(_REST_OF_WORD), text, end)
                position = end
                yield begin, end, REDACTED

    def _in_columns(self, text: str, low: str, work: Work) -> Iterator[Span]:
        """Yield the cells of a table under the names of secrets."""
        position = 0
        while match := compiled(f"{self.expression}{_CELL_END}").search(low, position):
            if work.is_too_much(match.start(), NAME_UNITS):
                position = work.unchecked_end(text, match.start())
                yield match.start(), position, unchecked(position - match.start())
                continue
            begin = max(text.rfind("\n", position, match.start()) + 1, position)
            end = text.find("\n", match.end())
            position = end + 1
            if end < 0:
                return
            header = text[max(begin, end - _MAX_HEADER_CHARS) : end]
            sign = max(",;\t|", key=header.count)
            names = [cell.strip(' "\r') for cell in header.split(sign)]
            strengths = [0] * len(names)
            for column, name in enumerate(names):
                if compiled(_COLUMN).fullmatch(name):
                    strengths[column] = self.strength(name)
            is_code = sign == "," and not names[-1]  # a line of arguments ends with a comma
            is_list = sum(map(bool, names)) == 1
            if is_code or is_list or not any(strengths) or len(names) > _MAX_COLUMNS:
                continue
            position = yield from _secret_cells(text, position, sign, strengths, work)


def _secret_cells(
    text: str, position: int, sign: str, strengths: Sequence[int], work: Work
) -> Generator[Span, None, int]:
    """Yield the secrets in the lines of a table, and return where the table ends."""
    while position < len(text):
        line = text[position : _end_of(compiled(r".*"), text, position)]
        cells = line.split(sign, _MAX_COLUMNS)
        if len(cells) != len(strengths):
            break
        if work.is_too_much(position, 1 + len(line) // CHARS_OF_A_UNIT):
            end = work.unchecked_end(text, position)
            yield position, end, unchecked(end - position)
            position = end
            continue
        for cell, strength in zip(cells, strengths, strict=True):
            word = cell.strip(' "\r')
            if strength and is_secret_value(word, min(strength, LIKELY), BARE):
                begin = position + cell.index(word)
                yield begin, begin + len(word), REDACTED
            position += len(cell) + 1
    return position


def _end_of(pattern: re.Pattern[str], text: str, position: int, limit: int = sys.maxsize) -> int:
    """Return where a match at the position ends, or the position itself."""
    match = pattern.match(text, position, limit)
    return position if match is None else match.end()


class _Name(NamedTuple):
    """The name before a value.

    Attributes:
        quote: The quote around the name.
        is_tight: Whether its sign has no space before or after it.
    """

    key: str
    quote: str
    start: int
    is_tight: bool

    @property
    def is_variable(self) -> bool:
        """Return whether it is a variable of a shell: `DB_PASSWORD=…`."""
        return self.is_tight and self.key.isupper()


class _Value(NamedTuple):
    """A value, its replacement, and whether it is a secret."""

    begin: int
    end: int
    replacement: str
    is_secret: bool


def _name_before(text: str, separator: re.Match[str]) -> _Name | None:
    """Return the name before a sign. `key` is read with the word before it, as in `api key`."""
    end = separator.start()
    # Backwards, since the name ends at the sign and may begin anywhere.
    match = compiled(_NAME_BACKWARDS).match(text[max(end - _NAME_CHARS, 0) : end][::-1])
    if match is None:
        return None
    start = end - match.end()
    key = match["key"][::-1]
    if key.lower() == "key":
        before = text[max(start - _WORD_CHARS, 0) : start]
        if before.endswith(" ") and (word := before.split()[-1:]) and word[0].isalpha():
            key = f"{word[0]} {key}"
    # In JSON the name after `\n` seems to begin with the n.
    if text[start - 1 : start] == "\\" and key[0] in "nrt" and key[1:]:
        start, key = start + 1, key[1:]
    is_tight = separator[0] == "=" and not match["space"]
    return _Name(key, match["quote"][::-1], start, is_tight)


def _region(text: str, position: int) -> tuple[int, int] | None:
    """Return the brackets or the indented block at the position, to some 4,000 characters."""
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


def _random_words(text: str, begin: int, end: int, work: Work) -> Iterator[Span]:
    for word in compiled(_WORD_IN_REGION).finditer(text, begin, end):
        if work.is_too_much(word.start()):
            yield word.start(), end, unchecked(end - word.start())
            return
        if is_secret_value(word[0], WEAK):
            yield *word.span(), REDACTED


class _Assignment(NamedTuple):
    """Reads what a text assigns to a name. Of a value, only the first characters are checked."""

    text: str
    name: _Name
    strength: int

    def values(self, position: int) -> Iterator[_Value]:
        """Yield the name's value, and one assigned after it, as in `password: str = "…"`.

        A header that contains no credentials comes first as a whole, then by its first word.
        """
        text, name = self.text, self.name
        header = None
        if not name.quote and not name.is_tight and name.key.lower() in _HEADERS:
            header = compiled(_HEADER).match(text, position, position + _HEADER_CHARS)
        if header is not None:
            end = header.end()
            line = text[position : min(end, position + 2 * MAX_CHECKED_CHARS)]
            is_cookie = "cookie" in name.key.lower() and compiled(_COOKIE).match(line)
            if is_cookie or self.strength == CERTAIN or _has_credentials(line):
                if end == position + _HEADER_CHARS:  # cut off by the limit of the search
                    end = _end_of(compiled(_HEADER), text, end)
                yield _Value(position, end, REDACTED, is_secret=True)
                return
            yield _Value(position, end, REDACTED, is_secret=False)
        for _ in range(_MAX_CHAINED):
            value = self.value(position)
            yield value
            position = _end_of(compiled(_ASSIGNED), text, value.end)
            if position == value.end:
                return

    def value(self, position: int) -> _Value:
        """Return the value that begins at the position."""
        text, name = self.text, self.name
        if text.startswith(REDACTED, position):
            return _Value(position, position + len(REDACTED), REDACTED, is_secret=False)
        opening = None
        if not text[position : position + 1].isdigit():
            opening = compiled(_QUOTE).match(text, position)
        if opening is not None:
            value = self.quoted_value(opening)
            if value is not None:
                return value
        limit = position + MAX_CHECKED_CHARS
        bare = compiled(_BARE).match(text, position, limit)
        end = position if bare is None else bare.end()
        is_secret = False
        if end > position:
            is_secret = self.is_bare_secret(position, end)
            if is_secret and end == limit:
                end = _end_of(compiled(_BARE), text, end)
        return _Value(position, end, f"{name.quote}{REDACTED}{name.quote}", is_secret)

    def quoted_value(self, opening: re.Match[str]) -> _Value | None:
        """Return the value after a quote, or None if the quote opens nothing."""
        text = self.text
        begin = opening.end()
        end = _closing(text, opening, begin + _REGION_CHARS)
        is_open = end is None
        if end is None:
            if opening[3] != '"':  # an apostrophe may open nothing
                return None
            end = _end_of(compiled(_LINE), text, begin, begin + MAX_CHECKED_CHARS)
        checked_end = min(end, begin + MAX_CHECKED_CHARS)
        # The quote after `"password":` opens a value. After `password:` it may close the text.
        forms = DATA if self.name.quote else QUOTED
        is_secret = is_secret_value(text[begin:checked_end], self.strength, forms)
        if not is_secret:
            return _Value(begin, checked_end, REDACTED, is_secret=False)
        # Only for a secret, since a line may have megabytes and an open quote in every kilobyte.
        if is_open:
            end = _end_of(compiled(_LINE), text, begin)
        return _Value(begin, end, REDACTED, is_secret=True)

    def is_bare_secret(self, begin: int, end: int) -> bool:
        """Return whether a value without quotes is a secret, and not code."""
        text, name, strength = self
        value = text[begin:end].lstrip("'\"`")
        is_code = is_harmless(value, BARE) or (
            not name.is_variable and compiled(_CODE).search(value)
        )
        if strength != CERTAIN and (is_code or (value.isdigit() and len(value) < _MIN_DIGITS)):
            return False
        if strength == WEAK and not name.is_tight and not name.quote:
            return looks_random(value)  # not `token = Http2Token`
        if strength in (WEAK, CERTAIN) or looks_random(value):
            return is_secret_value(value, strength, BARE)
        if compiled(_NO_VALUE).fullmatch(value):
            before = text[max(name.start - 2, 0) : name.start].strip()
            is_argument = before.endswith(("(", ",")) or text.startswith((",", ")"), end)
            is_phrase = value.isalpha() and value.islower() and len(value) >= _MIN_PHRASE_CHARS
            return is_phrase or name.is_variable or (name.is_tight and not is_argument)
        # A placeholder with a number, such as `password: password1`, stays one.
        if (
            not name.is_tight
            and not value.isdigit()
            and is_harmless(value.rstrip("0123456789_"), BARE)
        ):
            return False
        return is_secret_value(value, strength, BARE)


def _closing(text: str, opening: re.Match[str], limit: int) -> int | None:
    """Return the start of the closing quote with its backslashes, or None if the limit is first."""
    position = opening.end()
    if opening["triple"]:
        end = text.find(3 * opening["mark"], position, limit)
        return None if end < 0 else end
    # In JSON within JSON, a quote inside the value has more backslashes than those around it.
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


def _has_credentials(line: str) -> bool:
    """Return whether a header's value contains a scheme with a word, or a random word."""
    if is_harmless(line, BARE):
        return False
    words = line.split()
    if len(words) <= 2:  # noqa: PLR2004
        return is_secret_value(words[-1], LIKELY, BARE)
    return any(looks_random(word) and not is_harmless(word, BARE) for word in words[:32])
