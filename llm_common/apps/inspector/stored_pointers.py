"""`StoredPointers`: a store's queries and pointers as rows that a page finds at once, however many there are.

A thread reads the records into a database of this process alone: SQLite's private temporary file,
which has no name and ends with the process. So a page reads fifty rows, not a folder, and little is
in memory. Nothing in the store changes.
"""

import os
import re
import sqlite3
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from llm_common.errors import CorruptPointerError, InvalidIdError, StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import MAX_RECORD_BYTES, meta_name, parse_meta
from llm_common.storage import FileBlobStore, query_id_of
from llm_common.storage.sqlite_file import transaction
from llm_common.text.display import printable

_BATCH: Final = 200  # records between two chances for a page to read
_FRESH_S: Final = 2.0
_WAIT_S: Final = 0.1
_CLOCK_GRAIN_S: Final = 0.05
_MAX_TEXT_CHARS: Final = 1_500
_MAX_WORDS: Final = 12
_MAX_BYTES: Final = 1 << 50
_META: Final = re.compile(r"([0-9a-f]{12,16})\.meta\.json")
_TABLES: Final = """
PRAGMA journal_mode = MEMORY;
PRAGMA cache_size = -16000;
CREATE TABLE queries (folder TEXT PRIMARY KEY, query_id TEXT, changed REAL, read REAL, seen INTEGER,
  pointers INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, problem TEXT NOT NULL DEFAULT '')
  WITHOUT ROWID;
CREATE INDEX by_change ON queries (changed DESC);
CREATE TABLE pointers (id INTEGER PRIMARY KEY, folder TEXT, pointer_id TEXT, tool TEXT, summary TEXT, shape TEXT,
  bytes INTEGER, created_at TEXT, expires_at TEXT, changed INTEGER);
CREATE UNIQUE INDEX by_id ON pointers (folder, pointer_id);
CREATE INDEX by_age ON pointers (folder, created_at DESC, pointer_id);
CREATE INDEX by_tool ON pointers (tool, bytes);
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
"""
_POINTER: Final = "folder, pointer_id, tool, summary, shape, bytes, created_at, expires_at"
_QUERY: Final = "folder, query_id, pointers, bytes, changed, read IS changed, problem"
_FOUND: Final = (
    f"SELECT {_POINTER} FROM (SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ? OFFSET ?) found "  # noqa: S608 - our own text
    "JOIN pointers ON pointers.id = found.rowid ORDER BY found.rank"
)
_GONE: Final = (
    "DELETE FROM words WHERE rowid IN (SELECT id FROM pointers WHERE folder = ? AND pointer_id = ?)",
    "DELETE FROM pointers WHERE folder = ? AND pointer_id = ?",
)
_NEW: Final = f"INSERT INTO pointers ({_POINTER}, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own text
_WORDS: Final = "INSERT INTO words (rowid, text) VALUES (?, ?)"
_SEEN: Final = (
    "INSERT INTO queries (folder, query_id, changed, seen) VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET changed = excluded.changed, seen = excluded.seen"
)
_READ: Final = (
    "UPDATE queries SET problem = '', read = CASE WHEN ? THEN ? ELSE read END, (pointers, bytes) = "
    "(SELECT count(*), coalesce(sum(bytes), 0) FROM pointers p WHERE p.folder = queries.folder) WHERE folder = ?"
)

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query.

    Attributes:
        folder: Its folder in the store, which addresses use.
        query_id: Its id.
        pointers: How many of its pointers were read so far.
        bytes: Of their results.
        changed_s: When its folder changed last, in seconds since the epoch.
        is_read: Whether all of it was read.
        problem: Why it cannot be read; "" if it can.
    """

    folder: str
    query_id: str
    pointers: int
    bytes: int
    changed_s: float
    is_read: bool
    problem: str


@dataclass(frozen=True, slots=True)
class PointerRow:
    """A pointer without its arguments.

    Fields as of `ContextPointer`, `shape` is the beginning of its digest.
    """

    folder: str
    pointer_id: str
    tool: str
    summary: str
    shape: str
    bytes: int | None
    created_at: str
    expires_at: str | None


class StoredPointers:
    """The queries and pointers of a store, read by a thread from the first page on.

    Each method answers from what was read so far; `unread` says how many queries are left. A query
    that is asked for is read first. What changes in the store shows within seconds.

    Args:
        files: The store's blobs.
    """

    def __init__(self, files: FileBlobStore) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(_TABLES)
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._asked: deque[str] = deque(maxlen=8)
        # changed just before they were read: a later change may bear the same time
        self._recent = set[str]()
        self._pass, self._passed_s = 0, 0.0
        self._thread = threading.Thread(
            target=self._read_on, name="llm-common-inspect", daemon=True
        )

    def start(self) -> None:
        """Lists the queries, and begins to read them."""
        self._list_queries()
        self._wake.set()
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and frees the database."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._database.close()

    def queries(
        self, words: str = "", *, limit: int, offset: int = 0
    ) -> tuple[list[QueryRow], int]:
        """Some queries, the one that changed last first, and how many there are.

        Args:
            words: Only those whose id holds this text.
            limit: Most rows.
            offset: Rows before them.
        """
        self._touch()
        kept = "WHERE instr(lower(query_id), ?)" if words else ""
        pattern = [words.lower()] if words else []
        rows = self._rows(
            f"SELECT {_QUERY} FROM queries {kept} ORDER BY changed DESC, folder LIMIT ? OFFSET ?",  # noqa: S608 - our own text
            *pattern,
            limit,
            offset,
        )
        [[total]] = self._rows(f"SELECT count(*) FROM queries {kept}", *pattern)  # noqa: S608 - our own text
        return [QueryRow(*row) for row in rows], total

    def query(self, folder: str) -> QueryRow | None:
        """A query as it is now, as far as it can be read in a tenth of a second.

        None if there is none.
        """
        self._touch()
        self._read(folder, until_s=time.monotonic() + _WAIT_S)
        rows = self._rows(f"SELECT {_QUERY} FROM queries WHERE folder = ?", folder)  # noqa: S608 - our own text
        return next((QueryRow(*row) for row in rows), None)

    def pointers(self, folder: str, *, limit: int, offset: int = 0) -> list[PointerRow]:
        """Some pointers of a query, newest first."""
        sql = f"SELECT {_POINTER} FROM pointers WHERE folder = ? ORDER BY created_at DESC, pointer_id LIMIT ? OFFSET ?"  # noqa: S608 - our own text
        return [PointerRow(*row) for row in self._rows(sql, folder, limit, offset)]

    def find(self, words: str, *, limit: int, offset: int = 0) -> tuple[list[PointerRow], int]:
        """Some pointers whose tool, call or digest holds all the words, best first, and how many there are.

        A word may be the beginning of one.
        """
        self._touch()
        parts = [part for part in (word.strip("_") for word in re.findall(r"\w+", words)) if part][
            :_MAX_WORDS
        ]
        if not parts:
            return [], 0
        match = " ".join(f'"{part}"*' for part in parts)
        rows = self._rows(_FOUND, match, limit, offset)
        [[total]] = self._rows("SELECT count(*) FROM words WHERE words MATCH ?", match)
        return [PointerRow(*row) for row in rows], total

    def tools(self) -> dict[str, tuple[int, int]]:
        """The stored outputs of each tool, and their bytes."""
        self._touch()
        rows = self._rows(
            "SELECT tool, count(*), coalesce(sum(bytes), 0) FROM pointers GROUP BY tool"
        )
        return {tool: (count, total) for tool, count, total in rows}

    def unread(self) -> int:
        """How many queries have not been read to their end."""
        [[count]] = self._rows("SELECT count(*) FROM queries WHERE read IS NOT changed")
        return int(count)

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def _touch(self) -> None:
        if time.monotonic() - self._passed_s > _FRESH_S:
            self._wake.set()

    def _read_on(self) -> None:
        """Reads what is new whenever a page was asked for; the thread."""
        while self._wake.wait() and not self._stopped.is_set():
            self._wake.clear()
            # a full disk: the next page tries again
            with suppress(StoreError, sqlite3.OperationalError):
                for recent in [*self._recent]:
                    self._read(recent)
                if self._pass and time.monotonic() - self._passed_s > _FRESH_S:
                    self._list_queries()
                for [folder] in self._rows(
                    "SELECT folder FROM queries WHERE read IS NOT changed ORDER BY changed DESC"
                ):
                    while self._asked:
                        self._read(self._asked.popleft())
                    self._read(str(folder))
                    if self._stopped.is_set():
                        return
            self._passed_s = time.monotonic()

    def _list_queries(self) -> None:
        """Brings the queries up to date, not their pointers."""
        self._pass += 1
        found = (
            (folder, query_id_of(folder), changed, self._pass)
            for folder, changed in self._folders()
        )
        for rows in _batches(found, 5_000):
            with self._lock:
                self._database.executemany(_SEEN, rows)
        for [folder] in self._rows("SELECT folder FROM queries WHERE seen < ?", self._pass):
            self._remove(str(folder))

    def _folders(self) -> Iterator[tuple[str, float]]:
        """The folders of queries, links left out, and when they changed."""
        for folder in self._files.folders():
            with suppress(OSError):
                path = self._files.base_dir / folder
                if not path.is_symlink():
                    yield folder, path.stat().st_mtime

    def _read(self, folder: str, until_s: float | None = None) -> None:
        """Reads the records of a query that are new, and forgets those that are gone.

        To be called in any thread.
        """
        path = self._files.base_dir / folder
        try:
            query_id = query_id_of(folder)
            status = path.lstat()
        except (InvalidIdError, OSError):
            self._remove(folder)
            return
        if not stat.S_ISDIR(status.st_mode):  # a link may lead anywhere
            self._remove(folder)
            return
        changed = status.st_mtime
        self._rows(_SEEN, folder, query_id, changed, self._pass)
        is_read = self._rows(
            "SELECT 1 FROM queries WHERE folder = ? AND read IS ?", folder, changed
        )
        if is_read and folder not in self._recent:
            return
        try:
            metas = _metas(path, until_s)
            done = metas is not None and self._read_records(folder, query_id, metas, until_s)
        except (OSError, StoreError) as exc:
            problem = type(exc).__name__ if isinstance(exc, StoreError) else "unreadable"
            self._rows(
                "UPDATE queries SET read = ?, problem = ? WHERE folder = ?",
                changed,
                problem,
                folder,
            )
            return
        if not done:
            self._asked.append(folder)
            self._wake.set()
        is_recent = time.time() - changed < _CLOCK_GRAIN_S
        (self._recent.add if is_recent else self._recent.discard)(folder)
        self._rows(_READ, done, changed, folder)

    def _read_records(
        self, folder: str, query_id: str, metas: dict[str, int], until_s: float | None
    ) -> bool:
        """Whether all of the records were read in time."""
        known = dict(
            self._rows("SELECT pointer_id, changed FROM pointers WHERE folder = ?", folder)
        )
        for gone in _batches([each for each in known if each not in metas], _BATCH):
            self._replace(folder, gone, [])
        new = [each for each, changed in metas.items() if known.get(each) != changed]
        for some in _batches(new, _BATCH):
            records = self._files.get_many(
                folder, [meta_name(each) for each in some], max_bytes=MAX_RECORD_BYTES
            )
            pointers = []
            for pointer_id, record in zip(some, records, strict=True):
                with suppress(CorruptPointerError):
                    pointers.append(
                        parse_meta(record or b"", query_id=query_id, pointer_id=pointer_id)
                    )
            self._replace(folder, some, [(each, metas[each.pointer_id]) for each in pointers])
            if self._stopped.is_set() or (until_s is not None and time.monotonic() > until_s):
                return some[-1] == new[-1]
        return True

    def _replace(
        self, folder: str, gone: Iterable[str], new: Iterable[tuple[ContextPointer, int]]
    ) -> None:
        """Puts pointers in place of those with the same ids, as one."""
        with self._lock, transaction(self._database):
            for pointer_id in gone:
                for statement in _GONE:
                    self._database.execute(statement, (folder, pointer_id))
            for one, changed in new:
                added = self._database.execute(_NEW, (folder, *_columns(one), changed))
                text = f"{one.pointer_id} {one.tool_name} {one.summary} {one.digest}"[
                    :_MAX_TEXT_CHARS
                ]
                self._database.execute(_WORDS, (added.lastrowid, printable(text)))

    def _remove(self, folder: str) -> None:
        gone = [
            str(one)
            for [one] in self._rows("SELECT pointer_id FROM pointers WHERE folder = ?", folder)
        ]
        for some in _batches(gone, _BATCH):
            self._replace(folder, some, [])
        self._rows("DELETE FROM queries WHERE folder = ?", folder)
        self._recent.discard(folder)


def _columns(one: ContextPointer) -> list[str | int | None]:
    """The columns of a pointer, whose record may hold anything, as a database takes them."""
    shape = one.digest.partition("; ")[0]
    size = None if one.result_bytes is None else min(max(one.result_bytes, 0), _MAX_BYTES)
    expires_at = None if one.pinned or one.expires_at is None else printable(one.expires_at)
    return [
        one.pointer_id,
        *map(printable, (one.tool_name, one.summary, shape)),
        size,
        printable(one.created_at),
        expires_at,
    ]


def _batches(values: Iterable[ValueT], size: int) -> Iterator[list[ValueT]]:
    rest = iter(values)
    return iter(lambda: [*islice(rest, size)], [])


def _metas(path: Path, until_s: float | None) -> dict[str, int] | None:
    """The pointers of a folder, and when each was written.

    None if there was no time to list them all.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    found: dict[str, int] = {}
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(descriptor) as entries:
            for number, entry in enumerate(entries):
                if until_s is not None and number % _BATCH == 0 and time.monotonic() > until_s:
                    return None
                if match := _META.fullmatch(entry.name):
                    found[match[1]] = entry.stat(follow_symlinks=False).st_mtime_ns
    finally:
        os.close(descriptor)
    return found
