"""The client against an endpoint that misbehaves: real sockets, real bytes."""

import asyncio
import gzip
import logging
import shutil
import ssl
import subprocess
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import stamina

from llm_common.core.http import OpenAICompatibleClient
from llm_common.core.models import LLMConfig, LLMMessage, LLMResponse, MessageRole
from llm_common.errors import (
    ConfigError,
    ContextTooLongError,
    CostLimitError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.core.loopback import KEY, Script, Wire, answer, loopback, ok, raw, response

MESSAGES = [LLMMessage(role=MessageRole.USER, content="which of these?")]
JSON_MODE = {"type": "json_object"}


@pytest.fixture
def no_waits() -> Iterator[None]:
    """Retries follow at once; how often is still the client's own limit."""
    with stamina.set_testing(True, attempts=10, cap=True):
        yield


async def ask_once(config: LLMConfig, **options: Any) -> LLMResponse:
    async with OpenAICompatibleClient(config) as client:
        return await client.chat_completion(messages=MESSAGES, **options)


async def failure(config: LLMConfig, **options: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await ask_once(config, **options)
    error = caught.value
    assert KEY not in f"{error}{error!r}{vars(error)}"
    return error


def gzipped(body: bytes) -> Script:
    return raw(response(200, body, {"Content-Encoding": "gzip"}))


async def test_connection_refused_is_a_connection_error_at_once_f_107(no_waits: None) -> None:
    async with loopback(answer(200)) as server:
        config = server.config()
    started = time.monotonic()
    assert isinstance(await failure(config), LLMConnectionError)
    assert time.monotonic() - started < 1


async def reset_before_headers(wire: Wire) -> None:
    await wire.request()
    wire.reset()


async def reset_in_the_body(wire: Wire) -> None:
    await wire.request()
    await wire.send(response(200, ok())[:-20])
    wire.reset()


@pytest.mark.parametrize("script", [reset_before_headers, reset_in_the_body], ids=["F-109-headers", "F-109-body"])
async def test_a_reset_is_retried_once_and_then_a_connection_error(script: Script, no_waits: None) -> None:
    async with loopback(script) as server:
        assert isinstance(await failure(server.config()), LLMConnectionError)
        assert len(server.requests) == 2
    async with loopback(script, answer(200, ok())) as server:
        assert (await ask_once(server.config())).content == '{"pointer_ids": []}'


async def silence(wire: Wire) -> None:
    await wire.request()
    await asyncio.sleep(30)


async def drip(wire: Wire) -> None:
    await wire.request()
    for byte in response(200, ok()):
        await wire.send(bytes([byte]))
        await asyncio.sleep(0.05)


async def endless_hints(wire: Wire) -> None:
    await wire.request()
    while True:
        await wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("script", [silence, drip, endless_hints], ids=["F-110", "F-111", "F-129-endless-1xx"])
async def test_the_deadline_holds_whatever_the_endpoint_sends(script: Script) -> None:
    async with loopback(script) as server:
        started = time.monotonic()
        error = await failure(server.config(timeout_s=0.3))
        assert time.monotonic() - started < 0.8
    assert isinstance(error, LLMTimeoutError)
    assert error.timeout_s == 0.3


@pytest.mark.parametrize("name", ["timeout_s", "timeout"])
async def test_a_call_can_set_its_own_deadline(name: str) -> None:
    async with loopback(silence) as server:
        error = await failure(server.config(), **{name: 0.1})
    assert isinstance(error, LLMTimeoutError)
    assert error.timeout_s == 0.1


async def test_retry_after_is_waited_for_once_f_112() -> None:
    async with loopback(raw(response(429, b"{}", {"Retry-After": "1"})), answer(200, ok())) as server:
        started = time.monotonic()
        assert (await ask_once(server.config())).content
        assert 1 <= time.monotonic() - started < 2
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("header", "requests"),
    [
        ("3600", 1),
        (format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True), 1),
        ("soon", 2),
        ("-5", 2),
        ("nan", 2),
        ("1e400", 2),
    ],
    ids=["F-113-long", "F-113-date", "F-113-garbage", "F-113-negative", "F-113-nan", "F-113-infinite"],
)
async def test_a_wait_beyond_the_deadline_is_refused_at_once_and_garbage_is_ignored(
    header: str, requests: int, no_waits: None
) -> None:
    async with loopback(answer(429, b"{}", {"Retry-After": header})) as server:
        started = time.monotonic()
        error = await failure(server.config(timeout_s=3.0))
        assert time.monotonic() - started < 1.5
        assert len(server.requests) == requests
    assert isinstance(error, LLMRateLimitError)
    assert (error.retry_after_s is None) == (requests == 2)


