"""Put the gateway into a host's configuration, and take it out again: `plan_install`.

The servers of the host's file move into a file of the gateway, in the host's own format, and the
host gets one entry for the gateway. Taking it out moves them back.

No kept Python package changes JSON with comments and leaves the rest as it is. So this module finds
the place of an entry in the text itself. Every change is checked: the new text, parsed, has to be
the old content with that change, or else the file is refused.
"""

import difflib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llm_common.agents import Redactor
from llm_common.apps.gateway.configuration.gateway_config import ServerConfig, is_gateway, server_of
from llm_common.apps.gateway.configuration.host_files import (
    HostEntries,
    call_timeout_of,
    entries_in,
    is_disabled,
    located,
    named_variables,
    parsed,
    text_in,
    unusable,
)
from llm_common.apps.gateway.configuration.known_hosts import CALL_S, Host, Scope
from llm_common.errors import ConfigError
from llm_common.text import one_line

_MAX_REASON_CHARS: Final = 1_000
# A string, a bracket, a comma or colon, and a number or word, or in JSON with comments a name
# without quotes. Space and comments precede a token. Possessive, because a line of slashes can be
# read as one comment or as many.
_TOKEN: Final = re.compile(
    r'(?:\s|//[^\n]*|/\*.*?\*/)*+("(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s,:\[\]{}"/]+|\Z)', re.DOTALL
)
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
REMOVED: Final = object()
"""The value of an entry that is taken out."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file that is planned.

    Attributes:
        path: The file.
        before: Its text, or None if it does not exist.
        after: Its text after the change, or None if it is removed.
    """

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return the change as a unified diff, without the secrets that the redactor finds."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            f"{self.path}",
            f"{self.path}",
        )
        # A last line without a line break would run into the next one.
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        return Redactor().text(text)

    def apply(self) -> Path | None:
        """Write the file, and return the copy of the file as it was before, if there was one.

        Raises:
            ConfigError: If the file has changed since the plan, or cannot be written.
        """
        try:
            if _text(self.path) != self.before:
                raise unusable(self.path, "has changed in the meantime; run the command again")
            backup = None
            if self.before is not None:
                backup = _free_name(self.path)
                shutil.copy2(self.path, backup)
            if self.after is None:
                self.path.unlink(missing_ok=True)
            else:
                _write(self.path, self.after)
        except OSError as exc:
            raise unusable(
                self.path, f"cannot be written ({exc.strerror}); change its permissions"
            ) from exc
        return backup


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What `gateway install` or `uninstall` would do.

    Attributes:
        changes: The changed files, in the order in which they are written.
        moved: Names of servers that move from the host to the gateway, or back.
        kept: Servers that stay in the host's file, with the reason of each.
        entry: The gateway's entry, {} for `uninstall`.
        remote: Names of moved servers that are reached over HTTP and may need a login.
        servers_file: The gateway's file for the host's servers.
    """

    changes: tuple[FileChange, ...]
    moved: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    entry: Mapping[str, Any] = field(default_factory=dict)
    remote: tuple[str, ...] = ()
    servers_file: Path | None = None


def plan_install(
    host: Host, scope: Scope, *, config: Sequence[Path] = (), options: Sequence[str] = ()
) -> HostPlan:
    """Plan the gateway's entry in a host's file. Nothing is written.

    A second install changes nothing, or takes over the servers that were added to the host.

    Args:
        host: The host.
        scope: The user's file, or that of the working folder.
        config: Files with the gateway's servers. Empty to take over the servers of the host's file.
        options: Further options of `llm-common gateway`.

    Raises:
        ConfigError: If a file cannot be read, or there are no servers to serve.
    """
    path, servers_path = host.file(scope), host.servers_file(scope)
    text, servers_text = _text(path), _text(servers_path)
    entries = _entries(text or "", host.key, path)
    entry_name = host.entry_name(scope)
    old = entries.get(entry_name)
    kept: dict[str, str] = {}
    servers: dict[str, ServerConfig] = {}
    if not config:
        servers, kept = _servers_to_move(path, entries)
        if not servers and servers_text is None:
            reasons = "".join(f" ({name}: {why})" for name, why in kept.items())
            state = "does not exist" if text is None else "has no servers to take over"
            reason = f"{path} {state}{reasons}; name a file with --config"
            raise ConfigError(one_line(reason, max_chars=_MAX_REASON_CHARS), variable="config")
    elif old is not None and not _is_ours(old):
        raise unusable(path, f"has another server called {entry_name}; rename it")

    changes: list[FileChange] = []
    if servers:
        moved = {name: entries[name] for name in servers}
        after = with_entries(servers_text or "", host.key, moved, path=servers_path)
        changes.append(FileChange(servers_path, servers_text, after))
        servers_text = after
    files = [str(file.resolve()) for file in config] or [_as_argument(host, scope, servers_path)]
    served = [located(parsed(servers_text or "", servers_path), servers_path)] if not config else []
    served += [entries_in(file) for file in config]
    command = [_program(scope), "gateway"]
    for file in files:
        command += ["--config", file]
    if host.prefix:
        command += ["--host-prefix", host.prefix.replace("gateway", entry_name)]
    entry = _gateway_entry(host, served, [*command, *options])
    if isinstance(old, dict) and _is_ours(old):
        entry = _merged(old, entry, files, options)
    new: dict[str, Any] = {**dict.fromkeys(servers, REMOVED), entry_name: entry}
    after = with_entries(text or "", host.key, new, path=path)
    if after != text:
        changes.append(FileChange(path, text, after))
    remote = [name for name, server in servers.items() if server.may_need_login]
    return HostPlan(
        tuple(changes),
        moved=tuple(servers),
        kept=kept,
        entry=entry,
        remote=tuple(remote),
        servers_file=servers_path,
    )


def _gateway_entry(
    host: Host, served: Sequence[HostEntries], command: Sequence[str]
) -> dict[str, Any]:
    """Return the gateway's entry, which lets its slowest server answer in time."""
    limits_s = [float(CALL_S)]
    names: set[str] = set()
    for host_entries in served:
        for server in host_entries.entries.values():
            limits_s.append(call_timeout_of(server, host_entries.host) or 0.0)
            names |= {name for _, _, name in named_variables(server)}
    entry = host.entry(command, math.ceil(max(limits_s) / host.timeout_unit_s))
    if host.name == "codex" and names:
        # Codex passes only a few variables on, so the gateway needs those of the servers by name.
        entry["env_vars"] = sorted(names)
    return entry


