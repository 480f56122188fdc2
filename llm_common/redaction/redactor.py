"""`Redactor`: replaces secrets in text and data before they are stored, or shown to a model or a person.

A redactor recognises the names that secrets are assigned to, the forms in which they are written,
and the shapes of the keys of some 50 services (`patterns`). It is a filter, not a guarantee. Every
step is linear in the text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from io import StringIO
from itertools import groupby, pairwise

from llm_common.redaction.assignments import NamedSecrets
from llm_common.redaction.name_strength import (
    LIKELY,
    NAME_LITERALS,
    STRONG,
    WEAK,
    name_strength,
    words_of,
)
from llm_common.redaction.patterns import (
    FORM_RULES,
    REDACTED,
    SHAPE_RULES,
    WINDOW_CHARS,
    Rule,
    Span,
)
from llm_common.redaction.secret_values import is_secret_number, is_secret_value
from llm_common.text.canonical import Json, encode_json, json_text, to_plain

# quotes and backslashes stay escaped
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])(?<!22|5c|5C)")
_MAX_CUT_CHARS = 512  # what a cut leaves of a secret may be too short to be recognised
_MIN_SHAPE_CHARS = 16
_MAX_LITERAL_BYTES = 256  # by so much windows overlap
_KEY_RULES = tuple(
    rule for rule in SHAPE_RULES if rule.literals in (("PRIVATE KEY",), ("Private-Lines",))
)
_SHAPE_CHARS = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.%~:$"
)
_SHAPE_TABLE = bytes(each if each in _SHAPE_CHARS else 32 for each in range(256))
_LONG_TABLE = bytes(97 if each in _SHAPE_CHARS else 32 for each in range(256))
_LONG = b"a" * _MIN_SHAPE_CHARS
_NAME_KEYS = frozenset(
    ("name", "key", "header", "field", "param", "parameter", "variable", "k", "id")
)
_VALUE_KEYS = frozenset(("value", "Value", "VALUE", "val", "v", "content"))
_PASSWORD_COMMANDS = frozenset(("docker", "mongosh", "podman", "sshpass"))
_USER_FLAGS = frozenset(("-u", "--user", "--proxy-user"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """Replaces secrets by `[redacted]`; immutable, so that stores and threads can share one.

    Recognises values under the names of secrets, in data and in text, if they look like secrets:
    how much, depends on the name. Recognises passwords in URLs and command lines, `Bearer` and
    `Basic` credentials, private keys, JSON web tokens and the keys of some 100 services.
    `docs/secrets.md` says what is known and what is not. Does not recognise a password in a
    sentence, card numbers, or anything encrypted, compressed or encoded.

    Args:
        extra_patterns: Further secrets, as regular expressions. Replaces the group `secret` where a
            pattern has one, else the whole match. The caller answers for the time that a pattern
            takes.
        extra_keys: Further names of secrets, in any case and with any separators, such as
            `internal_pin`.
    """

    extra_patterns: tuple[str | re.Pattern[str], ...] = ()
    extra_keys: frozenset[str] | tuple[str, ...] = ()
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _named: Rule = field(init=False, repr=False, compare=False)
    _extra: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    _name_literals: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        extra_names = [words for key in self.extra_keys if (words := words_of(key))]
        name_literals = (*NAME_LITERALS, *(words[-1] for words in extra_names))
        object.__setattr__(self, "_names", tuple("".join(words) for words in extra_names))
        object.__setattr__(
            self, "_named", NamedSecrets(literals=name_literals, strength=self._strength)
        )
        object.__setattr__(
            self, "_name_literals", tuple(literal.encode() for literal in name_literals)
        )
        object.__setattr__(
            self, "_extra", tuple(Rule(re.compile(each), ("",)) for each in self.extra_patterns)
        )

    def is_secret_key(self, key: str) -> bool:
        """Whether a name, in any case and with any separators, is one under which secrets are kept.

        True for `api_key`, `X-Api-Key`, `accessToken`, `client.secret`, `Set-Cookie`; False for
        `token_type`, `max_tokens`, `secretary`. Reads the last 64 characters of the name.
        """
        return self._strength(key) > 0

    def is_secret(self, key: str, value: object) -> bool:
        """Whether a value under a name is a secret: a text that looks like one, as much as the name demands; a PIN.

        False for an object or a list, whose parts are checked each.
        """
        strength = self._strength(key)
        if not strength:
            return False
        if isinstance(value, str):
            return is_secret_value(value, strength)
        return isinstance(value, int | float) and is_secret_number(value, strength, key)

    def text(self, text: str) -> str:
        """The text with every secret replaced; JSON stays JSON."""
        return self._text(text, self._candidates(text.encode("utf-8", "surrogatepass")))

    def beginning(self, text: str, *, max_chars: int) -> str:
        """The beginning of a text, redacted, in at most `max_chars` characters.

        Also leaves out the part of a secret that the cut would leave at the end.
        """
        read = self.text(text[: max_chars + _MAX_CUT_CHARS])
        is_whole = len(text) <= max_chars + _MAX_CUT_CHARS
        return read[: max_chars if is_whole else max(min(max_chars, len(read) - _MAX_CUT_CHARS), 0)]

    def shapes(self, text: str) -> str:
        """The text with the keys replaced that their shape alone gives away.

        Leaves alone what only a name or the words around it give away, so that source code stays
        source code.
        """
        found = [rule.spans(text) for rule in _shapes_in(text.encode("utf-8", "surrogatepass"))]
        return _replaced(text, merge(*found)) if found else text

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

        Structure and order stay, and so do None, true and false under any name. Returns the same
        object if no rule can match.

        Args:
            plain: The data; not changed.
            encoded: The same data as JSON.
        """
        candidates = self._candidates(encoded)
        return self._data(plain, candidates) if candidates else plain

    def _candidates(self, data: bytes) -> list[Rule]:
        """The rules that may match in a text, or in the strings of some JSON: those with a literal that occurs there.

        This pass takes 0.4 ms for 32 KB; all patterns would take 20 ms.
        """
        if b"\\u00" in data:  # an escaped letter hides a literal
            return [self._named, *FORM_RULES, *SHAPE_RULES, *self._extra]
        low = data.lower()
        found = [self._named] if any(literal in low for literal in self._name_literals) else []
        found += [rule for literal, rules in _forms() if literal in low for rule in rules]
        return [*dict.fromkeys(found), *_shapes_in(data), *self._extra]

    def _strength(self, key: str) -> int:
        return name_strength(key, self._names)

    def _data(self, value: Json, candidates: list[Rule], strength: int = 0) -> Json:
        """The value, redacted; `strength` is what the names above it say."""
        if isinstance(value, str):
            return (
                REDACTED
                if strength and is_secret_value(value, strength)
                else self._text(value, candidates)
            )
        if isinstance(value, dict):
            return self._mapping(value, candidates, strength)
        if isinstance(value, list):
            items = [self._data(item, candidates, strength) for item in value]
            return self._list(items)
        return value

    def _mapping(
        self, value: dict[str, Json], candidates: list[Rule], above: int
    ) -> dict[str, Json]:
        may_name = self._named in candidates
        redacted: dict[str, Json] = {}
        for key, item in value.items():
            shown = self._text(key, candidates)
            while shown in redacted and shown != key:  # two keys that were secrets
                shown += "'"
            strength = self._strength(key) if may_name else 0
            if strength and isinstance(item, int | float) and is_secret_number(item, strength, key):
                redacted[shown] = REDACTED
            else:
                inherited = min(strength, WEAK) if isinstance(item, dict) else strength
                redacted[shown] = self._data(item, candidates, max(inherited, min(above, WEAK)))
        return redacted if not may_name or _VALUE_KEYS.isdisjoint(value) else self._pair(redacted)

    def _pair(self, value: dict[str, Json]) -> dict[str, Json]:
        """`{"name": "API_KEY", "value": …}` and its like."""
        names = [
            item
            for key, item in value.items()
            if isinstance(item, str) and key.lower() in _NAME_KEYS
        ]
        for key, item in value.items():
            if key in _VALUE_KEYS and any(self.is_secret(name, item) for name in names):
                value[key] = REDACTED
        return value

    def _list(self, items: list[Json]) -> list[Json]:
        """The words of a command line after `--password` or `-u`; the value of a pair.

        The cells under a header.
        """
        for number, (item, following) in enumerate(pairwise(items)):
            if not isinstance(item, str) or not isinstance(following, str):
                continue
            if item.startswith("--") and self.is_secret(item, following):
                items[number + 1] = REDACTED
            elif (
                item in _USER_FLAGS
                and ":" in following
                and is_secret_value(following.partition(":")[2], LIKELY)
            ):
                items[number + 1] = f"{following.partition(':')[0]}:{REDACTED}"
            elif (
                item == "-p"
                and items[0] in _PASSWORD_COMMANDS
                and is_secret_value(following, STRONG)
            ):
                items[number + 1] = REDACTED
            elif len(items) == 2 and (strength := self._strength(item)):  # noqa: PLR2004
                items[1] = (
                    REDACTED if is_secret_value(following, min(strength, LIKELY)) else following
                )
        return items

    def _text(self, text: str, candidates: list[Rule]) -> str:
        if not candidates:
            return text
        if text.startswith(("{", "[")) and (inner := _parsed(text)) is not None:
            redacted = self._data(inner, candidates)
            return text if redacted == inner else json_text(redacted)
        if (
            "\\u00" in text
            and (unescaped := _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)) != text
        ):
            redacted_text = self._text(unescaped, candidates)
            return text if redacted_text == unescaped else redacted_text
        found = [rule.spans(text) for rule in candidates if rule.may_match(text)]
        return _replaced(text, merge(*found)) if found else text


