"""Start or reach a server: `transport_of`, with its `Wire` and the stderr of a process."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic_core import from_json

from llm_common.agents import Redactor
from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.limits import (
    MAX_LEFT_OUT,
    MAX_LINE_CHARS,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARS,
    limited_client,
)
from llm_common.apps.gateway.servers.logins import stored_login, wants_more_rights
from llm_common.runtime import in_thread, in_thread_if_long
from llm_common.text import one_line

_LAST_WORDS_WAIT_S: Final = 0.5
_END_WAIT_S: Final = 1.0  # at most twice, because hosts give the gateway four seconds to end
# An open stream without data for five minutes may be dead.
_HTTP_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
# The id of a broken answer is searched near both ends of its line, in linear time.
_HEAD_BYTES: Final = 200
_ID_FIRST: Final = re.compile(rb'\s*\{[^{}\[\]]*?"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ANSWER: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*$')
# Replacement characters of a failed decoding, and escapes of half a surrogate pair.
_UNREADABLE: Final = re.compile("\ufffd|\\\\u[dD][89a-fA-F]")

_MAX_LINE_BYTES: Final = 8_192  # a longer line is passed on in parts
_KEPT_LINES: Final = 20
_MAX_HELD_LINES: Final = 300
_STDERR: Final = 2
# The line of a traceback that says what went wrong. Other words may follow it.
_ERROR: Final = re.compile(r"^\s*(?:Uncaught )?[\w.]*(?:Error|Exception)\b.*: ?\S")
# A server of the SDK below 2.0 refuses the question for its protocol with some hundred lines.
_REFUSAL: Final = re.compile(rb"Failed to validate request: \d+ validation errors for ClientReq")
_REFUSAL_LINE: Final = re.compile(rb"\s|\w+(?:\.\w+)+\s*$|(?:\w+:)*Message that failed validation")
_PROBE: Final = b"server/discover"


@dataclass(slots=True)
class Wire:
    """The state of a server's stream, from one start of the server to its end.

    Attributes:
        name: The server's name.
        ended: Set when the stream has ended or is to end.
        reason: How the stream ended.
        details: The exit status and the last words of a process, or the HTTP status of a refusal.
        version: The protocol version, once it is negotiated.
        instructions: What the server tells hosts about itself.
        left_out: Entries of the server's lists that are not valid MCP, with the problem of each.
    """

    name: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "it ended"
    details: str = ""
    version: str = ""
    instructions: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, problem: str) -> None:
        """Note an entry and its problem. After a hundred, the others share one note."""
        label = "and others"
        if len(self.left_out) < MAX_LEFT_OUT:
            label = one_line(name, max_chars=MAX_NAME_CHARS)
        self.left_out[label] = problem


class StderrRelay:
    """Reads a server's stderr in a thread, and writes it to the stderr of this process.

    Each line begins with the server's name. A thread, because a full pipe of the host may stop the
    writing, which must stop this server only, as it does without the gateway.

    Args:
        name: The server's name.

    Attributes:
        sink: The descriptor that the server writes to. The caller closes it after the start.
    """

    def __init__(self, name: str) -> None:
        source, self.sink = os.pipe()
        self._prefix = f"[{one_line(name, max_chars=MAX_NAME_CHARS)}] ".encode()
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._held: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=[source], daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the server and its child processes have closed their stderr."""
        self._thread.join(timeout_s)

    def last_words(self) -> str:
        """Return the line that best says why the server ended, without secrets, or ""."""
        lines = [line.decode("utf-8", "replace").strip() for line in list(self._lines)]
        lines = [line for line in lines if line]
        errors = [line for line in lines if _ERROR.match(line)]
        if not lines:
            return ""
        line = (errors or lines)[-1]
        return one_line(Redactor().text(line), max_chars=MAX_LINE_CHARS)

    def _read(self, source: int) -> None:
        with suppress(OSError), open(source, "rb") as stderr:
            while line := stderr.readline(_MAX_LINE_BYTES):
                self._pass_on(line)
            self._release()

    def _pass_on(self, line: bytes) -> None:
        if _REFUSAL.search(line):
            self._release()
            self._held.append(line)
        elif self._held and _REFUSAL_LINE.match(line) and len(self._held) < _MAX_HELD_LINES:
            self._held.append(line)
        else:
            self._release()
            self._write(line)

    def _release(self) -> None:
        """Write the held lines, unless they refuse the question for the protocol."""
        held, self._held = self._held, []
        if not any(_PROBE in line for line in held):
            for line in held:
                self._write(line)

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        rest = self._prefix + line
        if not line.endswith(b"\n"):
            rest += b"\n"
        with suppress(OSError):  # the host has closed its end
            while rest:
                rest = rest[os.write(_STDERR, rest) :]


def transport_of(config: ServerConfig, wire: Wire) -> AbstractAsyncContextManager[Any]:
    """Return the context of a server's streams, which ends a process that it has started."""
    if config.command:
        return _of_process(config, wire)
    if config.type == "sse":
        return sse_client(
            config.url,
            headers=dict(config.headers),
            auth=stored_login(config),
            httpx_client_factory=partial(limited_client, streams=("GET",)),
        )
    return _over_http(config, wire)


