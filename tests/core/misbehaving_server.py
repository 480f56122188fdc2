"""Every fault of an endpoint, under the id of its row, served over real sockets.

    async with loopback(misbehaving(FAULTS["F-109-body"].act)) as server:
        ...  # the connection of every request is reset in the middle of the answer

An act begins when a request was received. It can send bytes, wait, hang up or reset. Otherwise the
connection stays open for the next request. `sound` is the body of a good answer.
"""

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from llm_common.errors import (
    ContextTooLongError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.core.loopback import KEY, Script, Wire, ok, response

Act = Callable[[Wire, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """An act that gives no answer, and its effect on a call.

    Attributes:
        act: Runs for every request.
        error: Class of the error that the client raises.
        requests: Number of requests that one call sends.
        reason: Reason code of a malformed reply.
    """

    act: Act
    error: type[LLMError]
    requests: int = 1
    reason: str = ""


def misbehaving(act: Act, *, content: str = '{"pointer_ids": []}') -> Script:
    """Run an act for every request of a connection."""

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            await act(wire, ok(content))

    return script


def passing(act: Act) -> Act:
    """Run an act for the server's first request, and send good answers after it."""

    async def once(wire: Wire, sound: bytes) -> None:
        await (act if len(wire.requests) == 1 else answer_well)(wire, sound)

    return once


def reply(status: int, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Act:
    """Return a whole response. Without `body`, that of a good answer."""

    async def act(wire: Wire, sound: bytes) -> None:
        await wire.send(response(status, sound if body is None else body, headers))

    return act


def altered(change: Callable[[bytes], bytes], headers: Mapping[str, str] | None = None) -> Act:
    """Return a response whose body is an altered good one, with its true length."""

    async def act(wire: Wire, sound: bytes) -> None:
        await wire.send(response(200, change(sound), headers))

    return act


def with_fields(**fields: Any) -> Act:
    """Return a good answer in which these fields differ."""
    return altered(lambda sound: json.dumps(json.loads(sound) | fields).encode())


def broken(frame: Callable[[bytes], bytes]) -> Act:
    """Return an act that sends an incomplete response and hangs up."""

    async def act(wire: Wire, sound: bytes) -> None:
        await wire.send(frame(sound))
        wire.hang_up()

    return act


async def answer_well(wire: Wire, sound: bytes) -> None:
    await wire.send(response(200, sound))


async def answer_and_hang_up(wire: Wire, sound: bytes) -> None:
    await answer_well(wire, sound)
    wire.hang_up()


async def refuse_response_format(wire: Wire, sound: bytes) -> None:
    if "response_format" in wire.requests[-1].body:
        await wire.send(
            response(400, b'{"error": {"message": "response_format is not supported"}}')
        )
    else:
        await answer_well(wire, sound)


async def reset_before_headers(wire: Wire, sound: bytes) -> None:
    wire.reset()


async def reset_in_the_body(wire: Wire, sound: bytes) -> None:
    await wire.send(response(200, sound)[:-20])
    wire.reset()


async def stay_silent(wire: Wire, sound: bytes) -> None:
    await asyncio.sleep(30)


async def drip(wire: Wire, sound: bytes) -> None:
    for byte in response(200, sound):
        await wire.send(bytes([byte]))
        await asyncio.sleep(0.05)


async def hint_for_ever(wire: Wire, sound: bytes) -> None:
    while True:
        await wire.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await asyncio.sleep(0.02)


async def talk_without_end(wire: Wire, sound: bytes) -> None:
    """Send 50 MB without an end, more than any client should read."""
    await wire.send(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(800):
        await wire.send(bytes(65_536))
    wire.hang_up()


def bomb(encoding: str, *, megabytes: int) -> bytes:
    """Return a compressed body of zeros, a thousandth of its size."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    megabyte = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" if encoding == "gzip" else b""
    return head + megabyte * megabytes


def chunked(*chunks: bytes) -> bytes:
    """Return the head of a chunked response and these chunks, without the empty last one."""
    head = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


def declared(sound: bytes, *, more: int) -> bytes:
    """Return a response whose Content-Length is wrong."""
    return response(200, sound, {"Content-Length": str(len(sound) + more)})


def long_head(status: int) -> bytes:
    return b"HTTP/1.1 %d X\r\nX: %s\r\n\r\n" % (status, b"a" * 1_000_000)


def _failing(
    status: int, error: type[LLMError], *, requests: int = 1, body: bytes = b"{}", **headers: str
) -> Fault:
    return Fault(
        reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()}),
        error,
        requests,
    )


def _malformed(act: Act, reason: str) -> Fault:
    return Fault(act, MalformedReplyError, reason=reason)


def _stated(error: object, kind: type[LLMError], *, requests: int = 1) -> Fault:
    return Fault(with_fields(error=error), kind, requests)


_IN_AN_HOUR = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
_YESTERDAY = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
_GZIP, _DEFLATE = {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}
_LATIN = b'{"choices": [{"message": {"content": "caf\xe9"}}]}'

FAULTS: dict[str, Fault] = {
    "F-093-endless": _malformed(talk_without_end, "too_large"),
    "F-109-headers": Fault(reset_before_headers, LLMConnectionError, 2),
    "F-109-body": Fault(reset_in_the_body, LLMConnectionError, 2),
    "F-110": Fault(stay_silent, LLMTimeoutError),
    "F-111": Fault(drip, LLMTimeoutError),
    "F-113-long": _failing(429, LLMRateLimitError, Retry_After="3600"),
    "F-113-date": _failing(429, LLMRateLimitError, Retry_After=_IN_AN_HOUR),
    "F-113-503": _failing(503, LLMStatusError, Retry_After="3600"),
    "F-113-503-date": _failing(503, LLMStatusError, Retry_After=_IN_AN_HOUR),
    "F-113-past": _failing(429, LLMRateLimitError, requests=2, Retry_After=_YESTERDAY),
    "F-113-garbage": _failing(429, LLMRateLimitError, requests=2, Retry_After="soon"),
    "F-113-negative": _failing(429, LLMRateLimitError, requests=2, Retry_After="-5"),
    "F-113-nan": _failing(429, LLMRateLimitError, requests=2, Retry_After="nan"),
    "F-113-infinite": _failing(503, LLMStatusError, requests=2, Retry_After="1e400"),
    **{
        f"F-115-{status}": _failing(status, LLMStatusError, requests=2)
        for status in (408, 500, 502, 503, 504, 529)
    },
    "F-116-401": _failing(401, LLMAuthError, body=b'{"error": {"message": "bad key"}}'),
    "F-116-403": _failing(403, LLMAuthError),
    "F-116-unreadable": Fault(reply(401, b"garbage", _GZIP), LLMAuthError),
    "F-117-other": _failing(400, LLMStatusError, body=b'{"error": {"message": "no"}}'),
    "F-118": _failing(404, ModelNotFoundError, body=b'{"error": {"code": "model_not_found"}}'),
    "F-119-413": _failing(413, ContextTooLongError),
    "F-119-code": _failing(
        400, ContextTooLongError, body=b'{"error": {"code": "context_length_exceeded"}}'
    ),
    "F-119-words": _failing(
        400, ContextTooLongError, body=b'{"error": "maximum context length is 8192 tokens"}'
    ),
    "F-120-int": _stated(
        {"code": 429, "message": f"slow down, {KEY}"}, LLMRateLimitError, requests=2
    ),
    "F-120-text": _stated({"code": "429"}, LLMRateLimitError, requests=2),
    "F-120-name": _stated({"code": "rate_limit_exceeded"}, LLMRateLimitError, requests=2),
    "F-120-words": _stated("out of luck", LLMStatusError),
    "F-120-own-code": _stated({"code": 1302, "message": "busy"}, LLMStatusError),
    "F-120-long": _stated({"code": "context_length_exceeded"}, ContextTooLongError),
    "F-120-key": _stated({"type": "invalid_api_key", "code": None}, LLMAuthError),
    "F-120-model": _stated({"code": 404}, ModelNotFoundError),
    "F-121-null": _malformed(with_fields(choices=None), "no_choices"),
    "F-121-empty": _malformed(with_fields(choices=[]), "no_choices"),
    "F-121-missing": _malformed(reply(200, b'{"id": "1"}'), "no_choices"),
    "F-121-text": _malformed(with_fields(choices=["x"]), "no_choices"),
    "F-121-message": _malformed(with_fields(choices=[{"message": None}]), "no_message"),
    "F-121-content": _malformed(with_fields(choices=[{"message": {"content": 5}}]), "bad_content"),
    "F-121-calls": _malformed(
        with_fields(choices=[{"message": {"tool_calls": ["x"]}}]), "bad_tool_calls"
    ),
    "F-123-html": _malformed(
        reply(200, b"<html>login</html>", {"Content-Type": "text/html"}), "content_type"
    ),
    "F-123-plain": _malformed(reply(200, headers={"Content-Type": "text/plain"}), "content_type"),
    "F-123-no-type": _malformed(reply(200, headers={"Content-Type": ""}), "content_type"),
    "F-123-empty": _malformed(reply(200, b""), "empty"),
    "F-123-charset": _malformed(
        reply(200, headers={"Content-Type": "application/json; charset=latin-1"}), "bad_charset"
    ),
    "F-123-latin-1": _malformed(reply(200, _LATIN), "bad_json"),
    "F-123-bom": _malformed(altered(lambda sound: b"\xef\xbb\xbf" + sound), "bad_json"),
    "F-123-list": _malformed(reply(200, b"[1]"), "not_an_object"),
    "F-123-deep": _malformed(reply(200, b"[" * 100_000), "bad_json"),
    "F-124-gzip": _malformed(reply(200, bomb("gzip", megabytes=20), _GZIP), "too_large"),
    "F-124-deflate": _malformed(reply(200, bomb("deflate", megabytes=20), _DEFLATE), "too_large"),
    "F-124-br": _malformed(reply(200, headers={"Content-Encoding": "br"}), "bad_encoding"),
    "F-124-zstd": _malformed(reply(200, headers={"Content-Encoding": "zstd"}), "bad_encoding"),
    "F-124-twice": _malformed(
        altered(gzip.compress, {"Content-Encoding": "gzip, gzip"}), "bad_encoding"
    ),
    "F-125-plain": _malformed(reply(200, headers=_GZIP), "bad_encoding"),
    "F-125-truncated": _malformed(
        altered(lambda sound: gzip.compress(sound)[:-12], _GZIP), "bad_encoding"
    ),
    "F-125-checksum": _malformed(
        altered(lambda sound: gzip.compress(sound)[:-8] + bytes(8), _GZIP), "bad_encoding"
    ),
    "F-126-large": Fault(broken(lambda sound: declared(sound, more=10)), LLMConnectionError, 2),
    "F-126-small": _malformed(broken(lambda sound: declared(sound, more=-10)), "bad_json"),
    "F-126-cut": Fault(broken(chunked), LLMConnectionError, 2),
    "F-126-chunk": Fault(broken(lambda sound: chunked() + b"zz\r\n"), LLMConnectionError, 2),
    "F-126-banner": Fault(broken(lambda _: b"SSH-2.0-OpenSSH_9.6\r\n"), LLMConnectionError, 2),
    "F-127-301": _failing(301, LLMStatusError, Location="/v1/chat/completions"),
    "F-127-302": _failing(302, LLMStatusError, Location="file:///etc/passwd"),
    "F-127-307": _failing(307, LLMStatusError, Location="http://169.254.169.254/latest/meta-data"),
    "F-127-308": _failing(308, LLMStatusError, Location="http://127.0.0.1:9/v1/chat/completions"),
    "F-129-headers": Fault(broken(lambda _: long_head(200)), LLMConnectionError, 2),
    "F-129-1xx": Fault(broken(lambda _: long_head(100)), LLMConnectionError, 2),
    "F-129-endless": Fault(hint_for_ever, LLMTimeoutError),
    "F-130-sse": _malformed(
        altered(
            lambda sound: b"data: " + sound + b"\n\ndata: [DONE]\n\n",
            {"Content-Type": "text/event-stream"},
        ),
        "content_type",
    ),
    "F-130-twice": _malformed(altered(lambda sound: sound + b"\n" + sound), "bad_json"),
}

WORKING: dict[str, Act] = {
    "F-112": passing(reply(429, b"{}", {"Retry-After": "0"})),
    **{f"F-114-{status}": passing(reply(status, b"{}")) for status in (408, 500, 502, 503, 504)},
    "F-114-reset": passing(reset_in_the_body),
    "F-117": refuse_response_format,
    "F-120-passing": passing(with_fields(error={"code": 429})),
    "F-122": with_fields(usage=None),
    "F-125-gzip": altered(gzip.compress, _GZIP),
    "F-125-deflate": altered(zlib.compress, _DEFLATE),
    "F-125-bare-deflate": altered(lambda sound: zlib.compress(sound)[2:-4], _DEFLATE),
    "F-126-chunked": broken(lambda sound: chunked(sound[:9], sound[9:]) + b"0\r\n\r\n"),
    "F-128": answer_and_hang_up,
}
