"""Configure the gateway: its servers, their tools, and the limits of results: `GatewayConfig`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from llm_common.apps.gateway.configuration.host_files import (
    entries_in,
    fields_of,
    is_disabled,
)
from llm_common.apps.gateway.configuration.known_hosts import Host
from llm_common.errors import ConfigError
from llm_common.pointers import MIN_LIMIT_TOKENS
from llm_common.runtime import default_cache_dir
from llm_common.text import one_line

_DAY_S: Final = 86_400.0
_MAX_NAME_CHARS: Final = 100  # in an error
MAX_WHOLE_TOKENS: Final = 25_000
"""Maximum tokens of a result of a tool in `whole`. Claude Code's own limit is the same."""

_VERSION_OR_EXTRAS: Final = re.compile(r"[@\[=<>~! ]")

_FROM_FILES: Final = {"servers", "left_out", "config_paths"}

ToolsMode = Literal["all", "search", "auto"]
Globs = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The limits of a tool's results.

    Attributes:
        max_whole_tokens: Maximum tokens of a result that stays whole.
        max_preview_tokens: Maximum tokens of a preview.
    """

    max_whole_tokens: int
    max_preview_tokens: int


class ToolRules(BaseModel):
    """The choice of tools and the limits of their results, for one server or for all.

    Globs are case-sensitive and match `name` or `server/name`. The name is the server's, or the one
    that a host would see without rules.

    Attributes:
        allow: Only these tools are available.
        deny: These tools are not available, even if allowed.
        pinned: These tools are listed even if others can only be searched.
        read_only: Whether to offer only tools that change nothing, by their server's hint or the
            verb in their name.
        whole: The results of these tools stay whole up to 25,000 tokens. For a resource, the name
            is its URI.
        max_whole_tokens: Maximum tokens of a result that stays whole. None takes the limit of the
            rules for all servers, then of the gateway.
        max_preview_tokens: Maximum tokens of a preview. None as above.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    allow: Globs = ("*",)
    deny: Globs = ()
    pinned: Globs = ()
    read_only: bool = False
    whole: Globs = ()
    max_whole_tokens: int | None = Field(default=None, ge=MIN_LIMIT_TOKENS)
    max_preview_tokens: int | None = Field(default=None, ge=MIN_LIMIT_TOKENS)

    def admits(self, server: str, *names: str) -> bool:
        """Return whether a tool with these names is allowed and not denied."""
        return any_matches(self.allow, server, names) and not any_matches(self.deny, server, names)


class OAuthClient(BaseModel):
    """A client that is registered at a server's authorization server, for `gateway login`.

    Attributes:
        client_id: The id of the client. "" to register a new one.
        client_secret: Its secret, if it has one.
        callback_port: The port of its redirect address, `http://localhost:PORT/callback`. 0 for a
            free port of 127.0.0.1, which a new client registers.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    client_id: str = ""
    client_secret: str | None = Field(default=None, repr=False)
    callback_port: int = Field(default=0, ge=0, le=65_535)


class ServerConfig(BaseModel):
    """A server of the gateway. Unknown fields, such as those that only a host uses, are ignored.

    Attributes:
        command: The program of a server on stdin and stdout.
        args: The arguments of the program.
        env: The environment variables of the program, besides PATH, HOME and a few more.
        cwd: The working directory of the program.
        url: The address of a running server, instead of a command.
        headers: HTTP headers for each request to the address.
        type: `stdio`, `http` or `sse`. None means `stdio` for a command and `http` for an address.
        oauth: The client with which `gateway login` logs in.
        start_timeout_s: Seconds for the server to start. None for the gateway's limit.
        call_timeout_s: Seconds for a call. None for the gateway's limit.
        rules: The choice of its tools, in the field `llmCommon`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict)
    type: Literal["stdio", "http", "sse"] | None = None
    oauth: OAuthClient = Field(default_factory=OAuthClient)
    start_timeout_s: float | None = Field(default=None, gt=0)
    call_timeout_s: float | None = Field(default=None, gt=0)
    rules: ToolRules = Field(default_factory=ToolRules, alias="llmCommon")

    @property
    def may_need_login(self) -> bool:
        """Return whether the server has an address, and the entry no token, which comes first."""
        return bool(self.url) and "authorization" not in {name.lower() for name in self.headers}


