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

_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
# A number or word, or in JSON with comments a name without quotes.
_SCALAR: Final = re.compile(r"[^\s,:\[\]{}\"/]+")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_CLOSING: Final = {"{": "}", "[": "]"}
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
        parent = _object_at(text, keys[: depth - 1])
        if keys[depth - 1] not in parent.members:
            text = _inserted(text, parent, keys[depth - 1], {}, (unit, depth))
    for name, value in entries.items():
        container = _object_at(text, keys)
        member = container.members.get(name)
        if value is REMOVED:
            text = _removed(text, container, name) if member else text
        elif member:
            literal = _literal(value, (unit, len(keys) + 1))
            text = text[: member.value_start] + literal + text[member.end :]
        else:
            text = _inserted(text, container, name, value, (unit, len(keys) + 1))
    return text


@dataclass(frozen=True, slots=True)
class _Member:
    """The place of a member of an object: its name, its value, and what follows the value."""

    start: int
    value_start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    """The place of an object and of its members.

    `trailing_comma` says whether a comma follows the last member.
    """

    start: int
    end: int
    members: dict[str, _Member]
    trailing_comma: bool


def _object_at(text: str, keys: Sequence[str]) -> _Object:
    place = _read_object(text, _space_end(text, 0))
    for key in keys:
        place = _read_object(text, place.members[key].value_start)
    return place


def _read_object(text: str, start: int) -> _Object:
    members: dict[str, _Member] = {}
    position, trailing_comma = _space_end(text, start + 1), False
    while text[position] != "}":
        name_end = _value_end(text, position)
        name = text[position:name_end]
        value_start = _space_end(text, _space_end(text, name_end) + 1)
        end = _value_end(text, value_start)
        key = json.loads(name) if name.startswith('"') else name.strip("'")
        members[key] = _Member(position, value_start, end)
        position = _space_end(text, end)
        trailing_comma = text[position] == ","
        if trailing_comma:
            position = _space_end(text, position + 1)
    return _Object(start, position, members, trailing_comma)


def _value_end(text: str, start: int) -> int:
    """Return the end of the value or name that begins at a position."""
    closing: list[str] = []
    position = start
    while True:
        sign = text[position]
        if sign in _CLOSING:
            closing.append(_CLOSING[sign])
            position += 1
        elif closing and sign == closing[-1]:
            closing.pop()
            position += 1
        elif sign in ",:" and closing:
            position += 1
        else:
            match = _STRING.match(text, position) or _SCALAR.match(text, position)
            if match is None:
                return position
            position = match.end()
        if not closing:
            return position
        position = _space_end(text, position)


def _space_end(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _inserted(
    text: str, container: _Object, name: str, value: object, indent: tuple[str, int]
) -> str:
    """Return the text with a new last member of an object, on a line of its own.

    Args:
        text: The text.
        container: The place of the object.
        name: The name of the member.
        value: Its value.
        indent: The unit of the file's indentation, and how many of them the member gets.
    """
    unit, depth = indent
    key = json.dumps(name, ensure_ascii=False)
    member = f"\n{unit * depth}{key}: {_literal(value, indent)}"
    if not container.members:
        # Keeps a comment in an empty object.
        kept = text[container.start + 1 : container.end].rstrip()
        closing = f"\n{unit * (depth - 1)}{text[container.end :]}"
        return f"{text[: container.start + 1]}{kept}{member}{closing}"
    last = list(container.members.values())[-1]
    if container.trailing_comma:
        end = _space_end(text, last.end) + 1
        return f"{text[:end]}{member},{text[end:]}"
    return f"{text[: last.end]},{member}{text[last.end :]}"


def _literal(value: object, indent: tuple[str, int]) -> str:
    unit, depth = indent
    text = json.dumps(value, indent=unit, ensure_ascii=False)
    return text.replace("\n", f"\n{unit * depth}")


def _removed(text: str, container: _Object, name: str) -> str:
    names = list(container.members)
    index = names.index(name)
    member = container.members[name]
    after = _space_end(text, member.end)
    if text[after] == ",":
        # With the white space before it, so that no empty line stays.
        before = len(text[: member.start].rstrip())
        return text[:before] + text[after + 1 :]
    if index == 0:
        before = len(text[: member.start].rstrip())
        return text[:before] + text[member.end :]
    # The last member without a comma: the comma before it is removed too.
    previous = container.members[names[index - 1]]
    comma = _space_end(text, previous.end)
    kept = text[comma + 1 : member.start].rstrip()
    return text[: previous.end] + text[previous.end : comma] + kept + text[member.end :]
