"""Limit what one server may send, so that it takes nothing from the host and other servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

import httpx2

MAX_MESSAGE_BYTES: Final = 64_000_000
"""Of a line, or of the body of an answer over HTTP after its decompression."""

MAX_LOGIN_BYTES: Final = 1_000_000
"""Of a document of an authorization server."""

MAX_LIST_BYTES: Final = 32_000_000
"""Of all pages of a list, and of the record of a server."""

# A hostile server could send pages for ever.
MAX_PAGES: Final = 100
MAX_ENTRIES: Final = 10_000

PAGE_ENTRIES: Final = 250
"""Entries that are handled at once. The SDK validates each of them twice, in about 50 µs."""

MAX_LEFT_OUT: Final = 100
"""Entries of lists that are left out and named. The others share one note."""

MAX_WAITING: Final = 100
"""Messages of one kind that wait for the host."""

MAX_LOGS: Final = 100
"""Log messages within a second, which is more than a person reads."""

MAX_LINE_CHARS: Final = 200
"""Of a line in which a server's words are shown, such as a title or a reason."""

MAX_NAME_CHARS: Final = 60
"""Of a name in such a line."""

REQUEST_WAIT_S: Final = 15.0
"""Seconds for a server that may be starting, or that is asked on a guess."""

TOO_LONG: Final = "it is longer than the limit for an answer"
# A megabyte of Brotli or Zstandard may unpack to gigabytes at once.
_ENCODINGS: Final = {"Accept-Encoding": "gzip, deflate"}
_UNPACKED: Final = ("", "identity", "gzip", "deflate")
_PIECE_BYTES: Final = 65_536


def limited_client(
    max_bytes: int = MAX_MESSAGE_BYTES,
    *,
    streams: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    hooks: Sequence[Callable[[httpx2.Response], Awaitable[None]]] = (),
    **settings: Any,
) -> httpx2.AsyncClient:
    """Return a client that limits the bodies of its responses.

    A body over the limit raises `httpx2.StreamError`, which fails one request of the SDK.

    Args:
        max_bytes: Maximum size of a body after decompression.
        streams: Methods whose event streams may be longer, because their reader limits each event.
        headers: Headers of each request.
        hooks: Called with each response before its body is read.
        settings: Further settings of `httpx2.AsyncClient`.
    """

    async def limit(response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").lower()
        is_stream = response.is_success and kind.startswith("text/event-stream")
        is_endless = is_stream and response.request.method in streams
        response.stream = _LimitedBody(response, None if is_endless else max_bytes)

    return httpx2.AsyncClient(
        headers={**_ENCODINGS, **(headers or {})},
        # A hook, because a client with its own transport uses no proxy of the environment.
        event_hooks={"response": [*hooks, limit]},
        **settings,
    )


class _LimitedBody(httpx2.AsyncByteStream):
    """The body of a response, unpacked piece by piece. Takes over its `Content-Encoding`."""

    def __init__(self, response: httpx2.Response, max_bytes: int | None) -> None:
        self._encoding = response.headers.pop("content-encoding", "").strip().lower()
        self._max_bytes = max_bytes
        # A second response unpacks the body, because the first one would join all of it.
        self._packed = httpx2.Response(
            response.status_code,
            headers={"Content-Encoding": self._encoding},
            stream=response.stream,
            request=response.request,
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in _UNPACKED:
            raise httpx2.StreamError("it has a content encoding that was not requested")
        size = 0
        try:
            async for chunk in self._packed.aiter_bytes():
                for start in range(0, len(chunk), _PIECE_BYTES):
                    piece = chunk[start : start + _PIECE_BYTES]
                    size += len(piece)
                    if self._max_bytes is not None and size > self._max_bytes:
                        raise httpx2.StreamError(TOO_LONG)
                    yield piece
                    # A small chunk may hold megabytes, during which other servers have to wait.
                    await asyncio.sleep(0)
        except httpx2.DecodingError as exc:
            raise httpx2.StreamError("its compression is damaged") from exc

    async def aclose(self) -> None:
        await self._packed.aclose()
