"""`Redactor`: replaces secrets in text and data before they are stored or shown.

A redactor recognises the names that secrets are assigned to, the forms in which they are written,
and the shapes of the keys of some 110 services (see `patterns`). It is a filter, not a guarantee.
Every step is linear in the text.

JSON texts are written again with other strings, and nothing else changed. A writer of JSON would
change numbers such as `0.10`, white space and escapes, and refuse NaN, which Python writes and
reads. A `dict` would keep only the last of two members with the same name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from io import StringIO
from itertools import chain, count, pairwise
from typing import Any

from llm_common.errors import ConfigError
from llm_common.redaction.assignments import NamedSecrets
from llm_common.redaction.patterns import (
    FORM_RULES,
    REDACTED,
    SHAPE_RULES,
    Rule,
    Work,
    unchecked,
)
from llm_common.redaction.secret_values import (
    LIKELY,
    NAME_LITERALS,
    STRONG,
    WEAK,
    is_secret_number,
    is_secret_value,
    name_strength,
    words_of,
)
from llm_common.text.canonical import Json, encode_json, json_text, to_plain

# A string, or a number or a constant.
_SCALAR = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s{}\[\]:,"]++')


class Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, with repeated names."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text, with `Members` for objects, or None for another text.

    Raises:
        RecursionError: If the text is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=Members)
    except ValueError:  # it only looks like JSON, or a number has too many digits
        return None


def with_changes(text: str, value: Any, changed: Any) -> str:
    """Return a JSON text with each name and scalar replaced that differs in a changed copy.

    Args:
        text: The text.
        value: Its value, from `read_json`.
        changed: The value with other names and scalars, and the same structure.
    """
    replacements: list[str | None] = []
    _add_replacements(replacements, value, changed)
    parts = StringIO()
    position = 0
    for token, replacement in zip(_SCALAR.finditer(text), replacements, strict=True):
        if replacement is not None:
            parts.write(text[position : token.start()])
            parts.write(replacement)
            position = token.end()
    parts.write(text[position:])
    return parts.getvalue()


def _add_replacements(replacements: list[str | None], value: Any, changed: Any) -> None:
    """Add the new JSON, or None if it stays, for each name and scalar in the order of the text."""
    if isinstance(value, Members):
        for (name, member), (changed_name, changed_member) in zip(value, changed, strict=True):
            _add_replacements(replacements, name, changed_name)
            _add_replacements(replacements, member, changed_member)
    elif isinstance(value, list):
        for item, changed_item in zip(value, changed, strict=True):
            _add_replacements(replacements, item, changed_item)
    elif changed is value or changed == value:  # NaN does not equal itself
        replacements.append(None)
    else:
        replacements.append(json_text(changed))


# Quotes and backslashes stay escaped.
_ESCAPED = re.compile(r"\\+u00([2-7][0-9a-fA-F])(?<!22|5c|5C)")
_ESCAPED_BYTES = re.compile(_ESCAPED.pattern.encode())
_ESCAPES = tuple(f"\\u00{digit}".encode() for digit in range(2, 8))
# A cut may leave so little of a secret that it is not recognised: read on, and drop the end.
_MAX_CUT_CHARS = 512
# The patterns of as many take as long on a short text as a search for all literals.
_FEW_RULES = 40
_SHORT_CHARS = 4_096
_MIN_SHAPE_CHARS = 16  # of the shortest key in `patterns`
_KEY_LITERALS = {"PRIVATE KEY", "Private-Lines"}
_KEY_RULES = [rule for rule in SHAPE_RULES if not _KEY_LITERALS.isdisjoint(rule.literals)]
_FORM_LITERALS = [(literal, rule) for rule in FORM_RULES for literal in rule.literals]
_SHAPE_LITERALS = [(literal, rule) for rule in SHAPE_RULES for literal in rule.literals]
_SHAPE_CHARS = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.%~:$"
)
_OTHER_CHARS = bytes(set(range(256)) - _SHAPE_CHARS)
# Two passes with `translate`: a regular expression for long words takes fifty times as long.
_SHAPE_TABLE = bytes.maketrans(_OTHER_CHARS, b" " * len(_OTHER_CHARS))
_LONG_TABLE = bytes.maketrans(bytes(_SHAPE_CHARS), b"a" * len(_SHAPE_CHARS))
_LONG = b"a" * _MIN_SHAPE_CHARS
_NAME_KEYS = frozenset(
    ("name", "key", "header", "field", "param", "parameter", "variable", "k", "id")
)
_VALUE_KEYS = frozenset(("value", "Value", "VALUE", "val", "v", "content"))
_PASSWORD_COMMANDS = frozenset(("docker", "mongosh", "podman", "sshpass"))
_USER_FLAGS = frozenset(("-u", "--user", "--proxy-user"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """Replaces secrets with `[redacted]`. Immutable, so that stores and threads can share one.

    Recognises values under the names of secrets, in data and in text. How much such a value must
    look like a secret depends on the name. Recognises passwords in URLs and command lines, `Bearer`
    and `Basic` credentials, private keys, JSON web tokens and the keys of some 110 services. Does
    not recognise a password in a sentence, card numbers, or encrypted, compressed or encoded data.
    `docs/secrets.md` lists both.

    Args:
        extra_patterns: Further secrets, as regular expressions. The group `secret` is replaced if a
            pattern has one, else the whole match. A slow pattern slows down every save.
        extra_keys: Further names of secrets, in any case and with any separators, such as
            `internal_pin`.

    Raises:
        ConfigError: If a name has no letter from a to z.
    """

    extra_patterns: tuple[str | re.Pattern[str], ...] = ()
    extra_keys: frozenset[str] | tuple[str, ...] = ()
    _names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _assignments: Rule = field(init=False, repr=False, compare=False)
    _extra: tuple[Rule, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names: list[str] = []
        literals = list(NAME_LITERALS)
        for key in self.extra_keys:
            words = words_of(key)
            if not words:
                raise ConfigError(
                    f"The name {key!r} in extra_keys has no letter from a to z, so it would "
                    "match nothing. Set extra_patterns for what it names",
                    variable="extra_keys",
                    value=key,
                )
            names.append("".join(words))
            literals.append(words[-1])
        extra = [Rule(re.compile(pattern), ("",)) for pattern in self.extra_patterns]
        assignments = NamedSecrets(literals=tuple(literals), strength=self._strength)
        # How to set a field of a frozen dataclass.
        object.__setattr__(self, "_names", tuple(names))
        object.__setattr__(self, "_assignments", assignments)
        object.__setattr__(self, "_extra", tuple(extra))

    def is_secret_key(self, key: str) -> bool:
        """Return whether a name is that of a secret, in any case and with any separators.

        True for `api_key`, `X-Api-Key`, `accessToken`, `client.secret` and `Set-Cookie`. False for
        `token_type`, `max_tokens` and `secretary`. Reads the last 64 characters of the name.
        """
        return self._strength(key) > 0

    def is_secret(self, key: str, value: object) -> bool:
        """Return whether a value under a name is a secret: a PIN, or a text that looks like one.

        How much a text must look like one depends on the name. False for an object or a list: their
        parts are checked instead.
        """
        strength = self._strength(key)
        if not strength:
            return False
        if isinstance(value, str):
            return is_secret_value(value, strength)
        return isinstance(value, int | float) and is_secret_number(value, strength, key)

    def text(self, text: str) -> str:
        """Return the text with every secret replaced. JSON stays JSON."""
        rules = self._candidate_rules(text.encode("utf-8", "surrogatepass"))
        return self._redact_text(text, _Scan(rules)) if rules else text

    def beginning(self, text: str, *, max_chars: int) -> str:
        """Return the beginning of a text, redacted, in at most `max_chars` characters.

        A secret that the cut would leave in part is left out.
        """
        redacted = self.text(text[: max_chars + _MAX_CUT_CHARS])
        end = max_chars
        if len(text) > max_chars + _MAX_CUT_CHARS:
            end = max(min(max_chars, len(redacted) - _MAX_CUT_CHARS), 0)
        return redacted[:end]

    def shapes(self, text: str) -> str:
        """Return the text with the keys replaced that are recognised by their shape alone.

        Keeps values that are recognised by a name or by the words around them, so that source code
        stays source code. The lines after a key of several lines keep their numbers.
        """
        rules = _shape_rules_for(text.encode("utf-8", "surrogatepass"))
        return _replace_matches(text, rules, Work(), keeps_lines=True) if rules else text

    def args(self, args: Mapping[str, object]) -> dict[str, Json]:
        """Return a plain copy of the arguments, redacted. See `data`.

        Raises:
            UnserialisableError: If a value has no JSON form.
        """
        redacted = self.data(to_plain(dict(args)))
        assert isinstance(redacted, dict)
        return redacted

    def data(self, plain: Json) -> Json:
        """Redact plain data: values under secret names, and secrets in texts and keys.

        Structure and order stay, and so do None, true and false under any name. Returns the same
        object if no rule can match, and does not change it.
        """
        rules = self._candidate_rules(encode_json(plain).data)
        return self._redact_value(plain, _Scan(rules)) if rules else plain

    def _candidate_rules(self, data: bytes) -> list[Rule]:
        """Return the rules that may match in a text or some JSON: those with a literal in it."""
        # This pass takes 0.4 ms for 32 KB. All patterns would take 20 ms.
        if _hides_letters(data):
            data = _ESCAPED_BYTES.sub(lambda escape: bytes([int(escape[1], 16)]), data)
            if _hides_letters(data):  # a backslash, or a part of another escape
                return [self._assignments, *FORM_RULES, *SHAPE_RULES, *self._extra]
        return self._rules_with_literals(data)

    def _rules_with_literals(self, data: bytes) -> list[Rule]:
        low = _searchable(data.lower())
        candidates: list[Rule] = []
        if any(literal in low for literal in self._assignments.literals):
            candidates.append(self._assignments)
        candidates += dict.fromkeys(rule for literal, rule in _FORM_LITERALS if literal in low)
        return [*candidates, *_shape_rules_for(data), *self._extra]

    def _strength(self, key: str) -> int:
        return name_strength(key, self._names)

    def _redact_value(self, value: Any, scan: "_Scan", strength: int = 0) -> Any:
        """Redact plain data, or a value of `read_json`. `strength` is what the names above say."""
        if isinstance(value, str):
            if strength and is_secret_value(value, strength):
                return REDACTED
            return self._redact_text(value, scan)
        if isinstance(value, dict):
            return dict(self._redact_members(value.items(), scan, strength))
        if isinstance(value, list):
            if isinstance(value, Members):
                return Members(self._redact_members(value, scan, strength))
            items = [self._redact_value(item, scan, strength) for item in value]
            return self._redact_list(items)
        return value

    def _redact_members(
        self, members: Iterable[tuple[str, Any]], scan: "_Scan", above: int
    ) -> list[tuple[str, Any]]:
        may_name = self._assignments in scan.rules
        redacted: list[tuple[str, Any]] = []
        names: set[str] = set()
        secret_keys = count(2)
        for key, item in members:
            name = redacted_key = self._redact_key(key, scan)
            while name in names and name != key:  # two keys that were secrets stay two
                name = f"{redacted_key} {next(secret_keys)}"
            names.add(name)
            strength = self._strength(key) if may_name else 0
            if strength and isinstance(item, int | float) and is_secret_number(item, strength, key):
                redacted.append((name, REDACTED))
                continue
            if isinstance(item, dict | Members):  # its own names say more about its values
                strength = min(strength, WEAK)
            strength = max(strength, min(above, WEAK))
            redacted.append((name, self._redact_value(item, scan, strength)))
        if may_name and not _VALUE_KEYS.isdisjoint(names):
            self._redact_pair(redacted)
        return redacted

    def _redact_key(self, key: str, scan: "_Scan") -> str:
        """Redact a key. The rows of a result have the same keys, so each is checked once."""
        if key in scan.harmless_keys:
            scan.work.begin_text(key)
            return key
        redacted = self._redact_text(key, scan)
        if redacted == key:
            scan.harmless_keys.add(key)
        return redacted

    def _redact_pair(self, members: list[tuple[str, Any]]) -> None:
        """Redact the value in pairs such as `{"name": "API_KEY", "value": …}`."""
        names: list[str] = []
        for key, item in members:
            if isinstance(item, str) and key.lower() in _NAME_KEYS:
                names.append(item)
        for index, (key, item) in enumerate(members):
            if key in _VALUE_KEYS and any(self.is_secret(name, item) for name in names):
                members[index] = (key, REDACTED)

    def _redact_list(self, items: list[Json]) -> list[Json]:
        """Redact a command line's words after `--password` or `-u`, and the value of a pair."""
        for index, (item, following) in enumerate(pairwise(items), 1):
            if not isinstance(item, str) or not isinstance(following, str):
                continue
            if item.startswith("--") and self.is_secret(item, following):
                items[index] = REDACTED
            elif item in _USER_FLAGS:
                user, _, password = following.partition(":")
                if is_secret_value(password, LIKELY):
                    items[index] = f"{user}:{REDACTED}"
            elif item == "-p" and items[0] in _PASSWORD_COMMANDS:
                if is_secret_value(following, STRONG):
                    items[index] = REDACTED
            elif len(items) == 2:  # noqa: PLR2004
                strength = min(self._strength(item), LIKELY)
                if strength and is_secret_value(following, strength):
                    items[1] = REDACTED
        return items

    def _redact_text(self, text: str, scan: "_Scan") -> str:
        """Redact a text as JSON if it is JSON, else as plain text."""
        scan.work.begin_text(text)
        redacted = None
        if text.startswith(("{", "[")):
            redacted = self._redact_json(text, scan)
        return self._redact_plain_text(text, scan) if redacted is None else redacted

    def _redact_json(self, text: str, scan: "_Scan") -> str | None:
        """Redact the names, strings and numbers of a JSON text. Other texts return None."""
        try:
            value = read_json(text)
            if value is None:
                return None
            redacted = self._redact_value(value, scan)
            return text if redacted == value else with_changes(text, value, redacted)
        except RecursionError:
            return None  # read as plain text, at any depth

    def _redact_plain_text(self, text: str, scan: "_Scan") -> str:
        """Redact what the rules match in a text, and unescape its letters if they match."""
        readable = text
        if "\\u00" in text:
            # Once: no parser reads what the characters of an escape would be escapes of.
            readable = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
        rules = self._matching_rules(readable, scan.rules)
        if not rules:
            return text
        if scan.work.is_over():
            return unchecked(len(text))
        redacted = _replace_matches(readable, rules, scan.work)
        return text if redacted == readable else redacted

    def _matching_rules(self, text: str, rules: list[Rule]) -> list[Rule]:
        """Return the rules of a scan that may match in one of its texts."""
        if len(rules) > _FEW_RULES and len(text) <= _SHORT_CHARS:
            # A result may have thousands of short texts, and a literal of every rule.
            rules = self._rules_with_literals(text.encode("utf-8", "surrogatepass"))
        return [rule for rule in rules if rule.may_match(text)]


