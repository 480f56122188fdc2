"""Configure the gateway: its servers, their tools, and the limits of results: `GatewayConfig`."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, Literal, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from llm_common._env import read_named
from llm_common.errors import ConfigError
from llm_common.pointers.reading import MIN_LIMIT_TOKENS

# `${NAME}`, `${env:NAME}` as VS Code writes it, or `${NAME:-default}`.
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Most hosts use the first, VS Code uses the second.
_SERVER_KEYS: Final = ("mcpServers", "servers")
_DAY_S: Final = 86_400.0

ToolsMode = Literal["all", "search", "auto"]
Globs = tuple[str, ...]


class ToolRules(BaseModel):
    """The choice of tools, by case-sensitive globs on `name` or `server/name`.

    Attributes:
        allow: Only these tools are available.
        deny: These tools are not available, even if allowed.
        pinned: These tools are listed even if others can only be searched.
        read_only: Whether to offer only tools that change nothing, by their server's hint or the
            verb in their name.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    allow: Globs = ("*",)
    deny: Globs = ()
    pinned: Globs = ()
    read_only: bool = False

    def admits(self, server: str, tool: str) -> bool:
        """Return whether a tool is allowed and not denied."""
        return _any_matches(self.allow, server, tool) and not _any_matches(self.deny, server, tool)

    def pins(self, server: str, tool: str) -> bool:
        """Return whether a tool is always listed."""
        return _any_matches(self.pinned, server, tool)


_Transport = Annotated[
    Literal["stdio", "http", "sse"] | None,
    BeforeValidator(
        # Hosts write the type of streamable HTTP in three ways.
        lambda word: {"streamable-http": "http", "streamableHttp": "http"}.get(word, word)
    ),
]


class ServerConfig(BaseModel):
    """One entry of `mcpServers`. Unknown fields, such as those of other hosts, are ignored.

    Attributes:
        command: The program of a server on stdin and stdout.
        args: The arguments of the program.
        env: The environment variables of the program, besides PATH, HOME and a few more.
        cwd: The working directory of the program.
        url: The address of a running server, instead of a command.
        headers: HTTP headers for each request to the address.
        type: `stdio`, `http` or `sse`. None means `stdio` for a command and `http` for an address.
        disabled: Whether to leave the server out.
        rules: The choice of its tools, in the field `llmCommon`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = Field(default_factory=dict)
    type: _Transport = None
    disabled: bool = False
    rules: ToolRules = Field(default_factory=ToolRules, alias="llmCommon")


class GatewayConfig(BaseModel):
    """The settings of a gateway, frozen.

    Attributes:
        servers: The servers by name, in the order of the files.
        tools: `all` lists every tool. `search` lists the pinned tools, and tools to search and
            call. `auto` means `all` while the definitions fit `max_tool_tokens`, else `search`.
        max_tool_tokens: Maximum tokens of the definitions that `auto` lists.
        list_found: In search mode, whether to list tools once a search has returned them. The
            host's prompt cache is lost each time.
        rules: The choice of tools for all servers, in addition to the rules of each server.
        max_whole_tokens: Maximum tokens of a result that stays whole. A longer one is stored and
            replaced by a preview. None keeps every result whole.
        max_preview_tokens: Maximum tokens of a preview.
        intent: Whether to add an argument `intent` to each tool, which decides what a preview
            shows.
        host_prefix: The prefix that the host adds to tool names, such as `mcp__gateway__`. Previews
            name tools with it. At most 50 characters that are allowed in tool names.
        lazy: Whether to start a server at its first use instead of when a host connects.
        start_timeout_s: Seconds for a server to start and list its tools.
        call_timeout_s: Seconds for a call. None waits as long as the host does, but at most five
            minutes for a server over HTTP that sends nothing.
        list_wait_s: Seconds that a list waits for starting servers. Later ones are announced as a
            change of the list.
        memory_only: Whether to write nothing to disk.
        folder: The folder for results. None for `llm-common/gateway` in the user's cache folder.
        ttl_s: Seconds until a stored result expires.
        max_session_bytes: Maximum bytes of one host session's results. The oldest are removed
            first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: Mapping[str, ServerConfig]
    tools: ToolsMode = "auto"
    max_tool_tokens: int = Field(default=10_000, ge=0)
    list_found: bool = False
    rules: ToolRules = Field(default_factory=ToolRules)
    max_whole_tokens: int | None = Field(default=2_000, ge=MIN_LIMIT_TOKENS)
    max_preview_tokens: int = Field(default=400, ge=MIN_LIMIT_TOKENS)
    intent: bool = True
    host_prefix: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]{0,50}$")
    lazy: bool = False
    start_timeout_s: float = Field(default=60.0, gt=0)
    call_timeout_s: float | None = Field(default=None, gt=0)
    list_wait_s: float = Field(default=15.0, gt=0)
    memory_only: bool = False
    folder: Path | None = None
    ttl_s: float = Field(default=_DAY_S, gt=0)
    max_session_bytes: int = Field(default=256_000_000, gt=0)

    @classmethod
    def from_files(cls, *paths: Path | str, **settings: Any) -> Self:
        """Read `mcpServers` files and return the configuration.

        A server of a later file replaces one of the same name. `${NAME}` and `${NAME:-default}` in
        texts are replaced by environment variables. Disabled servers and the gateway itself are
        left out.

        Args:
            *paths: JSON files in the format of MCP hosts, with `mcpServers` or `servers`.
            **settings: The other attributes.

        Raises:
            ConfigError: If a file cannot be read, an entry or a setting is invalid, or a variable
                is not set.
        """
        servers: dict[str, ServerConfig] = {}
        for path in paths:
            servers |= dict(_servers_in(Path(path)))
        try:
            return cls(servers=servers, **settings)
        except ValidationError as exc:
            raise _invalid(exc, "the gateway's settings") from exc


