"""Describes secrets by the forms in which they are written and by the shapes of services' keys.

A shape is a few literal prefixes and a pattern for the rest. A pattern runs only where one of its
literals occurs, in time linear in the text. A secret without a shape (an AWS secret key, a Twilio
auth token, a password) is recognised by the name that it is assigned to; see `assignments`.

Card and account numbers stay: they authorise nothing alone, and most digits that pass their
checksum are something else. A caller can add a pattern for them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from llm_common.redaction.secret_values import (
    LIKELY,
    STRONG,
    WEAK,
    compiled,
    holds_user_and_password,
    is_secret_value,
    looks_random,
)
from llm_common.redaction.token_shapes import TOKEN_SHAPES, TokenShape

Span: TypeAlias = tuple[int, int, str]
"""A secret in a text: its start, its end, and its replacement."""


REDACTED = "[redacted]"

WINDOW_CHARS = 262_144
"""Characters that one search reads.

A regular expression blocks every other thread while it runs.
"""

_KEY_LINES_BACKWARDS = r"(?:[A-Za-z0-9+/=]|\s|[nr]\\)*+"
_MIN_KEY_CHARS = 16
_OVERLAP_CHARS = 65_536  # longer than any secret but a private key, which is read on


@dataclass(frozen=True, eq=False)
class Rule:
    """A pattern for secrets.

    Attributes:
        expression: The pattern. Its group `secret` is replaced if it has one, else the whole match.
        literals: Every match contains one, of names and forms in lower case. The empty literal
            occurs in every text.
        accepts: Whether a match is a secret; None accepts every match.
    """

    expression: str | re.Pattern[str]
    literals: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled on first use, since few texts ever contain one of the literals."""
        return compiled(self.expression) if isinstance(self.expression, str) else self.expression

    def may_match(self, text: str) -> bool:
        """Whether to search.

        The look spares most texts the merge. A long text is searched in windows at once.
        """
        return len(text) > WINDOW_CHARS or self.pattern.search(text) is not None

    def spans(self, text: str) -> Iterator[Span]:
        """The secrets in a text, in order. Searches in windows.

        A match at the end of its window is read on.
        """
        pattern, position = self.pattern, 0
        for window in range(0, len(text), WINDOW_CHARS):
            end = min(window + WINDOW_CHARS + _OVERLAP_CHARS, len(text))
            while position < end and (match := pattern.search(text, max(position, window), end)):
                if match.end() == end < len(text):
                    match = pattern.match(text, match.start()) or match
                position = max(match.end(), match.start() + 1)
                begin, finish = match.span("secret" if "secret" in pattern.groupindex else 0)
                if self.accepts is None or self.accepts(text[begin:finish]):
                    yield begin, finish, REDACTED


@dataclass(frozen=True, eq=False)
class SecondPage(Rule):
    """Finds the rest of a private key whose beginning was cut off: the lines before its last."""

    def spans(self, text: str) -> Iterator[Span]:
        """The rests of keys, in order."""
        position = 0
        while match := self.pattern.search(text, position):
            before = text[max(position, match.start() - _OVERLAP_CHARS) : match.start()]
            lines = compiled(_KEY_LINES_BACKWARDS).match(before[::-1])
            position = match.end()
            if lines is not None and len(lines[0].strip()) >= _MIN_KEY_CHARS:
                yield match.start() - lines.end(), match.end(), REDACTED


def alternation(literals: Iterable[str]) -> str:
    """Return an expression for the longest of some literals.

    The engine tries the branches of an alternation in turn, so one branch for each first letter is
    four times faster.
    """
    branches: list[str] = []
    for head, group in groupby(sorted(literals, reverse=True), key=lambda literal: literal[:1]):
        rests = "|".join([re.escape(literal[1:]) for literal in group])
        branches.append(f"{re.escape(head)}(?:{rests})")
    return "|".join(branches)


def _rule(expression: str, *literals: str, accepts: Callable[[str], bool] | None = None) -> Rule:
    return Rule(expression, literals, accepts)


def _of_shape(shape: TokenShape) -> Rule:
    """A rule for whole keys of a shape.

    The literal comes first, because the engine searches for it quickly.
    """
    starts: list[str] = []
    after_escape: list[str] = []  # a new line as JSON writes it, or a colour of a terminal
    for literal in map(re.escape, shape.prefixes):
        starts.append(rf"{literal}(?<![A-Za-z0-9]{literal})")
        after_escape.append(rf"{literal}(?:(?<=\\[nrt]{literal})|(?<=\dm{literal}))")
    expression = rf"(?:{'|'.join(starts + after_escape)})(?:{shape.rest})"
    return Rule(expression, shape.prefixes, _is_random_key if shape.random else None)


def _is_random_key(text: str) -> bool:
    """Whether a key with a known beginning is random, unlike `sk-container-class`."""
    return looks_random(text) or (
        any(map(str.isdigit, text)) and compiled(r"[A-Za-z0-9]{16}").search(text) is not None
    )


def _has_key_body(text: str) -> bool:
    """Whether a private key, or what is left of one, stands after its first line.

    Source code may go on there.
    """
    begin = text.index("-----", 1) + len("-----")
    body = text[begin : begin + 2_000].partition("-----")[0]
    if any(map(looks_random, compiled(r"[A-Za-z0-9+/=]{16,}").findall(body))):
        return True
    return compiled(r"(?s)(?=.*\d)(?:[A-Za-z0-9+/=\s]|\\[nr]){16,}").fullmatch(body) is not None