DEFAULT_REDACTOR = Redactor()


def is_secret_key(key: str) -> bool:
    """`Redactor.is_secret_key` of the default redactor."""
    return DEFAULT_REDACTOR.is_secret_key(key)


@cache
def _forms() -> tuple[tuple[bytes, list[Rule]], ...]:
    """The rules of forms by their literals."""
    literals = dict.fromkeys(literal for rule in FORM_RULES for literal in rule.literals)
    return tuple(
        (each.encode(), [rule for rule in FORM_RULES if each in rule.literals]) for each in literals
    )


@cache
def _shape_literals() -> tuple[re.Pattern[bytes], dict[bytes, list[Rule]]]:
    """A pattern for the longest literal of a shape at each position, and the rules of each literal."""
    literals = {literal.encode() for rule in SHAPE_RULES for literal in rule.literals}
    rules = {
        each: [
            rule for rule in SHAPE_RULES if each.startswith(tuple(map(str.encode, rule.literals)))
        ]
        for each in literals
    }
    # The engine tries the branches of an alternation in turn, so one branch for each first byte is
    # four times faster.
    groups = groupby(sorted(literals, reverse=True), key=lambda literal: literal[:1])
    rests = (
        (re.escape(head), b"|".join(re.escape(literal[1:]) for literal in group))
        for head, group in groups
    )
    return re.compile(b"|".join(b"%s(?:%s)" % rest for rest in rests)), rules


def _shapes_in(data: bytes) -> list[Rule]:
    """The rules of shapes that may match: those with a literal in the words that are long enough for a key."""
    found = [rule for rule in _KEY_RULES if b"PRIVATE KEY" in data or b"Private-Lines" in data]
    if _LONG not in data.translate(_LONG_TABLE):
        return found
    long = b" ".join(
        word for word in data.translate(_SHAPE_TABLE).split() if len(word) >= _MIN_SHAPE_CHARS
    )
    pattern, rules = _shape_literals()
    position = 0
    literals = set()
    while position < len(long):  # not `finditer`: one literal may begin within another
        if match := pattern.search(long, position, position + WINDOW_CHARS):
            literals.add(match[0])
        position = match.start() + 1 if match else position + WINDOW_CHARS - _MAX_LITERAL_BYTES
    return [*dict.fromkeys([*found, *(rule for literal in literals for rule in rules[literal])])]


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
