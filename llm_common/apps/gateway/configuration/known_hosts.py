"""The hosts whose files the gateway reads, and into which `gateway install` writes: `HOSTS`."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from llm_common.errors import ConfigError
from llm_common.runtime import default_config_dir, read_named

Scope = Literal["user", "project"]

START_S: Final = 60
# The host's limit for a call. The limits of the servers themselves are shorter.
CALL_S: Final = 600

# `$NAME` or `${NAME}`, with or without a default: Gemini CLI and Qwen Code accept all three.
_DOLLAR: Final = re.compile(r"\$\{([^}]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_BRACED: Final = re.compile(r"\$\{([^}]*)\}")
# `{env:NAME}` and `{file:PATH}` of opencode.
_SINGLE: Final = re.compile(r"\{((?:env|file):[^}]*)\}")


def _home(variable: str = "", default: str = "") -> Path:
    return Path(read_named(variable) or Path.home() / default)


def _config_home() -> Path:
    if sys.platform == "win32":
        return _home("APPDATA", "AppData/Roaming")
    return _home("XDG_CONFIG_HOME", ".config")


def _application_home() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support"
    return _config_home()


def _stdio_entry(command: Sequence[str], _: int) -> dict[str, Any]:
    return {"type": "stdio", "command": command[0], "args": list(command[1:])}


def _codex_entry(command: Sequence[str], timeout: int) -> dict[str, Any]:
    return {
        "command": command[0],
        "args": list(command[1:]),
        # Without it, Codex sends its first request before the gateway has answered.
        "required": True,
        "startup_timeout_sec": START_S,
        "tool_timeout_sec": timeout,
    }


def _opencode_entry(command: Sequence[str], timeout: int) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True, "timeout": timeout}


def _timed_entry(command: Sequence[str], timeout: int) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), "timeout": timeout}


def _plain_entry(command: Sequence[str], _: int) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


@dataclass(frozen=True, slots=True)
class Host:
    """How a host writes its files, and what `gateway install` writes into them.

    Attributes:
        name: Its name, which is also the one on the command line.
        key: The field of its files with the servers.
        places: Globs of its files with their folders, if other hosts use the key too.
        variables: The pattern of variables in texts, or None if the host replaces none.
        timeout_unit_s: Seconds that 1 means in the host's limit for a call.
        url_type: The transport that an address without a type has. None for HTTP.
        limits_start: Whether `timeout` limits the start of a server too.
        home: Returns the folder of the user's files.
        user_files: The user's files there. The first that exists counts, else the last.
        project_files: The files of a project in its folder, likewise.
        prefix: What the host puts before the tool names of an entry called `gateway`.
        entry: Returns the entry for a command line and the limit for a call.
        fixed_name: The name of the gateway's entry, if it is the same in each scope.
    """

    name: str
    key: str
    places: tuple[str, ...] = ()
    variables: re.Pattern[str] | None = _BRACED
    timeout_unit_s: float = 0.001
    url_type: str | None = None
    limits_start: bool = False
    home: Callable[[], Path] = _home
    user_files: tuple[str, ...] = ()
    project_files: tuple[str, ...] = ()
    prefix: str = ""
    entry: Callable[[Sequence[str], int], dict[str, Any]] = _stdio_entry
    fixed_name: str = ""

    def entry_name(self, scope: Scope) -> str:
        """Return the name of the gateway's entry.

        The entries of a project replace those of the user that have the same name.
        """
        return self.fixed_name or ("gateway" if scope == "user" else "project-gateway")

    def file(self, scope: Scope) -> Path:
        """Return the host's file, which may not exist.

        Raises:
            ConfigError: If the host has no file in the scope.
        """
        candidates = [Path.cwd() / file for file in self.project_files]
        if scope == "user":
            candidates = [self.home() / file for file in self.user_files]
        if not candidates:
            reason = f"{self.name} has no file for a project; use --scope user"
            raise ConfigError(reason, variable="scope", value=scope)
        chosen = next((path for path in candidates if path.exists()), candidates[-1])
        # A link, such as one into a folder of dotfiles, stays a link.
        return chosen.resolve()

    def servers_file(self, scope: Scope) -> Path:
        """Return the gateway's file for servers that were taken over from this host."""
        folder = Path.cwd() / ".mcp-gateway"
        if scope == "user":
            folder = default_config_dir() / "gateway"
        # The name begins with the host's, because some formats are told apart by it.
        return folder / f"{self.name}{self.file(scope).suffix.removesuffix('c')}"


