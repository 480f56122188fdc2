"""Defines `SqliteMemory`, which stores events in one SQLite file with full-text search."""

# ruff: noqa: S608 - statements are made of our own names, values are bound
import asyncio
import json
import math
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, LiteralString, Self, TypeVar

from llm_common.errors import ConfigError, LockTimeoutError, StoreError
from llm_common.memory.entry import (
    ECHO_EVENTS,
    Entry,
    Target,
    check_search,
    checked_entry,
    checked_limit,
    checked_target,
    no_such_event,
    scope_of,
)
from llm_common.memory.protocol import (
    Event,
    FactMemory,
    MemoryFilters,
    MemoryHit,
)
from llm_common.memory.recall import (
    MAX_MATCHES,
    best_lines,
    event_tags,
    filter_tags,
    follows_facts,
    forgets_memory,
    scoped_terms,
    scoped_words,
    searches_memory,
    shortlist,
    writes_memory,
)
from llm_common.storage.sqlite_file import (
    open_sqlite,
    open_sqlite_to_read,
    sqlite_errors_as_store_errors,
    transaction,
)
from llm_common.text.canonical import stable_json

# What each version adds. A file of an older version is migrated step by step, so a version that was
# released is never edited.
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
        # The index stores no texts (`content=''`) and no lengths, which `events` has. Option 2 also
        # removes diacritics from letters that have several.
        """CREATE VIRTUAL TABLE lines USING fts5(
            words, tags, content='', columnsize=0, tokenize='porter unicode61 remove_diacritics 2'
        )""",
    ),
    # AUTOINCREMENT, so that the id of an erased event is never used again. The text is last, since
    # SQLite walks through its overflow pages to reach a column after it.
    (
        """CREATE TABLE kept (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            scope TEXT NOT NULL,
            position INTEGER NOT NULL,
            session_id TEXT NOT NULL,
            superseded INTEGER NOT NULL DEFAULT 0,
            fact INTEGER,
            valid_until TEXT,
            word_count INTEGER NOT NULL,
            key TEXT,
            role TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            metadata TEXT NOT NULL,
            text TEXT NOT NULL,
            UNIQUE (scope, position)
        ) STRICT""",
        """INSERT INTO kept (
                id, scope, position, session_id, role, text, timestamp, metadata, word_count
            ) SELECT
                id, session_id, position, session_id, role, text, timestamp, metadata, word_count
            FROM events""",
        "DROP TABLE events",
        "ALTER TABLE kept RENAME TO events",
        "CREATE INDEX events_session ON events (scope, session_id, position)",
        # Partial indexes: only current events are looked up by key and fact.
        "CREATE INDEX events_key ON events (scope, key) WHERE key IS NOT NULL AND superseded = 0",
        "CREATE INDEX events_superseded ON events (scope) WHERE superseded = 1",
        "CREATE INDEX events_fact ON events (fact) WHERE fact IS NOT NULL AND superseded = 0",
    ),
)
_APPLICATION_ID: Final = 0x6C6C6D63  # "llmc": marks the file as a memory
_MAX_TIMEOUT_MS: Final = 2**31 - 1  # SQLite waits not at all with a larger number


T = TypeVar("T")

_EVENT = "role, text, timestamp, metadata"
_CURRENT = "(events.superseded = 0 AND (events.valid_until IS NULL OR events.valid_until > :now))"
_MAX_STRUCTURE_BYTES = 1_000


