"""`Guarded`: lets in who holds the token, by a name of this machine alone, and bounds what a browser may do."""

import hashlib
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_common.trace.markup import document, page_style

_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII)
_OWN_SITES: Final = frozenset({"", "none", "same-origin"})
_TOKEN: Final = "token"  # noqa: S105 - the name of a parameter


class Guarded:
    """The application for those who hold the token.

    Everybody else gets a page that says how to come in.
    The token comes in the address once; then a cookie that no script can read stands for it, and
    the address no longer holds it. The cookie tells nothing of the token. A `Host` that is not of
    this machine is refused, so that no name that an attacker points here gets an answer; so is a
    cookie that a page of another site makes the browser send.

    Args:
        app: What is guarded.
        token: At least 16 characters.
        port: Names the cookie: browsers send cookies to every port of a machine.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._name = f"llm-common-inspect-{port}"
        self._pass = hashlib.sha256(f"cookie {token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request; see `ASGIApp`."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_safe_headers()]
            await send(message)

        await (self._answer(scope) or self._app)(scope, receive, send_safely)

    def _answer(self, scope: Scope) -> Response | None:
        """What is said to those who are not let in, or come in with the token.

        None for those who are in.
        """
        headers = Headers(scope=scope)
        if not _HOST.fullmatch(headers.get("host", "")):
            return _refusal(
                421,
                "This name is not of this machine",
                "Open the address that the command printed.",
            )
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if given := query.pop(_TOKEN, None):
            if not _same(given[0], self._token):
                return _refusal(
                    403, "The token is wrong", "Open the address that the command printed last."
                )
            return self._admission(scope["path"], urlencode(query, doseq=True))
        if headers.get("sec-fetch-site", "") in _OWN_SITES and _same(
            self._cookie(headers), self._pass
        ):
            return None
        return _refusal(
            401,
            "A token is needed",
            "Open the whole address that the command printed, with its token.",
        )

    def _admission(self, path: str, query: str) -> Response:
        """Goes to the same page without the token, with the cookie."""
        address = "/" + quote(path.lstrip("/\\")) + (f"?{query}" if query else "")
        response = RedirectResponse(address, status_code=303)
        response.set_cookie(self._name, self._pass, httponly=True, samesite="strict", path="/")
        return response

    def _cookie(self, headers: Headers) -> str:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._name)
        except CookieError:
            return ""
        return morsel.value if morsel else ""


def _same(given: str, known: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), known.encode())


def _refusal(status: int, title: str, way_out: str) -> Response:
    page = document(title, f"<main><h1>{title}</h1><p>{way_out}</p></main>")
    return HTMLResponse(page, status_code=status)


def _safe_headers() -> list[tuple[bytes, bytes]]:
    """What a browser is told with every answer: keep nothing, load nothing, be in no frame, tell no address."""
    policy = f"{page_style()[1]}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
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