def plan_uninstall(host: Host, scope: Scope) -> HostPlan:
    """Plan to take the gateway out of a host's file, and its servers back in.

    Raises:
        ConfigError: If a file cannot be read, or the host's file has no entry of the gateway.
    """
    path, servers_path = host.file(scope), host.servers_file(scope)
    text, servers_text = _text(path), _text(servers_path)
    entries = _entries(text or "", host.key, path)
    entry_name = host.entry_name(scope)
    if text is None or not _is_ours(entries.get(entry_name)):
        raise unusable(path, "has no entry of the gateway; try the other --scope")
    moved = _entries(servers_text or "", host.key, servers_path)
    back: dict[str, Any] = {}
    kept: dict[str, str] = {}
    for name, entry in moved.items():
        # A server may be called as the gateway's entry was.
        if name in entries and name != entry_name:
            kept[name] = "the host has another server of this name"
        else:
            back[name] = entry
    after = with_entries(text, host.key, {entry_name: REMOVED, **back}, path=path)
    changes = [FileChange(path, text, after)]
    if servers_text is not None:
        changes.append(FileChange(servers_path, servers_text, None))
    return HostPlan(tuple(changes), moved=tuple(back), kept=kept, servers_file=servers_path)


def _entries(text: str, key: str, path: Path) -> dict[str, Any]:
    entries = parsed(text, path).get(key)
    return entries if isinstance(entries, dict) else {}


def _servers_to_move(
    path: Path, entries: Mapping[str, Any]
) -> tuple[dict[str, ServerConfig], dict[str, str]]:
    """Return the servers that the gateway can run, and the reasons why others stay."""
    servers: dict[str, ServerConfig] = {}
    kept: dict[str, str] = {}
    if not entries:
        return servers, kept
    host_entries = entries_in(path)
    for name, entry in entries.items():
        if name in host_entries.excluded or is_disabled(entry):
            kept[name] = "it is disabled"
            continue
        try:
            server = server_of(entry, host_entries.host, f"server {name}")
        except ConfigError as exc:
            kept[name] = exc.message
            continue
        # Codex asks the user before calls of such a server's tools.
        if "default_tools_approval_mode" in entry or isinstance(entry.get("tools"), dict):
            kept[name] = "it has rules for approvals, which the gateway's entry would not have"
        elif not is_gateway(server):
            servers[name] = server
    return servers, kept


def _is_ours(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    command = entry.get("command")
    words = command if isinstance(command, list) else [command, *(entry.get("args") or ())]
    return is_gateway(ServerConfig(command=str(words[0]), args=tuple(map(str, words[1:]))))


def _merged(
    old: Mapping[str, Any], new: Mapping[str, Any], files: Sequence[str], options: Sequence[str]
) -> dict[str, Any]:
    """Return the gateway's entry with what the user added to it since the last install."""
    variables = {*old.get("env_vars", ()), *new.get("env_vars", ())}
    merged = {**old, **new}
    if variables:
        merged["env_vars"] = sorted(variables)
    words = [*(old.get("args") or ()), *(old["command"] if "args" not in old else ())]
    if not options and set(files) <= set(words):
        # Its options stay too.
        merged.update({name: old[name] for name in ("command", "args") if name in old})
    return merged


def _as_argument(host: Host, scope: Scope, path: Path) -> str:
    """Return the path of the servers' file for an entry, relative in a project that is shared."""
    if scope == "user":
        return str(path)
    relative = path.relative_to(Path.cwd()).as_posix()
    return f"${{workspaceFolder}}/{relative}" if host.name == "vscode" else relative


def _program(scope: Scope) -> str:
    if scope == "project":  # each user has it in another folder
        return "llm-common"
    # An absolute path, because hosts that a desktop starts have a short PATH.
    beside = shutil.which("llm-common", path=str(Path(sys.executable).parent))
    return beside or shutil.which("llm-common") or "llm-common"


def _text(path: Path) -> str | None:
    try:
        return text_in(path)
    except ConfigError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise


def _free_name(path: Path) -> Path:
    candidate, number = path.with_name(f"{path.name}.bak"), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.bak{number}")
    return candidate


def _write(path: Path, text: str) -> None:
    """Replace a file, so that a reader gets the old or the new text, and keep its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Servers' entries may hold secrets, so a new file is for this user only.
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.touch(mode=0o600, exist_ok=False)
    with temporary.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)


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
    return unusable(
        path, "cannot be changed without touching the rest; add what --print shows yourself"
    )


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
