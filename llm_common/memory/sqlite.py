"""`SqliteMemory`: events in one SQLite file, found by full-text search."""

import asyncio
import json
import math
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from llm_common.errors import ConfigError, StoreError
from llm_common.memory.protocol import (
    SUMMARISED_EVENTS,
    Event,
    MemoryFilters,
    MemoryHit,
    Summariser,
    check_event,
    check_limit,
    check_search,
    summarised,
)
from llm_common.memory.recall import (
    MAX_MATCHES,
    best_lines,
    event_tags,
    filter_tags,
    scoped_terms,
    scoped_words,
    shortlist,
)
from llm_common.storage.sqlite_file import open_sqlite, sqlite_errors_as_store_errors, transaction
from llm_common.text.canonical import stable_json

# What each version adds; a file of an older version gets the rest. Never edit one that was released.
_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL,
            position INTEGER NOT NULL,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            metadata TEXT NOT NULL,
            word_count INTEGER NOT NULL,
            UNIQUE (session_id, position)
        ) STRICT""",
        """CREATE VIRTUAL TABLE lines USING fts5(
            words, tags, content='', columnsize=0, tokenize='porter unicode61 remove_diacritics 2'
        )""",
    ),
)
_APPLICATION_ID: Final = 0x6C6C6D63  # "llmc": marks the file as a memory
_MAX_TIMEOUT_MS: Final = 2**31 - 1  # SQLite takes a larger number for none


T = TypeVar("T")

_EVENT = "role, text, timestamp, metadata"


class SqliteMemory:
    """A `Memory` in one SQLite file, which many processes of one machine may use at once.

    English is stemmed (Porter), case and accents do not count, identifiers are found by their parts; the ranking is
    that of `recall`. Once `append_event` returns, the event survives a kill of the process. A power failure may lose
    the last events, but does not damage the file. A file of an older version is migrated.

    One thread reads and one writes, so the event loop never waits for the disk, and a read never waits for a writer.
    Cancelling a call does not undo work that a thread has begun. Keep the file on a local disk: SQLite's locks need
    one. If the file is deleted or replaced while the memory is open, every later call raises `StoreError`.

    Args:
        path: The file, made at the first use with mode 0600; `~` is expanded.
        summariser: Makes the summaries; None takes first sentences, see `episode_summary`.
        lock_timeout_s: Seconds from the call that a write waits while others write; 10 outlasts any healthy write.

    Raises:
        ConfigError: The path is blank or SQLite's `:memory:`, or the timeout is no number from 0 on.
    """

    def __init__(self, path: Path | str, *, summariser: Summariser | None = None, lock_timeout_s: float = 10.0) -> None:
        if str(path).strip() in ("", ":memory:"):
            hint = f"the path {str(path)!r} names no file; give one, or use InMemoryMemory, which needs none"
            raise ConfigError(hint, variable="path", value=str(path))
        if not 0 <= lock_timeout_s < math.inf:
            hint = f"lock_timeout_s is {lock_timeout_s}; give seconds, 0 or more"
            raise ConfigError(hint, variable="lock_timeout_s", value=str(lock_timeout_s))
        self._path = Path(path).expanduser().absolute()
        self._summariser = summariser
        self._lock_timeout_s = lock_timeout_s
        self._reader, self._writer = _Worker(), _Worker()
        self._opening = threading.Lock()
        self._file: tuple[int, int] | None = None
        self._closed = False

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._path

    async def append_event(self, session_id: str, event: Event) -> None:
        """Keeps the event; see `MemoryWriter.append_event`."""
        check_event(session_id, event)
        await self._run(self._writer, lambda connection: _append(connection, session_id, event))

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest first; see `Memory.recent`."""
        check_limit(session_id, limit)
        return await self._run(self._reader, lambda connection: _recent(connection, session_id, max(limit, 0)))

    async def summarize_episode(self, session_id: str) -> str | None:
        """The summary of the newest events; see `MemoryWriter.summarize_episode`."""
        return await summarised(await self.recent(session_id, limit=SUMMARISED_EVENTS), self._summariser)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The events that share a word with the query, best first; see `MemoryReader.retrieve`."""
        check_search(query, k, filters)
        if k <= 0:
            return []
        return await self._run(self._reader, lambda connection: _retrieve(connection, query, k, filters))

    async def aclose(self) -> None:
        """Closes the file; the memory cannot be used afterwards. Safe to call twice."""
        if not self._closed:
            self._closed = True
            for worker in (self._reader, self._writer):
                await asyncio.get_running_loop().run_in_executor(worker.thread, worker.close)
                worker.thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._run(self._reader, lambda _: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, worker: "_Worker", work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the work in the worker's thread; the wait for locks ends `lock_timeout_s` after this call."""
        if self._closed:
            raise StoreError("this memory is closed; make another one")
        deadline = time.monotonic() + self._lock_timeout_s

        def run() -> T:
            with sqlite_errors_as_store_errors(self._path):
                connection = self._connected(worker, deadline)
                left_ms = min(round(1_000 * max(deadline - time.monotonic(), 0.0)), _MAX_TIMEOUT_MS)
                connection.execute(f"PRAGMA busy_timeout = {left_ms}")
                try:
                    return work(connection)
                finally:  # after the work: an event in a deleted file is not acknowledged
                    self._check_file()

        return await asyncio.get_running_loop().run_in_executor(worker.thread, run)

    def _connected(self, worker: "_Worker", deadline: float) -> sqlite3.Connection:
        with self._opening:
            if worker.connection is None:
                self._check_file()  # else a new file would be made in the place of the other worker's
                worker.connection = open_sqlite(
                    self._path,
                    application_id=_APPLICATION_ID,
                    migrations=_MIGRATIONS,
                    lock_timeout_s=max(deadline - time.monotonic(), 0.0),
                )
                weakref.finalize(self, worker.connection.close)
                self._file = self._file or _identity(self._path)
            return worker.connection

    def _check_file(self) -> None:
        """Compares the file that is open with the one of that name: a stat, some microseconds.

        Raises:
            StoreError: The file was deleted, moved or replaced.
        """
        if self._file is not None and _identity(self._path) != self._file:
            raise StoreError(
                f"{self._path} was deleted or replaced while it was open; nothing more is kept. "
                "Make another memory, which opens the file of that name or begins a new one"
            )


