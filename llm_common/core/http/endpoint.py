"""`Endpoint`: an HTTP address that answers JSON with JSON or with a stream."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

import httpx
from pydantic import SecretStr

from llm_common import __version__
from llm_common.core.http.external_errors import (
    endpoint_message,
    error_of_status,
    reported_error,
    without_key,
)
from llm_common.core.http.transport import (
    ACCEPT_ENCODING,
    read_body,
    retry_after_of,
    translate_errors,
)
from llm_common.core.http.wire import read_payload
from llm_common.errors import ConfigError, LLMConnectionError, LLMError, LLMStatusError

ResultT = TypeVar("ResultT")
Charge = Callable[[Mapping[str, Any]], None]

_MAX_ERROR_BYTES: Final = 65_536
_MAX_ERROR_CHARS: Final = 2_000
# An agent's tools run between two calls, which may take longer than httpx's default of 5 s.
_KEPT_ALIVE: Final = httpx.Limits(keepalive_expiry=60.0)


class Endpoint:
    """An HTTP address to post JSON to.

    Redirects are not followed, TLS certificates are always verified, and the size of a reply is
    checked while it arrives. The key is sent in one header and removed from every error.

    Args:
        url: Whole address.
        api_key: Bearer token. Empty for none.
        max_response_bytes: Maximum size of a reply before and after decompression.
        transport: Replaces the network, for tests.

    Raises:
        ConfigError: If the key contains characters that keys never contain.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: SecretStr,
        max_response_bytes: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = api_key.get_secret_value()
        # The HTTP library's error for such a header would repeat the key.
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError(
                "api_key contains a space or characters outside ASCII; check how it was copied",
                variable="api_key",
            )
        self._url = url
        self._key = key
        self._headers = {
            "accept": "application/json",
            "accept-encoding": ACCEPT_ENCODING,
            "content-type": "application/json",
            # One vendor answers 403 to the default of Python's clients.
            "user-agent": f"llm-common/{__version__}",
        }
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._max_response_bytes = max_response_bytes
        self._transport = transport
        # Connections belong to one loop, so each loop has its own.
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._closed = False

    async def post(self, body: bytes, *, timeout_s: float, charge: Charge) -> dict[str, Any]:
        """Send one request and return the JSON object of its reply.

        Args:
            body: JSON in UTF-8.
            timeout_s: The caller's deadline in seconds, for the text of an error.
            charge: Called with every reply that was charged, before the reply is checked, since
                unusable answers are billed too.

        Returns:
            The reply.

        Raises:
            LLMStatusError: If the status is not 200, or the reply is an error object.
            LLMConnectionError: If there is no connection, it broke, or the endpoint is closed.
            MalformedReplyError: If the reply is not a JSON object, is damaged or is too long.
        """
        with translate_errors(timeout_s=timeout_s):
            async with aclosing(await self._send(body, {}, timeout_s, charge)) as reply:
                received = await read_body(reply, max_bytes=self._max_response_bytes)
        payload = read_payload(received, content_type=reply.headers.get("content-type", ""))
        charge(payload)
        if payload.get("error"):
            raise self.without_key(reported_error(payload["error"]))
        return payload

    async def open_stream(self, body: bytes, *, timeout_s: float, charge: Charge) -> httpx.Response:
        """Send one request and return its reply with status 200, whose body is not read yet.

        The caller closes the reply. Arguments and errors are those of `post`.
        """
        # Uncompressed: `read_stream` reads events as they arrive, and does not decompress.
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
        }
        return await self._send(body, headers, timeout_s, charge)

    async def _send(
        self, body: bytes, headers: Mapping[str, str], timeout_s: float, charge: Charge
    ) -> httpx.Response:
        """Return an open reply with status 200, to a request with further headers."""
        with translate_errors(timeout_s=timeout_s):
            http = self._client()
            request = http.build_request(
                "POST", self._url, content=body, headers={**self._headers, **headers}
            )
            reply: httpx.Response = await http.send(request, stream=True)
        if reply.status_code == httpx.codes.OK:
            return reply
        async with aclosing(reply):
            raise self.without_key(await _error_of(reply, charge))

    async def retry(
        self, send: Callable[[], Awaitable[ResultT]], *, wait_s: Callable[[LLMError], float | None]
    ) -> ResultT:
        """Return the result of the first attempt that succeeds.

        Args:
            send: Makes one attempt.
            wait_s: Returns the seconds until the next attempt, or None to give up.

        Raises:
            LLMError: The error of the last attempt, or LLMConnectionError if the endpoint is
                closed.
        """
        while True:
            self._check_open()  # outside the handler, since no retry can help
            try:
                return await send()
            except LLMError as exc:
                seconds = wait_s(exc)
                if seconds is None:
                    raise
            await asyncio.sleep(seconds)

    def without_key(self, error: LLMStatusError) -> LLMStatusError:
        """Remove the key from an error's texts, since some endpoints repeat it, and return it."""
        body = without_key(error.body, self._key)
        error.endpoint_message = endpoint_message(body)
        # Cut last, since the part of a key before the cut would not be found.
        error.body = body[:_MAX_ERROR_CHARS]
        return error

    async def aclose(self) -> None:
        """Close the connections of the running loop. Later posts raise LLMConnectionError.

        Safe to call twice.
        """
        self._closed = True
        # Taken before the await, so that a second task that closes finds none. The connections of
        # another loop can be awaited only there. Without a call there, they are closed as garbage.
        http = self._clients.pop(asyncio.get_running_loop(), None)
        if http is not None:
            await http.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise LLMConnectionError("this client is closed; make a new one")

    def _client(self) -> Any:
        """Return the connections of the running loop."""
        self._check_open()
        loop = asyncio.get_running_loop()
        http = self._clients.get(loop)
        if http is None:
            # A connection refers to its loop, so a weak reference would never end. Copied, since
            # another thread may add its own loop meanwhile.
            for other in list(self._clients):
                if other.is_closed():
                    self._clients.pop(other, None)
            http = self._clients[loop] = open_connections(self._url, self._transport)
        return http


