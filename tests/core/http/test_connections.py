"""Calls share connections, and no bytes of an earlier answer begin the next one.

`has_stray_bytes` is imported from its module, since packages with other buffers cannot be installed
beside those that the tests need.
"""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from llm_common.core import LLMMessage, MessageRole, OpenAICompatibleClient
from llm_common.core.http.endpoint import has_stray_bytes
from llm_common.errors import LLMConnectionError
from tests.core.loopback import (
    MESSAGES,
    Loopback,
    Script,
    Wire,
    answer,
    loopback,
    ok,
    response,
    self_signed,
)
from tests.forking import run_in_child

Ask = Callable[[OpenAICompatibleClient, str], Coroutine[None, None, str]]

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
STOLEN = response(200, ok("of another call"))


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def echo_of(body: dict[str, object]) -> bytes:
    """Return an answer that repeats the last message, streamed if the request asks for it."""
    messages = body["messages"]
    assert isinstance(messages, list)
    text = messages[-1]["content"]
    if not body.get("stream"):
        return response(200, ok(text))
    event = f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n'.encode()
    return STREAM + chunk(event) + chunk(b"data: [DONE]\n\n") + END


async def echo(wire: Wire) -> None:
    """Repeat the last message of each request."""
    while (request := await wire.request()) is not None:
        await wire.send(echo_of(request.body))


async def ask(client: OpenAICompatibleClient, text: str) -> str:
    message = LLMMessage(role=MessageRole.USER, content=text)
    content = (await client.chat_completion([message])).content
    assert isinstance(content, str)
    return content


async def ask_streamed(client: OpenAICompatibleClient, text: str) -> str:
    message = LLMMessage(role=MessageRole.USER, content=text)
    async with aclosing(client.stream([message])) as deltas:
        texts = [delta.text async for delta in deltas]
    return "".join(texts)


both_ways = pytest.mark.parametrize("send", [ask, ask_streamed], ids=["whole", "streamed"])


@both_ways
@pytest.mark.parametrize("parallel", [1, 8])
async def test_a_hundred_calls_share_their_connections_f_128(send: Ask, parallel: int) -> None:
    async with loopback(echo) as server, OpenAICompatibleClient(server.config()) as client:
        slots = asyncio.Semaphore(parallel)

        async def call(number: int) -> None:
            async with slots:
                assert await send(client, str(number)) == str(number)

        await asyncio.gather(*(call(number) for number in range(100)))
        assert len(server.requests) == 100
        assert server.connections <= parallel