class GatewayConfig(BaseModel):
    """The settings of a gateway, frozen.

    Attributes:
        servers: The servers by name, in the order of the files.
        left_out: Servers whose entry cannot be used, by name, with the problem of each.
        tools: `all` lists every tool. `search` lists the pinned tools, and tools to search and
            call. `auto` means `all` while the definitions fit `max_tool_tokens`, else `search`.
        max_tool_tokens: Maximum tokens of the definitions that `auto` lists.
        rules: The choice of tools for all servers, in addition to the rules of each server.
        max_whole_tokens: Maximum tokens of a result that stays whole. A longer one is stored and
            replaced by a preview. None keeps every result whole, whatever the rules.
        max_preview_tokens: Maximum tokens of a preview.
        host_prefix: The prefix that the host adds to tool names, such as `mcp__gateway__`. Previews
            name tools with it. At most 50 characters that are allowed in tool names.
        lazy: Whether to start a server at its first use instead of when a host connects.
        start_timeout_s: Seconds for a server to start and list its tools.
        call_timeout_s: Seconds for a call. None waits as long as the host does, but at most five
            minutes for a server over HTTP that sends nothing.
        list_wait_s: Seconds that a list waits for starting servers whose tools are not known from
            an earlier run. Later ones are announced as a change of the list.
        approve_changes: Whether to hold back tools whose definitions changed, until the user
            approves them.
        memory_only: Whether to write nothing to disk.
        config_paths: The files that the configuration was read from.
        folder: The folder for results. None for `llm-common/gateway` in the user's cache folder.
        forget: Whether to remove a host's results when it leaves. By default they stay for the
            conversations that are resumed.
        ttl_s: Seconds from the last save or read of a result to its expiry.
        max_session_bytes: Maximum bytes of the results of one scope, which are those of one token,
            or of one user, configuration and working folder. The oldest are removed first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: Mapping[str, ServerConfig]
    left_out: Mapping[str, str] = Field(default_factory=dict)
    tools: ToolsMode = "auto"
    max_tool_tokens: int = Field(default=10_000, ge=0)
    rules: ToolRules = Field(default_factory=ToolRules)
    max_whole_tokens: int | None = Field(default=2_000, ge=MIN_LIMIT_TOKENS)
    max_preview_tokens: int = Field(default=400, ge=MIN_LIMIT_TOKENS)
    host_prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]{0,50}$")
    lazy: bool = False
    start_timeout_s: float = Field(default=60.0, gt=0)
    call_timeout_s: float | None = Field(default=None, gt=0)
    # Hosts that send their first request without waiting do so after about this time.
    list_wait_s: float = Field(default=2.0, gt=0)
    approve_changes: bool = False
    memory_only: bool = False
    config_paths: tuple[Path, ...] = ()
    folder: Path | None = None
    forget: bool = False
    ttl_s: float = Field(default=_DAY_S, gt=0)
    max_session_bytes: int = Field(default=256_000_000, gt=0)

    @classmethod
    def from_files(cls, *paths: Path | str, **settings: Any) -> Self:
        """Read the servers of hosts' files and return the configuration.

        The files may be those of Claude Code, Codex, opencode, VS Code, Gemini CLI, Qwen Code,
        Cursor, Windsurf, Cline, Roo Code or Zed. A server of a later file replaces one of the same
        name. Variables in texts are replaced as the host of the file does. Disabled servers and
        the gateway itself are left out. A server with an invalid entry, or with a variable that
        is not set, is named in `left_out`, and the others stay.

        Args:
            *paths: JSON files, also with comments, or TOML files.
            **settings: The other attributes.

        Raises:
            ConfigError: If a file cannot be read or holds no servers, or a setting is invalid.
        """
        servers: dict[str, ServerConfig] = {}
        left_out: dict[str, str] = {}
        for path in map(Path, paths):
            host_entries = entries_in(path)
            for name, entry in host_entries.entries.items():
                if name in host_entries.excluded or is_disabled(entry):
                    continue
                where = f"{path}: server {one_line(name, max_chars=_MAX_NAME_CHARS)}"
                servers.pop(name, None)
                left_out.pop(name, None)
                try:
                    servers[name] = server_of(entry, host_entries.host, where)
                except ConfigError as exc:
                    left_out[name] = exc.message
        servers = {name: server for name, server in servers.items() if not is_gateway(server)}
        try:
            return cls(
                servers=servers,
                left_out=left_out,
                config_paths=tuple(map(Path, paths)),
                **settings,
            )
        except ValidationError as exc:
            raise _invalid(exc, "the gateway's settings") from exc

    @property
    def files_folder(self) -> Path:
        """Return the folder of the gateway's files."""
        return self.folder or default_cache_dir() / "gateway"

    def reread(self) -> Self:
        """Return the configuration as its files have it now, with the same settings.

        Raises:
            ConfigError: If a file cannot be read or holds no servers.
        """
        settings = {name: value for name, value in self if name not in _FROM_FILES}
        return self.from_files(*self.config_paths, **settings)

    def rules_of(self, server: str) -> tuple[ToolRules, ...]:
        """Return the rules for the tools of a server, the more specific ones last."""
        if server not in self.servers:  # a reload may have removed it during a call
            return (self.rules,)
        return self.rules, self.servers[server].rules

    def result_limits(self, server: str, *names: str) -> ResultLimits | None:
        """Return the limits of a tool's results, or None if every result stays whole.

        Args:
            server: The server's name.
            names: The tool's names there and in the host, or the URI of a resource.
        """
        if self.max_whole_tokens is None:
            return None
        max_whole, max_preview = self.max_whole_tokens, self.max_preview_tokens
        is_whole = False
        for rules in self.rules_of(server):
            max_whole = rules.max_whole_tokens or max_whole
            max_preview = rules.max_preview_tokens or max_preview
            is_whole = is_whole or any_matches(rules.whole, server, names)
        if is_whole:
            max_whole = max(max_whole, MAX_WHOLE_TOKENS)
        return ResultLimits(max_whole, min(max_preview, max_whole))


