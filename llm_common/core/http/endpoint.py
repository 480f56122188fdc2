"""`Endpoint`: one address that takes a JSON object and answers with one, whatever the objects mean."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import httpx
from pydantic import SecretStr

from llm_common import __version__
from llm_common.core.http.transport import (
    ACCEPT_ENCODING,
    back_off_s,
    open_connections,
    read_body,
    retry_after_of,
    translated,
)
from llm_common.core.http.wire import error_of_status, read_payload
from llm_common.errors import ConfigError, LLMConnectionError, LLMError, LLMStatusError

_MAX_ERROR_BYTES, _MAX_ERROR_CHARS = 65_536, 2_000
_LIMITS = httpx.Limits(keepalive_expiry=60.0)  # an agent's next step may be a model call away
ResultT = TypeVar("ResultT")


class Endpoint:
    """Posts JSON to one address.

    Connections are kept alive between calls of one event loop. Redirects are not followed, TLS
    certificates are always verified, and the size of a reply is limited while it arrives. The key
    goes into one header and into no error.

    Args:
        url: Whole address.
        api_key: Sent as a bearer token; empty for none.
        max_response_bytes: A longer reply, after decompression, is refused.
        transport: Replaces the network, for tests.

    Raises:
        ConfigError: The key holds characters that no key has.
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
        if key and (not (key.isascii() and key.isprintable()) or " " in key):
            raise ConfigError(
                "api_key holds characters that no key has; check how it was copied",
                variable="api_key",
            )
        self._url, self._key = url, key
        self._headers = {
            "accept": "application/json",
            "accept-encoding": ACCEPT_ENCODING,
            "content-type": "application/json",
            # one vendor answers 403 to the default of Python's clients
            "user-agent": f"llm-common/{__version__}",
        } | ({"authorization": f"Bearer {key}"} if key else {})
        self._max_response_bytes = max_response_bytes
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def post(self, body: bytes, *, timeout_s: float) -> dict[str, Any]:
        """The JSON object with which the endpoint answers one request.

        Args:
            body: JSON in UTF-8.
            timeout_s: The caller's deadline, for the text of an error.

        Raises:
            LLMStatusError: A status other than 200; the subclasses say which.
            LLMConnectionError: No connection, a broken one, or the endpoint is closed.
            MalformedReplyError: No JSON object, a damaged or a too long one.
        """
        try:
            with translated(timeout_s=timeout_s):
                async with self._client().stream(
                    "POST", self._url, content=body, headers=self._headers
                ) as reply:
                    if reply.status_code != httpx.codes.OK:
                        raise await _refusal(reply)
                    received = await read_body(reply, max_bytes=self._max_response_bytes)
        except LLMStatusError as exc:
            # Some endpoints repeat the key.
            exc.body = (exc.body.replace(self._key, "[api key]") if self._key else exc.body)[
                :_MAX_ERROR_CHARS
            ]
            raise
        return read_payload(received, content_type=reply.headers.get("content-type", ""))

    def check_open(self) -> None:
        """Raises LLMConnectionError if the endpoint is closed."""
        if self._closed:
            raise LLMConnectionError("this client is closed; make a new one")

    async def aclose(self) -> None:
        """Closes the connections, once or twice; later posts raise LLMConnectionError."""
        self._closed = True
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    def _client(self) -> httpx.AsyncClient:
        """The connections of the running loop; those of a closed loop are unusable."""
        self.check_open()
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._loop = loop
            self._http = open_connections(self._url, self._transport, limits=_LIMITS)
        return self._http


async def retried(
    send: Callable[[], Awaitable[ResultT]], *, max_attempts: int, deadline: float
) -> ResultT:
    """The result of the first attempt that succeeds.

    Repeats and waits as `back_off_s` says: a wait that does not end before the deadline is not
    begun, so the caller gets the true error instead of a timeout.

    Args:
        send: One attempt.
        max_attempts: Most attempts.
        deadline: On the running loop's clock, in seconds.

    Raises:
        LLMError: Of the last attempt.
    """
    for attempt in range(max_attempts):
        try:
            return await send()
        except LLMError as exc:
            wait_s = back_off_s(exc, failures=attempt + 1, deadline=deadline)
            if attempt + 1 == max_attempts or wait_s is None:
                raise
        await asyncio.sleep(wait_s)
    raise ValueError("max_attempts must be at least 1")


async def _refusal(reply: httpx.Response) -> LLMStatusError:
    """The error of a reply whose status is not 200."""
    body = b""
    with suppress(LLMError), translated(timeout_s=0):
        body = await read_body(reply, max_bytes=_MAX_ERROR_BYTES)
    return error_of_status(
        reply.status_code, body.decode(errors="replace"), retry_after=retry_after_of(reply)
    )
