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

from llm_common.folders.exclusion import MAX_FILE_BYTES, LeftOut, left_out_by_content
from llm_common.folders.file_listing import ListedFile
from llm_common.folders.symbols import defined_names
from llm_common.ranking.lexical import Hit, fts5_is_missing, query_terms, split_identifiers

__all__ = ["FileReader", "FileWords", "Progress", "TreeIndex"]

_WORD = re.compile(r"\w+")
_INDEXED_BYTES = 250_000  # what follows in so long a file repeats its words
_UNSURE_NS = 2_000_000_000  # a file may change again within one tick of its clock without a trace in its times
_MOST_WORDS = 500_000


@dataclass(frozen=True, slots=True)
class FileWords:
    """A file as the index takes it.

    Attributes:
        file: Its path, and its size and time of change before it was read; time 0 when that tells nothing, so that it
            is read again the next time.
        sha256: Of its content.
        left_out: Why it is not searched, if so.
        words: By `contents`, `paths` and `symbols`; None when it is not searched, or is as the index has it.
    """

    file: ListedFile
    sha256: bytes
    left_out: LeftOut | None
    words: Mapping[str, str] | None


class FileReader:
    """Reads the files of one folder, and splits their words, each word once: a tree repeats its words.

    Args:
        root: The folder.
        generated: Whether generated files are taken in.
    """

    def __init__(self, root: Path, *, generated: bool) -> None:
        self._root = root
        self._generated = generated
        self._split = _SplitWords()

    def read(self, file: ListedFile, known_sha256: bytes | None) -> FileWords:
        """The file as it is now.

        Args:
            file: What to read.
            known_sha256: Of the content that the index has, if any.
        """
        left_out: LeftOut | None = "too large" if file.size > MAX_FILE_BYTES else None
        settled = time.time_ns() - file.mtime_ns > _UNSURE_NS
        try:
            content = b"" if left_out else (self._root / file.path).read_bytes()
        except OSError:
            content, left_out, settled = b"", "unreadable", False
        digest = hashlib.sha256(content + bool(left_out).to_bytes()).digest()
        left_out = left_out or left_out_by_content(content, generated=self._generated)
        words = None
        if left_out is None and digest != known_sha256:
            text = content[:_INDEXED_BYTES].decode("utf-8", errors="replace")
            texts = {"contents": text, "paths": file.path, "symbols": defined_names(file.path, text)}
            words = {name: self._split.of(value) for name, value in texts.items()}
        stamp = file.mtime_ns if settled else 0
        return FileWords(ListedFile(file.path, file.size, stamp), digest, left_out, words)


class _SplitWords(dict[str, str]):
    """`split_identifiers` by word."""

    def of(self, text: str) -> str:
        if len(self) > _MOST_WORDS:
            self.clear()
        return " ".join(map(self.__getitem__, _WORD.findall(text)))

    def __missing__(self, word: str) -> str:
        # Most words have nothing to split, and numbers should not be.
        plain = word.isascii() and ((word.isalpha() and word.islower()) or word[0].isdigit())
        words = self[word] = word if plain else split_identifiers(word)
        return words


Progress = Callable[[int, int], object]
"""Called with how many files of how many have been read."""