async def test_a_retry_that_no_longer_fits_gives_the_true_error_instead_of_a_timeout() -> None:
    async def late(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(0.2)
        await wire.send(response(500, b"{}"))

    async with loopback(late) as server:
        error = await failure(server.config(timeout_s=0.6))
        assert len(server.requests) == 1
    assert isinstance(error, LLMStatusError)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504], ids=lambda status: f"F-114-{status}")
async def test_a_passing_server_error_is_survived(status: int, no_waits: None) -> None:
    async with loopback(raw(response(status)), answer(200, ok())) as server:
        assert (await ask_once(server.config())).content
        assert len(server.requests) == 2


async def test_lasting_server_errors_take_no_more_requests_than_configured_f_115(no_waits: None) -> None:
    for attempts in (1, 2, 4):
        async with loopback(answer(503, b"down")) as server:
            error = await failure(server.config(max_attempts=attempts))
            assert len(server.requests) == attempts
        assert isinstance(error, LLMStatusError)
        assert (error.status, error.body) == (503, "down")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error": {"message": "bad key"}}', LLMAuthError),
        (403, b"{}", LLMAuthError),
        (404, b'{"error": {"code": "model_not_found"}}', ModelNotFoundError),
        (413, b"", ContextTooLongError),
        (400, b'{"error": {"code": "context_length_exceeded"}}', ContextTooLongError),
        (400, b'{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}', ContextTooLongError),
        (400, b'{"error": {"message": "no"}}', LLMStatusError),
    ],
    ids=["F-116-401", "F-116-403", "F-118", "F-119-413", "F-119-code", "F-119-message", "status-400"],
)
async def test_a_refusal_is_final_and_says_which(status: int, body: bytes, kind: type[LLMError]) -> None:
    async with loopback(answer(status, body)) as server:
        error = await failure(server.config())
        assert len(server.requests) == 1
    assert type(error) is kind
    assert isinstance(error, LLMStatusError)
    assert (error.status, error.body) == (status, body.decode())


async def test_a_refusal_counts_even_when_its_body_cannot_be_read_f_116() -> None:
    broken = response(401, b"garbage", {"Content-Encoding": "gzip"})
    async with loopback(raw(broken), answer(200, ok())) as server:
        assert isinstance(await failure(server.config()), LLMAuthError)


async def test_a_refused_response_format_is_left_out_once_and_that_is_told_f_117() -> None:
    refusal = raw(response(400, b'{"error": {"message": "response_format is not supported"}}'))
    async with loopback(refusal, answer(200, ok())) as server:
        reply = await ask_once(server.config(), model="glm-4.5-air", response_format=JSON_MODE)
        first, second = (request.body for request in server.requests)
    assert first == second | {"response_format": JSON_MODE, "thinking": {"type": "disabled"}}
    assert reply.metadata == {"dropped_options": ["response_format", "thinking"]}
    async with loopback(answer(400, b"response_format is not supported")) as server:
        assert isinstance(await failure(server.config(max_attempts=5), response_format=JSON_MODE), LLMStatusError)
        assert len(server.requests) == 2


