"""`SqliteMemory`: events in one SQLite file, found by full-text search."""

import asyncio
import json
import sqlite3
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from llm_common.errors import StoreError
from llm_common.memory.protocol import (
    SUMMARISED_EVENTS,
    Event,
    MemoryFilters,
    MemoryHit,
    Summariser,
    check_session_id,
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


T = TypeVar("T")

_EVENT = "role, text, timestamp, metadata"


class SqliteMemory:
    """A `Memory` in one SQLite file, which many processes of one machine may use at once.

    English is stemmed (Porter), case and accents do not count, identifiers are found by their parts; the ranking is
    that of `recall`. Once `append_event` returns, the event survives a kill of the process. A power failure may lose
    the last events, but does not damage the file. A file of an older version is migrated.

    One thread does the work, so the event loop never waits for the disk. Cancelling a call does not undo work that the
    thread has begun. Keep the file on a local disk: SQLite's locks need one.

    Args:
        path: The file, made at the first use with mode 0600; `~` is expanded.
        summariser: Makes the summaries; None takes first sentences, see `episode_summary`.
        lock_timeout_s: Seconds to wait while another process writes; 10 outlasts any healthy write.
    """

    def __init__(self, path: Path | str, *, summariser: Summariser | None = None, lock_timeout_s: float = 10.0) -> None:
        self._path = Path(path).expanduser().absolute()
        self._summariser = summariser
        self._lock_timeout_s = lock_timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llm-common-memory")
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._path

    async def append_event(self, session_id: str, event: Event) -> None:
        """Keeps the event; see `MemoryWriter.append_event`."""
        check_session_id(session_id)
        await self._run(lambda connection: _append(connection, session_id, event))

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest first; see `Memory.recent`."""
        check_session_id(session_id)
        return await self._run(lambda connection: _recent(connection, session_id, max(limit, 0)))

    async def summarize_episode(self, session_id: str) -> str | None:
        """The summary of the newest events; see `MemoryWriter.summarize_episode`."""
        return await summarised(await self.recent(session_id, limit=SUMMARISED_EVENTS), self._summariser)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The events that share a word with the query, best first; see `MemoryReader.retrieve`."""
        check_session_id(filters.session_id)
        return await self._run(lambda connection: _retrieve(connection, query, k, filters)) if k > 0 else []

    async def aclose(self) -> None:
        """Closes the file; the memory cannot be used afterwards. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._run(lambda _: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the work in the memory's thread."""
        if self._closed:
            raise StoreError("this memory is closed; make another one")

        def run() -> T:
            with sqlite_errors_as_store_errors(self._path):
                return work(self._opened())

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_sqlite(
                self._path,
                application_id=_APPLICATION_ID,
                migrations=_MIGRATIONS,
                lock_timeout_s=self._lock_timeout_s,
            )
            weakref.finalize(self, self._connection.close)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


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
    lines = _lines(connection, session_id)
    among = "".join(f' AND tags:"{tag}"' for tag in filter_tags(filters))
    matches = [_positions(connection, session_id, f'words:"{term}"{among}') for term in scoped_terms(session_id, query)]
    weights = shortlist(matches, lines=lines, k=k)
    word_counts = dict(_of_positions(connection, session_id, "word_count", list(weights)))
    best = best_lines(weights, word_counts, lines=lines, k=k)
    events = {
        position: _event(*columns)
        for position, *columns in _of_positions(connection, session_id, _EVENT, [position for position, _ in best])
    }
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
