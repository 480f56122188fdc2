"""Serve MCP hosts in front of other servers, on stdio or over HTTP: `Gateway`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp_types.methods import SERVER_RESULTS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from llm_common import __version__
from llm_common.agents import (
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig, ServerConfig
from llm_common.apps.gateway.host_results import ResultScope
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.own_tools import instructions
from llm_common.apps.gateway.servers.limits import PAGE_ENTRIES
from llm_common.apps.gateway.servers.questions import HostContext
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.requests import complete, get_prompt, unwatch, watch
from llm_common.errors import StoreError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

# Each session has its own server processes. One without a request for an hour is ended, and its
# next request starts another one.
_IDLE_S: Final = 3_600.0
_Answer = Callable[[HostSession, Any, HostContext], Awaitable[Any]]


class Gateway:
    """An MCP server with one session per host. Use it as an async context manager.

    Leaving the context ends every server that a session has started.

    Args:
        config: Servers, rules and limits.

    Attributes:
        config: The configuration in use, without what waits for approval.
        store: The store of all results.
        records: What it knows of its servers from earlier runs.
        waiting: Servers that are new or changed in the configuration files and wait for approval.
        server: The server of the MCP SDK.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._sessions: dict[tuple[str, str], HostSession] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._collecting: asyncio.Task[None] | None = None
        self.store: Final = store_of(config)
        self.records: Final = ServerRecords(None if config.memory_only else config.files_folder)
        self.waiting: frozenset[str] = frozenset()
        self.server: Final = _GatewayServer(
            "llm-common",
            version=__version__,
            on_list_tools=self._of_session(_list_tools),
            on_call_tool=self._of_session(HostSession.call),
            on_list_resources=self._of_session(
                lambda session, _, __: session.catalogue.resources()
            ),
            on_list_resource_templates=self._of_session(
                lambda session, _, __: session.catalogue.templates()
            ),
            on_read_resource=self._of_session(HostSession.read_resource),
            on_list_prompts=self._of_session(lambda session, _, __: session.catalogue.prompts()),
            # Of hosts of the older protocols. The newest one listens.
            on_subscribe_resource=self._of_session(
                lambda session, params, _: watch(session.catalogue, str(params.uri), session)
            ),
            on_unsubscribe_resource=self._of_session(
                lambda session, params, _: unwatch(session.catalogue, session, str(params.uri))
            ),
            on_get_prompt=self._of_session(
                lambda session, params, host: get_prompt(session.catalogue, params, host)
            ),
            on_completion=self._of_session(
                lambda session, params, host: complete(session.catalogue, params, host)
            ),
            on_subscriptions_listen=self._of_session(HostSession.listen),
        )
        # Not `on_set_logging_level`, which the SDK calls deprecated, although older hosts use it.
        self.server.add_request_handler(
            "logging/setLevel",
            types.SetLevelRequestParams,
            self._of_session(HostSession.set_log_level),
        )
        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._on_initialized
        )

        self.server.add_notification_handler(
            "notifications/roots/list_changed",
            types.NotificationParams,
            lambda host, _: self.session_of(host).announce_roots(),
        )

    async def __aenter__(self) -> Self:
        # In the background, because a host waits for the start.
        self._collecting = asyncio.create_task(self._collect())
        for problem in self.config.left_out.values():
            _log.warning("a server is left out: %s", problem)
        servers = [*self.config.servers.values()]
        await in_thread(self.records.load, servers)
        # Once: a host reads them when it starts, and an answer of a server comes later.
        self.server.instructions = instructions(self.config, self.records)
        # Whoever starts a gateway with a configuration has approved it.
        await in_thread(self.records.allow, servers)
        await in_thread(self.records.prune)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._collecting is not None:
            self._collecting.cancel()
        sessions, self._sessions = list(self._sessions.values()), {}
        # One session that fails to close must not keep the servers of the others running.
        await asyncio.gather(
            *(session.close() for session in sessions), *self._closing, return_exceptions=True
        )

    async def _collect(self) -> None:
        """Remove the results that have expired since the last gateway."""
        with suppress(StoreError):
            await self.store.gc()

    async def reload(self, config: GatewayConfig) -> None:
        """Take over a changed configuration.

        Removed servers and changed rules take effect at once. An entry that would start or send
        something else waits until it is approved, because an agent may have written it. If an
        entry has become invalid, its server ends, because its rules might deny what it offers.

        Args:
            config: The configuration as its files have it now.
        """
        await in_thread(self.records.load, [*config.servers.values()])
        servers: dict[str, ServerConfig] = {}
        waiting: set[str] = set()
        for name, entry in config.servers.items():
            if self.records.of(entry).may_start:
                servers[name] = entry
                continue
            waiting.add(name)
            # What runs under the name stays, with the rules that are written now.
            if running := self.config.servers.get(name):
                servers[name] = running.model_copy(update={"rules": entry.rules})
        for name, problem in config.left_out.items():
            if problem != self.config.left_out.get(name):
                _log.warning("a server is left out: %s", problem)
        for name in sorted(waiting - self.waiting):
            _log.warning(
                "server %s: its new entry waits for `llm-common gateway approve`, or for a restart "
                "of the host",
                name,
            )
        self.waiting = frozenset(waiting)
        self.config = config.model_copy(update={"servers": servers})
        await asyncio.gather(*(session.reload(self.config) for session in self.sessions))

    @property
    def sessions(self) -> Sequence[HostSession]:
        """Return the sessions that have not ended."""
        return tuple(self._sessions.values())

    def session_of(self, host: HostContext) -> HostSession:
        """Return the session of a host's request, and create it for the first request."""
        key = session_key(host)
        session = self._sessions.get(key)
        if session is None:
            now = time.monotonic()
            for idle_key, idle in [*self._sessions.items()]:
                if not idle.running and now - idle.last_used > _IDLE_S:
                    self._end(idle_key)
            session = self._sessions[key] = HostSession(
                self.config,
                store=self.store,
                scope=scope_of(self.config, host),
                records=self.records,
            )
        return session

    def find(self, authorization: str, session_id: str) -> HostSession | None:
        """Return the session of a host over HTTP, or None if it has sent no request yet.

        Args:
            authorization: The header of its requests with the token.
            session_id: The protocol's id. "" for the hosts of the 2026 protocol with the token.
        """
        return self._sessions.get((authorization, session_id))

    def leave(self, authorization: str, session_id: str) -> None:
        """End the session of a host over HTTP, if there is one. See `find`."""
        key = authorization, session_id
        if key in self._sessions:
            self._end(key)

    def _end(self, key: tuple[str, str]) -> None:
        # Not awaited: the servers of an idle session must not delay a new host.
        closing = asyncio.create_task(self._sessions.pop(key).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _on_initialized(self, host: HostContext, _: types.NotificationParams) -> None:
        session = self.session_of(host)
        with session.serving(host):
            # Started now, the servers are likely ready when the host asks for its first list.
            if not self.config.lazy:
                await session.catalogue.listing()

    def _of_session(self, answer: _Answer) -> Any:
        """Return a handler that answers a request in the session of its host."""

        async def handle(host: HostContext, params: Any) -> Any:
            session = self.session_of(host)
            with session.serving(host):
                return await answer(session, params, host)

        return handle


async def _list_tools(session: HostSession, _: Any, host: HostContext) -> Any:
    result = await session.list_tools()
    # In a thread, because validating thousands of tools takes a second.
    return await in_thread(validated_tools, result, host.protocol_version)


def validated_tools(
    result: types.ListToolsResult, version: str
) -> types.ListToolsResult | dict[str, Any]:
    """Return a list of tools in the form that the SDK sends without validating it again.

    Args:
        result: The list.
        version: The protocol version of the host.
    """
    form: Any = SERVER_RESULTS.get(("tools/list", version))
    if form is None or len(result.tools) <= PAGE_ENTRIES:
        return result
    adapter = TypeAdapter[Any](form)
    empty = result.model_copy(update={"tools": []})
    fields = empty.model_dump(by_alias=True, mode="json", exclude_none=True)
    tools: list[Any] = []
    for begin in range(0, len(result.tools), PAGE_ENTRIES):
        page = result.model_copy(update={"tools": result.tools[begin : begin + PAGE_ENTRIES]})
        dumped = page.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            tools += adapter.validate_python(dumped, by_name=False).tools
        except ValidationError:
            return result  # the SDK reports the error
    return {**fields, "tools": tools}


class _GatewayServer(Server[Any]):
    """A server that announces changes of its lists on every transport."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002 - the transports give none
        *args: Any,
        **kwargs: Any,
    ) -> types.ServerCapabilities:
        """Return the server's capabilities, with announcements for all lists."""
        # The SDK's default announces no changes, and hosts may then ignore them.
        options = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().get_capabilities(options, *args, **kwargs)


def scope_of(config: GatewayConfig, host: HostContext) -> ResultScope:
    """Return the scope of a host's results, which is the same after a restart."""
    if host.request is None:
        return ResultScope.of_process(config.config_paths)
    return ResultScope.of_token(host.request.headers.get("authorization", ""))


def session_key(host: HostContext) -> tuple[str, str]:
    """Return the key of a host's session.

    On stdio, there is one host. Over HTTP, the key depends on the token and on the protocol's
    session id. The protocol of 2026 has no session ids, so its hosts share a session if they share
    a token.
    """
    if host.request is None:
        return "", ""
    headers = host.request.headers
    modern = host.protocol_version in MODERN_PROTOCOL_VERSIONS
    session = "" if modern else headers.get("mcp-session-id", "")
    return headers.get("authorization", ""), session


def store_of(config: GatewayConfig) -> ContextPointerStore:
    """Return the store of the gateway's results, which redacts secrets.

    Raises:
        StoreError: If the system is not POSIX, as the file store requires. `memory_only` works.
    """
    limits: Any = {
        "redact_results": True,
        "max_bytes_per_query": config.max_session_bytes,
        "max_result_bytes": config.max_session_bytes,
    }
    if config.memory_only:
        return InMemoryContextPointerStore(**limits)
    return FileContextPointerStore(config.files_folder / "results", **limits)
