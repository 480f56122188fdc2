"""A real HTTP endpoint on loopback that answers with given bytes, one script per connection.

    async with loopback(answer(200, ok())) as server:
        client = OpenAICompatibleClient(server.config())

Every connection runs the next script, and the last script repeats. A script is an async function of
a `Wire` that can read the request, send any bytes, wait, close or reset. Connections that are still
open at the end of the block are closed.

`ask_once` and `failure_at` make single calls of it.
"""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from llm_common.core import LLMConfig, LLMMessage, LLMResponse, MessageRole, OpenAICompatibleClient
from llm_common.errors import LLMError

KEY = "sk-canary-0123456789"


@dataclass(frozen=True)
class Received:
    """One request, as received."""

    head: str
    body: dict[str, Any]

    @property
    def authorization(self) -> str | None:
        lines = [
            line for line in self.head.split("\r\n") if line.lower().startswith("authorization:")
        ]
        return lines[0].partition(":")[2].strip() if lines else None


@dataclass
class Wire:
    """The server's side of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[Received]

    async def request(self) -> Received | None:
        """Return the next request, or None if the client has hung up."""
        if self.writer.is_closing():
            return None
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.lower().split("\r\n")
            size = next(
                int(line.split(":")[1]) for line in lines if line.startswith("content-length")
            )
            body = await self.reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return None
        received = Received(head, json.loads(body))
        self.requests.append(received)
        return received

    async def send(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.writer.write(chunk)
            await self.writer.drain()

    def hang_up(self) -> None:
        """End the connection after the sent bytes."""
        self.writer.close()

    def reset(self) -> None:
        """End the connection with a TCP reset, if the platform supports it."""
        self.writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


@dataclass
class Loopback:
    """The running server, with the requests that it received."""

    port: int
    scheme: str = "http"
    requests: list[Received] = field(default_factory=list)
    connections: int = 0

    def config(self, **changes: Any) -> LLMConfig:
        settings = {
            "api_key": SecretStr(KEY),
            "base_url": f"{self.scheme}://127.0.0.1:{self.port}/v1",
            "default_model": "test-model",
            "timeout_s": 60.0,
        }
        return LLMConfig.model_validate(settings | changes)


@asynccontextmanager
async def loopback(
    *scripts: Script, tls: ssl.SSLContext | None = None, max_connections: int = 400
) -> AsyncIterator[Loopback]:
    """Run a server for the duration of the block.

    It hangs up on more connections than a test should need.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        script = scripts[min(server.connections, len(scripts)) - 1]
        try:
            if server.connections <= max_connections:
                await script(Wire(reader, writer, server.requests))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server = Loopback(listener.sockets[0].getsockname()[1], "https" if tls else "http")
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def self_signed(folder: Path) -> ssl.SSLContext:
    """Return the context of a server for 127.0.0.1, after writing its `cert.pem`."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
        "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
    )
    try:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("makes its certificate with openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def ok(content: object = '{"pointer_ids": []}', **fields: Any) -> bytes:
    """Return the body of a good answer, in which `fields` replace top-level fields."""
    payload = {
        "id": "chatcmpl-1",
        "model": "test-model",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": content},
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }
    return json.dumps(payload | fields).encode()


def response(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Return a whole HTTP response."""
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(
        headers or {}
    )
    lines = [
        f"HTTP/1.1 {status} X",
        *(f"{name}: {value}" for name, value in fields.items() if value),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def raw(*chunks: bytes) -> Script:
    """Answer the first request with these bytes, then close."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(*chunks)

    return script


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Script:
    """Answer every request of the connection in the same way."""

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(status, body, headers))

    return script


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(**chunk: Any) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps({"id": "c1", "model": "served", **chunk}).encode() + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """Return an event with a piece of the answer."""
    return event(
        choices=[{"index": 0, "delta": {"content": text, **more}, "finish_reason": finish}]
    )


def dripping(*, pause_s: float, ended: asyncio.Event | None = None) -> Script:
    """Send pieces of an answer for a long time, and set `ended` when the client has left."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        try:
            for number in range(1_000):
                await wire.send(delta(f"{number} "))
                await asyncio.sleep(pause_s)
        finally:
            if ended is not None:
                ended.set()

    return script


MESSAGES = [LLMMessage(role=MessageRole.USER, content="which of these?")]
JSON_MODE = {"type": "json_object"}
Error = TypeVar("Error", bound=LLMError)


async def ask_once(config: LLMConfig, **options: Any) -> LLMResponse:
    async with OpenAICompatibleClient(config) as client:
        return await client.chat_completion(messages=MESSAGES, **options)


async def failure(config: LLMConfig, **options: Any) -> LLMError:
    """Return the error of a call, after a check that its text contains no key."""
    with pytest.raises(LLMError) as caught:
        await ask_once(config, **options)
    error = caught.value
    assert KEY not in f"{error}{error!r}{vars(error)}"
    return error


async def failure_at(
    kind: type[Error], *scripts: Script, options: Mapping[str, Any] | None = None, **config: Any
) -> tuple[Error, Loopback]:
    """Return the error of one call of an endpoint with these scripts, and the endpoint."""
    async with loopback(*scripts) as server:
        error = await failure(server.config(**config), **(options or {}))
    assert isinstance(error, kind)
    return error, server
