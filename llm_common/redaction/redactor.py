"""`Redactor`: replaces secrets in text and data before they are stored, or shown to a model or a person.

A redactor recognises the names that secrets are assigned to, the forms in which they are written, and the shapes of
the keys of some 50 services (`patterns`). It is a filter, not a guarantee. Every step is linear in the text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import merge
from io import StringIO
from itertools import groupby

from llm_common.redaction.assignments import NamedSecrets
from llm_common.redaction.patterns import REDACTED, RULES, SHAPE_RULES, WINDOW_CHARS, Rule, Span
from llm_common.text.canonical import Json, encode_json, json_text, to_plain

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
# Lower-case literals; every name of a secret contains one.
_NAME_LITERALS = (
    *(b"key", b"token", b"secret", b"pass", b"pwd", b"sig", b"credential", b"cookie", b"auth", b"jwt", b"otp"),
    b"bearer",
)
_COMMON_LITERALS = frozenset({b"", b".", b"://"})  # found at once in most texts
_MAX_LITERAL_BYTES = 256  # by so much windows overlap
_MAX_NAME_CHARS = 64
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])(?<!22|5c|5C)")  # quotes and backslashes stay escaped
_ESCAPED_BYTES = re.compile(rb"\\u00[2-7]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MAX_CUT_CHARS = 512  # what a cut leaves of a secret may be too short to be recognised


def _any_of(literals: set[bytes]) -> re.Pattern[bytes]:
    """A pattern for the longest literal at each position."""
    # The engine tries the branches of an alternation in turn, so one branch for each first byte is four times faster.
    groups = groupby(sorted(literals - _COMMON_LITERALS, reverse=True), key=lambda literal: literal[:1])
    rests = ((re.escape(head), b"|".join(re.escape(literal[1:]) for literal in group)) for head, group in groups)
    return re.compile(b"|".join(b"%s(?:%s)" % rest for rest in rests))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """Replaces secrets by `[redacted]`; immutable, so that stores and threads can share one.

    Recognises values under the names of secrets, in data and in text (`api_key=…`, `"password": …`, `--token …`, YAML
    blocks, headers, query strings), passwords in URLs, `Bearer` and `Basic` credentials, private keys, JSON web tokens
    and the keys of some 50 services. Does not recognise a password in a sentence, `mysql -p…`, card numbers, or
    anything encrypted, compressed or encoded.

    Args:
        extra_patterns: Further secrets, as regular expressions. Replaces the group `secret` where a pattern has one,
            else the whole match. The caller answers for the time that a pattern takes.
        extra_keys: Further names of secrets, in any case and with any separators, such as `internal_pin`.
    """

    extra_patterns: tuple[str | re.Pattern[str], ...] = ()
    extra_keys: frozenset[str] | tuple[str, ...] = ()
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _named: Rule = field(init=False, repr=False, compare=False)
    _rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    _literal: re.Pattern[bytes] = field(init=False, repr=False, compare=False)
    _rules_by_literal: dict[bytes, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        extra_names = [words for key in self.extra_keys if (words := _words(key))]
        name_literals = (*_NAME_LITERALS, *(words[-1].encode() for words in extra_names))
        named = NamedSecrets(literals=name_literals, is_secret_key=self.is_secret_key)
        extra_rules = (Rule(re.compile(pattern), (b"",)) for pattern in self.extra_patterns)
        rules = (named, *RULES, *extra_rules)
        object.__setattr__(self, "_names", tuple("".join(words) for words in extra_names))
        object.__setattr__(self, "_named", named)
        object.__setattr__(self, "_rules", rules)
        object.__setattr__(self, "_literal", _any_of({literal for rule in rules for literal in rule.literals}))
        object.__setattr__(self, "_rules_by_literal", {})  # filled as literals are met

    def is_secret_key(self, key: str) -> bool:
        """Whether a name, in any case and with any separators, is one under which secrets are kept.

        True for `api_key`, `X-Api-Key`, `accessToken`, `client.secret`, `Set-Cookie`; False for `token_type`,
        `max_tokens`, `secretary`. Reads the last 64 characters of the name.
        """
        return _is_secret_key(key[-_MAX_NAME_CHARS:], self._names)

    def text(self, text: str) -> str:
        """The text with every secret replaced; JSON stays JSON."""
        return self._text(text, self._candidates(text.encode("utf-8", "surrogatepass")))

    def beginning(self, text: str, *, max_chars: int) -> str:
        """The beginning of a text, redacted, in at most `max_chars` characters.

        Also leaves out the part of a secret that the cut would leave at the end.
        """
        read = self.text(text[: max_chars + _MAX_CUT_CHARS])
        is_whole = len(text) <= max_chars + _MAX_CUT_CHARS
        return read[: max_chars if is_whole else min(max_chars, len(read) - _MAX_CUT_CHARS)]

    def shapes(self, text: str) -> str:
        """The text with the keys replaced that their shape alone gives away.

        Leaves alone what only a name or the words around it give away, so that source code stays source code.
        """
        candidates = self._candidates(text.encode("utf-8", "surrogatepass"))
        return _replaced(text, merge(*(rule.spans(text) for rule in candidates if rule in SHAPE_RULES)))

    def args(self, args: Mapping[str, object]) -> dict[str, Json]:
        """A plain copy of the arguments, redacted; see `data`.

        Raises:
            UnserialisableError: As for `to_plain`.
        """
        plain = to_plain(dict(args))
        redacted = self.data(plain, encoded=encode_json(plain).data)
        assert isinstance(redacted, dict)
        return redacted

    def data(self, plain: Json, *, encoded: bytes) -> Json:
        """Plain data, redacted: values under secret names and secrets in texts and keys are replaced.

        Structure and order stay, and so do None, true and false under any name. Returns the same object if no rule
        can match.

        Args:
            plain: The data; not changed.
            encoded: The same data as JSON.
        """
        candidates = self._candidates(encoded)
        return self._data(plain, candidates) if candidates else plain

    def _candidates(self, data: bytes) -> list[Rule]:
        """The rules that may match in a text, or in the strings of some JSON: those with a literal that occurs there.

        This pass takes 0.8 ms for 32 KB; all patterns would take 10 ms.
        """
        if _ESCAPED_BYTES.search(data):  # an escaped letter hides a literal
            return list(self._rules)
        data, position = data.lower(), 0
        found = {literal for literal in _COMMON_LITERALS if literal in data}
        while position < len(data):  # not `finditer`: one literal may begin within another
            if match := self._literal.search(data, position, position + WINDOW_CHARS):
                found.add(match[0])
            position = match.start() + 1 if match else position + WINDOW_CHARS - _MAX_LITERAL_BYTES
        for each in found.difference(self._rules_by_literal):
            self._rules_by_literal[each] = tuple(rule for rule in self._rules if each.startswith(rule.literals))
        return [*dict.fromkeys(rule for each in found for rule in self._rules_by_literal[each])]

    def _data(self, value: Json, candidates: list[Rule]) -> Json:
        if isinstance(value, str):
            return self._text(value, candidates)
        if isinstance(value, dict):
            return self._mapping(value, candidates)
        if isinstance(value, list):
            items = [self._data(item, candidates) for item in value]
            return self._without_flag_values(items) if self._named in candidates else items
        return value

    def _mapping(self, value: dict[str, Json], candidates: list[Rule]) -> dict[str, Json]:
        may_name = self._named in candidates
        redacted: dict[str, Json] = {}
        for key, item in value.items():
            shown = self._text(key, candidates)
            while shown in redacted and shown != key:  # two keys that were secrets
                shown += "'"
            is_secret = may_name and item is not None and not isinstance(item, bool) and self.is_secret_key(key)
            redacted[shown] = REDACTED if is_secret else self._data(item, candidates)
        return redacted

    def _without_flag_values(self, items: list[Json]) -> list[Json]:
        """The words of a command line, redacted after `--password` and other flags with the name of a secret."""
        for number, item in enumerate(items[:-1]):
            if isinstance(item, str) and item.startswith("--") and self.is_secret_key(item):
                items[number + 1] = REDACTED
        return items

    def _text(self, text: str, candidates: list[Rule]) -> str:
        if not candidates:
            return text
        if text.startswith(("{", "[")) and (inner := _parsed(text)) is not None:
            redacted = self._data(inner, candidates)
            return text if redacted == inner else json_text(redacted)
        if "\\u00" in text and (unescaped := _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)) != text:
            redacted_text = self._text(unescaped, candidates)
            return text if redacted_text == unescaped else redacted_text
        # The search spares most texts the merge; a long text is searched in windows at once.
        found = [rule.spans(text) for rule in candidates if len(text) > WINDOW_CHARS or rule.pattern.search(text)]
        return _replaced(text, merge(*found)) if found else text


DEFAULT_REDACTOR = Redactor()


def is_secret_key(key: str) -> bool:
    """`Redactor.is_secret_key` of the default redactor."""
    return DEFAULT_REDACTOR.is_secret_key(key)


@lru_cache(maxsize=4096)
def _words(key: str) -> tuple[str, ...]:
    """The words of a name in lower case, without a number at its end as in `token2`."""
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
    """The value of a text that is a JSON object or list; None for any other text."""
    with suppress(ValueError, RecursionError):
        value: Json = json.loads(text)
        return value
    return None


def _replaced(text: str, spans: Iterable[Span]) -> str:
    """The text with the spans replaced, which come in the order of their starts and may overlap."""
    parts = StringIO()  # joining a list of millions would block every other thread
    position = 0
    for begin, end, shown in spans:
        if begin >= position:
            parts.write(text[position:begin])
            parts.write(shown)
        position = max(position, end)
    parts.write(text[position:])
    return parts.getvalue()