_WEIGHTS: Final[Mapping[str, float]] = {"contents": 1.0, "paths": 0.5, "symbols": 0.3}
_TYPICAL_FILES: Final = 100
_TYPICAL_WORDS: Final[Mapping[str, int]] = {"contents": 800, "paths": 5, "symbols": 25}
_NO_WORD = "0nowordofanyfile0"
_BATCH = 200  # files of one transaction: what was read before an interruption stays
_LOCK_TIMEOUT_S = 20.0
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_SCHEMA: Final = (
    (
        "CREATE TABLE IF NOT EXISTS files (row INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, "
        "mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL, sha256 BLOB NOT NULL, left_out TEXT)"
    ),
    *(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5(words, content = '', tokenize = '{_TOKENIZER}')"
        for table in _WEIGHTS
    ),
)
_FOUND = " UNION ALL ".join(
    f"SELECT rowid AS row, {-weight} * bm25({table}) AS score FROM {table} WHERE {table} MATCH :words"  # noqa: S608
    for table, weight in _WEIGHTS.items()
)
_SEARCH: Final = (
    f"SELECT path, sum(score) AS total FROM ({_FOUND}) JOIN files USING (row) "  # noqa: S608 - our own tables
    "GROUP BY path ORDER BY total DESC, path LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class _Known:
    mtime_ns: int
    size: int
    sha256: bytes


class TreeIndex:
    """Ranks the files of a folder by the words of their content, their path and the names that they define.

    Each of the three is ranked by itself (BM25) and added by weight. As fields of one table they would share one
    length, and a long file's name would count for little. Measured on 450 commits of three public repositories, subject
    against changed files: .65 of them in the first five, where weighted fields find .60.

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
        if file is not None:
            file.touch(mode=0o600)
        self._connection = sqlite3.connect(file or ":memory:", timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        try:
            self._prepare()
        except BaseException as exc:
            self.close()
            if isinstance(exc, sqlite3.OperationalError) and "fts5" in str(exc):
                raise fts5_is_missing() from exc
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
        reader = FileReader(root, generated=self._generated)
        for start in range(0, len(stale), _BATCH):
            progress(start, len(stale))
            batch = stale[start : start + _BATCH]
            with self._transaction():
                known = self._known(batch)
                for file in _changed(batch, known):  # another process may have been faster
                    record = known.get(file.path)
                    self._take_in(reader.read(file, record.sha256 if record else None), record)
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
        match = " OR ".join(f'"{term}"' for term in terms)
        found = self._connection.execute(_SEARCH, {"words": match, "limit": limit})
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
        tables = self._connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name IN ('files', 'contents', 'paths', 'symbols')"
        )
        if tables.fetchone()[0] < len(_SCHEMA):
            with self._transaction():
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._add_typical_files()

    def _known(self, files: Sequence[ListedFile] | None = None) -> dict[str, _Known]:
        """What the index has of these files, or of all."""
        marks = "" if files is None else f" WHERE path IN ({', '.join('?' * len(files))})"
        rows = self._connection.execute(
            f"SELECT path, mtime_ns, size, sha256 FROM files{marks}",  # noqa: S608 - question marks
            [file.path for file in files or ()],
        )
        return {path: _Known(*record) for path, *record in rows}

    def _last_row(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(row), 0) FROM files").fetchone()[0])

    def _add_typical_files(self) -> None:
        """Rows of no file, which no search returns: BM25 gives no weight to a word that half of the rows have.

        They make words of a small folder as rare as they are in a large one, and count for little in that.
        """
        if self._connection.execute("SELECT count(*) FROM contents").fetchone()[0]:
            return  # another process was faster
        for table, words in _TYPICAL_WORDS.items():
            rows = ((-number, f"{_NO_WORD} " * words) for number in range(1, _TYPICAL_FILES + 1))
            self._connection.executemany(f"INSERT INTO {table} (rowid, words) VALUES (?, ?)", rows)  # noqa: S608

    def _forget_all(self) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM files")
            self._connection.execute("DELETE FROM sqlite_sequence")
            for table in _WEIGHTS:
                self._connection.execute(f"INSERT INTO {table}({table}) VALUES ('delete-all')")  # noqa: S608 - ours
            self._add_typical_files()

    def _take_in(self, entry: FileWords, known: _Known | None) -> None:
        path, size, mtime_ns = entry.file.path, entry.file.size, entry.file.mtime_ns
        if known and known.sha256 == entry.sha256:
            self._connection.execute("UPDATE files SET mtime_ns = ?, size = ? WHERE path = ?", (mtime_ns, size, path))
            return
        self._connection.execute("DELETE FROM files WHERE path = ?", (path,))
        row = self._connection.execute(
            "INSERT INTO files (path, mtime_ns, size, sha256, left_out) VALUES (?, ?, ?, ?, ?)",
            (path, mtime_ns, size, entry.sha256, entry.left_out),
        ).lastrowid
        for table, words in (entry.words or {}).items():
            self._connection.execute(f"INSERT INTO {table} (rowid, words) VALUES (?, ?)", (row, words))  # noqa: S608

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


def _changed(files: Sequence[ListedFile], known: Mapping[str, _Known]) -> list[ListedFile]:
    return [
        file
        for file in files
        if not (record := known.get(file.path)) or (record.mtime_ns, record.size) != (file.mtime_ns, file.size)
    ]
