"""Serves pages over a store and its traces, reachable only from this machine.

`TokenGate` admits browsers with the token, and restricts what they may do with the pages.
"""

import hashlib
import re
import secrets
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llm_common.agents import ContextPointer, FileContextPointerStore, output_label
from llm_common.apps.inspector.rendering import PAGE_ROWS, content_policy, render
from llm_common.apps.inspector.result_page import View, download, read_part, read_records
from llm_common.apps.inspector.run_page import Marker, run_page
from llm_common.apps.inspector.runs_page import RecordedRuns
from llm_common.errors import (
    ConfigError,
    InvalidIdError,
    LLMCommonError,
    PointerNotFoundError,
    StoreError,
    UnsafePathError,
)
from llm_common.pointers import find_pointers, newest_pointers, read_pointer
from llm_common.storage import folder_of, query_id_of
from llm_common.trace import flows, labels

_BEFORE_ANY_EXPIRY: Final = datetime.min.replace(tzinfo=UTC)
_MAX_PAGE: Final = 10_000_000  # keeps offsets within what slices take
_MAX_WORDS_CHARS: Final = 200
_PASSAGE_CHARS: Final = 160
_EXCERPT_CHARS: Final = 240
_CHARS_BEFORE: Final = 80  # of the first matched word in an excerpt
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


class Inspector:
    """Pages over a store and a folder of traces. It never changes either.

    Args:
        store: The folder of a `FileContextPointerStore`.
        traces: The folder of a `Trace`. None shows no runs.
    """

    def __init__(self, store: Path | str, traces: Path | str | None = None) -> None:
        self._store = FileContextPointerStore(store)
        self._blobs = self._store.records.blobs
        self._traces = str(traces) if traces else "no folder (use --traces)"
        self.runs = RecordedRuns(Path(traces) if traces else None)

    def check(self) -> None:
        """Read the list of queries once.

        Raises:
            StoreError: If the store cannot be read.
        """
        self._store.newest_queries(limit=1)

    def app(self, *, token: str, port: int) -> TokenGate:
        """Return the ASGI application behind its token.

        Args:
            token: A secret of at least 16 characters.
            port: The port on which it will be served.
        """
        # Runs have questions and answers, where the list of queries has ids.
        first = "/queries" if self.runs.directory is None else "/runs"
        # None is async, so that Starlette calls it in a thread: pages read files.
        routes = [
            Route("/", lambda _: RedirectResponse(first, status_code=303)),
            Route("/queries", self._show_queries),
            Route("/queries/{folder}", self._show_query),
            Route("/queries/{folder}/{pointer_id}", self._show_pointer),
            Route("/queries/{folder}/{pointer_id}/download", self._download),
            Route("/search", self._show_search),
            Route("/runs", self._show_runs),
            Route("/runs/{folder}/{run_id}", self._show_run),
            Route("/runs/{folder}/{run_id}/{seq:int}", self._show_step),
        ]
        handlers = {HTTPException: _problem, LLMCommonError: _problem, OSError: _problem}
        application = Starlette(routes=routes, exception_handlers=handlers)
        return TokenGate(application, token=token, port=port)

    def _show_queries(self, request: Request) -> Response:
        words, page_number = _search_words(request), _read_number(request)
        offset = (page_number - 1) * PAGE_ROWS
        page = self._store.newest_queries(limit=PAGE_ROWS, offset=offset, part=words)
        return _page(
            "queries.html",
            queries=page.queries,
            questions=self.runs.questions({folder_of(query.query_id) for query in page.queries}),
            total=page.total,
            page_number=page_number,
            words=words,
            base_dir=self._store.base_dir,
        )

    def _show_query(self, request: Request) -> Response:
        folder, page_number = request.path_params["folder"], _read_number(request)
        query_id = query_id_of(folder)
        # The page marks expired pointers, so the listing must not leave them out.
        stored = newest_pointers(
            self._blobs,
            query_id,
            limit=PAGE_ROWS,
            offset=(page_number - 1) * PAGE_ROWS,
            now=_BEFORE_ANY_EXPIRY,
        )
        if not stored.total:
            raise PointerNotFoundError(
                "The store has no such query, or it was erased. Choose one under Queries"
            )
        return _page(
            "query.html",
            query_id=query_id,
            folder=folder,
            stored=stored,
            page_number=page_number,
        )

    def _show_search(self, request: Request) -> Response:
        words, page_number = _search_words(request), _read_number(request)
        in_results = request.query_params.get("in") == "results"
        search = find_pointers(
            self._store,
            words,
            # A search has no offset: it ranks everything up to the end of this page.
            limit=page_number * PAGE_ROWS,
            in_results=in_results,
            max_passage_chars=_PASSAGE_CHARS,
        )
        rows = []
        for match in search.matches[(page_number - 1) * PAGE_ROWS :]:
            marker = Marker(words, ())
            # Without a search in results, the record has the beginning of the result.
            passage = match.passage or marker.around(
                match.pointer.digest, before=_CHARS_BEFORE, chars=_EXCERPT_CHARS
            )
            call = marker.fragments(output_label(match.pointer))
            # The passage is empty if only the call has the words.
            rows.append((match.pointer, call, marker.fragments(passage)))
        return _page(
            "search.html",
            search=search,
            rows=rows,
            words=words,
            in_results=in_results,
            page_number=page_number,
        )

    def _show_pointer(self, request: Request) -> Response:
        folder = request.path_params["folder"]
        pointer = self._read_pointer(folder, request.path_params["pointer_id"])
        view = request.query_params.get("view", "")
        number, line = _read_number(request), _read_number(request, "line", default=0)
        part, records, problem = None, None, ""
        try:
            _, payload = self._store.load_payload(pointer.pointer_id, query_id=pointer.query_id)
            records = read_records(
                payload,
                table_number=_read_number(request, "table"),
                number=number,
                page_rows=PAGE_ROWS,
            )
            # Without a choice, the page opens with what the result mostly is.
            is_text = bool(view or line or (records and not records.are_most))
            if records is None or (is_text and view != "records"):
                text_view: View = "stored" if view == "stored" else "pretty"
                part = read_part(payload, view=text_view, number=number, line=line)
        except (PointerNotFoundError, StoreError) as exc:
            problem = exc.message  # the page still shows the record
        return _page(
            "pointer.html",
            pointer=pointer,
            folder=folder,
            part=part,
            records=records,
            view="stored" if view == "stored" else "pretty",
            problem=problem,
        )

    def _download(self, request: Request) -> Response:
        values = request.path_params
        pointer = self._read_pointer(values["folder"], values["pointer_id"])
        _, payload = self._store.load_payload(pointer.pointer_id, query_id=pointer.query_id)
        content, name = download(pointer, payload)
        # Of a type that no browser shows or runs.
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )

    def _read_pointer(self, folder: str, pointer_id: str) -> ContextPointer:
        """Return a pointer whose result may be missing, damaged or expired."""
        pointer = read_pointer(self._blobs, query_id_of(folder), pointer_id)
        if pointer is None:
            raise PointerNotFoundError(
                f"The store has no pointer {pointer_id} in this query. Choose one of its list"
            )
        return pointer

    def _show_runs(self, request: Request) -> Response:
        page_number = _read_number(request)
        runs, total = self.runs.rows(limit=PAGE_ROWS, offset=(page_number - 1) * PAGE_ROWS)
        rows = []
        for run in runs:
            rows.append((run, flows(run) if run.is_whole else None))
        return _page(
            "runs.html",
            rows=rows,
            total=total,
            page_number=page_number,
            traces=self._traces,
            strangers=self.runs.strangers() if page_number == 1 else [],
        )

    def _show_run(self, request: Request) -> Response:
        folder = request.path_params["folder"]
        run = self.runs.run(folder, request.path_params["run_id"])
        return _page(
            "run.html",
            run=run,
            page=run_page(run),
            labels=labels(run),
            folder=folder,
            is_stored=folder in self._blobs.folders(),
        )

    def _show_step(self, request: Request) -> Response:
        values = request.path_params
        run, line = self.runs.step(values["folder"], values["run_id"], values["seq"])
        return _page("step.html", run=run, line=line, labels=labels(run))


