"""Secrets out of text and arguments, before either is shown to a model or a person.

A filter, no proof: it knows the usual names and shapes of secrets. Every pattern runs in time linear in the text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from llm_common.agents.pointers.canonical import Json, to_plain

__all__ = ["REDACTED", "is_secret_key", "redact_args", "redact_text"]

REDACTED = "[redacted]"

_SECRET_WORDS = frozenset(
    (
        *("authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt", "passcode", "passphrase"),
        *("passwd", "password", "passwords", "pwd", "secret", "secrets", "sig", "signature"),
    )
)
_SECRET_ENDINGS = (
    *("accesskey", "apikey", "authkey", "authorization", "cookie", "credential", "credentials", "passwd", "password"),
    *("privatekey", "secret", "secretkey", "sessionkey", "signature", "signingkey", "token"),
)
_KEY_CHARS = 64
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PEM = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]{0,40}-----|\Z)"
_USERINFO = r"(?<=://)[^\s/?#\"'<>]*@"
_HEADER = r"(?i)((?:authorization|cookie)[\"']?\s{0,9}[:=]\s{0,9}[\"']?)[^\r\n\"']+"
_BEARER = r"(?i)\b(bearer\s{1,9})[^\s\"',;]+"
_BASIC = r"\b([Bb]asic\s{1,9})(?=[a-zA-Z+/_-]*[0-9A-Z=])[A-Za-z0-9+/_=-]{6,}"
_NAME = (
    r"(?:api|access|auth|private|secret|session|signing)[_\-. ]?key|token|secret|passw(?:or)?d|passphrase|signature"
    r"|credentials?|(?<![a-z0-9])(?:sig|pwd)"
)
_NAMED = (
    rf"(?i)((?:{_NAME})[\"']?\s{{0,9}}[:=]\s{{0,9}})(?!\[redacted\])"
    r"(?:\"(?:[^\"\\]|\\.)*+\"?|'[^']*'?|[^\s&,;\"'})\]]+)"
)
_IN_QUERY = r"(?i)([?&](?:key|auth|pass|code)=)[^&#\s\"']+"
_JWT = r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
_SERVICE_KEY = (
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{8,}|[sr]k_(?:live|test)_\w{8,}|gh[opsur]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{16,}|hf_\w{16,}|A[KS]IA[0-9A-Z]{16}|xox[a-z]-[\w-]{8,}|AIza[\w-]{30,})"
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern, what replaces it, and lower-case pieces without any of which it cannot match."""

    pattern: re.Pattern[str]
    replacement: str
    pieces: tuple[str, ...]


_RULES = (
    _Rule(re.compile(_PEM), REDACTED, ("-----begin",)),
    _Rule(re.compile(_JWT), REDACTED, ("eyj",)),
    _Rule(
        re.compile(_SERVICE_KEY),
        REDACTED,
        ("sk-", "k_live", "k_test", "gh", "glpat-", "hf_", "akia", "asia", "xox", "aiza"),
    ),
    _Rule(re.compile(_USERINFO), f"{REDACTED}@", ("://",)),
    _Rule(re.compile(_HEADER), rf"\1{REDACTED}", ("authorization", "cookie")),
    _Rule(re.compile(_BEARER), rf"\1{REDACTED}", ("bearer",)),
    _Rule(re.compile(_BASIC), rf"\1{REDACTED}", ("basic",)),
    _Rule(
        re.compile(_NAMED),
        rf"\1{REDACTED}",
        ("key", "token", "secret", "passw", "passphrase", "signature", "credential", "sig", "pwd"),
    ),
    _Rule(re.compile(_IN_QUERY), rf"\1{REDACTED}", ("key=", "auth=", "pass=", "code=")),
)


def is_secret_key(key: str) -> bool:
    """Whether a name, in any case and with any separators, is one under which secrets are kept.

    `api_key`, `X-Api-Key`, `accessToken`, `client.secret`, `Set-Cookie` are; `token_type`, `max_tokens`, `secretary`
    are not. Only the last 64 characters are looked at.
    """
    return _is_secret_key(key[-_KEY_CHARS:])


@lru_cache(maxsize=4096)
def _is_secret_key(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    return not _SECRET_WORDS.isdisjoint(words) or "".join(words).endswith(_SECRET_ENDINGS)


def redact_text(text: str) -> str:
    """The text with every secret that has a known shape or name replaced by `[redacted]`.

    Known are passwords in URLs, `Bearer` and `Basic` credentials, values after names such as `api_key=` or
    `"password":`, secrets in query strings, keys of well-known services, JSON web tokens and private keys in PEM form.
    """
    lowered = text.lower()
    for rule in _RULES:
        if any(piece in lowered for piece in rule.pieces):
            text = rule.pattern.sub(rule.replacement, text)
    return text


def redact_args(args: Mapping[str, object]) -> dict[str, Json]:
    """A plain copy of the arguments without values under secret names, at any depth, and without secrets in texts.

    Raises:
        UnserialisableError: As for `to_plain`.
    """
    return {key: _redacted(key, value) for key, value in _plain_args(args).items()}


def _plain_args(args: Mapping[str, object]) -> dict[str, Json]:
    plain = to_plain(dict(args))
    assert isinstance(plain, dict)
    return plain


def _redacted(key: str, value: Json) -> Json:
    if value is not None and is_secret_key(key):
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {name: _redacted(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [_redacted("", item) for item in value]
    return value
