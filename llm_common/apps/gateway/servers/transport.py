"""Start or reach a server, and exchange its messages within limits: `streams_of`."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
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
from mcp_types.methods import parse_server_result
from pydantic import ValidationError
from pydantic_core import from_json

from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.http_bodies import limited_client
from llm_common.apps.gateway.servers.limits import (
    MAX_ENTRIES,
    MAX_LEFT_OUT,
    MAX_LINE_CHARS,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARS,
    PAGE_ENTRIES,
)
from llm_common.apps.gateway.servers.logins import stored_login, wants_more_rights
from llm_common.apps.gateway.servers.long_lists import LongLists
from llm_common.apps.gateway.servers.message_bursts import MessageBursts
from llm_common.apps.gateway.servers.stderr import StderrRelay
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
_LISTS: Final = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


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


@asynccontextmanager
async def streams_of(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    """Yield the streams from and to a server, for the client of the SDK.

    A process that was started is ended afterwards. A line that is too long ends the server. Lines
    that are not messages are skipped, and if one is a broken answer, its request fails. List
    entries that are not valid MCP are left out, so that the valid ones stay.

    Args:
        config: How to start or reach the server.
        wire: Receives the end and the entries that were left out.
    """
    async with _transport(config, wire) as (source, write):
        # Streams without a buffer, so that a slow client slows a flooding server down.
        passing, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        lists = LongLists(write, passing)

        async def pump(bursts: MessageBursts) -> None:
            async with passing:
                async for message in source:
                    if isinstance(message, SessionMessage):
                        if isinstance(message.message, types.JSONRPCResponse):
                            await check_lists(message.message, lists, wire)
                        if not bursts.admits(message):
                            continue
                    with suppress(anyio.BrokenResourceError):  # the client has closed its end
                        await passing.send(message)
            wire.ended.set()

        async with passing, read, anyio.create_task_group() as group:
            group.start_soon(pump, MessageBursts(group, passing.send))
            try:
                yield read, lists
            finally:
                group.cancel_scope.cancel()


async def check_lists(answer: types.JSONRPCResponse, lists: LongLists, wire: Wire) -> None:
    """Remove invalid entries from an answer's lists, and keep all but the first page back."""
    for name in _LISTS:
        if isinstance(answer.result.get(name), list):
            # In a thread, because validating thousands of entries takes seconds.
            await in_thread(remove_invalid_entries, answer.result, name, wire)
            answer.result = lists.first_page(answer.result, name)


def _transport(config: ServerConfig, wire: Wire) -> AbstractAsyncContextManager[Any]:
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


def remove_invalid_entries(result: dict[str, Any], name: str, wire: Wire) -> None:
    """Remove invalid entries from a list, because one of them would fail the whole answer.

    Args:
        result: The result of a request for a list.
        name: The field of its entries.
        wire: The protocol version. Receives the entries that were left out.
    """
    method, entries, valid = _LISTS[name], result[name], list[Any]()
    if len(entries) > MAX_ENTRIES:
        wire.leave_out("the rest", "the list is too long")
    # If the answer is invalid even without entries, no entry can be checked by itself.
    if _problem(method, wire.version, {**result, name: []}):
        entries = []
    for begin in range(0, min(len(entries), MAX_ENTRIES), PAGE_ENTRIES):
        some = entries[begin : min(begin + PAGE_ENTRIES, MAX_ENTRIES)]
        if not _problem(method, wire.version, {**result, name: some}):
            valid += some
            continue
        for entry in some:
            if problem := _problem(method, wire.version, {**result, name: [entry]}):
                title = entry.get("name") if isinstance(entry, dict) else None
                wire.leave_out(str(title), problem)
            else:
                valid.append(entry)
    result[name] = valid


def _problem(method: str, version: str, result: dict[str, Any]) -> str:
    """Return the path of the first invalid field in a result, or "".

    A result counts as valid if its protocol version does not have the method.
    """
    try:
        parse_server_result(method, version, result)
    except KeyError:
        return ""
    except ValidationError as exc:
        return ".".join(str(step) for step in exc.errors()[0]["loc"][2:5]) or "it"
    except ValueError:  # the version is not negotiated yet
        return ""
    return ""
