"""Reads bodies within limits, translates httpx's exceptions, and decides on retries.

httpx2 has the classes of httpx under the same names. It is used where the application uses it, and
never imported.
"""

import asyncio
import logging
import random
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from llm_common.core.http.wire import ChatRequest, is_transient
from llm_common.errors import (
    LLMConnectionError,
    LLMError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)

_WAIT_INITIAL_S, _WAIT_JITTER_S, _WAIT_MAX_S = 0.1, 0.4, 5.0
# Unpacked below with a limit on the output; httpx would unpack a whole chunk, also that of a
# decompression bomb.
ACCEPT_ENCODING = "gzip, deflate"
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_MAX_DIGITS = 12  # of a wait in milliseconds
_HTTPX_ERRORS = ("HTTPError", "InvalidURL", "CookieConflict", "StreamError")
_CONNECTION_ERRORS = (
    (
        {"ConnectError"},
        (
            "the endpoint cannot be reached; check base_url, the network and the endpoint's "
            "certificate"
        ),
    ),
    ({"ProxyError"}, "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"),
    (
        {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"},
        "the request cannot be sent; check base_url and api_key",
    ),
    (
        {"RemoteProtocolError"},
        "the endpoint broke off or does not speak HTTP; try again or check base_url",
    ),
)
_log = logging.getLogger(__name__)


class SupportsRequests(Protocol):
    """What is called of a transport: an `AsyncBaseTransport` of httpx or httpx2 has it."""

    async def handle_async_request(self, request: Any, /) -> Any:
        """The response to one HTTP request."""


def open_connections(url: str, transport: SupportsRequests | None, **options: Any) -> Any:
    """A client of httpx, or of httpx2 for a transport of that, for one endpoint.

    It never follows a redirect.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(transport).__mro__}
    encrypted = url.startswith("https:")
    return (sys.modules["httpx2"] if "httpx2" in packages else httpx).AsyncClient(
        transport=transport,
        timeout=None,  # one deadline spans the whole call
        # Plain HTTP needs no certificates, which take 30 ms to load; an empty context trusts no
        # server.
        verify=True if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=encrypted,
        follow_redirects=False,
        **options,
    )


def httpx_errors() -> tuple[type[Exception], ...]:
    """The exceptions of httpx, and those of httpx2 if the application has imported it."""
    packages = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(getattr(package, name) for package in packages for name in _HTTPX_ERRORS)


@contextmanager
def translated(*, timeout_s: float) -> Iterator[None]:
    """A block whose httpx errors are raised as `LLMError`; see `error_of_exception`."""
    try:
        yield
    except httpx_errors() as exc:
        raise error_of_exception(exc, timeout_s=timeout_s) from exc


@asynccontextmanager
async def deadline_at(deadline: float, *, timeout_s: float) -> AsyncIterator[None]:
    """End the block at a time of the running loop's clock. It must not span a yield to a caller.

    Raises:
        LLMTimeoutError: The time came first.
    """
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError as exc:
        raise _timed_out(timeout_s) from exc


def _timed_out(timeout_s: float) -> LLMTimeoutError:
    return LLMTimeoutError(
        f"no answer within {timeout_s:g} s; raise timeout_s or take a faster model",
        timeout_s=timeout_s,
    )


def error_of_exception(exc: Exception, *, timeout_s: float) -> LLMError:
    """Our error for one of httpx's, without its text, which may hold headers."""
    names = {kind.__name__ for kind in type(exc).__mro__}
    if "TimeoutException" in names:
        return _timed_out(timeout_s)
    if "DecodingError" in names:
        return MalformedReplyError(
            "the reply's compression is damaged; try again", reason="bad_encoding"
        )
    for kinds, text in _CONNECTION_ERRORS:
        if kinds & names:
            return LLMConnectionError(text)
    return LLMConnectionError("the connection broke before the answer was whole; try again")


class _Unpacker:
    """Undoes one content encoding; never holds more than is asked for."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._zlib = None if encoding == "identity" else zlib.decompressobj(_WINDOW_BITS[encoding])
        self._begun = False

    @property
    def finished(self) -> bool:
        return self._zlib is None or self._zlib.eof

    def unpack(self, chunk: bytes, *, max_bytes: int) -> bytes:
        if self._zlib is None:
            return chunk[:max_bytes]
        try:
            unpacked = self._zlib.decompress(chunk, max_bytes)
        except zlib.error:
            if self._begun or self._encoding != "deflate":
                raise
            # Many servers send a bare deflate stream where RFC 9110 means the zlib format.
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            unpacked = self._zlib.decompress(chunk, max_bytes)
        self._begun = True
        return unpacked


async def raw_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes.

    One chunk, unpacked, of a reply that is whole, as of an `httpx.MockTransport`.
    """
    if response.is_stream_consumed:
        yield response.content
        return
    async for chunk in response.aiter_raw():
        yield chunk


async def read_body(response: httpx.Response, *, max_bytes: int) -> bytes:
    """The unpacked body; holds at most `max_bytes` and one network chunk of it.

    Args:
        response: Nothing read yet; or whole, as an `httpx.MockTransport` may give it.
        max_bytes: Limit on the packed and on the unpacked size.

    Raises:
        MalformedReplyError: `too_large`, or `bad_encoding` for one that was not asked for, is
            damaged or cut short.
    """
    if response.is_stream_consumed:  # made from a text or a value, and unpacked
        whole: bytes = response.content
        if len(whole) > max_bytes:
            raise too_large(max_bytes)
        return whole
    unpacker = _Unpacker(_encoding(response))
    packed = 0
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            packed += len(chunk)
            body += unpacker.unpack(chunk, max_bytes=max_bytes + 1 - len(body))
            if packed > max_bytes or len(body) > max_bytes:
                raise too_large(max_bytes)
    except zlib.error as exc:
        raise bad_encoding("the reply's compression is damaged") from exc
    if packed and not unpacker.finished:
        raise bad_encoding("the reply's compression ends too early")
    return bytes(body)


def _encoding(response: httpx.Response) -> str:
    encoding: str = (
        response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    )
    if encoding not in {"identity", *_WINDOW_BITS}:
        raise bad_encoding("the reply has a content encoding that was not asked for")
    return encoding


def retry_after_of(response: httpx.Response) -> str | None:
    """Return the retry delay in a response, in the form of the header Retry-After.

    OpenAI and TypeSafe also send it in milliseconds.
    """
    milliseconds = response.headers.get("retry-after-ms", "")
    if milliseconds.isascii() and milliseconds.isdecimal():
        return str(int(milliseconds[:_MAX_DIGITS]) / 1000)
    header: str | None = response.headers.get("retry-after")
    return header


def too_large(max_bytes: int) -> MalformedReplyError:
    """The error for a reply over the limit."""
    return MalformedReplyError(
        f"the reply is longer than {max_bytes:,} bytes; ask for less, or raise max_response_bytes",
        reason="too_large",
    )


def bad_encoding(text: str) -> MalformedReplyError:
    """The error for a reply that is not encoded as it was asked for."""
    return MalformedReplyError(
        f"{text}; check the proxies between here and the model", reason="bad_encoding"
    )


@dataclass(slots=True)
class BackOff:
    """Decides after each failure of a call whether and when to send it again.

    A wait that does not end before the deadline is not begun: the caller gets the true error
    instead of a timeout.

    Attributes:
        max_attempts: Maximum number of requests of the call.
        deadline: On the running loop's clock, in seconds.
        failures: How many requests have failed.
    """

    max_attempts: int
    deadline: float
    failures: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether no request is left."""
        return self.failures >= self.max_attempts

    def wait_s(self, error: LLMError) -> float | None:
        """Count a failure, and return the seconds until the next attempt.

        The seconds are those that the endpoint asks for, or grow exponentially. None if a retry
        cannot help or cannot finish in time: broken connections, 408, 429 and 5xx are retried.
        """
        self.failures += 1
        if self.is_exhausted or not is_transient(error):
            return None
        requested_s = error.retry_after_s if isinstance(error, LLMStatusError) else None
        jitter_s = 0.0
        wait_s = requested_s
        if wait_s is None:
            jitter_s = _WAIT_JITTER_S
            wait_s = min(_WAIT_MAX_S, _WAIT_INITIAL_S * 2.0 ** (self.failures - 1))
        remaining_s = self.deadline - asyncio.get_running_loop().time()
        if remaining_s <= wait_s + jitter_s:
            return None
        return wait_s + random.uniform(0, jitter_s)  # noqa: S311 - no secret


@dataclass(slots=True)
class RetryPolicy:
    """Decides how a chat call that failed is sent again. Logs each retry.

    An endpoint that refuses an optional field is asked again with a substitute, and in the last
    attempt without any. Other failures follow `BackOff`.

    Attributes:
        wanted: The call with every option.
        refused: Options that the endpoint is known to refuse. Grows with each refusal.
        back_off: Counts the attempts.
        host: Host of the endpoint, for the log.
        request: What the next attempt sends.
    """

    wanted: ChatRequest
    refused: frozenset[str]
    back_off: BackOff
    host: str | None
    request: ChatRequest = field(init=False)

    def __post_init__(self) -> None:
        self.request = self.wanted.without(self.refused)

    def wait_s(self, error: LLMError) -> float | None:
        """Return the seconds until the next attempt, or None for no retry."""
        wait_s = self.back_off.wait_s(error)
        if self.back_off.is_exhausted:
            return None
        change = ""
        if named := self.request.refused_by(error):
            wait_s = 0.0
            self.refused |= named
            is_last = self.back_off.failures + 1 >= self.back_off.max_attempts
            self.request = self.wanted.bare() if is_last else self.wanted.without(self.refused)
            change = f" without {', '.join(self.request.dropped)}"
        if wait_s is not None:
            error.locate(model=self.wanted.model, host=self.host)
            _log.warning(
                "%s; request %d of %d follows in %.1f s%s",
                str(error).partition(";")[0],
                self.back_off.failures + 1,
                self.back_off.max_attempts,
                wait_s,
                change,
            )
        return wait_s
