"""`Inspector`: the pages over a store and its traces as a starlette application, and serving it on this machine."""

import re
import socket
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from llm_common.apps.inspector.layout import PAGE_ROWS, page
from llm_common.apps.inspector.recorded_runs import RecordedRuns
from llm_common.apps.inspector.result_parts import View, read_part
from llm_common.apps.inspector.run_pages import (
    comparable,
    comparison_page,
    run_page,
    runs_page,
    step_page,
    tools_page,
)
from llm_common.apps.inspector.store_pages import (
    pointer_page,
    queries_page,
    query_page,
    search_page,
)
from llm_common.apps.inspector.stored_pointers import StoredPointers
from llm_common.apps.inspector.visitors import Guarded
from llm_common.errors import (
    ConfigError,
    CorruptPointerError,
    InvalidIdError,
    LLMCommonError,
    PointerNotFoundError,
    StoreError,
    UnsafePathError,
)
from llm_common.pointers.pointer import ContextPointer, check_pointer_id
from llm_common.pointers.records import MAX_RECORD_BYTES, LockedRecords, meta_name, parse_meta
from llm_common.pointers.store import ContextPointerStore
from llm_common.storage import FileBlobStore, query_id_of
from llm_common.trace.lines import Line
from llm_common.trace.markup import bdi
from llm_common.trace.trace_file import RecordedRun

_MAX_PAGE: Final = 10_000_000
_MAX_OTHER_RUNS: Final = 5
_PLACE: Final = re.compile(r"([^/]{1,250})/([^/]{1,60})/(\d{1,9})")


class Inspector:
    """Pages over one store and one folder of traces, which it reads and never changes.

    Args:
        store: The folder of a `FileContextPointerStore`.
        traces: The folder of a `Trace`; None shows no runs.

    Raises:
        StoreError: The store cannot be listed.
    """

    def __init__(self, store: Path | str, traces: Path | str | None = None) -> None:
        self._files = FileBlobStore(store)
        self._store = ContextPointerStore(LockedRecords(self._files))
        self._where = str(self._files.base_dir)
        self._traces = str(traces) if traces else "no folder: give --traces"
        self.runs = RecordedRuns(Path(traces or self._files.base_dir / "no-traces"))
        self._pointers = StoredPointers(self._files)
        self._pointers.start()

    def close(self) -> None:
        """Ends the reading."""
        self._pointers.close()

    def app(self, *, token: str, port: int) -> Guarded:
        """The application, for those who hold the token.

        Args:
            token: At least 16 characters.
            port: Where it listens.
        """
        pages: dict[str, Callable[[Request], str]] = {
            "/queries": self._queries,
            "/queries/{folder}": self._query,
            "/queries/{folder}/{pointer_id}": self._pointer,
            "/search": self._search,
            "/runs": self._recorded,
            "/runs/{folder}/{run_id}": self._run,
            "/runs/{folder}/{run_id}/{seq:int}": self._step,
            "/compare": self._comparison,
            "/tools": self._tools,
        }
        routes = [Route(path, partial(_respond, make)) for path, make in pages.items()]
        home = Route("/", lambda _: RedirectResponse("/queries", status_code=303))
        handlers = {
            HTTPException: _problem,
            LLMCommonError: _problem,
            OSError: _problem,
            sqlite3.Error: _problem,
        }
        return Guarded(
            Starlette(routes=[home, *routes], exception_handlers=handlers), token=token, port=port
        )

    def _queries(self, request: Request) -> str:
        words, number = request.query_params.get("words", "")[:200], _number(request)
        rows, total = self._pointers.queries(
            words, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS
        )
        unread = self._pointers.unread()
        return queries_page(
            rows, total=total, number=number, words=words, unread=unread, where=self._where
        )

    def _query(self, request: Request) -> str:
        folder, number = request.path_params["folder"], _number(request)
        query = self._pointers.query(folder)
        if query is None:
            raise PointerNotFoundError(
                "The store has no such query, or has erased it; choose one of the list"
            )
        rows = self._pointers.pointers(folder, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS)
        return query_page(query, rows, number=number)

    def _search(self, request: Request) -> str:
        words, number = request.query_params.get("words", "")[:200].strip(), _number(request)
        rows, total = self._pointers.find(words, limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS)
        queries = self._pointers.queries(words, limit=10)[0] if words and number == 1 else []
        unread = self._pointers.unread()
        return search_page(
            rows, queries, words=words, total=total, number=number, unread=unread, where=self._where
        )

    def _pointer(self, request: Request) -> str:
        folder = request.path_params["folder"]
        pointer = self._stored(folder, request.path_params["pointer_id"])
        given = request.query_params.get("view")
        view: View = "stored" if given == "stored" else "pretty"
        line = _number(request, "line", default=0)
        part, problem = None, ""
        try:
            part = read_part(
                self._store, self._files, pointer, view=view, number=_number(request), line=line
            )
        except (PointerNotFoundError, CorruptPointerError, StoreError) as exc:
            problem = exc.message
        return pointer_page(pointer, folder, part, view=view, problem=problem)

    def _stored(self, folder: str, pointer_id: str) -> ContextPointer:
        name = meta_name(check_pointer_id(pointer_id))
        [record] = self._files.get_many(folder, [name], max_bytes=MAX_RECORD_BYTES)
        if record is None:
            raise PointerNotFoundError(
                f"The store has no pointer {pointer_id} in this query; choose one of its list"
            )
        return parse_meta(record, query_id=query_id_of(folder), pointer_id=pointer_id)

    def _recorded(self, request: Request) -> str:
        number = _number(request)
        rows, total = self.runs.rows(limit=PAGE_ROWS, offset=(number - 1) * PAGE_ROWS)
        return runs_page(rows, total=total, number=number, where=self._traces)

    def _run(self, request: Request) -> str:
        folder = request.path_params["folder"]
        run = self.runs.run(folder, request.path_params["run_id"])
        return run_page(run, stored=self._pointers.query(folder) is not None)

    def _step(self, request: Request) -> str:
        given = request.path_params
        run, line = self.runs.step(given["folder"], given["run_id"], given["seq"])
        return step_page(
            run, line, comparable(run, line, self.runs.others(run, limit=_MAX_OTHER_RUNS))
        )

    def _comparison(self, request: Request) -> str:
        return comparison_page(self._place(request, "before"), self._place(request, "after"))

    def _place(self, request: Request, name: str) -> tuple[RecordedRun, Line]:
        match = _PLACE.fullmatch(request.query_params.get(name, ""))
        if match is None:
            raise PointerNotFoundError(
                "The address names no two steps; choose them on the page of a step"
            )
        return self.runs.step(match[1], match[2], int(match[3]))

    def _tools(self, _: Request) -> str:
        return tools_page(
            self.runs.tool_costs(), self._pointers.tools(), unread=self._pointers.unread()
        )