def is_gateway(server: ServerConfig) -> bool:
    """Return whether an entry would start this gateway again, also through `uvx` or `python -m`."""
    arguments = (server.command, *server.args)
    # Only the stem, because an entry may have the full path or `llm-common.exe`.
    # Launchers such as uvx take a version or extras behind the name.
    words: list[str] = []
    for argument in arguments:
        name = _VERSION_OR_EXTRAS.split(PurePath(argument).name, maxsplit=1)[0]
        words.append(PurePath(name).stem.lower().replace("_", "-"))
    return ("llm-common", "gateway") in pairwise(words)


def server_of(entry: object, host: Host, where: str) -> ServerConfig:
    """Return a server of a host's file.

    Raises:
        ConfigError: If the entry is invalid, or needs a variable that is not set.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is not an object; correct the entry", variable="config")
    try:
        server = ServerConfig.model_validate(fields_of(entry, host, where=where))
    except ValidationError as exc:
        raise _invalid(exc, where) from exc
    if bool(server.command) == bool(server.url):
        reason = f'{where} has not exactly one of "command" and "url"; give it one'
        raise ConfigError(reason, variable="command")
    return server


def _invalid(error: ValidationError, where: str) -> ConfigError:
    problems = error.errors()
    # The text of the error would show the values, which may be secrets.
    fields = ", ".join(sorted({".".join(map(str, problem["loc"])) or "it" for problem in problems}))
    return ConfigError(
        f"{where}: {fields} cannot be used ({problems[0]['msg']}); correct the entry",
        variable=fields,
    )


def any_matches(globs: Globs, server: str, names: Iterable[str]) -> bool:
    """Return whether one of some globs matches a name, or the server with a name."""
    for name in names:
        for glob in globs:
            # Not `fnmatch`, which ignores case on Windows and nowhere else.
            if fnmatchcase(name, glob) or fnmatchcase(f"{server}/{name}", glob):
                return True
    return False
