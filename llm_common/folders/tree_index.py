"""`TreeIndex`: one folder in a full-text index, and `IndexCache`, which keeps the indexes."""

import hashlib
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

from llm_common._env import XDG_CACHE_HOME, read_path
from llm_common.errors import ConfigError, LockTimeoutError, StoreError, StoreFullError
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import MAX_FILE_BYTES, SkipReason, skip_reason_by_content
from llm_common.folders.file_listing import ListedFile
from llm_common.folders.symbols import defined_names
from llm_common.ranking.lexical import STOP_WORDS, Hit, split_identifiers
from llm_common.storage.sqlite_file import open_sqlite, sqlite_errors_as_store_errors, transaction

ProgressCallback = Callable[[str, int, int], object]
"""Called with the step, how many of its files are done, and how many there are.

0 of 0 if the number is not known.
"""

_WEIGHTS: Final[Mapping[str, float]] = {"contents": 1.0, "paths": 0.5, "symbols": 0.3}
_TYPICAL_FILES: Final = 100
_TYPICAL_WORDS: Final[Mapping[str, int]] = {"contents": 800, "paths": 5, "symbols": 25}
_NO_WORD = "0nowordofanyfile0"
_APPLICATION_ID: Final = 0x4C435449  # "LCTI"
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_BATCH = 200  # files of one transaction: what was read before an interruption stays
_TABLES: Final = (
    (
        "CREATE TABLE files (row INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, "
        "mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, sha256 BLOB NOT NULL, skip_reason TEXT)"
    ),
    *(
        f"CREATE VIRTUAL TABLE {table} USING fts5(words, content = '', tokenize = '{_TOKENIZER}')"
        for table in _WEIGHTS
    ),
)
# Rows of no file, which no search returns. BM25 gives no weight to a word that half of the rows
# have: these rows make the words of a small folder as rare as they are in a large one, and count
# for little in a large one.
_TYPICAL_ROWS: Final = tuple(
    f"INSERT INTO {table} (rowid, words) WITH RECURSIVE numbers (n) AS "  # noqa: S608 - our own tables
    f"(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {_TYPICAL_FILES}) "
    f"SELECT -n, '{' '.join([_NO_WORD] * words)}' FROM numbers"
    for table, words in _TYPICAL_WORDS.items()
)
_FOUND = " UNION ALL ".join(
    f"SELECT rowid AS row, {-weight} * bm25({table}) AS score "  # noqa: S608
    f"FROM {table} WHERE {table} MATCH :words"
    for table, weight in _WEIGHTS.items()
)
_SEARCH: Final = (
    f"SELECT path, sum(score) AS total FROM ({_FOUND}) JOIN files USING (row) "  # noqa: S608 - our own tables
    "GROUP BY path ORDER BY total DESC, path"
)
_DEFINING: Final = """SELECT path FROM symbols JOIN files ON row = symbols.rowid
    WHERE symbols MATCH :word ORDER BY path"""
_MAX_WORDS: Final = 128
_WORD = re.compile(r"\w+")
_MAX_INDEXED_BYTES = 250_000  # the rest of so long a file repeats its words
# a file may change again within one tick of its clock without a trace in its times
_CLOCK_TICK_NS = 2_000_000_000
_MAX_SPLIT_WORDS = 500_000


class _Known(NamedTuple):
    file: ListedFile
    sha256: bytes


