"""Admits browsers with the token, and restricts what they may do with the pages."""

import hashlib
import re
import secrets
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_common.apps.inspector.rendering import content_policy, render

_LOCAL_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII)
# "" is a browser without this header, and "none" an address that the user opened.
_OWN_SITES: Final = frozenset({"", "none", "same-origin"})
_TOKEN: Final = "token"  # noqa: S105 - the name of a parameter


class TokenGate:
    """An ASGI application behind a token. Visitors without it get a page that explains it.

    The token is in the address of the first request. The browser then gets a cookie that scripts
    cannot read, and a redirect to the address without the token. The cookie is a hash of the token.

    A request with another `Host` than this machine is refused, which prevents DNS rebinding. A
    cookie in a request from another site is refused too.

    Args:
        app: The application.
        token: A secret of at least 16 characters.
        port: Part of the cookie's name, because browsers send cookies to every port of a machine.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie_name = f"llm-common-inspect-{port}"
        # The cookie is stored by the browser, and must not tell the token.
        self._cookie = hashlib.sha256(f"cookie {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. See `ASGIApp`."""
        # The application has no websockets, so only HTTP requests need the token.
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        # On every response, those of Starlette for errors included.
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_security_headers()]
            await send(message)

        answer = self._check(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _check(self, request: Request) -> Response | None:
        """Return the response to a visitor without a valid cookie, or None with one."""
        if not _LOCAL_HOST.fullmatch(request.headers.get("host", "")):
            return _refuse(
                421,
                "Unknown host name",
                "Open the address that the command printed.",
            )
        tokens = request.query_params.getlist(_TOKEN)
        if tokens:
            if not _is_same(tokens[0], self._token):  # further tokens do not count
                return _refuse(
                    403, "Wrong token", "Open the address that the command printed last."
                )
            return self._admit(request)
        is_own_site = request.headers.get("sec-fetch-site", "") in _OWN_SITES
        cookie = request.cookies.get(self._cookie_name, "")
        if is_own_site and _is_same(cookie, self._cookie):
            return None
        return _refuse(
            401,
            "Missing token",
            "Open the whole address that the command printed, including the token.",
        )

    def _admit(self, request: Request) -> Response:
        """Set the cookie, and redirect to the same page without the token."""
        parameters = request.query_params.multi_items()
        query = urlencode([(name, value) for name, value in parameters if name != _TOKEN])
        # Browsers take "//name" and "/\\name" for another host.
        address = "/" + quote(request.scope["path"].lstrip("/\\"))
        if query:
            address += f"?{query}"
        response = RedirectResponse(address, status_code=303)
        response.set_cookie(
            self._cookie_name, self._cookie, httponly=True, samesite="strict", path="/"
        )
        return response


def _is_same(value: str, secret: str) -> bool:
    # Takes the same time for every value, so a wrong one does not tell how much of it is right.
    return secrets.compare_digest(value.encode("utf-8", "replace"), secret.encode())


def _refuse(status: int, title: str, way_out: str) -> Response:
    return HTMLResponse(render("refusal.html", title=title, way_out=way_out), status_code=status)


def _security_headers() -> list[tuple[bytes, bytes]]:
    """Return headers against caching, loading, framing and leaking the address."""
    policy = f"{content_policy()}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]
