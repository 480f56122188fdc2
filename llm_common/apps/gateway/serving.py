"""Run a gateway on stdio or over HTTP, follow its files, and report on its servers."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp import stdio_server
from pydantic import BaseModel, ConfigDict

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.gateway import Gateway, store_of
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.http_tenants import HttpTenants, checked_tokens
from llm_common.errors import ConfigError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

# A thread that computes keeps Python's lock for so long while the event loop waits for it. Python's
# own 5 ms come again at each piece of a message: sixteen results of 3 MB took twice the time.
_SWITCH_S: Final = 0.001
_WATCH_EVERY_S: Final = 2.0
# Tokens are sent in the clear, so only this machine may connect.
_HOST: Final = "127.0.0.1"


class ServerReport(BaseModel):
    """The state of a server in a gateway.

    Attributes:
        name: The server's name.
        tools: Number of its tools.
        problem: The reason why it has no tools, or "".
        left_out: Entries of its lists that are not valid, with the problem of each.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    tools: int = 0
    problem: str = ""
    left_out: tuple[str, ...] = ()


class GatewayReport(BaseModel):
    """The servers of a gateway, with the tokens that its lists save and cost.

    Attributes:
        servers: The servers.
        idle_rules: Rules that match no tool, such as `deny drop_table of git`. Empty if a server
            has not listed its tools.
        tokens_of_all: Tokens of the definitions of all tools, as the servers wrote them.
        tokens_listed: Tokens of the definitions that a host lists, with the gateway's own tools and
            instructions.
        searched: Whether a host lists tools to search and call instead of all tools.
        tokens_otherwise: What `tokens_listed` would be if it were the other way round.
    """

    model_config = ConfigDict(frozen=True)

    servers: tuple[ServerReport, ...] = ()
    idle_rules: tuple[str, ...] = ()
    tokens_of_all: int = 0
    tokens_listed: int = 0
    searched: bool = False
    tokens_otherwise: int = 0


def report_on(session: HostSession) -> GatewayReport:
    """Return a report on a session's servers.

    Args:
        session: A session of the gateway.
    """
    listing = session.catalogue.current
    tools = Counter(tool.server for tool in listing.tools.values())
    servers: list[ServerReport] = []
    for name, offer in session.catalogue.servers.items():
        left_out = offer.connection.wire.left_out
        report = ServerReport(
            name=name,
            tools=tools[name],
            problem=offer.problem,
            left_out=tuple(f"{entry} ({problem})" for entry, problem in left_out.items()),
        )
        servers.append(report)
    for name, problem in session.catalogue.config.left_out.items():
        servers.append(ServerReport(name=name, problem=problem))
    return GatewayReport(
        servers=tuple(servers),
        idle_rules=session.catalogue.idle_rules(),
        tokens_of_all=listing.server_tokens,
        tokens_listed=session.listed_tokens(searched=listing.searched),
        searched=listing.searched,
        tokens_otherwise=session.listed_tokens(searched=not listing.searched),
    )


async def examine(config: GatewayConfig) -> GatewayReport:
    """Start every server, list its tools, end it, and return the report."""
    config = config.model_copy(update={"memory_only": True})
    session = HostSession(config, store=store_of(config))
    try:
        await session.catalogue.listing_of_all()
        return report_on(session)
    finally:
        await session.close()


async def serve_stdio(config: GatewayConfig) -> None:
    """Serve one host on stdin and stdout, until it closes them or the process gets SIGTERM.

    Changes of the files of the configuration take effect.

    Args:
        config: Servers, rules and limits.
    """
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    stdin: Any = _lines_of_stdin(lines)
    async with _running(config) as gateway:
        # An empty line ends the input, so the servers end before this process.
        _at_sigterm(lambda: lines.put_nowait(b""))
        async with stdio_server(stdin=stdin) as (read, write):
            await gateway.server.run(read, write, gateway.server.create_initialization_options())