class TreeIndex:
    """Ranks the files of a folder by the words of their content, path and definitions.

    Each of the three is ranked by itself (BM25) and added by weight. As fields of one table they
    would share one length, and a long file's name would count for little. Measured on 450 commits
    of three public repositories, subject against changed files: .65 of them in the first five,
    where weighted fields find .60.

    Kept in one SQLite file, readable by its owner alone. It holds words and their places, not the
    texts. Several processes may use it at once: readers never wait, writers take turns for a batch
    of files each. A reader finds what its own last `refresh` stored, or newer.

    Args:
        file: Where it is kept; None keeps it in memory.
        generated: Whether generated files are indexed; every user of one file gives the same
            answer.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        ConfigError: SQLite was built without FTS5; of an index in memory.
        StoreError: The file is no index, is damaged, or cannot be opened. Every method may raise
            `sqlite3.Error`.
    """

    def __init__(
        self, file: Path | None, *, generated: bool = False, lock_timeout_s: float = 20.0
    ) -> None:
        self._generated = generated
        schema = (*_TABLES, *_TYPICAL_ROWS)
        if file:
            self._connection = open_sqlite(
                file,
                application_id=_APPLICATION_ID,
                migrations=(schema,),
                lock_timeout_s=lock_timeout_s,
            )
            return
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            for statement in schema:
                self._connection.execute(statement)
        except sqlite3.OperationalError as exc:
            self.close()
            if "fts5" in str(exc):
                version = sqlite3.sqlite_version
                reason = f"SQLite {version} has no FTS5; use a Python whose SQLite has it"
                raise ConfigError(reason, variable="sqlite3", value=version) from exc
            raise

    def refresh(
        self, root: Path, files: Sequence[ListedFile], *, progress: ProgressCallback
    ) -> list[str]:
        """Update the index to hold exactly these files, and return the paths of those that it read.

        Does not open a file whose size and time of change are the same, nor index one again that
        holds the same bytes. Each batch of files is one transaction: an interruption leaves a whole
        index with the batches done so far.

        Args:
            root: The folder.
            files: What it holds.
            progress: Called before the first file and after each batch.
        """
        known = self._known()
        [last_row] = self._connection.execute("SELECT coalesce(max(row), 0) FROM files").fetchone()
        if len(known) * 3 + 1000 < last_row:  # rows of files that are gone count in every average
            self._clear()
            known = {}
        gone = known.keys() - {file.path for file in files}
        if gone:
            with transaction(self._connection):
                rows = [(path,) for path in gone]
                self._connection.executemany("DELETE FROM files WHERE path = ?", rows)
        stale = _changed(files, known)
        split = lru_cache(_MAX_SPLIT_WORDS)(_split)  # the files of a folder share words
        for start in range(0, len(stale), _BATCH):
            progress("Reading what changed", start, len(stale))
            batch = stale[start : start + _BATCH]
            with transaction(self._connection):
                known = self._known(batch)
                for file in _changed(batch, known):  # another process may have been faster
                    self._upsert(root, file, known.get(file.path), split)
        progress("Reading what changed", len(stale), len(stale))
        return [file.path for file in stale]

    def search(self, query: str) -> list[Hit]:
        """Return the files that share a word with the query, best first, ties by path.

        Args:
            query: Any text; its first 128 words count, except stop words. A report names what is at
                fault anywhere.
        """
        words = dict.fromkeys(split_identifiers(query).lower().split())
        counted = [f'"{word}"' for word in words if word not in STOP_WORDS][:_MAX_WORDS]
        if not counted:
            return []
        rows = self._connection.execute(_SEARCH, {"words": " OR ".join(counted)})
        return [Hit(path, score) for path, score in rows]

    def defining(self, name: str) -> list[str]:
        """Return the files that define a name: `get_page` also finds `getPage`."""
        rows = self._connection.execute(_DEFINING, {"word": f'"{name.replace("_", "")}"'})
        return [path for (path,) in rows]

    def skip_reasons(self) -> dict[str, str]:
        """Return the files that are not searched because of what they hold, with the reason."""
        return dict(
            self._connection.execute(
                "SELECT path, skip_reason FROM files WHERE skip_reason IS NOT NULL"
            )
        )

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._connection.close()

    def _clear(self) -> None:
        with transaction(self._connection):
            self._connection.execute("DELETE FROM files")
            self._connection.execute("DELETE FROM sqlite_sequence")
            for table in _WEIGHTS:
                self._connection.execute(f"INSERT INTO {table}({table}) VALUES ('delete-all')")  # noqa: S608 - ours
            for statement in _TYPICAL_ROWS:
                self._connection.execute(statement)

    def _known(self, files: Sequence[ListedFile] | None = None) -> dict[str, _Known]:
        """Return what the index holds of these files, or of all."""
        marks = "" if files is None else f" WHERE path IN ({', '.join('?' * len(files))})"
        rows = self._connection.execute(
            f"SELECT path, size, mtime_ns, sha256 FROM files{marks}",  # noqa: S608 - question marks
            [file.path for file in files or ()],
        )
        known: dict[str, _Known] = {}
        for path, size, mtime_ns, sha256 in rows:
            known[path] = _Known(ListedFile(path, size, mtime_ns), sha256)
        return known

    def _upsert(
        self, root: Path, file: ListedFile, known: _Known | None, split: Callable[[str], str]
    ) -> None:
        reason: SkipReason | None = "too large" if file.size > MAX_FILE_BYTES else None
        # Time 0 makes the next refresh read the file again.
        mtime_ns = file.mtime_ns if time.time_ns() - file.mtime_ns > _CLOCK_TICK_NS else 0
        read = None if reason else ContainedFile(root, file.path).read(max_bytes=MAX_FILE_BYTES)
        if not reason and read is None:
            reason, mtime_ns = "unreadable", 0
        content = read.data if read else b""
        digest = hashlib.sha256(content + bool(reason).to_bytes()).digest()
        if known and known.sha256 == digest:
            times = (mtime_ns, file.size, file.path)
            self._connection.execute(
                "UPDATE files SET mtime_ns = ?, size = ? WHERE path = ?", times
            )
            return
        reason = reason or skip_reason_by_content(content, generated=self._generated)
        self._connection.execute("DELETE FROM files WHERE path = ?", (file.path,))
        row = self._connection.execute(
            "INSERT INTO files (path, mtime_ns, size, sha256, skip_reason) VALUES (?, ?, ?, ?, ?)",
            (file.path, mtime_ns, file.size, digest, reason),
        ).lastrowid
        if reason or read is None:
            return
        text = read.text(max_bytes=_MAX_INDEXED_BYTES)
        texts = {"contents": text, "paths": file.path, "symbols": defined_names(file.path, text)}
        for table, value in texts.items():
            words = " ".join(map(split, _WORD.findall(value)))
            self._connection.execute(
                f"INSERT INTO {table} (rowid, words) VALUES (?, ?)",  # noqa: S608 - our own table
                (row, words),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _changed(files: Sequence[ListedFile], known: Mapping[str, _Known]) -> list[ListedFile]:
    indexed = {path: entry.file for path, entry in known.items()}
    return [file for file in files if indexed.get(file.path) != file]


def _split(word: str) -> str:
    """`split_identifiers` of one word.

    Most words have nothing to split, and numbers should not be.
    """
    plain = word.isascii() and ((word.isalpha() and word.islower()) or word[0].isdigit())
    return word if plain else split_identifiers(word)


# of the tables and of how words are split; another number leaves older indexes unread
_FORMAT: Final = 3
_FILE_NAME = re.compile(r"(?P<key>[0-9a-f]{16})-(?P<generation>\d{1,6})\.sqlite")
_NOT_DAMAGED: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
T = TypeVar("T")


def default_cache_dir() -> Path:
    """This user's cache folder for this library, by the platform's convention; it need not exist.

    Raises:
        ConfigError: The system knows no home folder of this user, as in some containers.
    """
    if chosen := read_path(XDG_CACHE_HOME):
        return chosen / "llm-common"
    try:
        home = Path.home()
    except RuntimeError as exc:
        variable = XDG_CACHE_HOME.name
        reason = f"this user has no home folder; set {variable} to a folder that may be written"
        raise ConfigError(reason, variable=variable, value="") from exc
    if sys.platform == "darwin":
        return home / "Library/Caches/llm-common"
    if sys.platform == "win32":
        return home / "AppData/Local/llm-common/Cache"
    return home / ".cache/llm-common"


class IndexCache:
    """The indexes of many folders, one file each, below a cache folder.

    A problem with an index never stops the work; `notes` says what happened. A damaged index is
    replaced by a new file under the next number and never mended, since another process may have it
    open. Where no index can be kept, one in memory serves.

    Args:
        cache_dir: The cache folder; made when it is missing, for its owner alone.
        lock_timeout_s: Seconds to wait for another process that writes the same index.
    """

    def __init__(self, cache_dir: Path, *, lock_timeout_s: float = 20.0) -> None:
        self._folder = cache_dir / "indexes"
        self._lock_timeout_s = lock_timeout_s
        self.notes: list[str] = []

    def use(
        self, root: Path, *, generated: bool, hidden: bool, work: Callable[[TreeIndex], T]
    ) -> T:
        """Calls `work` with the index of a folder and returns its result.

        Calls it again if the index was damaged.

        Args:
            root: The folder, resolved.
            generated: Whether the index holds generated files.
            hidden: Whether it holds hidden ones.
            work: Refreshes the index and asks it.

        Raises:
            ConfigError: SQLite was built without FTS5.
        """
        # One index for each choice of files, or two calls at once would undo each other's.
        name = f"{_FORMAT} {generated} {hidden} {root}"
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if hasattr(os, "geteuid") and self._folder.stat().st_uid != os.geteuid():
                raise PermissionError("the cache folder belongs to another user")
            names = (
                _FILE_NAME.fullmatch(each.name) for each in self._folder.glob(f"{key}-*.sqlite")
            )
            generation = max((int(name["generation"]) for name in names if name), default=1)
            file = self._folder / f"{key}-{generation}.sqlite"
            for attempt in range(2):
                try:
                    with (
                        sqlite_errors_as_store_errors(file),
                        TreeIndex(
                            file, generated=generated, lock_timeout_s=self._lock_timeout_s
                        ) as index,
                    ):
                        return work(index)
                except StoreError as exc:
                    if attempt or not _is_damaged(exc):
                        raise
                    self.notes.append("the index of the folder was damaged; it was built anew")
                    file = _next_generation(file)
        except (StoreError, OSError) as exc:
            problem = type(exc.__cause__ or exc).__name__
            self.notes.append(
                f"no index can be kept in {self._folder} ({problem}); it was built in memory"
            )
        with TreeIndex(None, generated=generated) as index:
            return work(index)


def _next_generation(file: Path) -> Path:
    """The name that follows; removes the file and the files that SQLite keeps beside it."""
    key, _, generation = file.stem.partition("-")
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            file.with_name(file.name + suffix).unlink()
    return file.with_name(f"{key}-{int(generation) + 1}.sqlite")


def _is_damaged(error: StoreError) -> bool:
    """Whether a new file may help.

    It does not where the disk or another process prevents the work.
    """
    if isinstance(error, LockTimeoutError | StoreFullError) or isinstance(error.__cause__, OSError):
        return False
    # absent where the Python module complains and not SQLite
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF not in _NOT_DAMAGED
