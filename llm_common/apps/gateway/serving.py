"""Run a gateway on stdio or over HTTP, follow its files, and record what it did."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from mcp import stdio_server
from pydantic import BaseModel, ConfigDict, Field

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.gateway import Gateway, folder_of, store_of
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.http_tenants import HttpTenants, checked_tokens
from llm_common.errors import ConfigError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

# A thread that computes keeps Python's lock for so long while the event loop waits for it. Python's
# own 5 ms come again at each piece of a message: sixteen results of 3 MB took twice the time.
_SWITCH_S: Final = 0.001
_RECORD_EVERY_S: Final = 2.0
_WATCH_EVERY_S: Final = 2.0
_MAX_RECORDS: Final = 20
_FOLDER: Final = "runs"
# Tokens are sent in the clear, so only this machine may connect.
_HOST: Final = "127.0.0.1"


class ServerReport(BaseModel):
    """The state of a server in a gateway.

    Attributes:
        name: The server's name.
        tools: Number of its tools.
        problem: The reason why it has no tools, or "".
        left_out: Entries of its lists that are not valid, with the problem of each.
        changed: Tools that changed after they were approved.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    tools: int = 0
    problem: str = ""
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class GatewayReport(BaseModel):
    """The servers of a gateway, with the tokens that it saves and costs.

    Attributes:
        pid: The id of its process.
        started_at: The start time, in seconds since 1970.
        running: Whether the process still runs.
        servers: The servers.
        waiting: New or changed servers that wait for `llm-common gateway approve`.
        idle_rules: Rules that match no tool, such as `deny drop_table of git`. Empty while a server
            has not listed its tools.
        tokens_of_all: Tokens of the definitions of all tools, as the servers wrote them.
        tokens_listed: Tokens of the definitions that a host lists, with the gateway's own tools and
            instructions.
        searched: Whether a host lists tools to search and call instead of all tools.
        tokens_otherwise: What `tokens_listed` would be if it were the other way round.
        calls: Calls of the servers' tools.
        results_kept: Results that were replaced by previews.
        tokens_not_sent: Tokens of these results without the tokens of their previews.
        tokens_read_back: Tokens of the answers that read, search and list results, or search for
            tools.
    """

    model_config = ConfigDict(frozen=True)

    pid: int = Field(default_factory=os.getpid)
    started_at: float = Field(default_factory=time.time)
    running: bool = True
    servers: tuple[ServerReport, ...] = ()
    waiting: tuple[str, ...] = ()
    idle_rules: tuple[str, ...] = ()
    tokens_of_all: int = 0
    tokens_listed: int = 0
    searched: bool = False
    tokens_otherwise: int = 0
    calls: int = 0
    results_kept: int = 0
    tokens_not_sent: int = 0
    tokens_read_back: int = 0


def report_on(session: HostSession) -> GatewayReport:
    """Return a report on a session's servers, with the counts of its gateway.

    Args:
        session: A session of the gateway.
    """
    listing, counts = session.catalogue.current, session.results.counts
    tools = Counter(tool.server for tool in listing.tools.values())
    servers: list[ServerReport] = []
    for name, offer in session.catalogue.servers.items():
        left_out = offer.connection.wire.left_out
        report = ServerReport(
            name=name,
            tools=tools[name],
            problem=offer.problem,
            left_out=tuple(f"{entry} ({problem})" for entry, problem in left_out.items()),
            changed=tuple(sorted(session.catalogue.changed.get(name, ()))),
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
        calls=counts.calls,
        results_kept=counts.kept,
        tokens_not_sent=counts.tokens_not_sent,
        tokens_read_back=counts.tokens_read_back,
    )


async def examine(config: GatewayConfig) -> GatewayReport:
    """Start every server, list its tools, end it, and return the report.

    Servers that a running gateway holds back count as waiting.
    """
    held: set[str] = set()
    for report in await in_thread(reports, config):
        if report.running:
            held |= {name for name in report.waiting if name in config.servers}
    config = config.model_copy(update={"memory_only": True})
    session = HostSession(config, store=store_of(config))
    try:
        await session.catalogue.listing_of_all()
        report = report_on(session)
        return report.model_copy(update={"waiting": tuple(sorted(held))})
    finally:
        await session.close()


def reports(config: GatewayConfig) -> list[GatewayReport]:
    """Return the reports of the last gateways in the configured folder, newest first."""
    recorded: list[GatewayReport] = []
    for path in _records(config):
        with suppress(OSError, ValueError):
            report = GatewayReport.model_validate_json(path.read_bytes())
            recorded.append(report.model_copy(update={"running": _is_running(report.pid)}))
    return recorded


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
            app = HttpTenants(gateway.server.streamable_http_app(host=_HOST), gateway, checked)
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
    async with (
        Gateway(config) as gateway,
        _beside(_record(config, gateway)),
        _beside(ConfigWatch(gateway).run()),
    ):
        yield gateway


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


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine until the block ends, and then let it clean up."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})  # does not raise the cancellation


async def _record(config: GatewayConfig, gateway: Gateway) -> None:
    """Keep a record of the gateway in its folder, for `reports`, unless `memory_only` is set."""
    if config.memory_only:
        return
    path = folder_of(config) / _FOLDER / f"{time.time_ns()}-{os.getpid()}.json"
    started_at, last = time.time(), None
    try:
        while True:
            await asyncio.sleep(_RECORD_EVERY_S)
            last = _write_if_changed(path, gateway, started_at, last)
    finally:  # the gateway ends, so this task is cancelled
        _write_if_changed(path, gateway, started_at, last)
        with suppress(OSError):
            for old in _records(config)[_MAX_RECORDS:]:
                old.unlink(missing_ok=True)


def _write_if_changed(
    path: Path, gateway: Gateway, started_at: float, last: GatewayReport | None
) -> GatewayReport | None:
    """Write the report on a gateway if it differs from the last one, and return the written one."""
    # All sessions have the same servers, so a report on one of them is enough.
    for session in gateway.sessions[:1]:
        changes = {"started_at": started_at, "waiting": tuple(sorted(gateway.waiting))}
        report = report_on(session).model_copy(update=changes)
        if report != last:
            with suppress(OSError):  # a full disk may have space again later
                _write_report(path, report)
                return report
    return last


def _write_report(path: Path, report: GatewayReport) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written to another file and renamed, so that a reader never gets half a report.
    new = path.with_suffix(".new")
    new.write_text(report.model_dump_json(exclude={"running"}), encoding="utf-8")
    new.replace(path)


def _records(config: GatewayConfig) -> list[Path]:
    # A name begins with the start time in nanoseconds, so the newest is first.
    return sorted((folder_of(config) / _FOLDER).glob("*.json"), reverse=True)


def _is_running(pid: int) -> bool:
    try:
        # Signal 0 only checks whether the process exists.
        os.kill(pid, 0)
    except OSError:
        return False
    return True
