"""Read the servers in the configuration files of MCP hosts: `entries_in`.

Hosts agree on a command, arguments and variables, and on little else. This module finds the
servers in a file, gives their fields one name and one unit, and fills in variables as the host of
the file does. It checks no values. `ServerConfig` does that.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from llm_common.apps.gateway.configuration.known_hosts import HOSTS, Host, host_of
from llm_common.errors import ConfigError
from llm_common.runtime import read_named
from llm_common.text import one_line

_MAX_KEYS: Final = 6  # that an error names
_MAX_KEY_CHARS: Final = 40

_NAME: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_PREDEFINED: Final[Mapping[str, Callable[[], str]]] = {
    "workspaceFolder": lambda: str(Path.cwd()),
    "workspaceRoot": lambda: str(Path.cwd()),
    "cwd": lambda: str(Path.cwd()),
    "workspaceFolderBasename": lambda: Path.cwd().name,
    "userHome": lambda: str(Path.home()),
    "pathSeparator": lambda: os.sep,
    "/": lambda: os.sep,
}
# Names of a field in several hosts, each with the name here. The first one in an entry counts.
_ALIASES: Final = (
    ("httpUrl", "url"),  # Gemini CLI, Qwen Code
    ("serverUrl", "url"),  # Windsurf
    ("environment", "env"),  # opencode
    ("http_headers", "headers"),  # Codex
    ("transport", "type"),
)
# Names of limits in several hosts, with the name here, and the seconds of a 1.
_TIMEOUTS: Final = (
    ("startup_timeout_sec", "start_timeout_s", 1.0),
    ("startup_timeout_ms", "start_timeout_s", 0.001),
    ("discoveryTimeoutMs", "start_timeout_s", 0.001),
    ("tool_timeout_sec", "call_timeout_s", 1.0),
)
_TYPES: Final = {
    "local": "stdio",
    "remote": None,  # told apart by the address
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
}
_BEARER: Final = "bearer token"  # no name of a header
_ALLOWED: Final = ("enabled_tools", "includeTools", "tools")
_DENIED: Final = ("disabled_tools", "excludeTools", "disabledTools")
# Fields that change what a server may do. Without them it would run in another way than its host
# runs it, so it does not run at all.
_REFUSED: Final = {
    "envFile": "move its variables into env",
    "headersHelper": "write the header into headers",
    "http_headers_helper": "write the header into http_headers",
    "sandboxEnabled": "run the server from the host, which has a sandbox",
}


@dataclass(frozen=True, slots=True)
class HostEntries:
    """The servers of a file.

    Attributes:
        entries: The entry of each server as the host wrote it, by name.
        host: The host, which says how to read them.
        excluded: Names of servers that the file disables outside their entries.
    """

    entries: Mapping[str, Any]
    host: Host
    excluded: frozenset[str] = frozenset()


def entries_in(path: Path) -> HostEntries:
    """Return the servers of a host's file.

    Args:
        path: A JSON file, also with comments and trailing commas, or a TOML file.

    Raises:
        ConfigError: If the file cannot be read or parsed, or holds no servers.
    """
    return located(parsed(text_in(path), path), path)


def unusable(path: Path, problem: str) -> ConfigError:
    """Return the error for a file that cannot be used: the problem, and what to do."""
    return ConfigError(f"{path} {problem}", variable="config")


def text_in(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ConfigError: If the file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except OSError as exc:
        raise unusable(
            path, f"cannot be read ({exc.strerror}); name a file that you may read"
        ) from exc
    except UnicodeDecodeError as exc:
        raise unusable(path, f"is not UTF-8 at byte {exc.start}; save it as UTF-8") from exc


def parsed(text: str, path: Path) -> dict[str, Any]:
    """Return the parsed content of a file, whose name decides between TOML and JSON.

    Raises:
        ConfigError: If the text cannot be parsed, or is not an object.
    """
    text = text.removeprefix("\ufeff")  # Windows programs begin a file with it
    if not text.strip():
        return {}
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            # The rest of the message may quote the file, and so a secret.
            match = re.search(r"line \d+, column \d+|end of document", str(exc))
            position = match[0] if match else "somewhere"
            raise unusable(path, f"is not TOML: {position}; correct it") from exc
    document = _json(text, path)
    if not isinstance(document, dict):
        raise unusable(path, f"holds a JSON {type(document).__name__}, not an object with servers")
    return document


def _json(text: str, path: Path) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        strict = exc
    # Imported only for a file with comments or trailing commas, or with a mistake.
    import pyjson5  # noqa: PLC0415

    try:
        return pyjson5.decode(text)
    except (pyjson5.Json5Exception, RecursionError) as exc:
        # The strict parser may have stopped at a comment. The other one counts characters from 1.
        position = re.search(r"near (\d+)", str(exc))
        line = 1 + text.count("\n", 0, int(position[1]) - 1) if position else strict.lineno
        way_out = "close what begins in" if isinstance(exc, pyjson5.Json5EOF) else "correct"
        raise unusable(path, f"is not JSON, even with comments; {way_out} line {line}") from exc


def located(document: Mapping[str, Any], path: Path) -> HostEntries:
    """Return the servers in the content of a file, whose name and folder tell some formats apart.

    Raises:
        ConfigError: If it holds no servers.
    """
    mcp = document.get("mcp")
    if not isinstance(mcp, dict):
        mcp = {}
    host = host_of(document, path)
    entries = document[host.key] if host else None
    if host is not None and host.key == "mcp":
        # VS Code's settings have one more level than opencode.
        entries = mcp.get("servers", mcp)
    if host is None or not isinstance(entries, dict):
        names = [one_line(name, max_chars=_MAX_KEY_CHARS) for name in list(document)[:_MAX_KEYS]]
        content = f"has {', '.join(names)}" if names else "is empty"
        raise unusable(
            path,
            f'holds no MCP servers: it {content}. Add "mcpServers", or name a file with '
            '"servers", "mcp", "context_servers" or [mcp_servers]',
        )
    for entry in entries.values():
        # Only opencode writes these types, whatever its file is called.
        is_typed = isinstance(entry, dict) and entry.get("type") in ("local", "remote")
        if host.key == "mcp" and is_typed:
            host = HOSTS["opencode"]
    # Gemini CLI and Qwen Code leave servers out in their settings called `mcp`.
    allowed, excluded = mcp.get("allowed"), mcp.get("excluded")
    left_out = set(excluded) if isinstance(excluded, list) else set()
    if isinstance(allowed, list):
        left_out |= entries.keys() - set(allowed)
    return HostEntries(entries, host, frozenset(left_out))


def is_disabled(entry: object) -> bool:
    """Return whether a host's entry says that its server does not start."""
    if not isinstance(entry, dict):
        return False
    return entry.get("disabled") is True or entry.get("enabled") is False


