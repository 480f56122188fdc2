"""`Redactor`: secrets out of text and data, before either is stored, or shown to a model or a person.

A filter, no proof: it knows the names that secrets stand under, the forms in which they are written down, and the
shapes that services give their keys (`secret_rules`). Every step takes time linear in the text.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import merge
from io import StringIO
from typing import NamedTuple

from pydantic_core import SchemaValidator, core_schema

from llm_common.redaction.assignments import Span, named_secrets
from llm_common.redaction.patterns import FORMS, REDACTED, TOKENS, WINDOW_CHARS, Rule
from llm_common.text.canonical import Json, encode_json, json_text, to_plain

__all__ = ["DEFAULT_REDACTOR", "REDACTED", "Active", "Redactor", "is_secret_key", "redact_text"]

_SECRET_WORDS = frozenset(
    (
        *("authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt", "otp", "passcode"),
        *("passphrase", "passwd", "password", "passwords", "pwd", "secret", "secrets", "sig", "signature"),
    )
)
_SECRET_ENDINGS = (
    *("accesskey", "accesstokens", "accountkey", "apikey", "apikeys", "authkey", "authorization", "authtokens"),
    *("clientkeydata", "cookie", "credential", "credentials", "encryptionkey", "functionskey", "masterkey", "passwd"),
    *("password", "privatekey", "secret", "secretkey", "sessionkey", "sharedkey", "signature", "signingkey", "sshkey"),
    *("subscriptionkey", "token"),
)
_NAME_PIECES = ("key", "token", "secret", "pass", "pwd", "sig", "credential", "cookie", "auth", "jwt", "otp", "bearer")
_KEY_CHARS = 64
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])(?<!22|5c|5C)")  # but for quotes and backslashes
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_RUN = re.compile(rb"[\w./:+-]{14,}+")  # the shortest token is longer

_LONGEST_CUT = 512  # characters of a secret that is too short to be known as one


def _numbered_pieces(rules: Iterable[Rule]) -> tuple[tuple[bytes, int], ...]:
    return tuple((piece, number) for number, rule in enumerate(rules) for piece in rule.pieces)


_TOKEN_PIECES = _numbered_pieces(TOKENS)
_COMMON = frozenset({b"", b"://", b"."})  # pieces that stand in most texts
_AFTER_DOTS = r"\.[a-z0-9_\x80-\U0010ffff-]{6}\.[a-z0-9_\x80-\U0010ffff-]{27}"  # in what has no piece but dots


def _any_of(pieces: Iterable[bytes], *more: str) -> str:
    return "|".join([*(re.escape(piece.decode()) for piece in sorted(pieces)), *more])


@lru_cache(maxsize=64)
def _finder(expression: str) -> Callable[[str], bool]:
    """Tells whether the expression matches anywhere in a text without half surrogate pairs.

    It is one of the regular expressions that pydantic brings: they look for all their pieces in one quick pass.
    """
    return SchemaValidator(core_schema.str_schema(pattern=expression, regex_engine="rust-regex")).isinstance_python


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """Replaces secrets by `[redacted]`; frozen, so that one may serve every store and thread.

    Known are values under the names of secrets, in data and in text (`api_key=…`, `"password": …`, `--token …`, YAML
    blocks, headers, query strings), passwords in URLs, `Bearer` and `Basic` credentials, private keys, JSON web tokens
    and the keys of some 50 services. Not known are a password that a sentence tells, `mysql -p…`, what is encrypted,
    packed or encoded, and card numbers.

    Args:
        extra_patterns: Further secrets, as regular expressions; the group `secret` of one is replaced, else the whole
            match. How long they take is their author's care.
        extra_keys: Further names of secrets, in any case and with any separators, such as `internal_pin`.
    """

    extra_patterns: tuple[str | re.Pattern[str], ...] = ()
    extra_keys: frozenset[str] | tuple[str, ...] = ()
    _names: tuple[str, ...] = field(init=False, repr=False)
    _forms: tuple[Rule, ...] = field(init=False, repr=False)
    _form_pieces: tuple[tuple[bytes, int], ...] = field(init=False, repr=False)
    _common_pieces: tuple[tuple[bytes, int], ...] = field(init=False, repr=False)
    _rare_piece: str = field(init=False, repr=False)
    _name_piece: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = tuple(filter(None, ("".join(_words(key)) for key in self.extra_keys)))
        pieces = (*_NAME_PIECES, *(_words(key)[-1] for key in self.extra_keys if _words(key)))
        extra = tuple(Rule(re.compile(pattern), (b"",)) for pattern in self.extra_patterns)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_name_piece", _any_of(piece.encode() for piece in pieces))
        object.__setattr__(self, "_forms", (*FORMS, *extra))
        form_pieces = _numbered_pieces(self._forms)
        rare = {piece for piece, _ in (*form_pieces, *_TOKEN_PIECES)} - _COMMON
        object.__setattr__(self, "_form_pieces", form_pieces)
        object.__setattr__(self, "_common_pieces", tuple(pair for pair in form_pieces if pair[0] in _COMMON))
        object.__setattr__(self, "_rare_piece", _any_of(rare, _AFTER_DOTS))

    def is_secret_key(self, key: str) -> bool:
        """Whether a name, in any case and with any separators, is one under which secrets are kept.

        `api_key`, `X-Api-Key`, `accessToken`, `client.secret`, `Set-Cookie` are; `token_type`, `max_tokens`,
        `secretary` are not. Only the last 64 characters are looked at.
        """
        return _is_secret_key(key[-_KEY_CHARS:], self._names)

    def text(self, text: str, *, active: "Active | None" = None) -> str:
        """The text with every secret replaced; one that is JSON stays JSON.

        Args:
            text: What to look at.
            active: What `active` gave for this text, or for several of which this is one; None asks it.
        """
        return self._text(text, active or self.active(text))

    def beginning(self, text: str, *, max_chars: int, active: "Active | None" = None) -> str:
        """The beginning of a text without its secrets, nor the piece of one that the cut would leave at its end."""
        read = self.text(text[: max_chars + _LONGEST_CUT], active=active)
        return read[: max_chars if len(text) <= max_chars + _LONGEST_CUT else min(max_chars, len(read) - _LONGEST_CUT)]

    def args(self, args: Mapping[str, object]) -> dict[str, Json]:
        """A plain copy of the arguments without their secrets; see `data`.

        Raises:
            UnserialisableError: As for `to_plain`.
        """
        plain = to_plain(dict(args))
        redacted = self.data(plain, encoded=encode_json(plain).data)
        assert isinstance(redacted, dict)
        return redacted

    def data(self, plain: Json, *, encoded: bytes, active: "Active | None" = None) -> Json:
        """Plain data without its secrets: keys and structure stay, values under secret names and in texts are replaced.

        The data itself when it holds none. None, true and false are no secrets under any name.

        Args:
            plain: The data, which is not changed.
            encoded: The same as JSON.
            active: What `active` gave for that, or for more; None asks it.
        """
        active = active or self.active(encoded)
        return self._data(plain, active) if active.rules or active.names else plain

    def active(self, *texts: str | bytes) -> "Active":
        """What could match anywhere in the texts, or in the values whose JSON they are: most cost this one look."""
        pieces = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts]
        data = b"\n".join(pieces)
        if b"\\" in data and rb"\u00" in data:  # letters may be written as escapes; the first look is quicker
            return self._all()
        forms, tokens, names = set[int](), set[int](), False
        for start in range(0, len(data), WINDOW_CHARS):
            window = data[start : start + WINDOW_CHARS + _LONGEST_CUT].lower()
            text = window.decode("utf-8", "replace")
            names = names or _finder(self._name_piece)(text)
            if _finder(self._rare_piece)(text):
                forms.update([number for piece, number in self._form_pieces if piece in window])
                runs = b"\n".join(_RUN.findall(window))
                tokens.update([number for piece, number in _TOKEN_PIECES if piece in runs])
            else:
                forms.update([number for piece, number in self._common_pieces if piece in window])
        rules = [self._forms[number] for number in sorted(forms)] + [TOKENS[number] for number in sorted(tokens)]
        return Active(rules, names, {})

    def _data(self, value: Json, active: "Active") -> Json:
        if isinstance(value, str):
            return self._text(value, active)
        if isinstance(value, dict):
            return self._mapping(value, active)
        if isinstance(value, list):
            items = [self._data(item, active) for item in value]
            return self._after_flags(items) if active.names else items
        return value

    def _mapping(self, value: dict[str, Json], active: "Active") -> dict[str, Json]:
        redacted: dict[str, Json] = {}
        for key, item in value.items():
            if key not in active.keys:
                active.keys[key] = self._text(key, active), active.names and self.is_secret_key(key)
            shown, secret = active.keys[key]
            while shown in redacted and shown != key:
                shown += "'"
            is_secret = secret and item is not None and not isinstance(item, bool)
            redacted[shown] = REDACTED if is_secret else self._data(item, active)
        return redacted

    def _after_flags(self, items: list[Json]) -> list[Json]:
        """The words of a command line without what follows `--password` and its like."""
        for number, item in enumerate(items[:-1]):
            if isinstance(item, str) and item.startswith("--") and self.is_secret_key(item):
                items[number + 1] = REDACTED
        return items

    def _text(self, text: str, active: "Active") -> str:
        if not (active.rules or active.names):
            return text
        if text.startswith(("{", "[")) and (inner := _parsed(text)) is not None:
            redacted = self._data(inner, self._all() if "\\u00" in text else active)
            return text if redacted == inner else json_text(redacted)
        if "\\u00" in text and (plainly := _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)) != text:
            redacted_text = self._text(plainly, active)
            return text if redacted_text == plainly else redacted_text
        found = [rule.spans(text) for rule in active.rules if len(text) > WINDOW_CHARS or rule.pattern.search(text)]
        if active.names and (":" in text or "=" in text or "--" in text):
            found += named_secrets(text, is_secret_key=self.is_secret_key, replacement=REDACTED)
        return _replaced(text, merge(*found)) if found else text

    def _all(self) -> "Active":
        return Active([*self._forms, *TOKENS], names=True, keys={})


class Active(NamedTuple):
    """What could match in some data, and what has become of its keys: how each is shown, and whether it is secret."""

    rules: list[Rule]
    names: bool
    keys: dict[str, tuple[str, bool]]


DEFAULT_REDACTOR = Redactor()


def is_secret_key(key: str) -> bool:
    """`Redactor.is_secret_key` of the default redactor."""
    return DEFAULT_REDACTOR.is_secret_key(key)


def redact_text(text: str) -> str:
    """`Redactor.text` of the default redactor."""
    return DEFAULT_REDACTOR.text(text)


@lru_cache(maxsize=4096)
def _words(key: str) -> tuple[str, ...]:
    """The words of a name in lower case; a number at its end, as in `token2`, is none."""
    words = [word.lower() for word in _WORD.findall(key)]
    while words and words[-1].isdigit():
        words.pop()
    return tuple(words)


@lru_cache(maxsize=4096)
def _is_secret_key(key: str, names: tuple[str, ...]) -> bool:
    words = _words(key)
    ends = "".join(words).endswith((*_SECRET_ENDINGS, *names))
    return not _SECRET_WORDS.isdisjoint(words) or ends or words == ("auth",)


def _parsed(text: str) -> Json:
    """What a text says that is a JSON object or list; None for any other text."""
    with suppress(ValueError, RecursionError):
        value: Json = json.loads(text)
        return value
    return None


def _replaced(text: str, spans: Iterable[Span]) -> str:
    """The text with each stretch, in the order of their starts, replaced once, however many rules found it."""
    parts = StringIO()  # not a list, whose joining would hold up every other thread
    position = 0
    for begin, end, shown in spans:
        if begin >= position:
            parts.write(text[position:begin])
            parts.write(shown)
        position = max(position, end)
    parts.write(text[position:])
    return parts.getvalue()