@asynccontextmanager
async def _over_http(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    async def note_status(response: httpx2.Response) -> None:
        # A server may refuse the stream of a GET request, which it does not need.
        if response.request.method == "POST":
            wire.details = _refusal(response, wire.name, has_token=not config.may_need_login)

    async with (
        limited_client(
            streams=("GET", "POST"),
            headers=config.headers,
            hooks=[note_status],
            auth=stored_login(config),
            timeout=_HTTP_TIMEOUT,
        ) as http,
        streamable_http_client(
            config.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def _of_process(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    """Start a server's process and yield the streams.

    The SDK's own client for stdio has no limit for a line, and logs lines that it cannot read.
    """
    environment = {**get_default_environment(), **config.env}
    loop = asyncio.get_running_loop()
    relay = StderrRelay(wire.name)
    try:
        # Not `create_subprocess_exec`, which does not return the transport to close.
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MAX_MESSAGE_BYTES, loop=loop),
            shutil.which(config.command, path=environment.get("PATH")) or config.command,
            *config.args,
            stderr=relay.sink,
            env=environment,
            cwd=config.cwd,
            start_new_session=True,  # a process group, which `_end` can signal as a whole
        )
    finally:
        os.close(relay.sink)
    process = asyncio.subprocess.Process(transport, protocol, loop)
    stdin, stdout = protocol.stdin, protocol.stdout
    assert stdin is not None
    assert stdout is not None
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with incoming:
            try:
                async for line in stdout:
                    message = await in_thread_if_long(len(line), _parsed, line)
                    if message is not None:
                        await incoming.send(message)
            except ValueError:
                wire.reason = f"it sent a line of over {MAX_MESSAGE_BYTES:,} bytes"
            else:
                # Before the stream ends, because its users report the details.
                wire.details = await _how_it_ended(process, relay)

    async def send() -> None:
        async with outgoing:
            # A server that has ended is noticed at the end of its stdout.
            with suppress(ConnectionError):
                async for message in outgoing:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(line.encode() + b"\n")
                    await stdin.drain()

    with _guarded(process.pid):
        try:
            async with incoming, read, write, outgoing, anyio.create_task_group() as group:
                group.start_soon(receive)
                group.start_soon(send)
                try:
                    yield read, write
                finally:
                    group.cancel_scope.cancel()
        finally:
            # Shielded, because a cancelled task cannot wait, and the process would stay.
            with anyio.CancelScope(shield=True):
                stdin.close()
                await _end(process)
                transport.close()


@contextmanager
def _guarded(pid: int) -> Iterator[None]:
    """Kill a process and its children if this process is killed inside the block.

    A gateway that is killed could not end the servers that do not end with their stdin.
    """
    if not hasattr(os, "killpg"):
        yield
        return
    # Its stdin ends with this process. Its own session keeps it from signals to this one's group.
    guard = subprocess.Popen(  # noqa: S603 - a fixed command
        ["/bin/sh", "-c", f"read _; kill -s KILL -- -{pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


async def _how_it_ended(process: asyncio.subprocess.Process, relay: StderrRelay) -> str:
    """Return the exit status and the last words of a server that has closed its stdout."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_WAIT_S):
            await process.wait()
    status = process.returncode
    if status is None:
        return ""
    # A child process of the server may keep its stderr open.
    await in_thread(relay.join, _LAST_WORDS_WAIT_S)
    name = f"exit {status}" if status >= 0 else signal.Signals(-status).name
    return ": ".join(filter(None, [name, relay.last_words()]))


def _refusal(response: httpx2.Response, name: str, *, has_token: bool) -> str:
    """Return the status of a refused request, and what the server wants instead, or ""."""
    if not response.is_error:
        return ""
    reason = f"{response.status_code} {response.reason_phrase}".strip()
    challenge = response.headers.get("www-authenticate", "")
    if response.status_code == httpx2.codes.UNAUTHORIZED and challenge:
        reason = f"401, wants a login; run llm-common gateway login {name}"
    elif wants_more_rights(response):
        reason = f"403, wants a login with more rights; run llm-common gateway login {name}"
    if has_token and "wants a login" in reason:
        reason = f"{response.status_code}, wants another token in its headers"
    return one_line(reason, max_chars=MAX_LINE_CHARS)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for a server whose stdin is closed, then end it and its child processes."""
    # The group is signalled even after the server has ended, because its children may live on.
    # Windows has no SIGKILL, but ends a process at SIGTERM anyway.
    for signal_number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM), None):
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WAIT_S):
                await process.wait()
        try:
            if signal_number and hasattr(os, "killpg"):
                os.killpg(process.pid, signal_number)
            elif signal_number:
                process.send_signal(signal_number)
        except (ProcessLookupError, PermissionError):
            return


def _parsed(line: bytes) -> SessionMessage | None:
    """Return a line as a message, or as an error if it is a broken answer.

    Returns None for a line that is not a message, such as a line of a log.
    """
    for readable in (bytes, _repaired):
        with suppress(ValueError):
            # In two steps: `validate_json` would read the JSON again for each kind of message.
            message = from_json(readable(line))
            return SessionMessage(
                types.jsonrpc_message_adapter.validate_python(message, by_name=False)
            )
    # Requests of the server have ids too, so an id counts only beside a result or an error.
    head, tail = line[:_HEAD_BYTES], line[-_HEAD_BYTES:]
    match = _ID_FIRST.match(head)
    if not match and _ANSWER.match(head):
        match = _ID_LAST.search(tail)
    if not match:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="the answer is not valid JSON-RPC")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(match[1]), error=error))


def _repaired(line: bytes) -> bytes:
    """Return a line with U+FFFD for invalid UTF-8, and ? for half a surrogate pair."""
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text) if _UNREADABLE.search(text) else None
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return b""
