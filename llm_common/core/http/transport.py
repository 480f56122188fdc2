"""What an HTTP call's failures mean: the one place where httpx's errors and status codes become ours."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

import httpx

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

__all__ = [
    "ACCEPT_ENCODING",
    "HTTPX_ERRORS",
    "error_of_exception",
    "error_of_status",
    "is_transient",
    "read_body",
    "retry_after_s",
    "translated",
]

# What is unpacked below with a limit on what comes out; httpx unpacks each chunk whole, a bomb's too.
ACCEPT_ENCODING = "gzip, deflate"

_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class _Unpacker:
    """Undoes one content encoding; holds never more than is asked for."""

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
            # Many servers mean a bare deflate stream by the name that RFC 9110 gives to the zlib format.
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            unpacked = self._zlib.decompress(chunk, max_bytes)
        self._begun = True
        return unpacked


async def read_body(response: httpx.Response, *, max_bytes: int) -> bytes:
    """The unpacked body, of which at no time more than `max_bytes` and one network chunk are held.

    Args:
        response: Streamed, nothing read yet.
        max_bytes: Limit on the packed and on the unpacked size.

    Raises:
        MalformedReplyError: `too_large`, or `bad_encoding` for one that was not asked for, is damaged or cut short.
    """
    unpacker = _Unpacker(_encoding(response))
    packed = 0
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            packed += len(chunk)
            body += unpacker.unpack(chunk, max_bytes=max_bytes + 1 - len(body))
            if packed > max_bytes or len(body) > max_bytes:
                raise MalformedReplyError(
                    f"the reply is longer than {max_bytes:,} bytes; ask for less, or raise max_response_bytes",
                    reason="too_large",
                )
    except zlib.error as exc:
        raise _bad_encoding("the reply's compression is damaged") from exc
    if packed and not unpacker.finished:
        raise _bad_encoding("the reply's compression ends too early")
    return bytes(body)


def _encoding(response: httpx.Response) -> str:
    encoding: str = response.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding not in {"identity", *_WINDOW_BITS}:
        raise _bad_encoding("the reply has a content encoding that was not asked for")
    return encoding


def _bad_encoding(text: str) -> MalformedReplyError:
    return MalformedReplyError(f"{text}; check what stands between here and the model", reason="bad_encoding")


HTTPX_ERRORS = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError)

_CONNECTION_ERRORS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (httpx.ConnectError,),
        "the endpoint cannot be reached; check base_url, the network and the endpoint's certificate",
    ),
    ((httpx.ProxyError,), "the proxy refused the connection; check HTTPS_PROXY and NO_PROXY"),
    (
        (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError),
        "the request cannot be sent; check base_url and api_key",
    ),
    ((httpx.RemoteProtocolError,), "the endpoint broke off or does not speak HTTP; try again or check base_url"),
)
_TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "prompt is too long",
)
_BAD_REQUEST = frozenset({400, 422})
_TRANSIENT = frozenset({408, 429}) | frozenset(range(500, 600))
_REDIRECTS = range(300, 400)


@contextmanager
def translated(*, timeout_s: float) -> Iterator[None]:
    """A block out of which httpx's errors come as ours.

    Raises:
        LLMError: By `error_of_exception`, chained to what httpx raised.
    """
    try:
        yield
    except HTTPX_ERRORS as exc:
        raise error_of_exception(exc, timeout_s=timeout_s) from exc


def error_of_exception(exc: Exception, *, timeout_s: float) -> LLMError:
    """Our error for one of httpx's. The text repeats nothing of httpx's, which may hold addresses and headers."""
    if isinstance(exc, httpx.TimeoutException):
        return LLMTimeoutError(
            f"no answer within {timeout_s:g} s; raise timeout_s or take a faster model", timeout_s=timeout_s
        )
    if isinstance(exc, httpx.DecodingError):
        return MalformedReplyError("the reply's compression is damaged; try again", reason="bad_encoding")
    for kinds, text in _CONNECTION_ERRORS:
        if isinstance(exc, kinds):
            return LLMConnectionError(text)
    return LLMConnectionError("the connection broke before the answer was whole; try again")


def error_of_status(status: int, body: str, *, retry_after: str | None = None) -> LLMStatusError:
    """Our error for an HTTP status, or for the status inside an error object that came with 200.

    Args:
        status: HTTP status.
        body: What the endpoint said; kept as a fact, but for a redirect's, which repeats the address.
        retry_after: The header of that name.
    """
    kind, text = _kind_of_status(status, body)
    return kind(
        text, status=status, body="" if status in _REDIRECTS else body, retry_after_s=retry_after_s(retry_after)
    )


def _kind_of_status(status: int, body: str) -> tuple[type[LLMStatusError], str]:
    if status in {401, 403}:
        return LLMAuthError, f"the endpoint refused the key ({status}); check it and what it may use"
    if status == httpx.codes.NOT_FOUND:
        return ModelNotFoundError, "the endpoint knows no such model or path (404); check model and base_url"
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return LLMRateLimitError, "the endpoint takes no more requests now (429); wait, or ask for a higher limit"
    if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE or (status in _BAD_REQUEST and _says_too_long(body)):
        advice = "send less or take a model with a larger window"
        return ContextTooLongError, f"the prompt does not fit the model ({status}); {advice}"
    if status in _REDIRECTS:
        advice = "set base_url to the new address"
        return LLMStatusError, f"the endpoint redirects ({status}), which is not followed with a key; {advice}"
    return LLMStatusError, f"the endpoint answered with an error (status {status}); see `.body` for what it said"


def is_transient(error: BaseException | None) -> bool:
    """Whether the same request may well succeed a moment later: broken connections, 408, 429 and 5xx."""
    if isinstance(error, LLMStatusError):
        return error.status in _TRANSIENT
    return isinstance(error, LLMConnectionError)


def retry_after_s(header: str | None, *, now: datetime | None = None) -> float | None:
    """The wait in seconds that a Retry-After header asks for; None for none, for garbage and for a time gone by.

    Both forms of RFC 9110 section 10.2.3: seconds, or a date.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = _seconds_until(header, now=now or datetime.now(UTC))
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _seconds_until(date: str, *, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return -1.0
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()


def _says_too_long(body: str) -> bool:
    text = body.lower()
    return any(phrase in text for phrase in _TOO_LONG)