@pytest.mark.parametrize("code", [429, "429", "rate_limit_exceeded"], ids=["F-120-int", "F-120-text", "F-120-name"])
async def test_an_error_object_with_200_is_the_error_it_names(code: object, no_waits: None) -> None:
    body = ok(error={"code": code, "message": f"slow down, {KEY}"})
    async with loopback(answer(200, body)) as server:
        error = await failure(server.config())
        assert len(server.requests) == 2
    assert isinstance(error, LLMRateLimitError)
    assert "slow down, [api key]" in error.body


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ("out of luck", LLMStatusError, 200),
        ({"code": 1302, "message": "busy"}, LLMStatusError, 200),
        ({"code": "context_length_exceeded"}, ContextTooLongError, 413),
        ({"type": "invalid_api_key", "code": None}, LLMAuthError, 401),
        ({"code": 404}, ModelNotFoundError, 404),
    ],
    ids=[f"F-120-{name}" for name in ("words", "own-code", "long", "key", "model")],
)
async def test_an_error_object_is_an_error_whatever_it_says(error: object, kind: type[LLMError], status: int) -> None:
    async with loopback(answer(200, ok(error=error))) as server:
        raised = await failure(server.config())
        assert len(server.requests) == 1
    assert type(raised) is kind
    assert isinstance(raised, LLMStatusError)
    assert raised.status == status


@pytest.mark.parametrize(
    "body",
    [
        ok(choices=None),
        ok(choices=[]),
        b'{"id": "1"}',
        ok(choices=[{"message": None}]),
        ok(choices=["x"]),
        ok(content=5),
        ok(choices=[{"message": {"tool_calls": ["x"]}}]),
    ],
    ids=[f"F-121-{name}" for name in ("null", "empty", "missing", "message", "text", "content", "tool-calls")],
)
async def test_an_answer_without_a_usable_message_is_malformed(body: bytes) -> None:
    async with loopback(answer(200, body)) as server:
        assert isinstance(await failure(server.config()), MalformedReplyError)
        assert len(server.requests) == 1


async def test_an_answer_without_usage_works_f_122() -> None:
    async with loopback(answer(200, ok(usage=None))) as server:
        reply = await ask_once(server.config())
    assert reply.usage.total_tokens == 0


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"<html>login</html>", "text/html", "content_type"),
        (ok(), "text/plain", "content_type"),
        (ok(), "", "content_type"),
        (b"", "application/json", "empty"),
        (ok(), "application/json; charset=latin-1", "bad_charset"),
        (b'{"id": "\xe9"}', "application/json", "bad_json"),
        (b"\xef\xbb\xbf" + ok(), "application/json", "bad_json"),
        (b"[1]", "application/json", "not_an_object"),
        (b"[" * 100_000, "application/json", "bad_json"),
        (b"data: " + ok() + b"\n\ndata: [DONE]\n\n", "text/event-stream", "content_type"),
        (ok() + b"\n" + ok(), "application/json", "bad_json"),
    ],
    ids=[
        *(
            f"F-123-{name}"
            for name in ("html", "plain", "no-type", "empty", "charset", "latin-1", "bom", "list", "deep")
        ),
        "F-130-sse",
        "F-130-twice",
    ],
)
async def test_a_reply_that_is_not_one_json_object_is_malformed(body: bytes, content_type: str, reason: str) -> None:
    async with loopback(answer(200, body, {"Content-Type": content_type})) as server:
        error = await failure(server.config())
    assert isinstance(error, MalformedReplyError)
    assert error.reason == reason


@pytest.mark.parametrize("encoding", ["gzip", "deflate"], ids=["F-124-gzip", "F-124-deflate"])
async def test_a_bomb_is_refused_in_little_memory(encoding: str) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    megabyte = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" if encoding == "gzip" else b""
    bomb = response(200, head + megabyte * 1000, {"Content-Encoding": encoding})
    async with loopback(raw(bomb)) as server:
        tracemalloc.start()
        error = await failure(server.config())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "too_large"
    assert peak < 32_000_000