def fields_of(entry: Mapping[str, Any], host: Host, *, where: str) -> dict[str, Any]:
    """Return an entry with the field names of `ServerConfig`, and with its variables filled in.

    Args:
        entry: The entry as the host wrote it.
        host: The host.
        where: A description of the position, for an error.

    Raises:
        ConfigError: If a variable is not set, or a field has an effect that is not available.
    """
    for name, remedy in _REFUSED.items():
        if entry.get(name):
            raise ConfigError(f"{where} uses {name}, which is not read; {remedy}", variable=name)
    fields: dict[str, Any] = expanded(dict(entry), host, where=where)
    for alias, name in _ALIASES:
        if alias in fields and name not in fields:
            fields[name] = fields.pop(alias)
            if alias == "httpUrl":
                fields.setdefault("type", "http")
    if not isinstance(fields.get("oauth"), dict):
        fields.pop("oauth", None)  # such as false, with which opencode starts no login
    command = fields.get("command")
    if isinstance(command, list) and command:  # opencode
        fields["command"], fields["args"] = command[0], command[1:]
    elif isinstance(command, dict):  # Zed, before 2026
        fields |= {"command": command.get("path"), "args": command.get("args") or []}
        fields["env"] = command.get("env") or {}
    _set_type(fields, host)
    _set_timeouts(fields, host)
    _set_rules(fields)
    _add_named_variables(fields, where)
    return fields


def _set_type(fields: dict[str, Any], host: Host) -> None:
    kind = fields.get("type")
    if isinstance(kind, str):
        kind = _TYPES.get(kind, kind)
    url = fields.get("url")
    if kind is None and isinstance(url, str) and url:
        kind = host.url_type
        # Hosts try both transports. The older one's addresses end in this by convention.
        if kind is None and url.partition("?")[0].rstrip("/").endswith("/sse"):
            kind = "sse"
    fields["type"] = kind


def _set_timeouts(fields: dict[str, Any], host: Host) -> None:
    """Set the seconds for a start and a call from the field names and units of hosts."""
    for alias, name, unit_s in _TIMEOUTS:
        if alias in fields:
            fields[name] = _seconds(fields.pop(alias), unit_s)
    timeout = fields.pop("timeout", None)
    if timeout is not None:
        fields["call_timeout_s"] = _seconds(timeout, host.timeout_unit_s)
        if host.limits_start:
            fields["start_timeout_s"] = fields["call_timeout_s"]


