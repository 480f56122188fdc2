"""The rules by which secrets are found in text: the forms in which they are written down, and the shapes of keys."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from llm_common.redaction.assignments import Span
from llm_common.redaction.patterns import TOKEN_SHAPES, looks_random

__all__ = ["FORMS", "REDACTED", "TOKENS", "WINDOW_CHARS", "Rule"]

REDACTED = "[redacted]"

WINDOW_CHARS = 262_144
"""Characters that one step of a pattern reads, so that other threads get their turns."""

_OVERLAP = 65_536  # longer than any secret but those that have no end, which are read on


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, whose group `secret` is replaced if it has one, and lower-case literals that stand in every match."""

    expression: str | re.Pattern[str]
    pieces: tuple[bytes, ...]
    accepts: Callable[[str], bool] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a text first holds one of the literals, since few texts ever do."""
        return _compiled(self.expression)

    def spans(self, text: str) -> Iterator[Span]:
        """Every match of the text, window by window; a match that reaches the end of its window is read on."""
        pattern, position = self.pattern, 0
        for window in range(0, len(text), WINDOW_CHARS):
            end = min(window + WINDOW_CHARS + _OVERLAP, len(text))
            while position < end and (match := pattern.search(text, max(position, window), end)):
                if match.end() == end < len(text):
                    match = pattern.match(text, match.start()) or match
                position = max(match.end(), match.start() + 1)
                begin, finish = match.span("secret" if "secret" in pattern.groupindex else 0)
                if self.accepts is None or self.accepts(text[begin:finish]):
                    yield begin, finish, REDACTED


def _has_digit_or_length(text: str) -> bool:
    return len(text) >= 16 or any(map(str.isdigit, text))  # noqa: PLR2004 - "bearer of news" is no credential


def _rule(expression: str, *pieces: str, accepts: Callable[[str], bool] | None = None) -> Rule:
    return Rule(expression, tuple(piece.encode() for piece in pieces), accepts)


_compiled = lru_cache(maxsize=None)(re.compile)


# Sources: RFC 7468 and PuTTY's appendix C (private keys), 7519 and 7516 (tokens), 3986 (URLs), 6750 and 7617 (bearer,
# basic); curl(1), netrc(5); Telegram's and Discord's developer pages; the pages named in `secret_shapes`.
FORMS = (
    _rule(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        "private key",
    ),
    _rule(r"Private-Lines: \d{1,4}[\r\n\\rn]{1,6}(?P<secret>[A-Za-z0-9+/=\r\n\\]+)", "private-lines"),
    _rule(r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+){1,4}", "eyj", accepts=lambda t: "." in t),
    _rule(r"://(?P<secret>[^\s/?#\"'<>\\@]*+(?:@[^\s/?#\"'<>\\@]*+)*)@", "://"),
    _rule(r"://(?P<secret>[^\s/?#\"'<>:@]{0,100}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,128}+)@(?=[\w.-]+[:/?#])", "://"),
    _rule(r"(?i)bearer(?<![a-z0-9]bearer)\s{1,9}(?P<secret>[\w.~+/=-]{6,}+)", "bearer", accepts=_has_digit_or_length),
    _rule(
        r"(?i)basic(?<![a-z0-9]basic)\s{1,9}(?P<secret>[A-Za-z0-9+/_-]{6,}+={0,2})",
        "basic",
        accepts=lambda text: text.endswith("=") or (looks_random(text) and any(map(str.isdigit, text))),
    ),
    _rule(r"(?i)[?&](?:key|auth|pass|code)=(?P<secret>[^&#\s\"']+)", "key=", "auth=", "pass=", "code="),
    _rule(
        r"(?:-u|--user|--proxy-user)(?<![\w-](?:-u))(?:[ =]|\s?[\"'])[\"']?[^\s:\"']{0,100}+:(?!\d{1,9}(?!\S))"
        r"(?P<secret>[^\s\"']+)",
        "-u",
    ),
    _rule(r"\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(?P<secret>\S+)", "login"),
)
TOKENS = (
    _rule(r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,}", ":aa"),
    _rule(r"[MNO](?<![\w-][MNO])[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", ".", accepts=looks_random),
    _rule(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}", ".atlasv1."),
    _rule(r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\w)", "-us"),
    *(
        _rule(shape.expression(), *map(str.lower, shape.prefixes), accepts=looks_random if shape.random else None)
        for shape in TOKEN_SHAPES
    ),
)