async def test_a_long_reply_is_cut_off_while_it_arrives_f_093() -> None:
    async def endless(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n")
        while True:
            await wire.send(bytes(65_536))

    async with loopback(endless) as server:
        error = await failure(server.config(max_response_bytes=200_000))
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "too_large"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw-deflate"])
async def test_a_compressed_answer_is_read(encoding: str) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "raw-deflate": raw_deflate,
    }
    packed = pack[encoding](ok())
    async with loopback(answer(200, packed, {"Content-Encoding": encoding.removeprefix("raw-")})) as server:
        assert (await ask_once(server.config())).content == '{"pointer_ids": []}'


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    "script",
    [
        gzipped(ok()),
        gzipped(gzip.compress(ok())[:-12]),
        gzipped(gzip.compress(ok())[:-8] + b"\0" * 8),
        raw(response(200, ok(), {"Content-Encoding": "br"})),
        raw(response(200, gzip.compress(gzip.compress(ok())), {"Content-Encoding": "gzip, gzip"})),
    ],
    ids=["F-125-plain", "F-125-truncated", "F-125-checksum", "F-124-br", "F-124-twice"],
)
async def test_damaged_compression_is_malformed(script: Script) -> None:
    async with loopback(script) as server:
        error = await failure(server.config())
    assert isinstance(error, MalformedReplyError)
    assert error.reason == "bad_encoding"


CHUNKED = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (raw(response(200, ok(), {"Content-Length": str(len(ok()) + 10)})), LLMConnectionError),
        (raw(response(200, ok(), {"Content-Length": str(len(ok()) - 10)})), MalformedReplyError),
        (raw(CHUNKED, b"10\r\n" + ok()[:16] + b"\r\n"), LLMConnectionError),
        (raw(CHUNKED, b"zz\r\n"), LLMConnectionError),
        (raw(b"HTTP/1.1 200 X\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n"), LLMConnectionError),
        (raw(b"HTTP/1.1 100 X\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n"), LLMConnectionError),
        (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), LLMConnectionError),
    ],
    ids=["F-126-large", "F-126-small", "F-126-cut", "F-126-chunk", "F-129-headers", "F-129-1xx", "not-http"],
)
async def test_broken_framing_is_an_error_of_ours(script: Script, kind: type[LLMError], no_waits: None) -> None:
    async with loopback(script) as server:
        assert isinstance(await failure(server.config()), kind)
        assert len(server.requests) <= 2


@pytest.mark.parametrize("status", [301, 302, 307, 308], ids=lambda status: f"F-127-{status}")
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with loopback(answer(200, ok())) as elsewhere:
        target = f"http://user:{KEY}@127.0.0.1:{elsewhere.port}/v1/chat/completions"
        async with loopback(answer(status, b"moved", {"Location": target})) as server:
            error = await failure(server.config())
            assert len(server.requests) == 1
        assert elsewhere.connections == 0
    assert isinstance(error, LLMStatusError)
    assert error.status == status
    assert str(elsewhere.port) not in str(error) + error.body