async def _error_of(reply: httpx.Response, charge: Charge) -> LLMStatusError:
    """Return the error of a reply whose status is not 200, and charge its tokens."""
    body = b""  # stays empty if the error's text cannot be read: the status is more important
    with suppress(LLMError), translate_errors(timeout_s=0):
        body = await read_body(reply, max_bytes=_MAX_ERROR_BYTES)
        payload = read_payload(body, content_type=reply.headers.get("content-type", ""))
        if isinstance(payload.get("usage"), dict):
            charge(payload)
    return error_of_status(
        reply.status_code,
        body.decode(errors="replace"),
        retry_after=retry_after_of(reply),
        path=reply.request.url.path,
    )


def open_connections(url: str, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """Return a client of httpx.

    A transport of the caller gets one request for each connection, since its buffers are unknown.
    """
    encrypted = url.startswith("https:")
    reuse: dict[str, Any] = {"limits": _KEPT_ALIVE, "event_hooks": {"response": [_guard]}}
    if transport is not None:
        reuse = {"headers": {"connection": "close"}}
    return httpx.AsyncClient(
        transport=transport,
        timeout=None,  # noqa: S113 - one deadline spans the whole call
        # Plain HTTP needs no certificates, which take 30 ms to load. An empty context trusts no
        # server.
        verify=True if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=encrypted,  # a proxy could read a request without TLS, and its key
        follow_redirects=False,
        **reuse,
    )


async def _guard(reply: httpx.Response) -> None:
    """Close the connection of a reply at its end if bytes follow it.

    httpcore returns a connection to its pool as soon as an answer has ended. Bytes that the
    endpoint sent behind the answer may have been read with it, and would then begin the next
    answer. httpcore notices such bytes only while they are still in the socket.
    """
    if "network_stream" in reply.extensions:  # a mocked reply has none
        reply.stream = _GuardedBody(reply)


class _GuardedBody(httpx.AsyncByteStream):
    def __init__(self, reply: httpx.Response) -> None:
        self._body: Any = reply.stream
        self._network = reply.extensions["network_stream"]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._body:
            yield chunk

    async def aclose(self) -> None:
        # Before the body, whose end returns the connection to the pool.
        if has_stray_bytes(self._body, self._network):
            await self._network.aclose()
        await self._body.aclose()


def has_stray_bytes(body: Any, network: Any) -> bool:
    """Return whether more has been read from a connection than one reply, or may have been.

    Args:
        body: Stream of the reply's body. If it has not ended, the result has no meaning.
        network: `network_stream` of the reply's extensions.
    """
    try:
        # No public names: https://github.com/encode/httpcore/issues/872. Bytes pass these buffers
        # in the opposite order.
        parser = body._stream._httpcore_stream._stream._connection._h11_state  # noqa: SLF001
        unparsed, is_at_end = parser.trailing_data
        if unparsed or is_at_end:
            return True
        stream = network._stream  # noqa: SLF001
        while hasattr(stream, "transport_stream"):  # TLS, also twice with a proxy
            if stream._ssl_object.pending() or stream._read_bio.pending:  # noqa: SLF001
                return True
            stream = stream.transport_stream
        return bool(stream._protocol.read_queue)  # noqa: SLF001
    except AttributeError:  # other versions of the packages, or another event loop's library
        return True
