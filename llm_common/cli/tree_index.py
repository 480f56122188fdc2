"""`TreeIndex`: the files of one folder in a full-text index on disk, brought up to date by what changed."""

import hashlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from llm_common.cli.left_out import MAX_FILE_BYTES, left_out_by_content
from llm_common.cli.listing import ListedFile
from llm_common.cli.symbols import defined_names
from llm_common.errors import ConfigError
from llm_common.ranking.hit import Hit
from llm_common.ranking.lexical import query_terms, split_identifiers

__all__ = ["Progress", "TreeIndex"]

Progress = Callable[[int, int], object]
"""Called with how many files of how many have been read."""

_WEIGHTS: Final[Mapping[str, float]] = {"path": 2.0, "symbols": 2.0, "content": 1.0}
_BATCH = 200  # files of one transaction: what was read before an interruption stays
_LOCK_TIMEOUT_S = 20.0
_UNSURE_NS = 2_000_000_000  # a file may change again within one tick of its clock without a trace in its times
_MOST_WORDS = 500_000
_WORD = re.compile(r"\w+")
_SCHEMA: Final = (
    (
        "CREATE TABLE IF NOT EXISTS files (row INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, "
        "mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, sha256 BLOB NOT NULL, left_out TEXT)"
    ),
    (
        "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(path, symbols, content, content = '', "
        "tokenize = 'porter unicode61 remove_diacritics 2')"
    ),
)


@dataclass(frozen=True, slots=True)
class _Known:
    mtime_ns: int
    size: int