def serve(
    inspector: Inspector, *, token: str, port: int = 0, tell: Callable[[str], object]
) -> None:
    """Serves the pages on 127.0.0.1 until the process is interrupted or told to end.

    Args:
        inspector: The pages; closed at the end.
        token: At least 16 characters.
        port: Where to listen; 0 takes a free one.
        tell: Is given the address with the token, once the port is taken.

    Raises:
        ConfigError: The port is taken or not allowed.
        KeyboardInterrupt: Ctrl-C, after what was asked has been answered.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as exc:
            reason = (
                f"Port {port} cannot be used ({exc.strerror}); take another, or 0 for a free one"
            )
            raise ConfigError(reason, variable="port", value=str(port)) from exc
        taken = listening.getsockname()[1]
        config = uvicorn.Config(
            inspector.app(token=token, port=taken),
            log_config=None,
            access_log=False,  # it would hold the token
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
        )
        listening.listen()
        tell(f"http://127.0.0.1:{taken}/?token={token}")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            inspector.close()


def _respond(make: Callable[[Request], str], request: Request) -> Response:
    return HTMLResponse(make(request).encode("utf-8", "replace"))


def _number(request: Request, name: str = "page", *, default: int = 1) -> int:
    text = request.query_params.get(name, "")
    return min(max(int(text), default), _MAX_PAGE) if re.fullmatch(r"[0-9]{1,9}", text) else default


def _problem(_: Request, exc: Exception) -> Response:
    """The page of an error: what is not there, or cannot be read."""
    title, status = "This cannot be shown", 500
    said = exc.message if isinstance(exc, LLMCommonError) else "It cannot be read."
    if isinstance(exc, HTTPException):
        title, status, said = "Not here", exc.status_code, exc.detail
    elif isinstance(exc, PointerNotFoundError | InvalidIdError | UnsafePathError):
        title, status = "Not here", 404
    return HTMLResponse(page(title, f"<p>{bdi(said)}</p>").encode("utf-8", "replace"), status)
