"""`Endpoint`: an HTTP address that answers JSON with JSON or with a stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import httpx
from pydantic import SecretStr

from llm_common import __version__
from llm_common.core.http.status_errors import (
    endpoint_message,
    error_of_status,
    reported_error,
)
from llm_common.core.http.transport import (
    ACCEPT_ENCODING,
    SupportsRequests,
    open_connections,
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
# An agent's tools run between two decisions, which may take longer than httpx's default of 5 s.
_KEPT_ALIVE: Final = httpx.Limits(keepalive_expiry=60.0)


class Endpoint:
    """An HTTP address to post JSON to.

    Redirects are not followed, TLS certificates are always verified, and the size of a reply is
    checked while it arrives. The key is sent in one header and removed from every error.

    Args:
        url: Whole address.
        api_key: Bearer token. Empty for none.
        max_response_bytes: Maximum size of a reply before and after decompression.
        keep_alive: Whether calls on one event loop share connections. Only for formats in which
            stray bytes of an earlier reply cannot pass for a reply.
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
        keep_alive: bool,
        transport: SupportsRequests | None = None,
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
        if not keep_alive:
            self._headers["connection"] = "close"
        self._max_response_bytes = max_response_bytes
        self._transport = transport
        # Any: a client of httpx, or of httpx2 for a transport of that package.
        self._http: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
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
        try:
            with translate_errors(timeout_s=timeout_s):
                async with self._client().stream(
                    "POST", self._url, content=body, headers=self._headers
                ) as reply:
                    if reply.status_code != httpx.codes.OK:
                        raise await _error_of(reply, charge)
                    received = await read_body(reply, max_bytes=self._max_response_bytes)
            payload = read_payload(received, content_type=reply.headers.get("content-type", ""))
            charge(payload)
            if payload.get("error"):
                raise reported_error(payload["error"])
        except LLMStatusError as exc:
            self.remove_key(exc)
            raise
        return payload

    async def open_stream(self, body: bytes, *, timeout_s: float, charge: Charge) -> httpx.Response:
        """Send one request and return its reply with status 200, whose body is not read yet.

        The caller closes the reply. Arguments and errors are those of `post`.
        """
        # Uncompressed: `read_stream` reads events as they arrive, and does not decompress.
        headers = self._headers | {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
        }
        with translate_errors(timeout_s=timeout_s):
            http = self._client()
            request = http.build_request("POST", self._url, content=body, headers=headers)
            reply: httpx.Response = await http.send(request, stream=True)
        if reply.status_code == httpx.codes.OK:
            return reply
        try:
            error = await _error_of(reply, charge)
        finally:
            await reply.aclose()
        self.remove_key(error)
        raise error

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

    def remove_key(self, error: LLMStatusError) -> None:
        """Remove the key from an error's texts, since some endpoints repeat it."""
        body = error.body.replace(self._key, "[api key]") if self._key else error.body
        error.endpoint_message = endpoint_message(body)
        # Cut last, since the part of a key before the cut would not be found.
        error.body = body[:_MAX_ERROR_CHARS]

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice. Later posts raise LLMConnectionError."""
        self._closed = True
        # Taken before the await, so that a second task that closes finds none.
        http, self._http = self._http, None
        # The connections of another loop cannot be awaited here. They are closed as garbage.
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise LLMConnectionError("this client is closed; make a new one")

    def _client(self) -> Any:
        """Return the connections of the running loop."""
        self._check_open()
        loop = asyncio.get_running_loop()
        # Connections belong to one loop: those of another, which may be closed, cannot be used.
        if self._http is None or self._loop is not loop:
            self._loop = loop
            self._http = open_connections(self._url, self._transport, limits=_KEPT_ALIVE)
        return self._http


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