class TreeIndex:
    """Ranks the files of a folder by the words of their content, their path and the names that they define.

    Kept in one SQLite file, readable by its owner alone. It holds words and where they stand, not the texts. Several
    processes may use it at once: readers never wait, writers take turns for a batch of files each. What a reader finds
    is at least as new as its own last `refresh`.

    Args:
        file: Where it is kept, in an existing folder; None keeps it in memory.
        generated: Whether generated files are taken in; an index is made with one answer for all its life.

    Raises:
        ConfigError: SQLite was built without FTS5.
        sqlite3.Error: The file is no index, is damaged, or cannot be opened or written; so may every method.
    """

    def __init__(self, file: Path | None, *, generated: bool = False) -> None:
        self._generated = generated
        self._words = _SplitWords()
        if file is not None:
            file.touch(mode=0o600)
        self._connection = sqlite3.connect(file or ":memory:", timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        try:
            self._prepare()
        except BaseException as exc:
            self.close()
            if isinstance(exc, sqlite3.OperationalError) and "fts5" in str(exc):
                raise ConfigError(
                    f"SQLite {sqlite3.sqlite_version} has no FTS5; use a Python whose SQLite has it",
                    variable="sqlite3",
                    value=sqlite3.sqlite_version,
                ) from exc
            raise

    def refresh(self, root: Path, files: Sequence[ListedFile], *, progress: Progress) -> int:
        """Makes the index that of these files, and says how many had to be read.

        A file whose size and time of change are as they were is not opened; one that was touched but holds what it held
        is not indexed again. Interrupted, the index holds what was done so far and is whole.

        Args:
            root: The folder.
            files: What it holds.
            progress: Told before the first file and after each batch.
        """
        known = self._known()
        if len(known) * 3 + 1000 < self._last_row():
            self._forget_all()  # rows of files that are gone count in every average
            known = {}
        wanted = {file.path for file in files}
        if gone := [(path,) for path in known if path not in wanted]:
            with self._transaction():
                self._connection.executemany("DELETE FROM files WHERE path = ?", gone)
        stale = _changed(files, known)
        for start in range(0, len(stale), _BATCH):
            progress(start, len(stale))
            batch = stale[start : start + _BATCH]
            with self._transaction():
                for file in _changed(batch, self._known(batch)):  # another process may have been faster
                    self._take_in(root, file)
        progress(len(stale), len(stale))
        return len(stale)

    def search(self, query: str, *, limit: int) -> list[Hit]:
        """The files that share a word with the query, best first, ties in the order of their paths.

        Args:
            query: Any text; its first 64 words count, stop words aside.
            limit: Most files to return.
        """
        terms = query_terms(query)
        if not terms or limit <= 0:
            return []
        weights = ", ".join(map(str, _WEIGHTS.values()))
        found = self._connection.execute(
            f"SELECT files.path, -bm25(words, {weights}) AS score FROM words "  # noqa: S608 - floats
            "JOIN files ON files.row = words.rowid WHERE words MATCH ? ORDER BY score DESC, files.path LIMIT ?",
            (" OR ".join(f'"{term}"' for term in terms), limit),
        )
        return [Hit(path, score) for path, score in found]

    def left_out(self) -> dict[str, str]:
        """The files that are not searched for what they hold, with the reason."""
        return dict(self._connection.execute("SELECT path, left_out FROM files WHERE left_out IS NOT NULL"))

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self._connection.close()

    def _prepare(self) -> None:
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            with suppress(sqlite3.OperationalError):  # another process is just doing it
                self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('files', 'words')")
        if tables.fetchone()[0] < len(_SCHEMA):
            with self._transaction():
                for statement in _SCHEMA:
                    self._connection.execute(statement)

    def _known(self, files: Sequence[ListedFile] | None = None) -> dict[str, _Known]:
        """What the index has of these files, or of all."""
        marks = "" if files is None else f" WHERE path IN ({', '.join('?' * len(files))})"
        rows = self._connection.execute(
            f"SELECT path, mtime_ns, size FROM files{marks}",  # noqa: S608 - question marks
            [file.path for file in files or ()],
        )
        return {path: _Known(mtime_ns, size) for path, mtime_ns, size in rows}

    def _last_row(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(row), 0) FROM files").fetchone()[0])

    def _forget_all(self) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM files")
            self._connection.execute("DELETE FROM sqlite_sequence")
            self._connection.execute("INSERT INTO words(words) VALUES ('delete-all')")

    def _take_in(self, root: Path, file: ListedFile) -> None:
        try:
            content = (root / file.path).read_bytes() if file.size <= MAX_FILE_BYTES else b""
            left_out = "too large" if file.size > MAX_FILE_BYTES else None
        except OSError:
            content, left_out = b"", "unreadable"
        digest = hashlib.sha256(content).digest()
        settled = time.time_ns() - file.mtime_ns > _UNSURE_NS and left_out != "unreadable"
        mtime_ns = file.mtime_ns if settled else 0
        same = self._connection.execute(
            "UPDATE files SET mtime_ns = ? WHERE path = ? AND size = ? AND sha256 = ? AND left_out IS NOT 'unreadable'",
            (mtime_ns, file.path, file.size, digest),
        )
        if same.rowcount:
            return
        left_out = left_out or left_out_by_content(content, generated=self._generated)
        self._connection.execute("DELETE FROM files WHERE path = ?", (file.path,))
        row = self._connection.execute(
            "INSERT INTO files (path, mtime_ns, size, sha256, left_out) VALUES (?, ?, ?, ?, ?)",
            (file.path, mtime_ns, file.size, digest, left_out),
        ).lastrowid
        if left_out is None:
            text = content.decode("utf-8", errors="replace")
            fields = map(self._words.of, (file.path, defined_names(file.path, text), text))
            self._connection.execute(
                "INSERT INTO words (rowid, path, symbols, content) VALUES (?, ?, ?, ?)", (row, *fields)
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A write transaction: all or nothing, also when interrupted."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SplitWords(dict[str, str]):
    """`split_identifiers` word by word, each word once: a tree repeats its words."""

    def of(self, text: str) -> str:
        if len(self) > _MOST_WORDS:
            self.clear()
        return " ".join(map(self.__getitem__, _WORD.findall(text)))

    def __missing__(self, word: str) -> str:
        plain = word.isascii() and word.isalpha() and word.islower()  # most words, and nothing to split
        words = self[word] = word if plain else split_identifiers(word)
        return words


def _changed(files: Sequence[ListedFile], known: Mapping[str, _Known]) -> list[ListedFile]:
    return [file for file in files if known.get(file.path) != _Known(file.mtime_ns, file.size)]