class _Worker:
    """A thread with its connection."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="llm-common-memory")
        self.connection: sqlite3.Connection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None without one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _append(connection: sqlite3.Connection, session_id: str, event: Event) -> None:
    words, tags = scoped_words(session_id, event.text), event_tags(session_id, event)
    row = (event.role, event.text, event.timestamp.isoformat(), stable_json(event.metadata), len(words))
    with transaction(connection):
        position = _lines(connection, session_id) + 1
        inserted = connection.execute(
            f"INSERT INTO events (session_id, position, {_EVENT}, word_count) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our column names
            (session_id, position, *row),
        )
        connection.execute(
            "INSERT INTO lines (rowid, words, tags) VALUES (?, ?, ?)",
            (inserted.lastrowid, " ".join(words), " ".join(tags)),
        )


def _recent(connection: sqlite3.Connection, session_id: str, limit: int) -> list[Event]:
    rows = connection.execute(
        f"SELECT {_EVENT} FROM events WHERE session_id = ? ORDER BY position DESC LIMIT ?",  # noqa: S608 - our column names
        (session_id, limit),
    )
    return [_event(*row) for row in reversed(rows.fetchall())]


def _retrieve(connection: sqlite3.Connection, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
    session_id = filters.session_id
    among = "".join(f' AND tags:"{tag}"' for tag in filter_tags(filters))
    terms = [f'words:"{term}"{among}' for term in scoped_terms(session_id, query)]
    with connection:
        connection.execute("BEGIN")  # one state of the file for all that follows, while the writer goes on
        lines = _lines(connection, session_id)
        weights = shortlist([_positions(connection, session_id, term) for term in terms], lines=lines, k=k)
        word_counts = dict(_of_positions(connection, session_id, "word_count", list(weights)))
        best = best_lines(weights, word_counts, lines=lines, k=k)
        rows = _of_positions(connection, session_id, _EVENT, [position for position, _ in best]).fetchall()
    events = {position: _event(*columns) for position, *columns in rows}
    return [MemoryHit(session_id=session_id, event=events[position], score=score) for position, score in best]


def _lines(connection: sqlite3.Connection, session_id: str) -> int:
    [lines] = connection.execute(
        "SELECT coalesce(max(position), 0) FROM events WHERE session_id = ?", (session_id,)
    ).fetchone()
    return int(lines)


def _positions(connection: sqlite3.Connection, session_id: str, match: str) -> list[int]:
    """The newest lines that match. The session is compared once more: a prefix is short, an id is exact."""
    rows = connection.execute(
        "SELECT events.position FROM lines JOIN events ON events.id = lines.rowid "
        "WHERE lines MATCH ? AND events.session_id = ? ORDER BY lines.rowid DESC LIMIT ?",
        (match, session_id, MAX_MATCHES),
    )
    return [position for (position,) in rows]


def _of_positions(
    connection: sqlite3.Connection, session_id: str, columns: str, positions: list[int]
) -> sqlite3.Cursor:
    return connection.execute(
        f"SELECT position, {columns} FROM events "  # noqa: S608 - our column names
        "WHERE session_id = ? AND position IN (SELECT value FROM json_each(?))",
        (session_id, stable_json(positions)),
    )


def _event(role: str, text: str, timestamp: str, metadata: str) -> Event:
    try:
        return Event.model_validate(
            {"role": role, "text": text, "timestamp": timestamp, "metadata": json.loads(metadata)}
        )
    except ValueError as exc:
        raise StoreError("a stored event is damaged; put a backup in the place of the memory's file") from exc