class SqliteMemory(FactMemory):
    """A `FactMemory` in one SQLite file, which many processes of one machine may use at once.

    English is stemmed (Porter), case and accents are ignored, and identifiers match by their parts.
    Hits are ranked as in `recall`. Once `append_event` returns, the event survives a kill of the
    process. A power failure may lose the last events, but does not damage the file. A file of an
    older version is migrated.

    One thread reads and one writes, so the event loop never waits for the disk, and a read never
    waits for a writer. `forget` rewrites the file in a second copy, which takes about a second for
    100,000 events. Other writers wait for it. Cancelling a call does not undo the work that a
    thread has begun. SQLite's locks need a local disk. If the file is deleted or replaced while the
    memory is open, every later call raises `StoreError`.

    A fork waits until running calls have ended, and closes the file. Parent and child open it again
    with their next call.

    Args:
        path: The file, created on first use with mode 0600. `~` is expanded.
        lock_timeout_s: Seconds that a write waits for other writers, from the call on. The default
            is longer than any healthy write.
        read_only: Opens an existing file, and changes neither the file nor its directory. A write
            raises `StoreError`.

    Raises:
        ConfigError: If the path is blank or `:memory:`, or the timeout is negative or not finite.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        lock_timeout_s: float = 10.0,
        read_only: bool = False,
    ) -> None:
        if str(path).strip() in ("", ":memory:"):
            hint = (
                f"path must be the path of a file, got {str(path)!r}; "
                "pass one, or use InMemoryMemory, which needs no file"
            )
            raise ConfigError(hint, variable="path", value=str(path))
        if not 0 <= lock_timeout_s < math.inf:
            hint = f"lock_timeout_s must be 0 or more seconds, got {lock_timeout_s}"
            raise ConfigError(hint, variable="lock_timeout_s", value=str(lock_timeout_s))
        self._path = Path(path).expanduser().absolute()
        self._lock_timeout_s = lock_timeout_s
        self._read_only = read_only
        self._reader, self._writer = _Worker(), _Worker()
        # Closes the file of a memory that is collected without `aclose`.
        weakref.finalize(self, self._reader.disconnect)
        weakref.finalize(self, self._writer.disconnect)
        self._opening = threading.Lock()  # the first calls of both workers open the same file
        self._file: tuple[int, int] | None = None  # device and inode, once it is open
        self._closed = False

    @property
    def path(self) -> Path:
        """Return the absolute path of the file."""
        return self._path

    @writes_memory
    async def append_event(
        self,
        session_id: str,
        event: Event,
        *,
        user: str | None = None,
        key: str | None = None,
        supersedes: str | None = None,
        valid_until: datetime | None = None,
    ) -> str:
        """Store the event. See `FactMemory.append_event`."""
        entry = checked_entry(
            session_id, event, user=user, key=key, supersedes=supersedes, valid_until=valid_until
        )
        return str(await self._run(self._writer, lambda connection: _append(connection, entry)))

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """Return the newest events, oldest first. See `FactMemory.recent`."""
        limit = checked_limit(session_id, user, limit)
        scope = scope_of(session_id, user)
        return await self._run(
            self._reader,
            lambda connection: _recent(connection, scope, session_id, limit, history=history),
        )

    @searches_memory
    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """Return the events that share a word with the query. See `MemoryReader.retrieve`."""
        scope = check_search(query, k, filters)
        if k <= 0:
            return []
        return await self._run(
            self._reader, lambda connection: _retrieve(connection, scope, query, k, filters)
        )

    @forgets_memory
    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erase the events from the table, the full-text index, free pages and the log.

        See `FactMemory.forget`.

        Raises:
            LockTimeoutError: If other processes read or wrote for too long. The bytes may still be
                there: call again.
        """
        target = checked_target(session_id, user, id)
        return await self._run(
            self._writer, lambda connection: _forget(connection, target, self._path)
        )

    async def read_rows(
        self, statement: LiteralString, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over all users. See `overview.ReadsRows`."""
        bound = dict(values)
        for name, value in values.items():
            if isinstance(value, datetime):
                bound[name] = _moment(value)
        text = statement.replace("{schema}.", "")
        return await self._run(
            self._reader, lambda connection: connection.execute(text, bound).fetchall()
        )

    async def aclose(self) -> None:
        """Close the file for good. Safe to call twice."""
        if not self._closed:
            self._closed = True
            for worker in (self._reader, self._writer):
                # In the worker's thread, and so after the calls that it has accepted.
                await asyncio.get_running_loop().run_in_executor(worker.thread, worker.close)
                worker.thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self._run(self._reader, lambda _: None)  # opens the file, and raises if it cannot
        return self

    async def _run(self, worker: "_Worker", work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work in the worker's thread. Waits for locks until `lock_timeout_s` from now."""
        if self._closed:
            raise StoreError("this memory is closed; make another one")
        # From the call on: the work may wait for its thread before it waits for locks.
        deadline = time.monotonic() + self._lock_timeout_s

        def run() -> T:
            with worker.in_use, sqlite_errors_as_store_errors(self._path):
                connection = self._connected(worker, deadline)
                remaining_s = max(deadline - time.monotonic(), 0.0)
                timeout_ms = min(round(1_000 * remaining_s), _MAX_TIMEOUT_MS)
                connection.execute(f"PRAGMA busy_timeout = {timeout_ms}")
                try:
                    return work(connection)
                finally:  # after the work: an event in a deleted file is not acknowledged
                    self._check_file()

        return await asyncio.get_running_loop().run_in_executor(worker.thread, run)

    def _connected(self, worker: "_Worker", deadline: float) -> sqlite3.Connection:
        with self._opening:
            if worker.connection is None:
                # Else this would create a new file if the other worker's was deleted.
                self._check_file()
                worker.connection = self._open(max(deadline - time.monotonic(), 0.0))
                self._file = self._file or _identity(self._path)
            return worker.connection

    def _open(self, timeout_s: float) -> sqlite3.Connection:
        if self._read_only:
            return open_sqlite_to_read(
                self._path,
                application_id=_APPLICATION_ID,
                version=len(_MIGRATIONS),
                lock_timeout_s=timeout_s,
            )
        return open_sqlite(
            self._path,
            application_id=_APPLICATION_ID,
            migrations=_MIGRATIONS,
            lock_timeout_s=timeout_s,
        )

    def _check_file(self) -> None:
        """Check that the path still leads to the open file, with one `stat`.

        Raises:
            StoreError: If the file was deleted, moved or replaced.
        """
        if self._file is not None and _identity(self._path) != self._file:
            raise StoreError(
                f"{self._path} was deleted or replaced while it was open, and no event is stored; "
                "make another memory, which opens the new file or creates one"
            )


class _Worker:
    """A thread with its connection."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        self.in_use = threading.Lock()
        self.start()
        with _starting:
            _workers.add(self)

    def start(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="llm-common-memory")

    def close(self) -> None:
        with self.in_use:
            self.disconnect()

    def disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


_workers: Final[weakref.WeakSet[_Worker]] = weakref.WeakSet()
_starting: Final = threading.Lock()
_paused: Final[list[_Worker]] = []


def _pause_workers() -> None:
    # A child that has the file open already shares SQLite's locks with its parent, which damages
    # the file. SQLite's own mutexes are not renewed in a child either.
    # https://sqlite.org/howtocorrupt.html, section 2.6
    _starting.acquire()
    for worker in _workers:
        worker.in_use.acquire()
        _paused.append(worker)
        with suppress(sqlite3.Error):
            worker.disconnect()


def _resume_workers() -> None:
    for worker in _paused:
        worker.in_use.release()
    _paused.clear()
    _starting.release()


def _restart_workers() -> None:
    for worker in _paused:
        worker.start()
    _resume_workers()


if sys.platform != "win32":
    os.register_at_fork(
        before=_pause_workers, after_in_parent=_resume_workers, after_in_child=_restart_workers
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _append(connection: sqlite3.Connection, entry: Entry) -> int:
    event, words = entry.event, scoped_words(entry.scope, entry.event.text)
    row: dict[str, object] = {
        "scope": entry.scope,
        "session_id": entry.session_id,
        "role": event.role,
        "text": event.text,
        "timestamp": event.timestamp.isoformat(),
        "metadata": stable_json(event.metadata),  # canonical, so that equal metadata is equal text
        "word_count": len(words),
        "key": entry.key,
        "valid_until": entry.valid_until and _moment(entry.valid_until),
        "supersedes": entry.supersedes,
        "now": _moment(datetime.now(UTC)),
    }
    with transaction(connection):
        newest = connection.execute(
            f"""SELECT id, role, {_CURRENT} AND role = :role AND metadata = :metadata
                    AND key IS :key AND valid_until IS :valid_until AND text = :text
                FROM events WHERE scope = :scope AND session_id = :session_id
                ORDER BY position DESC LIMIT {ECHO_EVENTS}""",
            row,
        ).fetchall()  # an unread row would stay open in the traceback of an error, see `_indexed`
        repeated = entry.find_repeated(newest)
        if repeated is not None:
            return repeated
        # Only one transaction can write, so no other writer reads the same highest position.
        row["fact"] = _supersede(connection, entry, row)
        [event_number] = connection.execute(
            f"""INSERT INTO events
                    (scope, position, session_id, {_EVENT}, word_count, key, valid_until, fact)
                SELECT :scope, coalesce(max(position), 0) + 1, :session_id, :role, :text,
                    :timestamp, :metadata, :word_count, :key, :valid_until, :fact
                FROM events WHERE scope = :scope RETURNING id""",
            row,
        ).fetchone()
        _index(connection, [(event_number, " ".join(words), " ".join(event_tags(entry)))])
        return int(event_number)


def _supersede(connection: sqlite3.Connection, entry: Entry, row: dict[str, object]) -> int | None:
    """Mark the events that the entry supersedes, and return the number of its fact."""
    fact = None
    if entry.supersedes is not None:
        superseded = connection.execute(
            "SELECT coalesce(fact, id) FROM events WHERE id = :supersedes AND scope = :scope", row
        ).fetchone()
        if superseded is None:
            raise no_such_event(entry.supersedes)
        [fact] = superseded
    elif entry.key is None:
        return None
    # The current event under the key, the one with the id, and the newest one of its fact.
    newest = connection.execute(
        """SELECT id, coalesce(fact, id) FROM events
                WHERE scope = :scope AND key = :key AND superseded = 0
            UNION SELECT id, :fact FROM events WHERE id = :supersedes AND superseded = 0
            UNION SELECT id, :fact FROM events WHERE fact = :fact AND superseded = 0""",
        {**row, "fact": fact},
    ).fetchall()
    if newest:
        fact = newest[0][1]
    connection.executemany(
        "UPDATE events SET superseded = 1, fact = ? WHERE id = ?",
        [(fact, event_number) for event_number, _ in newest],
    )
    return fact


def _index(
    connection: sqlite3.Connection, rows: Iterable[tuple[int, str, str]], command: str | None = None
) -> None:
    """Add rows of number, words and tags to the full-text index, or `delete` them from it."""
    connection.executemany(
        "INSERT INTO lines (lines, rowid, words, tags) VALUES (?, ?, ?, ?)",
        ((command, *row) for row in rows),
    )


def _recent(
    connection: sqlite3.Connection, scope: str, session_id: str, limit: int, *, history: bool
) -> list[Event]:
    rows = connection.execute(
        f"""SELECT {_EVENT} FROM events
            WHERE scope = :scope AND session_id = :session_id AND (:history OR {_CURRENT})
            ORDER BY position DESC LIMIT :limit""",
        {
            "scope": scope,
            "session_id": session_id,
            "history": history,
            "now": _moment(datetime.now(UTC)),
            "limit": limit,
        },
    )
    return [_event(*row) for row in reversed(rows.fetchall())]


def _retrieve(
    connection: sqlite3.Connection, scope: str, query: str, k: int, filters: MemoryFilters
) -> list[MemoryHit]:
    tags = "".join(f' AND tags:"{tag}"' for tag in filter_tags(filters))
    values: dict[str, object] = {
        "scope": scope,
        "session_id": None if filters.all_sessions else filters.session_id,
        "history": filters.history,
        "key": filters.key,
        "now": _moment(datetime.now(UTC)),
    }
    # Terms and tags consist of word characters, so the quotes need no escaping.
    terms = [f'words:"{term}"{tags}' for term in scoped_terms(scope, query)]
    with connection:
        # A transaction, so that all reads see one state of the file while the writer works.
        connection.execute("BEGIN")
        [lines] = connection.execute(
            "SELECT coalesce(max(position), 0) FROM events WHERE scope = ?", (scope,)
        ).fetchone()
        [has_facts] = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM events WHERE scope = ? AND superseded = 1)", (scope,)
        ).fetchone()
        # The join with newer facts is slower, so it is used only if there are superseded events.
        look_up = _positions_of_facts if has_facts and follows_facts(filters) else _positions
        weights = shortlist([look_up(connection, term, values) for term in terms], lines=lines, k=k)
        shortlisted = _of_positions(connection, f"word_count, {_CURRENT}", list(weights), values)
        best = best_lines(weights, shortlisted, k=k)
        rows = _of_positions(
            connection,
            f"id, session_id, key, {_CURRENT}, {_EVENT}",
            [position for position, _ in best],
            values,
        )
        events = {position: columns for position, *columns in rows}
    hits = []
    for position, score in best:
        event_number, session_id, key, is_current, *columns = events[position]
        hits.append(
            MemoryHit(
                session_id=session_id,
                event=_event(*columns),
                score=score,
                id=str(event_number),
                key=key,
                current=bool(is_current),
            )
        )
    return hits


def _positions(connection: sqlite3.Connection, match: str, values: dict[str, object]) -> list[int]:
    """Return the positions of the newest lines that match, newest first."""
    # Compares scope and session too: the tags are short hashes, and two may be equal.
    rows = connection.execute(
        f"""SELECT position FROM lines JOIN events ON events.id = lines.rowid
            WHERE lines MATCH :match AND scope = :scope
            AND (:session_id IS NULL OR session_id = :session_id)
            AND (:history OR {_CURRENT}) ORDER BY lines.rowid DESC LIMIT {MAX_MATCHES}""",
        {**values, "match": match},
    )
    return [position for (position,) in rows]


def _positions_of_facts(
    connection: sqlite3.Connection, match: str, values: dict[str, object]
) -> list[int]:
    """Return `_positions`, and the newest line of each fact whose older line matches."""
    rows = connection.execute(
        f"""SELECT iif(:history OR {_CURRENT}, events.position, newest.position), newest.position
            FROM lines JOIN events ON events.id = lines.rowid LEFT JOIN events AS newest
                ON events.superseded = 1 AND newest.fact = events.fact AND newest.superseded = 0
                AND newest.scope = :scope
                AND (:session_id IS NULL OR newest.session_id = :session_id)
                AND (:key IS NULL OR newest.key = :key)
                AND (newest.valid_until IS NULL OR newest.valid_until > :now)
            WHERE lines MATCH :match AND events.scope = :scope
                AND (:session_id IS NULL OR events.session_id = :session_id)
            ORDER BY lines.rowid DESC""",
        {**values, "match": match},
    )
    # No LIMIT in the statement: a row has one or two positions, or only known ones.
    positions: set[int] = set()
    for row in rows:
        positions.update(filter(None, row))  # None if the fact has no newer line
        if len(positions) >= MAX_MATCHES:
            break
    return sorted(positions, reverse=True)


def _of_positions(
    connection: sqlite3.Connection, columns: str, positions: list[int], values: dict[str, object]
) -> sqlite3.Cursor:
    # As JSON, since SQLite limits the number of bound values.
    return connection.execute(
        f"""SELECT position, {columns} FROM events
            WHERE scope = :scope AND position IN (SELECT value FROM json_each(:positions))""",
        {**values, "positions": stable_json(positions)},
    )


def _forget(connection: sqlite3.Connection, target: Target, path: Path) -> int:
    """Erase the events in one transaction, then their bytes in free pages and in the log."""
    where = " AND ".join(
        f"(:{name} IS NULL OR {name} = :{name})" for name in ("scope", "session_id", "id")
    )
    values: dict[str, object] = {
        "scope": target.scope,
        "session_id": target.session_id,
        "id": target.event_number,
    }
    as_indexed = True
    with transaction(connection):
        # A contentless index deletes a row by the words that were indexed.
        for event_number, word_count, words, tags in _indexed(connection, where, values):
            if len(words) == word_count:
                _index(connection, [(event_number, " ".join(words), tags)], "delete")
            else:  # an older version split the text differently: FTS5 must delete the same words
                as_indexed = False
        erased = connection.execute(f"DELETE FROM events WHERE {where}", values).rowcount
        # FTS5 keeps deleted words until its segments are merged: https://sqlite.org/fts5.html
        connection.execute("INSERT INTO lines (lines) VALUES ('optimize')")
        # Each "optimize" adds two bytes to this block, and SQLite before 3.41 reports an index with
        # 2,000 merges as damaged.
        [structure] = connection.execute(
            "SELECT length(block) FROM lines_data WHERE id = 10"
        ).fetchone()
        if structure > _MAX_STRUCTURE_BYTES or not as_indexed:
            _reindex(connection)
    # Pages keep deleted bytes until VACUUM rewrites the file. TRUNCATE then copies the write-ahead
    # log into the file, and cuts the log to no bytes.
    connection.execute("VACUUM")
    [in_use, *_] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if in_use:
        raise LockTimeoutError(
            f"{erased} events are erased, but {path}-wal may still contain their bytes, "
            "since other processes read; call forget again, or raise lock_timeout_s"
        )
    return erased


def _indexed(
    connection: sqlite3.Connection, where: str, values: dict[str, object]
) -> Iterator[tuple[int, int, list[str], str]]:
    """Yield number, stored word count, words and tags of events."""
    rows = connection.execute(
        f"SELECT id, word_count, scope, session_id, key, {_EVENT} FROM events WHERE {where}",
        values,
    )
    # A caller may keep the error for a damaged event, and with it this frame. VACUUM fails while
    # the connection has an open statement.
    with closing(rows):
        for event_number, word_count, scope, session_id, key, *columns in rows:
            entry = Entry(scope, session_id, _event(*columns), key)
            words = scoped_words(scope, entry.event.text)
            yield event_number, word_count, words, " ".join(event_tags(entry))


def _reindex(connection: sqlite3.Connection) -> None:
    """Rebuild the full-text index."""
    connection.execute("INSERT INTO lines (lines) VALUES ('delete-all')")
    counts = []
    for event_number, _, words, tags in _indexed(connection, "true", {}):
        _index(connection, [(event_number, " ".join(words), tags)])
        counts.append((len(words), event_number))
    connection.executemany("UPDATE events SET word_count = ? WHERE id = ?", counts)


def _moment(moment: datetime) -> str:
    """Return a moment as a text. Such texts sort by time."""
    # Always with microseconds: `isoformat` leaves them out if they are zero.
    return moment.isoformat(timespec="microseconds")


def _event(role: str, text: str, timestamp: str, metadata: str) -> Event:
    try:
        return Event.model_validate(
            {"role": role, "text": text, "timestamp": timestamp, "metadata": json.loads(metadata)}
        )
    except ValueError as exc:
        raise StoreError(
            "a stored event is damaged; restore the memory's file from a backup"
        ) from exc