@pytest.mark.parametrize(
    "target",
    ["/v1/chat/completions", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data"],
    ids=["F-127-loop", "F-127-file", "F-127-metadata"],
)
async def test_no_target_of_a_redirect_is_special(target: str) -> None:
    async with loopback(answer(302, b"", {"Location": target})) as server:
        assert isinstance(await failure(server.config()), LLMStatusError)
        assert len(server.requests) == 1


async def test_a_connection_closed_between_calls_is_replaced_unseen_f_128(no_waits: None) -> None:
    async with (
        loopback(raw(response(200, ok())), answer(200, ok())) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        for _ in range(3):
            await client.chat_completion(messages=MESSAGES)
        assert (server.connections, len(server.requests)) == (2, 3)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_an_unknown_certificate_is_refused_f_131(tmp_path: Path, no_waits: None) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)  # noqa: ASYNC221 - before the call
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with loopback(answer(200, ok()), tls=context) as server:
        error = await failure(server.config())
        assert not server.requests
    assert isinstance(error, LLMConnectionError)
    assert "certificate" in str(error)


async def test_cancelling_a_call_cancels_it_and_leaves_no_task_f_132() -> None:
    asked = asyncio.Event()

    async def no_answer(wire: Wire) -> None:
        await wire.request()
        asked.set()
        await asyncio.sleep(30)

    async with loopback(no_answer) as server, OpenAICompatibleClient(server.config()) as client:
        before = asyncio.all_tasks()
        call = asyncio.create_task(client.chat_completion(messages=MESSAGES))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(server.requests) == 1
        assert len(asyncio.all_tasks() - before) <= 1  # the server's own, for the connection


async def test_a_retry_is_logged_without_what_was_said(no_waits: None, caplog: pytest.LogCaptureFixture) -> None:
    secret = [LLMMessage(role=MessageRole.USER, content="my diagnosis")]
    with caplog.at_level(logging.DEBUG):
        async with (
            loopback(raw(response(500, f"my diagnosis {KEY}".encode())), answer(200, ok())) as server,
            OpenAICompatibleClient(server.config()) as client,
        ):
            await client.chat_completion(messages=secret)
    assert any(record.name == "stamina" for record in caplog.records)
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    assert "diagnosis" not in logged
    assert KEY not in logged


async def test_an_error_body_is_short_and_without_the_key() -> None:
    body = ("x" * 1_990 + KEY + "y" * 5_000).encode()
    async with loopback(answer(400, body)) as server:
        error = await failure(server.config())
    assert isinstance(error, LLMStatusError)
    assert len(error.body) == 2_000
    assert KEY[:8] not in error.body


async def test_nothing_is_sent_once_the_cost_limit_is_reached() -> None:
    body = ok(usage={"prompt_tokens": 5, "completion_tokens": 5, "cost": 0.6})
    async with (
        loopback(answer(200, body)) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=1.0)) as client,
    ):
        for _ in range(2):
            assert (await client.chat_completion(messages=MESSAGES)).cost_usd == 0.6
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 2
        assert (client.usage.calls, client.usage.prompt_tokens, client.usage.cost_usd) == (2, 10, 1.2)
    assert (caught.value.spent_usd, caught.value.limit_usd) == (1.2, 1.0)


async def test_an_answer_of_no_use_is_paid_for_too() -> None:
    body = ok(choices=[], usage={"cost": 0.5})
    async with loopback(answer(200, body)) as server, OpenAICompatibleClient(server.config()) as client:
        with pytest.raises(MalformedReplyError):
            await client.chat_completion(messages=MESSAGES)
        assert client.usage.cost_usd == 0.5


async def test_a_closed_client_says_so() -> None:
    async with loopback(answer(200, ok())) as server:
        client = OpenAICompatibleClient(server.config())
        await client.chat_completion(messages=MESSAGES)
        await client.aclose()
        await client.aclose()
        with pytest.raises(LLMConnectionError, match="closed"):
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1


async def test_calls_share_connections_and_do_not_mix() -> None:
    async def echo(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            await wire.send(response(200, ok(request.body["messages"][0]["content"])))

    async with loopback(echo) as server, OpenAICompatibleClient(server.config()) as client:
        texts = [str(number) for number in range(15)]
        calls = [client.chat_completion(messages=[LLMMessage(role=MessageRole.USER, content=text)]) for text in texts]
        replies = await asyncio.gather(*calls)
    assert [reply.content for reply in replies] == texts
    assert client.usage.calls == 15


def test_a_client_survives_its_event_loop() -> None:
    config = LLMConfig(base_url="http://127.0.0.1:9", default_model="m", max_attempts=1)
    client = OpenAICompatibleClient(config)
    for _ in range(2):
        with pytest.raises(LLMConnectionError):
            asyncio.run(client.chat_completion(messages=MESSAGES))
    asyncio.run(client.aclose())


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_is_none_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatibleClient(
            LLMConfig.model_validate({"base_url": "https://x", "default_model": "m", "api_key": key})
        )
    assert caught.value.variable == "api_key"
    assert key not in f"{caught.value}{vars(caught.value)}"


@pytest.mark.parametrize("options", [{"stream": True}, {"timeout_s": 0}, {"timeout": "soon"}, {"seed": float("nan")}])
async def test_impossible_options_are_a_value_error(options: dict[str, Any]) -> None:
    async with loopback(answer(200, ok())) as server:
        with pytest.raises(ValueError, match=r"stream|timeout_s|JSON"):
            await ask_once(server.config(), **options)
        assert not server.requests


async def test_a_call_does_not_block_the_event_loop(blockbuster: object) -> None:
    async with loopback(answer(200, ok())) as server:
        assert (await ask_once(server.config())).content