# Of the hosts that share a key, the first one counts whose `places` match.
_TABLE: Final = (
    Host(
        "gemini-cli",
        "mcpServers",
        (".gemini/*", "gemini-cli.json"),
        variables=_DOLLAR,
        url_type="sse",
        user_files=(".gemini/settings.json",),
        project_files=(".gemini/settings.json",),
        prefix="mcp_gateway_",
        entry=_timed_entry,
    ),
    Host(
        "qwen-code",
        "mcpServers",
        (".qwen/*", "qwen-code.json"),
        variables=_DOLLAR,
        url_type="sse",
        user_files=(".qwen/settings.json",),
        project_files=(".qwen/settings.json",),
        prefix="mcp__gateway__",
        entry=_timed_entry,
    ),
    Host(
        "cline",
        "mcpServers",
        ("cline_mcp_settings.json", "cline.json"),
        timeout_unit_s=1.0,
        user_files=(".cline/data/settings/cline_mcp_settings.json",),
        prefix="gateway__",
        entry=_timed_entry,
    ),
    Host(
        "roo-code",
        "mcpServers",
        ("mcp_settings.json", ".roo/*", "roo-code.json"),
        timeout_unit_s=1.0,
        home=_application_home,
        user_files=(
            "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ),
        project_files=(".roo/mcp.json",),
        prefix="mcp--gateway--",
        entry=_timed_entry,
    ),
    # The files of Claude Desktop, Cursor and Windsurf are read as those of Claude Code.
    Host(
        "claude-code",
        "mcpServers",
        home=partial(_home, "CLAUDE_CONFIG_DIR"),
        user_files=(".claude.json",),
        project_files=(".mcp.json",),
        prefix="mcp__gateway__",
    ),
    Host(
        "claude-desktop",
        "mcpServers",
        home=_application_home,
        user_files=("Claude/claude_desktop_config.json",),
        entry=_plain_entry,
    ),
    # Cursor calls a tool through another one, by its own name.
    Host(
        "cursor",
        "mcpServers",
        user_files=(".cursor/mcp.json",),
        project_files=(".cursor/mcp.json",),
    ),
    Host(
        "windsurf",
        "mcpServers",
        user_files=(".codeium/windsurf/mcp_config.json",),
        entry=_plain_entry,
    ),
    Host(
        "codex",
        "mcp_servers",
        variables=None,
        timeout_unit_s=1.0,
        home=partial(_home, "CODEX_HOME", ".codex"),
        user_files=("config.toml",),
        project_files=(".codex/config.toml",),
        entry=_codex_entry,
    ),
    # Zed adds a name only to tools that are called as another one is.
    Host(
        "zed",
        "context_servers",
        timeout_unit_s=1.0,
        home=_config_home,
        user_files=("zed/settings.json",),
        project_files=(".zed/settings.json",),
        entry=_timed_entry,
    ),
    Host(
        "opencode",
        "mcp",
        ("opencode.*",),
        variables=_SINGLE,
        limits_start=True,
        home=partial(_home, "XDG_CONFIG_HOME", ".config"),
        user_files=("opencode/opencode.jsonc", "opencode/opencode.json"),
        project_files=("opencode.jsonc", "opencode.json"),
        prefix="gateway_",
        entry=_opencode_entry,
    ),
    Host("vscode-settings", "mcp"),
    # Named as the gateway names itself, because VS Code takes the prefix from the entry or, in
    # newer versions, from the server.
    Host(
        "vscode",
        "servers",
        home=_application_home,
        user_files=("Code/User/mcp.json",),
        project_files=(".vscode/mcp.json",),
        prefix="mcp_llm-common_",
        fixed_name="llm-common",
    ),
)
HOSTS: Final[Mapping[str, Host]] = {host.name: host for host in _TABLE}


def host_of(document: Mapping[str, Any], path: Path) -> Host | None:
    """Return the host of a file by its content, its name and its folder, or None."""
    place = Path(path.resolve().parent.name, path.name)
    for host in _TABLE:
        if host.key in document and (not host.places or any(map(place.match, host.places))):
            return host
    return None
