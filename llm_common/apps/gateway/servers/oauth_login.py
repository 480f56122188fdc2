"""Log in to a server that wants OAuth, in the user's browser: `log_in`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import AnyUrl

from llm_common import __version__
from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.limits import MAX_LINE_CHARS, MAX_LOGIN_BYTES, limited_client
from llm_common.apps.gateway.servers.logins import Login, LoginError, expiry_of
from llm_common.text import one_line

_PATH: Final = "/callback"
_SESSION_HEADER: Final = "mcp-session-id"
_MAX_REQUEST_BYTES: Final = 16_384
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Cache-Control: no-store\r\n\r\nYou can close this page and return to the terminal.\n"
)
_NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"
# What a client of the protocol sends first, so that the server asks for the login.
_INITIALIZE: Final[Mapping[str, Any]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "llm-common", "version": __version__},
    },
}
# What it sends next. Some servers guard only their tools.
_LIST_TOOLS: Final[Mapping[str, Any]] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


class _NewLogin:
    """The SDK's storage of a login that begins with nothing."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def log_in(
    server: ServerConfig,
    *,
    show: Callable[[str], object],
    scope: str = "",
    timeout_s: float = 300.0,
) -> Login:
    """Register at a server's authorization server, let the user log in, and return the login.

    Args:
        server: A server with an address.
        show: Called with the address that the user has to open.
        scope: Rights to ask for besides those that the server names. See `Login.wanted_scope`.
        timeout_s: Seconds to wait for the user.

    Raises:
        LoginError: If the server asks for no login, or the login fails or is refused.
    """
    _check(server.url)
    new = _NewLogin()
    try:
        async with (
            asyncio.timeout(timeout_s),
            _callbacks(server.oauth.callback_port) as (address, callbacks),
        ):
            states: list[str] = []

            async def redirect(url: str) -> None:
                # Before the user logs in: the code must not be sent where others could read it.
                _check(url)
                _check(_issuer_of(server, provider)[1])
                # Behind the last `?`, because the endpoint may have parameters too.
                states.append(parse_qs(url.rpartition("?")[2])["state"][0])
                _choose_method(server, provider)
                if scope:
                    login = httpx2.URL(url)
                    scopes = union_scopes(login.params.get("scope"), scope)
                    url = str(login.copy_set_param("scope", scopes))
                show(url)

            async def answer() -> AuthorizationCodeResult:
                # Any program and page of this machine can send a callback.
                while (query := await callbacks.get()).get("state") not in states:
                    pass
                return _code(query)

            if server.oauth.client_id:  # or else a new one is registered
                new.client = OAuthClientInformationFull(
                    client_id=server.oauth.client_id,
                    client_secret=server.oauth.client_secret,
                    redirect_uris=[AnyUrl(address)],
                    token_endpoint_auth_method="none",  # noqa: S106 - of a client without a secret
                )
            provider = OAuthClientProvider(
                server.url,
                OAuthClientMetadata(
                    client_name="llm-common gateway",
                    redirect_uris=[AnyUrl(address)],
                    token_endpoint_auth_method="none",  # noqa: S106 - no secret, because PKCE replaces it
                ),
                new,
                redirect_handler=redirect,
                callback_handler=answer,
            )
            with _quiet_sdk():
                await _ask(server, provider)
    except TimeoutError as exc:
        reason = f"nobody logged in within {timeout_s:g} s; run the command again"
        raise LoginError(reason) from exc
    except OAuthFlowError as exc:
        # Its text may hold what the authorization server answered, so it is cut to one line.
        reason = one_line(str(exc), max_chars=MAX_LINE_CHARS)
        raise LoginError(f"the login failed: {reason}; run the command again") from None
    except (httpx2.HTTPError, httpx2.StreamError) as exc:
        reason = f"the server or its authorization server cannot be reached ({type(exc).__name__})"
        raise LoginError(f"{reason}; try again later") from None
    if new.tokens is None or new.client is None:
        raise LoginError("the server asked for no login; use it as it is")
    # The SDK does not know of the rights in `scope`, and the next login asks for them again.
    new.tokens.scope = union_scopes(new.tokens.scope, scope)
    issuer, token_endpoint = _issuer_of(server, provider)
    return Login(
        resource=resource_url_from_server_url(server.url),
        issuer=issuer,
        token_endpoint=token_endpoint,
        client=new.client,
        tokens=new.tokens,
        expires_at=expiry_of(new.tokens),
    )