def serve(
    inspector: Inspector, *, token: str, port: int = 0, tell: Callable[[str], object]
) -> None:
    """Serve the pages on 127.0.0.1 until the process gets SIGINT or SIGTERM.

    Args:
        inspector: The pages.
        token: A secret of at least 16 characters.
        port: The port. 0 takes a free port.
        tell: Called with the address and its token as soon as the port is open.

    Raises:
        ConfigError: If the port is in use or not allowed.
        KeyboardInterrupt: On Ctrl-C, after open requests have been answered.
    """
    # Bound before uvicorn starts, so that the free port is known and an error is our own.
    with socket.socket() as listening:
        # A restart on the same port need not wait until old connections time out.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as exc:
            reason = f"Port {port} cannot be used ({exc.strerror}). Take another, or 0"
            raise ConfigError(reason, variable="port", value=str(port)) from exc
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            inspector.app(token=token, port=port),
            # The program's log handlers are used, and not uvicorn's own.
            log_config=None,
            access_log=False,  # it would contain the token
            server_header=False,
            lifespan="off",
            # Ctrl-C waits no longer for a browser that keeps its connection open.
            timeout_graceful_shutdown=3,
        )
        # Before the address is printed: a browser that opens it at once waits and is not refused.
        listening.listen()
        tell(f"http://127.0.0.1:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listening])


def _page(template: str, *, status: int = 200, **values: object) -> Response:
    return HTMLResponse(render(template, **values), status_code=status)


def _search_words(request: Request) -> str:
    return request.query_params.get("words", "")[:_MAX_WORDS_CHARS].strip()


def _read_number(request: Request, name: str = "page", *, default: int = 1) -> int:
    """Return a number in the query of the address, or the default, which is also the minimum."""
    text = request.query_params.get(name, "")
    # Python refuses to parse very long numbers.
    if not re.fullmatch(r"[0-9]{1,9}", text):
        return default
    return min(max(int(text), default), _MAX_PAGE)


def _problem(_: Request, exc: Exception) -> Response:
    """Return the page of an error."""
    title, status, message = "This cannot be shown", 500, "A file cannot be read."
    if isinstance(exc, LLMCommonError):
        message = exc.message
    if isinstance(exc, PointerNotFoundError | InvalidIdError | UnsafePathError):
        title, status = "Not found", 404
    elif isinstance(exc, HTTPException):
        title, status, message = "Not found", exc.status_code, exc.detail
    return _page("problem.html", status=status, title=title, message=message)
