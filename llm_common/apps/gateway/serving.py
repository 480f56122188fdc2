"""Run a gateway on stdio or over HTTP, record what it did, and check a configuration."""

import asyncio
import hmac
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from mcp import stdio_server
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from llm_common.apps.gateway.gateway import Gateway, store_of
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.host_results import GatewayCounts
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.server_connection import HostAbilities
from llm_common.errors import ConfigError
from llm_common.folders.tree_index import default_cache_dir

_RECORD_EVERY_S: Final = 2.0
_KEPT_RECORDS: Final = 20


class ServerReport(BaseModel):
    """A server as a gateway sees it.

    Attributes:
        name: Its name.
        tools: How many tools it gives.
        problem: Why it gives none; "" if it does.
        left_out: Entries of its lists that cannot be passed on, with what is wrong with each.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    tools: int = 0
    problem: str = ""
    left_out: tuple[str, ...] = ()


class GatewayReport(BaseModel):
    """A gateway's servers, and what it saves and costs.

    Attributes:
        pid: Its process.
        started_at: When it began, in seconds since 1970.
        running: Whether the process is there.
        servers: Its servers.
        tokens_of_all: Tokens of the definitions of all tools.
        tokens_listed: Tokens of the definitions that a host sees, the gateway's own included.
        calls: Calls of the servers' tools.
        results_kept: Results that were replaced by previews.
        tokens_not_sent: Tokens of these results, less those of the previews.
        tokens_read_back: Tokens of what was read, found and listed of them, and of searches for
            tools.
    """

    model_config = ConfigDict(frozen=True)

    pid: int = Field(default_factory=os.getpid)
    started_at: float = Field(default_factory=time.time)
    running: bool = True
    servers: tuple[ServerReport, ...] = ()
    tokens_of_all: int = 0
    tokens_listed: int = 0
    calls: int = 0
    results_kept: int = 0
    tokens_not_sent: int = 0
    tokens_read_back: int = 0


def report_on(session: HostSession, counts: GatewayCounts) -> GatewayReport:
    """Return what a session sees, and what its gateway did."""
    listing = session.known()
    problems = session.problems()
    tools = Counter(tool.server for tool in listing.tools.values())
    servers = []
    for name, connection in session.connections.items():
        left_out = [f"{entry} ({problem})" for entry, problem in connection.wire.left_out.items()]
        report = ServerReport(
            name=name,
            tools=tools[name],
            problem=problems.get(name, ""),
            left_out=tuple(left_out),
        )
        servers.append(report)
    return GatewayReport(
        servers=tuple(servers),
        tokens_of_all=listing.tokens,
        tokens_listed=session.shown_tokens(),
        calls=counts.calls,
        results_kept=counts.kept,
        tokens_not_sent=counts.tokens_not_sent,
        tokens_read_back=counts.tokens_read_back,
    )


async def examine(config: GatewayConfig) -> GatewayReport:
    """Return what a gateway would see: start every server, list its tools, and end it."""
    patient = config.model_copy(
        update={"memory_only": True, "list_wait_s": 2 * config.start_timeout_s + 1}
    )
    session = HostSession(patient, abilities=HostAbilities(), store=store_of(patient))
    try:
        await session.listing()
        return report_on(session, session.results.counts)
    finally:
        await session.close()


def reports(config: GatewayConfig) -> list[GatewayReport]:
    """What the gateways of this user's folder did, the newest first; at most the last twenty."""
    found = []
    for path in _records(config):
        with suppress(OSError, ValueError):
            report = GatewayReport.model_validate_json(path.read_bytes())
            found.append(report.model_copy(update={"running": _is_running(report.pid)}))
    return found


async def serve_stdio(config: GatewayConfig) -> None:
    """Serve one host on stdin and stdout, until it closes them or the process gets SIGTERM."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    stdin: Any = _lines_of_stdin(lines)
    async with Gateway(config) as gateway, _recorded(config, gateway):
        _at_sigterm(lambda: lines.put_nowait(b""))
        async with stdio_server(stdin=stdin) as (read, write):
            await gateway.server.run(read, write, gateway.server.create_initialization_options())


async def _lines_of_stdin(lines: asyncio.Queue[bytes]) -> AsyncIterator[str]:
    """The lines, up to an empty one.

    A thread that waits for more of them does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # the loop may be closed
            with suppress(OSError), open(0, "rb", closefd=False) as stdin:
                for line in iter(stdin.readline, b""):
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        yield line.decode("utf-8", "replace")