def _is_user_info(text: str) -> bool:
    """Return whether the part of a URL before `@` has a password, or a random name."""
    user, colon, password = text.partition(":")
    return is_secret_value(password, STRONG) if colon else looks_random(user)


def _is_random(text: str) -> bool:
    return is_secret_value(text, WEAK)


def _is_secret(text: str) -> bool:
    return is_secret_value(text, STRONG)


def _is_likely(text: str) -> bool:
    return is_secret_value(text, LIKELY)


_BEGIN_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END_KEY = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_LOGIN_FLAGS = (
    r"\b(?:(?:docker|podman|oc|az)[\"', ]{1,4}login\b|sshpass|mongo|mongosh|mongodump)"
    r"(?=[ \"'])[^\n|;]{0,100}?"
    r"[\s\"']-p[\s\"',]{0,4}(?P<secret>[^\s\"']{3,}+)"
)

# Sources: RFC 7468 and PuTTY's appendix C (private keys), 7519 and 7516 (tokens), z.ai's and
# Telegram's and Discord's developer pages, HashiCorp's, Mailchimp's, MaxMind's, Microsoft Entra's
# and Azure Storage's; `token_shapes`.
SHAPE_RULES = (
    _rule(
        rf"{_BEGIN_KEY}(?s:.*?)(?:{_END_KEY}|\Z)",
        "PRIVATE KEY",
        accepts=_has_key_body,
    ),
    SecondPage(rf"{_END_KEY}", ("PRIVATE KEY",)),
    _rule(
        r"Private-Lines: \d{1,4}(?:\r|\n|\\[rn]){1,4}(?P<secret>[A-Za-z0-9+/=\r\n\\]{16,}+)",
        "Private-Lines",
    ),
    _rule(
        r"eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=%20eyJ)|(?<=%3DeyJ)|(?<=\\[nrt]eyJ))[A-Za-z0-9_-]{8,}+"
        r"(?:(?:\.|%2[Ee])[A-Za-z0-9_-]*+){1,4}",
        "eyJ",
        accepts=lambda text: "." in text or "%2" in text,
    ),
    _rule(
        r"[0-9a-f](?<![0-9A-Za-z].)[0-9a-f]{31}\.[A-Za-z0-9]{16}(?![A-Za-z0-9])",
        ".",
        accepts=looks_random,
    ),
    _rule(r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,}", ":AA"),
    _rule(r"[MNO](?<![\w-][MNO])[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", ".", accepts=looks_random),
    _rule(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}", ".atlasv1."),
    _rule(r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\w)", "-us"),
    _rule(r"(?<!\w)[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)", "_mmk"),
    _rule(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])", "Q~"),
    _rule(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==", "==", accepts=looks_random),
    *map(_of_shape, TOKEN_SHAPES),
)
"""Secrets that their shape alone gives away. Every match has 16 characters without a space."""

# Sources: RFC 3986 (URLs), 6750 and 7617 (bearer, basic); curl(1), netrc(5), the PostgreSQL manual
# (.pgpass), openssl-passphrase-options(1), and the manuals of the commands.
FORM_RULES = (
    _rule(
        r"://(?P<secret>[^\s/?#\"'<>\\@]*+(?:@[^\s/?#\"'<>\\@]*+)*)@", "://", accepts=_is_user_info
    ),
    _rule(
        r"://(?P<secret>[^\s/?#\"'<>:@]{0,100}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,128}+)@"
        r"(?=[\w.-]+[:/?#])",
        "://",
        accepts=_is_user_info,
    ),
    _rule(
        r"(?i)bearer(?<![a-z0-9]bearer)\s{1,9}(?P<secret>[\w.~+/=-]{6,}+)",
        "bearer",
        accepts=_is_random,
    ),
    _rule(
        r"(?i)basic(?<![a-z0-9]basic)\s{1,9}(?P<secret>[A-Za-z0-9+/_-]{6,}+={0,2})",
        "basic",
        accepts=holds_user_and_password,
    ),
    _rule(
        r"(?i)[?&](?:key|auth|pass|code)=(?P<secret>[^&#\s\"']+)",
        "?",
        "&",
        accepts=_is_random,
    ),
    _rule(
        r"(?:-u|--user|--proxy-user)(?<![\w-]-u)"
        r"(?:[ =]|\\{0,3}[\"'],\s?|\s?(?=\\{0,3}[\"']))\\{0,3}[\"']?"
        r"[^\s:\"'\\]{0,100}+:(?P<secret>[^\s\"'\\]+)",
        "-u",
        accepts=_is_likely,
    ),
    _rule(
        r"\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(?P<secret>\S+)", "login", accepts=_is_secret
    ),
    _rule(_LOGIN_FLAGS, "login", "sshpass", "mongo", accepts=_is_secret),
    _rule(
        r"\b(?:mysql|mariadb|mysqldump|mysqladmin)\b[^\n|;]{0,100}?\s-p(?P<secret>[^\s\"']{4,}+)",
        "mysql",
        "mariadb",
    ),
    _rule(
        r"\bredis-cli\b[^\n|;]{0,100}?\s(?:-a|--pass)\s{1,9}(?P<secret>[^\s\"']{4,}+)", "redis-cli"
    ),
    _rule(r"(?<=[\s\"'])pass:(?P<secret>[^\s\"']{4,}+)", "pass:", accepts=_is_secret),
    _rule(
        r"(?<![\w.*-])[\w.*-]{1,253}:(?:\d{4,5}|\*):[\w.*-]{1,63}:[\w.@*-]{1,63}:"
        r"(?P<secret>[^\s\"'&\\]{4,256})",
        ":5432:",
        ":*:",
        accepts=_is_secret,
    ),
)
