"""Change one entry of a JSON or TOML file, and keep the rest of the text: `with_entries`.

No kept Python package changes JSON with comments and leaves the rest as it is. So this module finds
the place of an entry in the text itself. Every change is checked: the new text, parsed, has to be
the old content with that change, or else the file is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
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


def with_entries(text: str, key: str, entries: Mapping[str, Any], *, path: Path) -> str:
    """Return the text of a file with some entries of an object set or taken out.

    Args:
        text: The text of the file. An empty one counts as an empty object.
        key: The field with the object, which is created if it does not exist.
        entries: The new values by name, `REMOVED` for an entry to take out.
        path: The file. Its name decides between JSON and TOML.

    Raises:
        ConfigError: If the text cannot be parsed, or cannot be changed without a side effect.
    """
    content = parsed(text, path)
    before = content.get(key, {})
    if not isinstance(before, dict):
        raise _refusal(path)
    changes = {name: value for name, value in entries.items() if before.get(name, REMOVED) != value}
    if not changes:
        return text  # with its indentation and comments
    after = {**before, **changes}
    wanted = {**content, key: {name: after[name] for name in after if after[name] is not REMOVED}}
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    change = _changed_toml if path.suffix == ".toml" else _changed_json
    try:
        changed = mark + change(text.removeprefix(mark), key, changes)
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


def _changed_toml(text: str, key: str, entries: Mapping[str, Any]) -> str:
    import tomlkit  # noqa: PLC0415 - only a change of a TOML file needs it

    document = tomlkit.parse(text)
    if key not in document:
        document[key] = tomlkit.table(is_super_table=True)
    container: Any = document[key]
    for name, value in entries.items():
        if value is REMOVED:
            del container[name]
            continue
        table = tomlkit.item(value)
        table.add(tomlkit.nl())  # an empty line before the next table
        container[name] = table
    return tomlkit.dumps(document)


def _changed_json(text: str, key: str, entries: Mapping[str, Any]) -> str:
    match = _INDENT.search(text)
    unit = match[1] if match else "  "
    if not text.strip():
        text = "{}\n"
    if key not in _members([*_TOKEN.finditer(text)], 0)[0]:
        text = _with_members(text, 0, {key: {}}, (unit, 1))
    members, _ = _members([*_TOKEN.finditer(text)], 0)
    return _with_members(text, members[key][0] + 2, entries, (unit, 2))


def _members(tokens: Sequence[re.Match[str]], start: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Return the index of each member's name and of the token after its value, and of the end.

    Args:
        tokens: The tokens of a text.
        start: The index of the brace that begins the object.
    """
    members: dict[str, tuple[int, int]] = {}
    position = start + 1
    while tokens[position][1] != "}":
        first, name = position, tokens[position][1]
        position, depth = first + 2, 0  # behind the name and the colon
        while True:
            depth += (tokens[position][1] in "{[") - (tokens[position][1] in "}]")
            position += 1
            if depth == 0:
                break
        key = json.loads(name) if name.startswith('"') else name.strip("'")
        members[key] = first, position
        if tokens[position][1] == ",":
            position += 1
    return members, position


def _with_members(
    text: str, start: int, changes: Mapping[str, Any], indent: tuple[str, int]
) -> str:
    """Return a text with some members of an object set or taken out, and all its comments.

    Args:
        text: The text.
        start: The index of the token that begins the object.
        changes: The new values by name, `REMOVED` for a member to take out.
        indent: The unit of the file's indentation, and how many of them a member gets.
    """
    unit, depth = indent
    line_break = f"\n{unit * depth}"
    literals: dict[str, str] = {}
    for name, value in changes.items():
        if value is not REMOVED:
            literal = json.dumps(value, indent=unit, ensure_ascii=False)
            literals[name] = literal.replace("\n", line_break)
    tokens = [*_TOKEN.finditer(text)]
    members, end = _members(tokens, start)
    pieces: list[str] = []
    # What stands between two members is kept, also beside one that is taken out.
    between, position = "", tokens[start].end()
    for name, (first, after) in members.items():
        begin, value_begin = tokens[first].start(1), tokens[first + 2].start(1)
        between += text[position:begin]
        position = tokens[after - 1].end()
        if changes.get(name) is REMOVED:
            between = between.rstrip()
        else:
            value = literals.pop(name, text[value_begin:position])
            pieces.append(f"{between}{text[begin:value_begin]}{value}")
            between = ""
        if tokens[after][1] == ",":
            between += text[position : tokens[after].start(1)]
            position = tokens[after].end()
    for name, literal in literals.items():
        pieces.append(f"{line_break}{json.dumps(name, ensure_ascii=False)}: {literal}")
    between += text[position : tokens[end].start(1)]
    if not members:
        between = f"{between.rstrip()}\n{unit * (depth - 1)}"
    trailing = ""
    if pieces and tokens[end - 1][1] == ",":
        trailing = ","
    body = ",".join(pieces)
    return f"{text[: tokens[start].end()]}{body}{trailing}{between}{text[tokens[end].start(1) :]}"
