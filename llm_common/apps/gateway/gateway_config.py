"""`GatewayConfig`: the servers behind the gateway, and how tools and results are shown."""

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

_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SERVER_KEYS: Final = ("mcpServers", "servers")
_DAY_S: Final = 86_400.0

ToolsMode = Literal["all", "search", "auto"]
Globs = tuple[str, ...]


class ToolRules(BaseModel):
    """Which tools are there, by globs on `name` or `server/name`; upper and lower case count.

    Attributes:
        allow: Only these.
        deny: Not these, also if they are allowed.
        pinned: Listed although the others are only found by search.
        read_only: Only tools that change nothing: by their server's hint, else by the verb in their
            name.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    allow: Globs = ("*",)
    deny: Globs = ()
    pinned: Globs = ()
    read_only: bool = False

    def admits(self, server: str, tool: str) -> bool:
        """Whether the lists leave a tool in."""
        return _any_fits(self.allow, server, tool) and not _any_fits(self.deny, server, tool)

    def pins(self, server: str, tool: str) -> bool:
        """Whether a tool is always listed."""
        return _any_fits(self.pinned, server, tool)


_Transport = Annotated[
    Literal["stdio", "http", "sse"] | None,
    BeforeValidator(
        lambda word: {"streamable-http": "http", "streamableHttp": "http"}.get(word, word)
    ),
]


class ServerConfig(BaseModel):
    """One entry of `mcpServers`; other hosts' fields are ignored.

    Attributes:
        command: Program of a server on stdin and stdout.
        args: Its arguments.
        env: Its variables; beside them it gets only PATH, HOME and the like.
        cwd: Its folder.
        url: Address of a server that runs already, instead of a command.
        headers: Sent with each request to it.
        type: `stdio`, `http` or `sse`; None takes `stdio` for a command and `http` for an address.
        disabled: Leaves the server out.
        rules: Under `llmCommon`: which of its tools are there.
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
    """What the gateway does; frozen.

    Attributes:
        servers: By name, in the order of the files.
        tools: `all` lists every tool; `search` lists tools to search and call, and the pinned ones;
            `auto` is `all` while the definitions fit `max_tool_tokens`.
        max_tool_tokens: That budget.
        list_found: In search mode, lists what was found from then on; a host then reads its whole
            prompt anew.
        rules: As each server's own, for all of them.
        max_whole_tokens: A longer result is stored and shown as a preview; None keeps every result
            whole.
        max_preview_tokens: Most tokens of a preview.
        intent: Offers each tool's caller an argument `intent`, which previews are made for.
        host_prefix: What the host puts before tool names, such as `mcp__gateway__`; previews name
            tools with it. Up to 50 characters that names of tools have.
        lazy: Starts a server when it is needed first, not when a host connects.
        start_timeout_s: Seconds that a server has to start and to list its tools.
        call_timeout_s: Seconds that a call may take; None waits as long as the host does, but no
            longer than five minutes for a server over HTTP that sends nothing.
        list_wait_s: Seconds that a list waits for servers that start; later ones are announced as a
            change.
        memory_only: Writes nothing to disk.
        folder: Where results are kept; None takes `llm-common/gateway` in the user's cache folder.
        ttl_s: Seconds after which a stored result is gone.
        max_session_bytes: Most bytes of one host session's results; the oldest go first.
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
        """The configuration of `mcpServers` files; a later file replaces the servers of that name.

        `${NAME}` and `${NAME:-default}` in texts are variables of the environment. Servers that are
        disabled, and the gateway itself, are left out.

        Args:
            *paths: JSON files as hosts have them, with `mcpServers` or `servers`.
            **settings: The other attributes.

        Raises:
            ConfigError: A file cannot be read, an entry or a setting does not fit, or a variable is
                not set.
        """
        servers: dict[str, ServerConfig] = {}
        for path in paths:
            servers |= dict(_servers_in(Path(path)))
        try:
            return cls(servers=servers, **settings)
        except ValidationError as exc:
            raise _misfit(exc, "the gateway's settings") from exc


def is_gateway(server: ServerConfig) -> bool:
    """Return whether an entry would start this gateway again, also through `uvx` or `python -m`."""
    words = [
        PurePath(word).stem.lower().replace("_", "-") for word in (server.command, *server.args)
    ]
    return ("llm-common", "gateway") in pairwise(words)


def expanded(value: Any, *, where: str) -> Any:
    """Plain data with the variables in its texts replaced.

    Args:
        value: Lists, dicts and texts; anything else stays.
        where: Names the place in an error.

    Raises:
        ConfigError: A variable is not set and has no default.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found, where), value)
    if isinstance(value, list):
        return [expanded(item, where=where) for item in value]
    if isinstance(value, dict):
        return {key: expanded(item, where=f"{where}, {key}") for key, item in value.items()}
    return value


def _variable(found: re.Match[str], where: str) -> str:
    name, default = found[1], found[2]
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
            f"{path} cannot be read ({exc.strerror}); name a file", variable="config"
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
        if isinstance(entry, dict) and entry.get("disabled") is True:
            continue
        try:
            server = ServerConfig.model_validate(expanded(entry, where=where))
        except ValidationError as exc:
            raise _misfit(exc, where) from exc
        if bool(server.command) == bool(server.url):
            raise ConfigError(
                f'{where} has not exactly one of "command" and "url"; give it one', variable=name
            )
        if not is_gateway(server):
            yield name, server


def _misfit(error: ValidationError, where: str) -> ConfigError:
    wrong = ", ".join(sorted({".".join(map(str, part["loc"])) or "it" for part in error.errors()}))
    first = error.errors()[0]["msg"]
    return ConfigError(
        f"{where}: {wrong} cannot be used ({first}); correct the entry", variable=wrong
    )


def _any_fits(globs: Globs, server: str, tool: str) -> bool:
    return any(fnmatchcase(tool, glob) or fnmatchcase(f"{server}/{tool}", glob) for glob in globs)
