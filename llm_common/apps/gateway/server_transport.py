"""`streams_of`: one server's messages, bounded and readable, without malformed list entries."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
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

from llm_common.apps.gateway.gateway_config import ServerConfig
from llm_common.text.display import one_line

MAX_LINE_BYTES: Final = 64_000_000
_END_WAIT_S: Final = 1.0  # twice at most: a host gives the gateway four seconds for its own end
# a stream that is open and silent may be dead
_HTTP_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
MAX_ENTRIES: Final = 10_000
_MAX_LEFT_OUT: Final = 100
_MAX_NAME_CHARS: Final = 60
_HEAD_BYTES: Final = 200
_ID_FIRST: Final = re.compile(rb'\s*\{[^{}\[\]]*?"id"\s*:\s*(\d{1,15})\s*,\s*"(?:result|error)"')
_ANSWER: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(?:result|error)"')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*$')
_TO_MEND: Final = re.compile("\ufffd|\\\\u[dD][89a-fA-F]")
_LISTS: Final = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


@dataclass(slots=True)
class Wire:
    """What is known of a server's stream while it runs.

    Attributes:
        ended: Set when the server says no more, or is to end.
        reason: How it ended.
        version: The protocol's version, once it is agreed on.
        left_out: Entries of its lists that MCP does not know, with what is wrong with each.
    """

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "it ended"
    version: str = ""
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, problem: str) -> None:
        """Notes an entry and what is wrong with it; of a hundred and more that there are others."""
        shown = (
            one_line(name, max_chars=_MAX_NAME_CHARS)
            if len(self.left_out) < _MAX_LEFT_OUT
            else "and others"
        )
        self.left_out[shown] = problem


@asynccontextmanager
async def streams_of(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    """The streams to and from a server, as the client of the SDK takes them.

    Ends a server that was started. A line that is too long ends the server. Lines that are no
    messages are skipped; where one was an answer, the request behind it fails. An entry of a list
    that MCP does not know is left out, and the others stay.

    Args:
        config: How the server is started or reached.
        wire: Is told the end and what was left out.
    """
    async with _transport(config, wire) as (source, write):
        passing, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def pump() -> None:
            async with passing:
                async for message in source:
                    _sift(message, wire)
                    with suppress(anyio.BrokenResourceError):  # the client is gone
                        await passing.send(message)
            wire.ended.set()

        async with passing, read, anyio.create_task_group() as group:
            group.start_soon(pump)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()


def _transport(config: ServerConfig, wire: Wire) -> AbstractAsyncContextManager[Any]:
    if config.command:
        return _of_process(config, wire)
    if config.type == "sse":
        return sse_client(config.url, headers=dict(config.headers))
    return _over_http(config)


@asynccontextmanager
async def _over_http(config: ServerConfig) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers=dict(config.headers), timeout=_HTTP_TIMEOUT) as http,
        streamable_http_client(
            config.url, http_client=http, max_sse_event_size=MAX_LINE_BYTES
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def _of_process(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    """Starts a server.

    The SDK's own way of doing so sets no limit to a line, and logs what it cannot read.
    """
    environment = {**get_default_environment(), **config.env}
    loop = asyncio.get_running_loop()
    # which gives the transport, that can be closed
    transport, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=MAX_LINE_BYTES, loop=loop),
        shutil.which(config.command, path=environment.get("PATH")) or config.command,
        *config.args,
        stderr=None,
        env=environment,
        cwd=config.cwd,
        start_new_session=True,
    )
    stdin, stdout = protocol.stdin, protocol.stdout
    assert stdin is not None
    assert stdout is not None
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with incoming:
            try:
                async for line in stdout:
                    if message := _parsed(line):
                        await incoming.send(message)
            except ValueError:
                wire.reason = f"it sent a line of over {MAX_LINE_BYTES:,} bytes"

    async def send() -> None:
        async with outgoing:
            with suppress(ConnectionError):
                async for message in outgoing:
                    stdin.write(
                        message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                        + b"\n"
                    )
                    await stdin.drain()

    try:
        async with incoming, read, write, outgoing, anyio.create_task_group() as group:
            group.start_soon(receive)
            group.start_soon(send)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            stdin.close()
            await _end(asyncio.subprocess.Process(transport, protocol, loop))
            transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Waits for a server whose stdin is closed, then ends it and what it has started."""
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM), None):
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WAIT_S):
                await process.wait()
        try:
            if number and hasattr(os, "killpg"):
                os.killpg(process.pid, number)
            elif number:
                process.send_signal(number)
        except (ProcessLookupError, PermissionError):
            return


def _parsed(line: bytes) -> SessionMessage | None:
    """A line as a message; an error in place of an answer that cannot be read.

    None for words that are no protocol.
    """
    for mend in (bytes, _mended):
        with suppress(ValueError):
            return SessionMessage(
                types.jsonrpc_message_adapter.validate_json(mend(line), by_name=False)
            )
    head, tail = line[:_HEAD_BYTES], line[-_HEAD_BYTES:]
    found = _ID_FIRST.match(head) or (_ID_LAST.search(tail) if _ANSWER.match(head) else None)
    if not found:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="the answer is no JSON-RPC")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


def _mended(line: bytes) -> bytes:
    """Return the line with U+FFFD for what is not UTF-8, and ? for half a surrogate pair."""
    text = line.decode("utf-8", "replace")
    try:
        value = json.loads(text) if _TO_MEND.search(text) else None
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return b""


def _sift(message: SessionMessage | Exception, wire: Wire) -> None:
    """Takes out of a list what would else fail the whole of it."""
    if isinstance(message, Exception) or not isinstance(message.message, types.JSONRPCResponse):
        return
    result = message.message.result
    for name, method in _LISTS.items():
        entries = result.get(name)
        if not isinstance(entries, list) or not _problem(method, wire.version, result):
            continue
        kept: list[Any] = []
        if len(entries) > MAX_ENTRIES:
            wire.leave_out("the rest", "the list is too long")
        for entry in (
            entries[:MAX_ENTRIES]
            if not _problem(method, wire.version, {**result, name: []})
            else ()
        ):
            if problem := _problem(method, wire.version, {**result, name: [entry]}):
                title = entry.get("name") if isinstance(entry, dict) else None
                wire.leave_out(str(title), problem)
            else:
                kept.append(entry)
        result[name] = kept


def _problem(method: str, version: str, result: dict[str, Any]) -> str:
    """Where a result does not fit what MCP knows.

    "" if it fits, or if the version has no such method.
    """
    try:
        parse_server_result(method, version, result)
    except KeyError:
        return ""
    except ValidationError as exc:
        return ".".join(str(step) for step in exc.errors()[0]["loc"][2:5]) or "it"
    except ValueError:  # no version is agreed on yet
        return ""
    return ""