def _at_sigterm(act: Callable[[], None]) -> None:
    """Call `act` at SIGTERM, which would else end the process before its servers and results."""
    with suppress(NotImplementedError):  # Windows has no such signals
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, act)


async def serve_http(
    config: GatewayConfig,
    *,
    tokens: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 0,
    tell: Callable[[str], object] = lambda _: None,
) -> None:
    """Serves hosts over streamable HTTP at `/mcp`, until the process is told to end.

    Args:
        config: Servers, rules and limits.
        tokens: A host has to send one as a bearer; hosts with a token each cannot read one
            another's results.
        host: An address of this machine alone.
        port: Where to listen; 0 takes a free one.
        tell: Is given the address, once the port is taken.

    Raises:
        ConfigError: The address is not of this machine alone, the port is taken or not allowed, or
            a token is missing or short.
    """
    import uvicorn  # noqa: PLC0415 - the other way of serving needs none

    if not (host == "localhost" or _is_loopback(host)):
        raise ConfigError(
            f"{host} can be reached from outside; use 127.0.0.1", variable="host", value=host
        )
    known = checked_tokens(tokens)
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (OSError, OverflowError) as exc:
        why = (
            os.strerror(exc.errno or 0) if isinstance(exc, OSError) else "there is none over 65535"
        )
        reason = f"port {port} cannot be used ({why}); take another, or 0 for a free one"
        raise ConfigError(reason, variable="port", value=str(port)) from exc
    with listening:
        tell(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/mcp")
        async with Gateway(config) as gateway, _recorded(config, gateway):
            app = _guarded(gateway.server.streamable_http_app(host=host), known, gateway.leave)
            settings = uvicorn.Config(
                app, host=host, log_level="warning", timeout_graceful_shutdown=3
            )
            # uvicorn ends by itself, and then sends itself the signal again
            _at_sigterm(lambda: None)
            await uvicorn.Server(settings).serve(sockets=[listening])


def _guarded(app: ASGIApp, tokens: Sequence[str], leave: Callable[[Headers], None]) -> ASGIApp:
    """The application for those who send one of the tokens; hosts leave with a DELETE."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else None
        if headers is not None and not is_known_token(headers.get("authorization", ""), tokens):
            refusal = PlainTextResponse(
                "send the gateway's token as a bearer\n", 401, {"www-authenticate": "Bearer"}
            )
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)
        if headers is not None and scope["method"] == "DELETE":
            leave(headers)

    return guarded


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
        raise ConfigError(
            "a token needs 16 characters or more; make one with openssl rand -hex 16",
            variable="token",
        )
    return tuple(tokens)


@asynccontextmanager
async def _recorded(config: GatewayConfig, gateway: Gateway) -> AsyncIterator[None]:
    """Keep a record of what the gateway did in its folder, for `reports`.

    None with `memory_only`.
    """
    if config.memory_only:
        yield
        return
    path = _folder(config) / f"{time.time_ns()}-{os.getpid()}.json"
    recording = asyncio.create_task(_record(path, gateway))
    try:
        yield
    finally:
        recording.cancel()
        await asyncio.wait({recording})
        with suppress(OSError):
            for old in _records(config)[_KEPT_RECORDS:]:
                old.unlink(missing_ok=True)


async def _record(path: Path, gateway: Gateway) -> None:
    started_at, last = time.time(), None
    while True:
        try:
            await asyncio.sleep(_RECORD_EVERY_S)
        finally:  # also at the end
            for session in gateway.sessions[:1]:
                report = report_on(session, gateway.counts)
                report = report.model_copy(update={"started_at": started_at})
                if report != last:
                    with suppress(OSError):  # the disk may have room again next time
                        _write_report(path, report)
                        last = report


def _write_report(path: Path, report: GatewayReport) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(report.model_dump_json(exclude={"running"}), encoding="utf-8")
    new.replace(path)


def _records(config: GatewayConfig) -> list[Path]:
    return sorted(_folder(config).glob("*.json"), reverse=True)


def _folder(config: GatewayConfig) -> Path:
    return (config.folder or default_cache_dir() / "gateway") / "runs"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
