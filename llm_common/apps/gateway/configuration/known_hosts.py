"""The hosts whose configuration `gateway install` writes: `HOSTS`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from llm_common.runtime import default_config_dir, read_named

Scope = Literal["user", "project"]

START_S: Final = 60
# The host's limit for a call. The limits of the servers themselves are shorter.
CALL_S: Final = 600


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose file `gateway install` writes.

    Attributes:
        name: Its name on the command line.
        files: The files of each scope. The first that exists counts, else the last.
        keys: The path to the servers in the file.
        prefix: What the host puts before the tool names of an entry called `gateway`.
        entry: Returns the entry for a command line and the seconds of a call.
        fixed_name: The name of the gateway's entry, if it is the same in each scope.
    """

    name: str
    files: Callable[[Scope], Sequence[Path]]
    keys: tuple[str, ...]
    prefix: str
    entry: Callable[[Sequence[str], int], dict[str, Any]]
    fixed_name: str = ""

    def entry_name(self, scope: Scope) -> str:
        """Return the name of the gateway's entry.

        The entries of a project replace those of the user that have the same name.
        """
        return self.fixed_name or ("gateway" if scope == "user" else "project-gateway")

    def prefix_in(self, scope: Scope) -> str:
        """Return what the host puts before the gateway's tool names."""
        return self.prefix.replace("gateway", self.entry_name(scope))

    def file(self, scope: Scope) -> Path:
        """Return the host's file, which may not exist."""
        candidates = self.files(scope)
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


def _home(variable: str, default: str) -> Path:
    return Path(read_named(variable) or Path.home() / default)


def _claude_code_files(scope: Scope) -> list[Path]:
    if scope == "project":
        return [Path.cwd() / ".mcp.json"]
    return [_home("CLAUDE_CONFIG_DIR", "") / ".claude.json"]


def _codex_files(scope: Scope) -> list[Path]:
    folder = Path.cwd() / ".codex" if scope == "project" else _home("CODEX_HOME", ".codex")
    return [folder / "config.toml"]


def _opencode_files(scope: Scope) -> list[Path]:
    folder = Path.cwd()
    if scope == "user":
        folder = _home("XDG_CONFIG_HOME", ".config") / "opencode"
    return [folder / "opencode.jsonc", folder / "opencode.json"]


def _qwen_code_files(scope: Scope) -> list[Path]:
    folder = Path.cwd() if scope == "project" else Path.home()
    return [folder / ".qwen" / "settings.json"]


def _vscode_files(scope: Scope) -> list[Path]:
    if scope == "project":
        return [Path.cwd() / ".vscode" / "mcp.json"]
    if sys.platform == "darwin":
        return [Path.home() / "Library/Application Support/Code/User/mcp.json"]
    if sys.platform == "win32":
        return [_home("APPDATA", "AppData/Roaming") / "Code/User/mcp.json"]
    return [_home("XDG_CONFIG_HOME", ".config") / "Code/User/mcp.json"]


def _stdio_entry(command: Sequence[str], _: int) -> dict[str, Any]:
    return {"type": "stdio", "command": command[0], "args": list(command[1:])}


def _codex_entry(command: Sequence[str], call_s: int) -> dict[str, Any]:
    return {
        "command": command[0],
        "args": list(command[1:]),
        # Without it, Codex sends its first request before the gateway has answered.
        "required": True,
        "startup_timeout_sec": START_S,
        "tool_timeout_sec": call_s,
    }


def _opencode_entry(command: Sequence[str], call_s: int) -> dict[str, Any]:
    timeout_ms = call_s * 1_000
    return {"type": "local", "command": list(command), "enabled": True, "timeout": timeout_ms}


def _qwen_code_entry(command: Sequence[str], call_s: int) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), "timeout": call_s * 1_000}


HOSTS: Final[Mapping[str, Host]] = {
    host.name: host
    for host in (
        Host("claude-code", _claude_code_files, ("mcpServers",), "mcp__gateway__", _stdio_entry),
        Host("codex", _codex_files, ("mcp_servers",), "", _codex_entry),
        Host("opencode", _opencode_files, ("mcp",), "gateway_", _opencode_entry),
        Host("qwen-code", _qwen_code_files, ("mcpServers",), "mcp__gateway__", _qwen_code_entry),
        # Named as the gateway names itself, because VS Code takes the prefix from the entry or,
        # in newer versions, from the server.
        Host("vscode", _vscode_files, ("servers",), "mcp_llm-common_", _stdio_entry, "llm-common"),
    )
}
