"""The body of an HTTP response, whole and bounded."""

import zlib

import httpx

from llm_common.errors import MalformedReplyError

__all__ = ["ACCEPT_ENCODING", "read_body"]

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
