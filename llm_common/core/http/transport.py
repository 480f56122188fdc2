"""Limits on bodies, the translation of httpx's exceptions, and retries."""

import asyncio
import logging
import random
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx

from llm_common.core.http.external_errors import is_transient
from llm_common.core.http.wire import ChatRequest
from llm_common.errors import (
    LLMConnectionError,
    LLMError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)

_WAIT_INITIAL_S, _WAIT_JITTER_S, _WAIT_MAX_S = 0.1, 0.4, 5.0
# Decompressed below with a limit on the output. httpx would decompress a whole chunk, even that of
# a decompression bomb.
ACCEPT_ENCODING = "gzip, deflate"
# Adding 16 makes zlib expect the header of gzip.
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_MAX_DIGITS = 12  # of a delay in milliseconds: int() takes quadratic time
_HTTPX_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError)
_CONNECTION_ERRORS = (
    (
        httpx.ConnectError,
        (
            "the endpoint cannot be reached; check base_url, the network and the endpoint's "
            "certificate"
        ),
    ),
    (httpx.ProxyError, "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"),
    (
        (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError),
        "the request cannot be sent; check base_url and api_key",
    ),
    (
        httpx.RemoteProtocolError,
        "the endpoint closed the connection or does not speak HTTP; try again or check base_url",
    ),
)
_log = logging.getLogger(__name__)


@contextmanager
def translate_errors(*, timeout_s: float) -> Iterator[None]:
    """Raise the httpx errors of a block as `LLMError`. See `error_of_exception`."""
    try:
        yield
    except _HTTPX_ERRORS as exc:
        raise error_of_exception(exc, timeout_s=timeout_s) from exc


@asynccontextmanager
async def deadline_at(deadline: float, *, timeout_s: float) -> AsyncIterator[None]:
    """Cancel the block at a time of the running loop's clock. The block must not yield.

    Raises:
        LLMTimeoutError: If the block was cancelled.
        LLMError: As from `translate_errors`.
    """
    try:
        with translate_errors(timeout_s=timeout_s):
            async with asyncio.timeout_at(deadline):
                yield
    except TimeoutError as exc:
        raise _timed_out(timeout_s) from exc


def _timed_out(timeout_s: float) -> LLMTimeoutError:
    return LLMTimeoutError(
        f"no answer within {timeout_s:g} s; raise timeout_s or use a faster model",
        timeout_s=timeout_s,
    )


def error_of_exception(exc: Exception, *, timeout_s: float) -> LLMError:
    """Return the `LLMError` for an error of httpx."""
    # Without the error's text, which can contain headers.
    if isinstance(exc, httpx.TimeoutException):  # only of a custom transport: ours has no timeout
        return _timed_out(timeout_s)
    if isinstance(exc, httpx.DecodingError):
        return MalformedReplyError(
            "the reply's compression is damaged; try again", reason="bad_encoding"
        )
    for kinds, text in _CONNECTION_ERRORS:
        if isinstance(exc, kinds):
            return LLMConnectionError(text)
    return LLMConnectionError("the connection broke before the answer was whole; try again")


class _Unpacker:
    """A decompressor for one content encoding, with a limit on its output."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._zlib = None if encoding == "identity" else zlib.decompressobj(_WINDOW_BITS[encoding])
        self._has_begun = False

    @property
    def is_finished(self) -> bool:
        """Return whether the stream has ended."""
        return self._zlib is None or self._zlib.eof

    def unpack(self, chunk: bytes, *, max_bytes: int) -> bytes:
        """Return at most `max_bytes` of a chunk's content."""
        if self._zlib is None:
            return chunk[:max_bytes]
        try:
            unpacked = self._zlib.decompress(chunk, max_bytes)
        except zlib.error:
            if self._has_begun or self._encoding != "deflate":
                raise
            # Many servers send a raw deflate stream, where RFC 9110 requires the zlib format.
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            unpacked = self._zlib.decompress(chunk, max_bytes)
        self._has_begun = True
        return unpacked