def is_gateway(server: ServerConfig) -> bool:
    """Return whether an entry would start this gateway again, also through `uvx` or `python -m`."""
    arguments = (server.command, *server.args)
    # Only the stem, because an entry may have the full path or `llm-common.exe`.
    words = [PurePath(argument).stem.lower().replace("_", "-") for argument in arguments]
    return ("llm-common", "gateway") in pairwise(words)


def expanded(value: Any, *, where: str) -> Any:
    """Return plain data with the variables in its texts replaced.

    Args:
        value: Lists, dicts and texts. Other values are returned unchanged.
        where: A description of the position, for an error.

    Raises:
        ConfigError: If a variable is not set and has no default.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match, where), value)
    if isinstance(value, list):
        return [expanded(item, where=where) for item in value]
    if isinstance(value, dict):
        return {key: expanded(item, where=f"{where}, {key}") for key, item in value.items()}
    return value


def _variable(match: re.Match[str], where: str) -> str:
    name, default = match[1], match[2]
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


def _servers_in(path: Path) -> Iterator[tuple[str, ServerConfig]]:
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read ({exc.strerror}); name another file", variable="config"
        ) from exc
    except orjson.JSONDecodeError as exc:
        raise ConfigError(
            f"{path} is not JSON: line {exc.lineno}; correct it", variable="config"
        ) from exc
    members = document if isinstance(document, dict) else {}
    entries = next((members[key] for key in _SERVER_KEYS if key in members), None)
    if not isinstance(entries, dict):
        raise ConfigError(
            f'{path} has no "mcpServers" object; add one as a host has it', variable="config"
        )
    for name, entry in entries.items():
        where = f"{path}: server {name}"
        # Before its variables are read, because those of a disabled server may not be set.
        if isinstance(entry, dict) and entry.get("disabled") is True:
            continue
        try:
            server = ServerConfig.model_validate(expanded(entry, where=where))
        except ValidationError as exc:
            raise _invalid(exc, where) from exc
        if bool(server.command) == bool(server.url):
            raise ConfigError(
                f'{where} has not exactly one of "command" and "url"; give it one', variable=name
            )
        if not is_gateway(server):
            yield name, server


def _invalid(error: ValidationError, where: str) -> ConfigError:
    problems = error.errors()
    # The text of the error would show the values, which may be secrets.
    fields = ", ".join(sorted({".".join(map(str, problem["loc"])) or "it" for problem in problems}))
    return ConfigError(
        f"{where}: {fields} cannot be used ({problems[0]['msg']}); correct the entry",
        variable=fields,
    )


def _any_matches(globs: Globs, server: str, tool: str) -> bool:
    # Not `fnmatch`, which ignores case on Windows and nowhere else.
    return any(fnmatchcase(tool, glob) or fnmatchcase(f"{server}/{tool}", glob) for glob in globs)
