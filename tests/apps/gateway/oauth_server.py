"""A server that wants OAuth, with its authorization server, on one loopback port."""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from tests.apps.gateway.hosts import serving


class OAuthServer:
    """The authorization server's state, and what was asked of it.

    Attributes:
        port: The port.
        expires_in: Seconds that its tokens last, for the client.
        refuse: Whether it refuses the user's login.
        takes_no_clients: Whether clients cannot register themselves.
        forgets: Whether it refuses to renew tokens.
        methods: How clients may prove to the token endpoint who they are.
        open_methods: Methods of the protocol that need no token.
        rights: The scope that a method of the protocol needs.
        padding: Characters by which its answers with tokens are longer.
        elsewhere: Endpoints that its metadata put on a host that others could read along.
        renewals: Number of accepted renewals.
        resources: The `resource` of each token request.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.expires_in = 3600
        self.refuse = self.forgets = self.takes_no_clients = False
        self.methods = ["none"]
        self.open_methods: set[str] = set()
        self.rights: dict[str, str] = {}
        self.padding = 0
        self.elsewhere: set[str] = set()
        self.renewals = 0
        self.resources: list[str | None] = []
        self.access: dict[str, str] = {}
        self._refresh: set[str] = set()
        self.clients: dict[str, list[str]] = {}
        self._codes: dict[str, tuple[str, str, str, str]] = {}

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def revoke_access(self) -> None:
        self.access.clear()

    async def resource(self, _: Request) -> Response:
        return JSONResponse({"resource": self.url, "authorization_servers": [self.base]})

    def _endpoint(self, name: str) -> str:
        base = "http://login.example" if name in self.elsewhere else self.base
        return f"{base}/{name}"

    async def metadata(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.base,
                "authorization_endpoint": self._endpoint("authorize"),
                "token_endpoint": self._endpoint("token"),
                "registration_endpoint": f"{self.base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": self.methods,
            }
        )

    async def register(self, request: Request) -> Response:
        if self.takes_no_clients:
            return Response("", 404)
        asked = await request.json()
        client_id = secrets.token_hex(8)
        self.clients[client_id] = asked["redirect_uris"]
        return JSONResponse({**asked, "client_id": client_id}, 201)

    async def authorize(self, request: Request) -> Response:
        query = request.query_params
        redirect = query["redirect_uri"]
        assert redirect in self.clients[query["client_id"]]
        assert query["code_challenge_method"] == "S256"
        if self.refuse:
            answer = {"error": "access_denied", "error_description": "the user said no"}
        else:
            code = secrets.token_hex(8)
            rights = query.get("scope", "")
            self._codes[code] = query["client_id"], redirect, query["code_challenge"], rights
            answer = {"code": code}
        return RedirectResponse(f"{redirect}?{urlencode({**answer, 'state': query['state']})}", 302)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        is_basic = request.headers.get("authorization", "").startswith("Basic ")
        if is_basic != (self.methods == ["client_secret_basic"]):
            return JSONResponse({"error": "invalid_client"}, 401)
        rights = ""
        self.resources.append(str(form.get("resource")))
        if form["grant_type"] == "authorization_code":
            client_id, redirect, challenge, rights = self._codes.pop(str(form["code"]))
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            assert (client_id, redirect) == (form["client_id"], form["redirect_uri"])
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == challenge
        elif self.forgets or form["refresh_token"] not in self._refresh:
            return JSONResponse({"error": "invalid_grant"}, 400)
        else:
            # Long enough that another process asks meanwhile, if it does not wait.
            await asyncio.sleep(0.2)
            self._refresh.discard(str(form["refresh_token"]))
            self.renewals += 1
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.access[access] = rights
        self._refresh.add(refresh)
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": self.expires_in}
        return JSONResponse({**answer, "refresh_token": refresh, "padding": "x" * self.padding})

    def app(self) -> Starlette:
        tools = MCPServer("far")

        @tools.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        server = tools.streamable_http_app()

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            headers = dict(scope["headers"]) if scope["type"] == "http" else {}
            token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
            if scope["type"] != "http":
                await server(scope, receive, send)
                return
            message = await receive()
            body = message["body"]
            method = json.loads(body).get("method", "") if body else ""
            address = f"{self.base}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{address}"'
            needed = self.rights.get(method, "")
            if method not in self.open_methods and token not in self.access:
                refusal = Response("", 401, {"www-authenticate": challenge})
                await refusal(scope, receive, send)
            elif needed not in self.access.get(token, ""):
                challenge = f'{challenge}, error="insufficient_scope", scope="{needed}"'
                refusal = Response("", 403, {"www-authenticate": challenge})
                await refusal(scope, receive, send)
            else:
                messages = iter([message])

                async def again() -> Message:
                    return next(messages, None) or await receive()

                await server(scope, again, send)

        routes: list[Any] = [
            Route("/.well-known/oauth-protected-resource/mcp", self.resource),
            Route("/.well-known/oauth-authorization-server", self.metadata),
            Route("/register", self.register, methods=["POST"]),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Mount("/", guarded),
        ]
        return Starlette(routes=routes, lifespan=lambda _: tools.session_manager.run())


@asynccontextmanager
async def oauth_server() -> AsyncIterator[OAuthServer]:
    """Serve on a free port until the end of the block."""
    states: list[OAuthServer] = []

    def app_of(port: int) -> Starlette:
        states.append(OAuthServer(port))
        return states[0].app()

    async with serving(app_of):
        yield states[0]