async def raw_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the body as it arrives."""
    if response.is_stream_consumed:  # whole and decompressed, as from an `httpx.MockTransport`
        yield response.content
        return
    async for chunk in response.aiter_raw():
        yield chunk


async def read_body(response: httpx.Response, *, max_bytes: int) -> bytes:
    """Read and decompress a body. At most `max_bytes` and one network chunk are in memory.

    Args:
        response: A response whose body is not read yet, or is whole, as from an
            `httpx.MockTransport`.
        max_bytes: Maximum size before and after decompression.

    Raises:
        MalformedReplyError: `too_large`. `bad_encoding` for an encoding that was not requested, is
            damaged or is cut short.
    """
    # A whole body is decompressed already.
    unpacker = _Unpacker("identity" if response.is_stream_consumed else _encoding(response))
    packed = 0
    body = bytearray()
    try:
        async for chunk in raw_chunks(response):
            packed += len(chunk)
            # One byte more than allowed shows that the limit is exceeded.
            body += unpacker.unpack(chunk, max_bytes=max_bytes + 1 - len(body))
            if packed > max_bytes or len(body) > max_bytes:
                raise too_large(max_bytes)
    except zlib.error as exc:
        raise bad_encoding("the reply's compression is damaged") from exc
    if packed and not unpacker.is_finished:
        raise bad_encoding("the reply's compression ends too early")
    return bytes(body)


def _encoding(response: httpx.Response) -> str:
    encoding: str = (
        response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    )
    if encoding not in {"identity", *_WINDOW_BITS}:
        raise bad_encoding("the reply has a content encoding that was not requested")
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
    """Return the error for a reply over the limit."""
    return MalformedReplyError(
        f"the reply is longer than {max_bytes:,} bytes; ask for less, or raise max_response_bytes",
        reason="too_large",
    )


def bad_encoding(text: str) -> MalformedReplyError:
    """Return the error for a reply whose encoding was not requested or is damaged."""
    return MalformedReplyError(
        f"{text}; check the proxies between here and the model", reason="bad_encoding"
    )


@dataclass(slots=True)
class RetryPolicy:
    """The decision after each failure of a chat call: whether, when and how to send it again.

    A wait that would end after the deadline is not begun, so that the caller gets the true error
    instead of a timeout. After an endpoint refused an optional field, the next request has a
    substitute, and the last attempt has no optional field. Retries are logged.

    Attributes:
        original: The request with every option.
        refused: Options that the endpoint refused so far.
        max_attempts: Maximum number of requests for the call.
        deadline: Time in seconds on the running loop's clock.
        host: Host of the endpoint, for the log.
        failures: Number of failed requests.
        request: The request of the next attempt.
    """

    original: ChatRequest
    refused: frozenset[str]
    max_attempts: int
    deadline: float
    host: str | None
    failures: int = 0
    request: ChatRequest = field(init=False)

    def __post_init__(self) -> None:
        self.request = self.original.without(self.refused)

    def wait_s(self, error: LLMError) -> float | None:
        """Count a failure, and return the seconds until the next attempt, or None for none."""
        self.failures += 1
        if self.failures >= self.max_attempts:
            return None
        change = ""
        wait_s = self._back_off_s(error)
        refused = self.request.refused_by(error)
        if refused:
            wait_s = 0.0  # a refusal of an option is not overload
            self.refused |= refused
            self.request = self.original.without(self.refused)
            if self.failures + 1 == self.max_attempts:
                # An endpoint may refuse one option at a time, and this is the last attempt.
                self.request = self.original.bare()
            change = f" without {', '.join(self.request.dropped)}"
        if wait_s is not None:
            error.locate(model=self.original.model, host=self.host)
            _log.warning(
                "%s; request %d of %d follows in %.1f s%s",
                str(error).partition(";")[0],  # without the advice
                self.failures + 1,
                self.max_attempts,
                wait_s,
                change,
            )
        return wait_s

    def _back_off_s(self, error: LLMError) -> float | None:
        """Return the seconds that a transient failure has to wait, or None for no retry.

        The endpoint's retry delay wins over the exponential back-off.
        """
        if not is_transient(error):
            return None
        wait_s = error.retry_after_s if isinstance(error, LLMStatusError) else None
        jitter_s = 0.0
        if wait_s is None:
            jitter_s = _WAIT_JITTER_S  # spreads the retries of clients that failed together
            wait_s = min(_WAIT_MAX_S, _WAIT_INITIAL_S * 2.0 ** (self.failures - 1))
        remaining_s = self.deadline - asyncio.get_running_loop().time()
        if remaining_s <= wait_s + jitter_s:
            return None
        return wait_s + random.uniform(0, jitter_s)  # noqa: S311 - no secret
