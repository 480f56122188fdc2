"""Keep hosts with different tokens apart over HTTP: `HttpTenants`."""

import hmac
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_common.apps.gateway.gateway import Gateway
from llm_common.errors import ConfigError

MAX_SESSIONS: Final = 64
"""Sessions of all tokens together, because each may run every server."""

_MIN_TOKEN_CHARS: Final = 16
_SESSION_HEADER: Final = "mcp-session-id"
_VERSION_HEADER: Final = "mcp-protocol-version"
_FIRST_ERROR: Final = 400  # the lowest HTTP status of an error
# The SDK accepts requests for this host whatever the gateway's loopback address is.
_OWN_HOST: Final = (b"host", b"localhost:1")
_UNAUTHORIZED: Final = PlainTextResponse(
    "send the gateway's token as a bearer\n", 401, {"www-authenticate": "Bearer"}
)
_NO_SESSION: Final = PlainTextResponse("there is no such session\n", 404)
_BUSY: Final = PlainTextResponse(
    "all sessions of this token are busy; end one, or try again later\n",
    503,
    {"retry-after": "5"},
)


@dataclass(slots=True)
class _Tenant:
    """The sessions of one token.

    Attributes:
        authorization: The `Authorization` header of its requests.
        opened_at: When each session was opened, by its id. Hosts of the 2026 protocol share one
            session, whose id is "".
        opening: The places of sessions that are being opened.
    """

    authorization: str
    opened_at: dict[str, float] = field(default_factory=dict)
    opening: set[object] = field(default_factory=set)


class HttpTenants:
    """An ASGI application in front of the SDK's, for which each token is a tenant.

    A request without a token gets status 401. A session belongs to the token that opened it: with
    another token, its id gets status 404, as an id does that no session has.

    Each token may have an equal share of 64 sessions, and at least one. A session above the share
    closes the longest idle one of the same token. If none is idle, it gets status 503.

    Args:
        app: The SDK's application.
        gateway: The gateway that it serves.
        tokens: The bearer tokens.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway, tokens: Sequence[str]) -> None:
        self._app = app
        self._gateway = gateway
        self._tokens = tokens
        self._share = max(MAX_SESSIONS // len(tokens), 1)
        self._tenants: dict[str, _Tenant] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to the SDK."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        authorization = headers.get("authorization", "")
        if not is_known_token(authorization, self._tokens):
            await _UNAUTHORIZED(scope, receive, send)
            return
        tenant = self._tenants.setdefault(authorization, _Tenant(authorization))
        session_id = headers.get(_SESSION_HEADER)
        # The SDK tells the two protocols apart in the same way.
        version = headers.get(_VERSION_HEADER)
        is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if session_id is not None and session_id not in tenant.opened_at:
            await _NO_SESSION(scope, receive, send)
        elif is_modern:
            await self._serve_modern(tenant, scope, receive, send)
        elif session_id is not None:
            await self._serve(tenant, session_id, scope, receive, send)
        elif scope["method"] == "POST":
            await self._serve_first(tenant, scope, receive, send)
        else:
            await self._app(scope, receive, send)  # refuses a request that needs a session

    async def _serve(
        self, tenant: _Tenant, session_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass on a request of a session, and forget the session if the request ends it."""

        async def send_and_note(message: Message) -> None:
            if scope["method"] == "DELETE" and _is_success(message):
                tenant.opened_at.pop(session_id, None)
                self._gateway.leave(tenant.authorization, session_id)
            await send(message)

        await self._app(scope, receive, send_and_note)

    async def _serve_first(
        self, tenant: _Tenant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass on a request that may open a session, and note the id of the session."""

        async def send_and_note(message: Message) -> None:
            if _is_success(message):
                # Before it is sent, because the host may use the id at once.
                for session_id in Headers(raw=message["headers"]).getlist(_SESSION_HEADER):
                    tenant.opened_at[session_id] = time.monotonic()
                tenant.opening.discard(place)
            await send(message)

        async with self._room(tenant) as place:
            answer: ASGIApp = self._app
            if place is None:
                answer = _BUSY
            await answer(scope, receive, send_and_note)

    async def _serve_modern(
        self, tenant: _Tenant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass on a request of the 2026 protocol, in the session that its token has for them."""
        if "" not in tenant.opened_at:
            async with self._room(tenant) as place:
                if place is None:
                    await _BUSY(scope, receive, send)
                    return
                tenant.opened_at[""] = time.monotonic()
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def _room(self, tenant: _Tenant) -> AsyncIterator[object | None]:
        """Yield a place for another session of the tenant, or None if all its sessions are busy.

        Closes its longest idle session to make room.
        """
        idle_id = None
        if len(tenant.opened_at) + len(tenant.opening) >= self._share:
            idle_id = self._longest_idle(tenant)
            if idle_id is None:
                yield None
                return
            del tenant.opened_at[idle_id]
        # Taken before the first await, so that two requests cannot take the same place.
        place = object()
        tenant.opening.add(place)
        try:
            if idle_id is not None:
                await self._end(tenant, idle_id)
            yield place
        finally:
            tenant.opening.discard(place)

    def _longest_idle(self, tenant: _Tenant) -> str | None:
        """Return the tenant's session that has run nothing for the longest time, if any."""
        idle: list[tuple[float, str]] = []
        for session_id, opened_at in tenant.opened_at.items():
            session = self._gateway.find(tenant.authorization, session_id)
            if session is None:  # it has sent no request yet, or has lost its servers since
                idle.append((opened_at, session_id))
            elif not session.running:
                idle.append((session.last_used, session_id))
        return min(idle)[1] if idle else None

    async def _end(self, tenant: _Tenant, session_id: str) -> None:
        """End a session in the SDK and in the gateway."""
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "DELETE",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [_OWN_HOST, (_SESSION_HEADER.encode(), session_id.encode())],
        }
        if session_id:  # the SDK has no session for hosts of the 2026 protocol
            await self._app(scope, _receive_nothing, _send_nothing)
        # Last, because a request that was on its way may have begun the session again.
        self._gateway.leave(tenant.authorization, session_id)


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_nothing(_: Message) -> None:
    """Drop an answer that nothing waits for."""


def _is_success(message: Message) -> bool:
    """Return whether a message of ASGI begins a response that is not an error."""
    return bool(message["type"] == "http.response.start" and message["status"] < _FIRST_ERROR)


def is_known_token(header: str, tokens: Sequence[str]) -> bool:
    """Return whether an `Authorization` header is `Bearer` and one of the tokens.

    Other forms are refused, because the results of a token are stored under a digest of the header.
    """
    # `compare_digest` takes constant time, and refuses a str with characters outside ASCII.
    received = header.encode()
    # `sum`, not `any`, which would stop at the first match.
    matches = sum(hmac.compare_digest(received, f"Bearer {token}".encode()) for token in tokens)
    return matches > 0


def checked_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens, each once.

    Raises:
        ConfigError: If there is none, or one has under 16 characters.
    """
    if not tokens or any(len(token) < _MIN_TOKEN_CHARS for token in tokens):
        raise ConfigError(
            f"a token needs {_MIN_TOKEN_CHARS} characters or more; make one with "
            "openssl rand -hex 16",
            variable="token",
        )
    return tuple(dict.fromkeys(tokens))