async def _lines_of_stdin(lines: asyncio.Queue[bytes]) -> AsyncIterator[str]:
    """Yield the lines of stdin, until an empty one is in the queue."""
    # A daemon thread: a read that waits for more input must not keep the process alive.
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # the event loop is closed
            with suppress(OSError), open(0, "rb", closefd=False) as stdin:
                for line in iter(stdin.readline, b""):
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        # An error of the decoding would end the session, and not only fail this message.
        yield line.decode("utf-8", "replace")


def _at_sigterm(act: Callable[[], None]) -> None:
    """Call `act` at SIGTERM, so that the servers and results are cleaned up before the end."""
    with suppress(NotImplementedError):  # Windows has no signal handlers in the event loop
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, act)


async def serve_http(
    config: GatewayConfig,
    *,
    tokens: Sequence[str],
    port: int = 0,
    on_listening: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve hosts of this machine over streamable HTTP at `/mcp`, until a signal to end.

    Changes of the files of the configuration take effect.

    Args:
        config: Servers, rules and limits.
        tokens: Bearer tokens, one of which a host has to send. Hosts with different tokens cannot
            read each other's results.
        port: The port of 127.0.0.1 to listen on. 0 for a free one.
        on_listening: Called with the gateway's URL once it listens.

    Raises:
        ConfigError: If the port is taken or not allowed, or a token is missing or too short.
    """
    import uvicorn  # noqa: PLC0415 - serving on stdio does not need it

    checked = checked_tokens(tokens)
    try:
        listening = socket.create_server((_HOST, port))
    except (OSError, OverflowError) as exc:
        problem = "65535 is the highest"
        if isinstance(exc, OSError):
            problem = os.strerror(exc.errno or 0)
        reason = f"port {port} cannot be used ({problem}); choose another one, or 0 for a free one"
        raise ConfigError(reason, variable="port", value=str(port)) from exc
    with listening:
        # The socket queues connections already, so hosts may connect from now on.
        on_listening(f"http://{_HOST}:{listening.getsockname()[1]}/mcp")
        async with _running(config) as gateway:
            # The gateway ends the servers of idle sessions, and keeps their ids.
            sessions = gateway.server.streamable_http_app(host=_HOST, session_idle_timeout=None)
            app = HttpTenants(sessions, gateway, checked)
            # Hosts keep their streams open, so uvicorn would wait for them without end.
            settings = uvicorn.Config(
                app, host=_HOST, log_level="warning", timeout_graceful_shutdown=3
            )
            # uvicorn handles SIGTERM and then raises it again, which would end the process here.
            _at_sigterm(lambda: None)
            await uvicorn.Server(settings).serve(sockets=[listening])


@asynccontextmanager
async def _running(config: GatewayConfig) -> AsyncIterator[Gateway]:
    """Yield a gateway that has this process to itself, with what runs beside it."""
    sys.setswitchinterval(_SWITCH_S)
    async with Gateway(config) as gateway:
        watching = asyncio.create_task(ConfigWatch(gateway).run())
        try:
            yield gateway
        finally:
            watching.cancel()
            await asyncio.wait({watching})  # does not raise the cancellation


class ConfigWatch:
    """Compares the configuration files, and the approvals, with what a gateway uses.

    A file that cannot be read changes nothing, and a log line says so.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        # Taken before the first wait, so that a change during the start is not missed.
        self._states = self._read_states()

    async def run(self) -> None:
        """Follow changes of the files, if there are any, until the task is cancelled."""
        while self._gateway.config.config_paths:
            await asyncio.sleep(_WATCH_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Take over what has changed since the last check."""
        states = await in_thread(self._read_states)
        if states == self._states:
            return
        self._states = states
        try:
            config = await in_thread(self._gateway.config.reread)
        except ConfigError as exc:
            _log.warning("the changed configuration is not used: %s", exc.message)
            return
        await self._gateway.reload(config)

    def _read_states(self) -> list[object]:
        """Return values that change with the files of the configuration and of the approvals."""
        states: list[object] = [self._gateway.records.etag()]
        for path in self._gateway.config.config_paths:
            try:
                status = path.stat()
            except OSError as exc:
                states.append(exc.errno)
            else:
                states.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return states
