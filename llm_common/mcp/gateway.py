"""`Gateway`: an MCP server that stands before others, for one host on stdin and stdout or for several over HTTP."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as types
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from llm_common import __version__
from llm_common.errors import ConfigError, StoreError
from llm_common.folders.index_cache import default_cache_dir
from llm_common.mcp.gateway_config import GatewayConfig
from llm_common.mcp.host_session import HostSession
from llm_common.mcp.result_desk import Figures
from llm_common.mcp.server_connection import HostAbilities, HostContext
from llm_common.mcp.tool_listing import LISTER, READER, SEARCHER
from llm_common.pointers.store import ContextPointerStore, FileContextPointerStore, InMemoryContextPointerStore

_MAX_SESSIONS: Final = 64
_IDLE_S: Final = 3_600.0
_EVENTS: Final[dict[type, ServerEvent]] = {
    types.ToolListChangedNotification: ToolsListChanged(),
    types.ResourceListChangedNotification: ResourcesListChanged(),
    types.PromptListChangedNotification: PromptsListChanged(),
}


class Gateway:
    """The gateway's server and its sessions; an async context manager, which ends every server at its end.

    Args:
        config: Servers, rules and limits.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._sessions: dict[str, HostSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._bus = InMemorySubscriptionBus()
        self.store: Final = store_of(config)
        self.figures: Final = Figures()
        self.server: Final = _GatewayServer(
            "llm-common",
            version=__version__,
            instructions=_instructions(config),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._on_initialized
        )

    async def __aenter__(self) -> Self:
        with suppress(StoreError):
            await self.store.gc()  # results of sessions that were killed
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions), *self._closing, return_exceptions=True)

    @property
    def sessions(self) -> Sequence[HostSession]:
        """The sessions of the hosts that were heard of in the last hour."""
        return tuple(self._sessions.values())

    def session_of(self, host: HostContext) -> HostSession:
        """The session that a host's request belongs to; made at its first."""
        key = session_key(host)
        session = self._sessions.get(key)
        if session is None:
            self._close_idle()
            session = self._sessions[key] = HostSession(
                self._config,
                abilities=HostAbilities.of(host),
                store=self.store,
                notify=self._notify,
                figures=self.figures,
            )
        session.seen(host)
        return session

    def _close_idle(self) -> None:
        oldest = sorted(self._sessions, key=lambda key: self._sessions[key].last_used)
        now = time.monotonic()
        for number, key in enumerate(oldest):
            too_many = len(oldest) - number >= _MAX_SESSIONS
            if too_many or now - self._sessions[key].last_used > _IDLE_S:
                closing = asyncio.create_task(self._sessions.pop(key).close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _notify(self, host: HostContext, message: types.ServerNotification) -> None:
        if host.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            with suppress(MCPError):
                await host.session.send_notification(message)
        elif type(message) in _EVENTS:
            await self._bus.publish(_EVENTS[type(message)])

    async def _on_initialized(self, host: HostContext, _: types.NotificationParams) -> None:
        session = self.session_of(host)
        if not self._config.lazy:
            await session.listing()

    async def _list_tools(self, host: HostContext, _: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await self.session_of(host).tools())

    async def _call_tool(
        self, host: HostContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await self.session_of(host).call(params, host)

    async def _list_resources(self, host: HostContext, _: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await self.session_of(host).lists.resources())

    async def _list_templates(self, host: HostContext, _: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=await self.session_of(host).lists.templates())

    async def _read_resource(self, host: HostContext, params: types.ReadResourceRequestParams) -> Any:
        return await self.session_of(host).lists.read(params, host)

    async def _list_prompts(self, host: HostContext, _: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=await self.session_of(host).lists.prompts())

    async def _get_prompt(self, host: HostContext, params: types.GetPromptRequestParams) -> Any:
        return await self.session_of(host).lists.prompt(params, host)


class _GatewayServer(Server[Any]):
    """Announces changes of its lists on every transport."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002 - the transports give none
        *args: Any,
        **kwargs: Any,
    ) -> types.ServerCapabilities:
        """Those of the server, with the announcements."""
        options = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().get_capabilities(options, *args, **kwargs)


def session_key(host: HostContext) -> str:
    """Tells hosts apart: one on stdin and stdout; over HTTP by token and, where the protocol has sessions, by session.

    A host of the protocol of 2026 has no session: those that share a token share their results.
    """
    if host.request is None:
        return "stdio"
    headers = host.request.headers
    modern = host.protocol_version in MODERN_PROTOCOL_VERSIONS
    session = "" if modern else headers.get("mcp-session-id", "")
    return hashlib.sha256(f"{headers.get('authorization', '')}\n{session}".encode()).hexdigest()


def store_of(config: GatewayConfig) -> ContextPointerStore:
    """The store of the gateway's results, without secrets.

    Raises:
        StoreError: The system is not POSIX, which a folder needs; `memory_only` works there.
    """
    limits: Any = {
        "redact_results": True,
        "ttl_s": config.ttl_s,
        "max_bytes_per_query": config.max_session_bytes,
        "max_result_bytes": config.max_session_bytes,
    }
    if config.memory_only:
        return InMemoryContextPointerStore(**limits)
    folder = config.folder or default_cache_dir() / "gateway"
    return FileContextPointerStore(folder / "results", **limits)


def is_known_token(header: str, tokens: Sequence[str]) -> bool:
    """Whether an `Authorization` header holds one of the tokens; takes the same time for any."""
    given = header.removeprefix("Bearer ").encode()
    return sum(hmac.compare_digest(given, token.encode()) for token in tokens) > 0


def checked_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """The tokens, at least one, each of 16 characters or more.

    Raises:
        ConfigError: There is none, or one is too short.
    """
    if not tokens or any(len(token) < 16 for token in tokens):  # noqa: PLR2004
        raise ConfigError("a token needs 16 characters or more; make one with openssl rand -hex 16", variable="token")
    return tuple(tokens)


def _instructions(config: GatewayConfig) -> str | None:
    if config.threshold_tokens is None:
        return None
    names = [f"{config.host_prefix}{name}" for name in (READER, SEARCHER, LISTER)]
    return (
        f"Results over {config.threshold_tokens} tokens are stored, and you see a preview with an id. Read what you "
        f"need with {names[0]}, find words in all of them with {names[1]}, list them with {names[2]}."
    )
