"""Change one entry of a JSON or TOML file, and keep the rest of the text: `with_entries`.

No kept Python package changes JSON with comments and leaves the rest as it is. So this module finds
the place of an entry in the text itself. Every change is checked: the new text, parsed, has to be
the old content with that change, or else the file is refused.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.apps.gateway.configuration.host_files import parsed
from llm_common.errors import ConfigError

# A string, a bracket, a comma or colon, and a number or word, or in JSON with comments a name
# without quotes. Space and comments precede a token. Possessive, because a line of slashes can be
# read as one comment or as many.
_TOKEN: Final = re.compile(
    r'(?:\s|//[^\n]*|/\*.*?\*/)*+("(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s,:\[\]{}"/]+|\Z)', re.DOTALL
)
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
REMOVED: Final = object()
"""The value of an entry that is taken out."""


def with_entries(text: str, keys: Sequence[str], entries: Mapping[str, Any], *, path: Path) -> str:
    """Return the text of a file with some entries of an object set or taken out.

    Args:
        text: The text of the file. An empty one counts as an empty object.
        keys: The path to the object, which is created if it does not exist.
        entries: The new values by name, `REMOVED` for an entry to take out.
        path: The file. Its name decides between JSON and TOML.

    Raises:
        ConfigError: If the text cannot be parsed, or cannot be changed without a side effect.
    """
    wanted = copy.deepcopy(parsed(text, path))
    container = wanted
    for key in keys:
        container = container.setdefault(key, {})
        if not isinstance(container, dict):
            raise _refusal(path)
    changes: dict[str, Any] = {}
    for name, value in entries.items():
        if container.get(name, REMOVED) == value:
            continue  # the text stays, with its indentation and comments
        changes[name] = value
        if value is REMOVED:
            del container[name]
        else:
            container[name] = value
    if not changes:
        return text
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    change = _changed_toml if path.suffix == ".toml" else _changed_json
    try:
        changed = mark + change(text.removeprefix(mark), keys, changes)
        is_wanted = parsed(changed, path) == wanted
    except (ConfigError, IndexError, KeyError, ValueError) as exc:
        # A form that this module does not know, such as a brace in single quotes.
        raise _refusal(path) from exc
    if not is_wanted:
        raise _refusal(path)
    return changed


def _refusal(path: Path) -> ConfigError:
    reason = f"{path} cannot be changed without touching the rest; add what --print shows yourself"
    return ConfigError(reason, variable="config")


def _changed_toml(text: str, keys: Sequence[str], entries: Mapping[str, Any]) -> str:
    import tomlkit  # noqa: PLC0415 - only a change of a TOML file needs it

    document = tomlkit.parse(text)
    container: Any = document
    for key in keys:
        if key not in container:
            container[key] = tomlkit.table(is_super_table=True)
        container = container[key]
    for name, value in entries.items():
        if value is not REMOVED:
            table = tomlkit.item(value)
            table.add(tomlkit.nl())  # an empty line before the next table
            container[name] = table
        elif name in container:
            del container[name]
    return tomlkit.dumps(document)


def _changed_json(text: str, keys: Sequence[str], entries: Mapping[str, Any]) -> str:
    match = _INDENT.search(text)
    unit = match[1] if match else "  "
    if not text.strip():
        text = "{}\n"
    for depth in range(1, len(keys) + 1):
        parent = _Object.at(text, keys[: depth - 1])
        if keys[depth - 1] not in parent.members:
            text = parent.with_member(keys[depth - 1], {}, (unit, depth))
    for name, value in entries.items():
        container = _Object.at(text, keys)
        if value is not REMOVED:
            text = container.with_member(name, value, (unit, len(keys) + 1))
        elif name in container.members:
            text = container.without(name)
    return text


@dataclass(frozen=True, slots=True)
class _Object:
    """An object in a text of JSON.

    Attributes:
        text: The whole text.
        tokens: The tokens of the text.
        start: The index of the brace that begins the object.
        end: The index of the brace that ends it.
        members: The index of the first token of each member, and of the token after it.
    """

    text: str
    tokens: Sequence[re.Match[str]]
    start: int
    end: int
    members: dict[str, tuple[int, int]]

    @classmethod
    def at(cls, text: str, keys: Sequence[str]) -> "_Object":
        """Return the object to which a path of keys leads."""
        tokens = [*_TOKEN.finditer(text)]
        place = cls._read(text, tokens, 0)
        for key in keys:
            # After the name and the colon.
            place = cls._read(text, tokens, place.members[key][0] + 2)
        return place

    @classmethod
    def _read(cls, text: str, tokens: Sequence[re.Match[str]], start: int) -> "_Object":
        members: dict[str, tuple[int, int]] = {}
        position = start + 1
        while tokens[position][1] != "}":
            first, name = position, tokens[position][1]
            position, depth = first + 2, 0
            while True:
                depth += (tokens[position][1] in "{[") - (tokens[position][1] in "}]")
                position += 1
                if depth == 0:
                    break
            key = json.loads(name) if name.startswith('"') else name.strip("'")
            members[key] = first, position
            if tokens[position][1] == ",":
                position += 1
        return cls(text, tokens, start, position, members)

    def with_member(self, name: str, value: object, indent: tuple[str, int]) -> str:
        """Return the text with a member set.

        Args:
            name: The name of the member.
            value: Its value.
            indent: The unit of the file's indentation, and how many of them the member gets.
        """
        unit, depth = indent
        literal = json.dumps(value, indent=unit, ensure_ascii=False)
        literal = literal.replace("\n", f"\n{unit * depth}")
        if name in self.members:
            first, after = self.members[name]
            start, end = self.tokens[first + 2].start(1), self.tokens[after - 1].end()
            return f"{self.text[:start]}{literal}{self.text[end:]}"
        member = f"\n{unit * depth}{json.dumps(name, ensure_ascii=False)}: {literal}"
        if not self.members:
            # Keeps a comment in an empty object.
            start, end = self.tokens[self.start].end(), self.tokens[self.end].start(1)
            kept = self.text[start:end].rstrip()
            closing = f"\n{unit * (depth - 1)}{self.text[end:]}"
            return f"{self.text[:start]}{kept}{member}{closing}"
        last = self.tokens[self.end - 1]
        if last[1] == ",":
            return f"{self.text[: last.end()]}{member},{self.text[last.end() :]}"
        return f"{self.text[: last.end()]},{member}{self.text[last.end() :]}"

    def without(self, name: str) -> str:
        """Return the text without a member, its comma, and the white space before it."""
        first, after = self.members[name]
        start = self.tokens[first].start(1)
        if self.tokens[after][1] == ",":
            return self.text[:start].rstrip() + self.text[self.tokens[after].end() :]
        before, end = self.tokens[first - 1], self.tokens[after - 1].end()
        head = self.text[: before.end()]
        if before[1] == ",":  # of the member before, which is now the last one
            head = self.text[: before.start(1)]
        return head + self.text[before.end() : start].rstrip() + self.text[end:]