@dataclass(frozen=True, slots=True)
class _Scan:
    """The rules that may match in a text or a result, their work, and the keys that they keep."""

    rules: list[Rule]
    work: Work = field(default_factory=Work)
    harmless_keys: set[str] = field(default_factory=set)


DEFAULT_REDACTOR = Redactor()


def _hides_letters(data: bytes) -> bool:
    """Return whether a letter may be escaped. JSON escapes most control characters alike."""
    return any(escape in data for escape in _ESCAPES)


def _searchable(data: bytes) -> str:
    """Return the bytes as a str, in which Python finds a literal five times as fast."""
    return data.decode("latin-1")


def _shape_rules_for(data: bytes) -> list[Rule]:
    """Return the rules of shapes with a literal in a word that is long enough for a key."""
    rules: list[Rule] = []
    if b"PRIVATE KEY" in data or b"Private-Lines" in data:
        rules += _KEY_RULES
    if _LONG not in data.translate(_LONG_TABLE):
        return rules
    words = data.translate(_SHAPE_TABLE).split()
    long = _searchable(b" ".join([word for word in words if len(word) >= _MIN_SHAPE_CHARS]))
    rules += [rule for literal, rule in _SHAPE_LITERALS if literal in long]
    return list(dict.fromkeys(rules))


def _replace_matches(
    text: str, rules: Sequence[Rule], work: Work, *, keeps_lines: bool = False
) -> str:
    """Replace the matches of the rules. They may overlap.

    With `keeps_lines`, the line feeds of a match follow at the end of the line in which it ends.
    Within that line, they could tear a string of source code apart.
    """
    parts = StringIO()  # joining a list of millions would block every other thread
    position = 0
    line_feeds = 0  # of matches, still to be written
    spans = [rule.spans(text, work) for rule in rules]
    matches = merge(*spans) if len(spans) > 1 else spans[0]
    for begin, end, replacement in chain(matches, [(len(text), len(text), "")]):
        if begin >= position:
            # From the character before, because the last match may end with its line.
            line_end = text.find("\n", position - 1, begin) + 1 if line_feeds else 0
            if line_end:
                parts.write(text[position:line_end])
                parts.write("\n" * line_feeds)
                position, line_feeds = line_end, 0
            parts.write(text[position:begin])
            parts.write(replacement)
        if keeps_lines:
            line_feeds += text.count("\n", max(begin, position), end)
        position = max(position, end)
    return parts.getvalue()