STRAY = {
    "a second answer": [STOLEN],
    "part of an answer": [STOLEN[:40]],
    "a second answer in pieces": [STOLEN[:70], STOLEN[70:]],
    "a second answer later": [b"", STOLEN],
    "a second answer after an empty line": [b"\r\n" + STOLEN],
    "an open header": [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Rest: "],
    "an empty line": [b"\r\n"],
    "one byte": [b"}"],
}


# Makes an answer that fills a read of 65,536 bytes, so that stray bytes wait in another buffer.
FULL_READ = 65_536 + 64_999 - len(response(200, ok("x" * 65_000)))


@both_ways
@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("padding", [0, FULL_READ], ids=["small", "a full read"])
async def test_stray_bytes_are_never_the_next_answer_f_171(
    send: Ask, stray: str, padding: int
) -> None:
    first, *later = STRAY[stray]
    sent = asyncio.Event()

    async def script(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            await wire.send(echo_of(request.body) + first)
            for data in later:
                await asyncio.sleep(0)
                await wire.send(data)
            sent.set()

    async with (
        loopback(script) as server,
        OpenAICompatibleClient(server.config(max_attempts=1)) as client,
    ):
        for number in range(3):
            text = str(number) + "x" * padding
            assert await send(client, text) == text
            # What arrives behind the next request cannot be told from its answer.
            await sent.wait()
            sent.clear()
        assert server.connections == 3


@both_ways
async def test_stray_bytes_in_another_tls_record_close_the_connection(
    send: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    is_stray = False

    async def script(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            await wire.send(echo_of(request.body), *[STOLEN][: int(is_stray)])

    async with (
        loopback(script, tls=context) as server,
        OpenAICompatibleClient(server.config(max_attempts=1)) as client,
    ):
        for number in range(5):
            assert await send(client, str(number)) == str(number)
        assert server.connections == 1
        is_stray = True
        for number in range(3):
            assert await send(client, str(number)) == str(number)
        assert server.connections == 3


async def test_a_stream_that_is_closed_early_leaves_nothing_behind() -> None:
    async def script(wire: Wire) -> None:
        request = await wire.request()
        assert request is not None
        if not request.body.get("stream"):
            await wire.send(echo_of(request.body))
            return
        await wire.send(STREAM + chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'))
        await wire.send(chunk(b'data: {"choices": [{"delta": {"content": "b"}}]}\n\n') + END)
        await wire.send(STOLEN)
        await wire.request()

    async with (
        loopback(script) as server,
        OpenAICompatibleClient(server.config(max_attempts=1)) as client,
    ):
        async with aclosing(client.stream(MESSAGES)) as deltas:
            assert (await anext(deltas)).text == "a"
        assert await ask(client, "next") == "next"
        assert server.connections == 2


async def test_a_stream_whose_body_goes_on_is_whole_at_its_end_mark() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(STREAM + chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'))
        await wire.send(chunk(b"data: [DONE]\n\n"))
        await wire.request()  # never ends the body

    async with (
        loopback(script) as server,
        OpenAICompatibleClient(server.config(timeout_s=600.0)) as client,
        asyncio.timeout(60),
    ):
        for _ in range(2):
            assert await ask_streamed(client, "x") == "a"
        assert server.connections == 2


@both_ways
async def test_a_request_that_meets_a_closing_connection_is_retried_f_128(
    send: Ask, no_waits: None
) -> None:
    async def script(wire: Wire) -> None:
        request = await wire.request()
        assert request is not None
        await wire.send(echo_of(request.body))
        await wire.request()  # hangs up without an answer

    async with loopback(script) as server, OpenAICompatibleClient(server.config()) as client:
        for number in range(2):
            assert await send(client, str(number)) == str(number)
        assert (server.connections, len(server.requests)) == (2, 3)


async def test_closing_a_client_closes_its_idle_connections() -> None:
    ended: asyncio.Queue[None] = asyncio.Queue()

    async def script(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            await wire.send(echo_of(request.body))
        ended.put_nowait(None)

    async with loopback(script) as server:
        client = OpenAICompatibleClient(server.config())
        await asyncio.gather(*(ask(client, str(number)) for number in range(4)))
        connections = server.connections
        await client.aclose()
        await client.aclose()
        async with asyncio.timeout(10):
            for _ in range(connections):
                await ended.get()
        with pytest.raises(LLMConnectionError, match="closed"):
            await ask(client, "more")


@contextmanager
def server_of_other_loop(*scripts: Script) -> Iterator[Loopback]:
    """Run a loopback server in a thread, for a test with event loops of its own."""
    running: list[Loopback] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with loopback(*scripts) as server:
            running.append(server)
            ready.set()
            await stop.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield running[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a loop that ended closes nothing
def test_a_client_outlives_an_event_loop() -> None:
    with server_of_other_loop(echo) as server:
        client = OpenAICompatibleClient(server.config(max_attempts=1))

        loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

        async def twice(client: OpenAICompatibleClient) -> list[str]:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return [await ask(client, text) for text in "ab"]

        for _ in range(2):
            assert asyncio.run(twice(client)) == ["a", "b"]
        gc.collect()
        assert loops[0]() is None
        assert server.connections == 2
        asyncio.run(client.aclose())
        del client
        gc.collect()  # warns here, and not in a later test


def test_two_event_loops_keep_their_own_connections() -> None:
    with server_of_other_loop(echo) as server:
        client = OpenAICompatibleClient(server.config(max_attempts=1))
        loops = [asyncio.new_event_loop() for _ in range(2)]
        for number in range(6):
            loop = loops[number % 2]
            assert loop.run_until_complete(ask(client, str(number))) == str(number)
        assert server.connections == 2
        for loop in loops:
            loop.run_until_complete(client.aclose())
            loop.close()


def test_a_forked_child_leaves_the_connections_of_its_parent() -> None:
    with server_of_other_loop(echo) as server:
        client = OpenAICompatibleClient(server.config(max_attempts=1))
        loop = asyncio.new_event_loop()

        def ask_in_a_loop() -> None:
            assert asyncio.run(ask(client, "child")) == "child"

        assert loop.run_until_complete(ask(client, "before")) == "before"
        assert run_in_child(ask_in_a_loop) == 0
        assert loop.run_until_complete(ask(client, "after")) == "after"
        assert server.connections == 2
        loop.run_until_complete(client.aclose())
        loop.close()


async def test_a_transport_of_the_caller_gets_one_request_for_each_connection() -> None:
    async with (
        loopback(answer(200, ok())) as server,
        OpenAICompatibleClient(server.config(), transport=httpx.AsyncHTTPTransport()) as client,
    ):
        for _ in range(3):
            await ask(client, "x")
        assert server.connections == 3


def test_a_connection_with_unknown_buffers_counts_as_stray() -> None:
    assert has_stray_bytes(SimpleNamespace(), SimpleNamespace())