def call_timeout_of(entry: object, host: Host) -> float | None:
    """Return the seconds of a call in a host's entry, None without a valid limit."""
    fields = dict(entry) if isinstance(entry, dict) else {}
    _set_timeouts(fields, host)
    seconds = fields.get("call_timeout_s")
    return seconds if isinstance(seconds, int | float) else None


def _seconds(value: object, unit_s: float) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value  # the validation names it
    # Nobody gives a server less than a second, so a smaller number was meant in seconds.
    return value if value * unit_s < 1 else value * unit_s


def _set_rules(fields: dict[str, Any]) -> None:
    """Add the host's choice of a server's tools to the rules of the entry."""
    allowed, denied = _names(fields, _ALLOWED), _names(fields, _DENIED)
    rules = fields.get("llmCommon", {})
    if not isinstance(rules, dict):  # the validation names it
        return
    # An empty list of allowed tools allows none.
    if allowed is not None:
        rules = {"allow": allowed, **rules}
    own_denied = rules.get("deny", [])
    if denied and isinstance(own_denied, list):
        rules = {**rules, "deny": [*own_denied, *denied]}
    fields["llmCommon"] = rules


def _names(fields: Mapping[str, Any], keys: tuple[str, ...]) -> list[str] | None:
    for key in keys:
        names = fields.get(key)
        if isinstance(names, list):
            # `tool(arguments)` in Gemini CLI names the tool.
            return [str(name).partition("(")[0] for name in names]
    return None


def named_variables(entry: object) -> Iterator[tuple[str, str, str]]:
    """Yield what Codex reads from variables that an entry names.

    Each is a field of `ServerConfig`, a key in this field, and the name of the variable.
    """
    if not isinstance(entry, dict):
        return
    for variable in entry.get("env_vars") or ():
        name = str(variable.get("name") if isinstance(variable, dict) else variable)
        yield "env", name, name
    for header, name in (entry.get("env_http_headers") or {}).items():
        yield "headers", header, str(name)
    if token := entry.get("bearer_token_env_var"):
        yield "headers", _BEARER, str(token)


def _add_named_variables(fields: dict[str, Any], where: str) -> None:
    """Add the values of the variables that an entry names."""
    values: dict[str, dict[str, str]] = {"env": {}, "headers": {}}
    for field, key, name in named_variables(fields):
        if key == _BEARER:
            values[field]["Authorization"] = f"Bearer {_variable(name, None, where)}"
        # Codex leaves an empty header out.
        elif (value := read_named(name)) or (value is not None and field == "env"):
            values[field][key] = value
    if values["env"]:
        fields["env"] = values["env"] | fields.get("env", {})
    if values["headers"]:
        fields["headers"] = fields.get("headers", {}) | values["headers"]


def expanded(value: Any, host: Host, *, where: str) -> Any:
    """Return plain data with the variables in its texts replaced.

    Args:
        value: Lists, dicts and texts. Other values are returned unchanged.
        host: The host, which says how variables are written.
        where: A description of the position, for an error.

    Raises:
        ConfigError: If a variable is not set and has no default, or only its host can fill it in.
    """
    if isinstance(value, str):
        if host.variables is None:
            return value
        return host.variables.sub(lambda match: _replacement(match, where), value)
    if isinstance(value, list):
        return [expanded(item, host, where=where) for item in value]
    if isinstance(value, dict):
        return {key: expanded(item, host, where=f"{where}, {key}") for key, item in value.items()}
    return value


def _replacement(match: re.Match[str], where: str) -> str:
    reference = next(group for group in match.groups() if group is not None)
    if reference in _PREDEFINED:
        return _PREDEFINED[reference]()
    if name := _NAME.fullmatch(reference):
        return _variable(name[1], name[2], where)
    kind, _, key = reference.partition(":")
    if kind == "input":
        return _input(key, where)
    if kind in ("cmd", "command", "config", "file"):
        reason = f"{where} uses {kind}:, which only its host can fill in; name a variable instead"
        raise ConfigError(reason, variable=kind)
    return match[0]  # such as ${1} or ${a.b}, which is for the server


def _input(key: str, where: str) -> str:
    """Return the answer to a question of VS Code, which only VS Code can ask."""
    name = "INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_").upper()
    value = read_named(name)
    if value is None:
        reason = f"{where} needs the input {one_line(key, max_chars=_MAX_KEY_CHARS)}"
        raise ConfigError(f"{reason}; set the variable {name} to it", variable=name)
    return value


def _variable(name: str, default: str | None, where: str) -> str:
    value = read_named(name)
    if value is not None:
        return value
    if default is None:
        raise ConfigError(
            f"{where} needs the variable {name}, which is not set; set it, or write "
            f"${{{name}:-default}}",
            variable=name,
        )
    return default