def _issuer_of(server: ServerConfig, provider: OAuthClientProvider) -> tuple[str, str]:
    """Return the authorization server, and the address of its token endpoint."""
    context = provider.context
    if metadata := context.oauth_metadata:
        return str(metadata.issuer), str(metadata.token_endpoint)
    origin = context.get_authorization_base_url(server.url)
    return context.auth_server_url or origin, urljoin(origin, "/token")


def _choose_method(server: ServerConfig, provider: OAuthClientProvider) -> None:
    """Choose how a client of the configuration proves who it is, by what its server accepts."""
    client, metadata = provider.context.client_info, provider.context.oauth_metadata
    if client is None or server.oauth.client_secret is None:
        return
    methods = metadata.token_endpoint_auth_methods_supported if metadata else None
    # RFC 8414: an authorization server that names no methods accepts the one with `basic`.
    is_basic = not methods or "client_secret_basic" in methods
    client.token_endpoint_auth_method = "client_secret_basic" if is_basic else "client_secret_post"


def _check(url: str) -> None:
    """Check that what is sent to an address cannot be read on the way.

    Raises:
        LoginError: If the address is neither HTTPS nor on this machine.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host == "localhost"
    with suppress(ValueError):  # a name, and not an address
        is_local = is_local or ip_address(host).is_loopback
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        shown = one_line(f"{parts.scheme}://{host}", max_chars=MAX_LINE_CHARS)
        raise LoginError(
            f"{shown} is not HTTPS, so others could read what is sent there; use https://"
        )


async def _ask(server: ServerConfig, provider: OAuthClientProvider) -> None:
    """Send the first requests, which the SDK answers with the login if the server wants one."""
    accepted = {"Accept": "application/json, text/event-stream"}
    headers = {**server.headers, **accepted}
    requests: list[Any] = [_INITIALIZE, _LIST_TOOLS]
    method = "POST"
    if server.type == "sse":
        requests, method = [None], "GET"
    session: dict[str, str] = {}
    async with limited_client(
        MAX_LOGIN_BYTES, headers=headers, auth=provider, timeout=30.0
    ) as http:
        for body in requests:
            # Only the status counts. The answer may be a stream without an end.
            async with http.stream(method, server.url, json=body, headers=session) as response:
                if session_id := response.headers.get(_SESSION_HEADER):
                    session[_SESSION_HEADER] = session_id
            if provider.context.current_tokens is not None:
                return


def _code(query: Mapping[str, str]) -> AuthorizationCodeResult:
    if "error" in query:
        reason = query.get("error_description") or query["error"]
        raise OAuthFlowError(f"refused by the authorization server: {reason}")
    return AuthorizationCodeResult(
        code=query.get("code", ""), state=query.get("state"), iss=query.get("iss")
    )


@asynccontextmanager
async def _callbacks(port: int) -> AsyncIterator[tuple[str, asyncio.Queue[dict[str, str]]]]:
    """Listen on a port of this machine, and yield its address and the queries of callbacks."""
    callbacks: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target = urlsplit((await reader.readline()).decode("latin-1").partition(" ")[2])
            while (await reader.readline()).strip():  # the headers
                pass
            # A browser also asks for an icon.
            is_callback = target.path == _PATH
            writer.write(_ANSWER if is_callback else _NOT_FOUND)
            await writer.drain()
            if is_callback:
                query = parse_qs(target.query.partition(" ")[0])
                callbacks.put_nowait({name: values[0] for name, values in query.items()})
        except (OSError, ValueError):
            pass  # a broken request, after which another one may come
        finally:
            writer.close()

    try:
        listening = await asyncio.start_server(receive, "127.0.0.1", port, limit=_MAX_REQUEST_BYTES)
    except OSError as exc:
        reason = f"port {port} cannot be used ({exc.strerror}); end what uses it"
        raise LoginError(reason) from exc
    # A client that was registered by hand has the name, as the forms for it show.
    host = "localhost" if port else "127.0.0.1"
    async with listening:
        yield f"http://{host}:{listening.sockets[0].getsockname()[1]}{_PATH}", callbacks


@contextmanager
def _quiet_sdk() -> Iterator[None]:
    """Keep the SDK from logging a failed login, with what the authorization server answered."""
    log = logging.getLogger("mcp.client.auth.oauth2")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
