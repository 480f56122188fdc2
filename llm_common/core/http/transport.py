"""A reply's body within its limits, httpx's exceptions as ours, and whether a failed request is retried."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import stamina

from llm_common.core.http.wire import ChatRequest, is_transient
from llm_common.errors import LLMConnectionError, LLMError, LLMStatusError, LLMTimeoutError, MalformedReplyError

_WAIT_INITIAL_S, _WAIT_JITTER_S, _WAIT_MAX_S = 0.1, 0.4, 5.0
# Unpacked below with a limit on the output; httpx would unpack a whole chunk, also that of a decompression bomb.
ACCEPT_ENCODING = "gzip, deflate"
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
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


@contextmanager
def translated(*, timeout_s: float) -> Iterator[None]:
    """A block whose httpx errors are raised as `LLMError`; see `error_of_exception`."""
    try:
        yield
    except HTTPX_ERRORS as exc:
        raise error_of_exception(exc, timeout_s=timeout_s) from exc


def error_of_exception(exc: Exception, *, timeout_s: float) -> LLMError:
    """Our error for one of httpx's, without its text, which may hold headers."""
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


async def read_body(response: httpx.Response, *, max_bytes: int) -> bytes:
    """The unpacked body; holds at most `max_bytes` and one network chunk of it.

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
    return MalformedReplyError(f"{text}; check the proxies between here and the model", reason="bad_encoding")


@dataclass(slots=True)
class RetryPolicy:
    """Decides after each failure of one call whether to retry, and after which wait.

    A retry that cannot finish before the deadline is not begun: the caller gets the true error instead of a timeout.
    An endpoint that refuses an optional field is asked again with a substitute, and in the last attempt without any.

    Attributes:
        wanted: The call with every option.
        refused: Options that the endpoint is known to refuse; grows with each refusal.
        max_attempts: Requests that the call may send.
        deadline: On the running loop's clock, in seconds.
        request: What the next attempt sends.
    """

    wanted: ChatRequest
    refused: frozenset[str]
    max_attempts: int
    deadline: float
    request: ChatRequest = field(init=False)
    _failures: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.request = self.wanted.without(self.refused)

    def __call__(self, error: Exception) -> bool | float:
        """False: no retry. A number: retry after that many seconds. True: after stamina's exponential back-off."""
        self._failures += 1
        named = self.request.named_in(error)
        if named:
            self.refused |= named
            last = self._failures + 1 >= self.max_attempts
            self.request = self.wanted.bare() if last else self.wanted.without(self.refused)
            return 0.0
        if not is_transient(error):
            return False
        asked_s = error.retry_after_s if isinstance(error, LLMStatusError) else None
        left_s = self.deadline - asyncio.get_running_loop().time()
        if left_s <= (_WAIT_INITIAL_S + _WAIT_JITTER_S if asked_s is None else asked_s):
            return False
        return True if asked_s is None else asked_s


def attempts_of(policy: RetryPolicy) -> AsyncIterator[stamina.Attempt]:
    """The attempts of one call, each a `with` block; raises the last failure.

    stamina's hooks see only our errors, whose texts repeat nothing that was sent or received.
    """
    return aiter(
        stamina.retry_context(
            on=policy,
            attempts=policy.max_attempts,
            timeout=None,
            wait_initial=_WAIT_INITIAL_S,
            wait_jitter=_WAIT_JITTER_S,
            wait_max=_WAIT_MAX_S,
        )
    )
