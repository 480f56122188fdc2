"""Index the files of a folder, and keep the indexes of many: `TreeIndex` and `IndexCache`."""

import hashlib
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from llm_common.errors import ConfigError, LockTimeoutError, StoreError, StoreFullError
from llm_common.folders.contained_file import ContainedFile, decoded
from llm_common.folders.file_listing import (
    MAX_FILE_BYTES,
    ListedFile,
    SkipReason,
    skip_reason_by_content,
)
from llm_common.folders.symbols import symbols_of
from llm_common.ranking.lexical import STOP_WORDS, split_identifiers
from llm_common.storage.sqlite_file import open_sqlite, sqlite_errors_as_store_errors, transaction
from llm_common.text.sentences import sentences_in

ProgressCallback = Callable[[str, int, int], object]
"""A function called with the name of a step, the number of files done, and their total.

Both numbers are 0 if the total is unknown.
"""

_WEIGHTS: Final[Mapping[str, float]] = {"contents": 1.0, "paths": 0.75, "symbols": 0.3}
_TYPICAL_FILES: Final = 100
_TYPICAL_WORDS: Final[Mapping[str, int]] = {"contents": 800, "paths": 5, "symbols": 25}
_NO_WORD = "0nowordofanyfile0"  # a token that no text contains
_APPLICATION_ID: Final = 0x4C435449  # "LCTI"
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_BATCH = 200  # files of one transaction: an interruption loses at most one batch
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
# Rows without a file, which no search returns. BM25 gives no weight to a word that is in half of
# the rows. With these rows, words of a small folder are as rare as those of a large one.
_TYPICAL_ROWS: Final = tuple(
    f"INSERT INTO {table} (rowid, words) WITH RECURSIVE numbers (n) AS "  # noqa: S608 - our own tables
    f"(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {_TYPICAL_FILES}) "
    f"SELECT -n, '{' '.join([_NO_WORD] * words)}' FROM numbers"
    for table, words in _TYPICAL_WORDS.items()
)
_MATCHES = " UNION ALL ".join(
    f"SELECT rowid AS row, {-weight} * bm25({table}) AS score "  # noqa: S608
    f"FROM {table} WHERE {table} MATCH :words"
    for table, weight in _WEIGHTS.items()
)
_SEARCH: Final = (
    f"SELECT path, sum(score) FROM ({_MATCHES}) JOIN files USING (row) "  # noqa: S608 - our own tables
    "GROUP BY path"
)
_CONTAINING: Final = """FROM files JOIN (
        SELECT rowid AS row FROM contents WHERE contents MATCH :word
        UNION SELECT rowid FROM paths WHERE paths MATCH :word
    ) USING (row)"""
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_MAX_WORDS: Final = 128
_MAX_SENTENCES: Final = 128
_MAX_CHARS: Final = 20_000  # of a query
_MAX_SHOWN_WORDS: Final = 4  # of a file, which fit a column of a table
_WORD = re.compile(r"\w+")
_MAX_INDEXED_BYTES = 250_000  # the rest of such a long file mostly repeats its words
# A file may change within one tick of its clock and keep its modification time. FAT's tick is 2 s.
_CLOCK_TICK_NS = 2_000_000_000
_MAX_SPLIT_WORDS = 500_000  # in the cache of one refresh


class _IndexedFile(NamedTuple):
    file: ListedFile
    sha256: bytes


class TreeIndex:
    """A full-text index that ranks the files of a folder by content, path and definitions.

    Each of the three has its own BM25 ranking, and their scores are added by weight. As fields of
    one table, they would share one length, and the name of a long file would count for little. On
    450 commits of three public repositories, the first five files for a commit's subject include
    65 % of the changed files. With weighted fields, they include 60 %.

    The index is one SQLite file that only its owner can read. It contains words and their
    positions, not the texts. Several processes may use it at the same time: readers never wait, and
    writers take turns, one batch of files each. A reader sees its own last `refresh`, or newer.

    Args:
        file: The SQLite file. None keeps the index in memory.
        generated: Whether to index generated files. All users of one file must agree.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        ConfigError: If SQLite was built without FTS5 and the index is in memory.
        StoreError: If the file is not an index, is damaged or cannot be opened. Every method may
            raise `sqlite3.Error`.
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

        A file with an unchanged size and modification time is not opened, and one with unchanged
        bytes is not indexed again. Each batch of files is one transaction, so an interruption
        leaves a valid index with the batches done so far.

        Args:
            root: The folder.
            files: The files in it.
            progress: Called before the first file and after each batch.
        """
        indexed = self._indexed()
        [last_row] = self._connection.execute("SELECT coalesce(max(row), 0) FROM files").fetchone()
        # Words of removed files stay in the tables, which have no content, and distort BM25's
        # averages. When they are most of the rows, the index starts again.
        if len(indexed) * 3 + 1000 < last_row:
            self._clear()
            indexed = {}
        removed = indexed.keys() - {file.path for file in files}
        if removed:
            with transaction(self._connection):
                rows = [(path,) for path in removed]
                self._connection.executemany("DELETE FROM files WHERE path = ?", rows)
        stale = _changed(files, indexed)
        split = lru_cache(_MAX_SPLIT_WORDS)(_split)  # the files of a folder share words
        for start in range(0, len(stale), _BATCH):
            progress("Reading what changed", start, len(stale))
            batch = stale[start : start + _BATCH]
            with transaction(self._connection):
                # Another process may have indexed some of the batch since the first query.
                indexed = self._indexed(batch)
                for file in _changed(batch, indexed):
                    self._upsert(root, file, indexed.get(file.path), split)
        progress("Reading what changed", len(stale), len(stale))
        return [file.path for file in stale]

    def search(self, query: "IndexQuery") -> dict[str, float]:
        """Return the scores of the files that share a word with the query, best first.

        Each sentence is searched for by itself, and the score of a file is the root of the sum of
        the squares. So a file that answers one sentence comes before a file that has a few words of
        each.
        """
        squares: dict[str, float] = {}
        for sentence in query.sentences:
            words = " OR ".join(f'"{word}"' for word in sentence)
            for path, score in self._connection.execute(_SEARCH, {"words": words}):
                squares[path] = squares.get(path, 0.0) + score**2
        best_first = sorted(squares, key=lambda path: (-squares[path], path))
        return {path: math.sqrt(squares[path]) for path in best_first}

    def matched_words(self, query: "IndexQuery") -> dict[str, tuple[str, ...]]:
        """Return up to four words of the query that each file or its path contains, rarest first.

        Words that are equally rare are in the order of the query. An identifier of the query stands
        for its parts, such as `getPage` for `get` and `page`.

        Args:
            query: The query that was searched for.
        """
        counts: dict[str, int] = {}
        for word in query.words:
            [counts[word]] = self._containing("count(*)", word).fetchone()
        matched: dict[str, tuple[str, ...]] = {}
        # Each word is read twice, because all lists together may take more memory than the index.
        for word in sorted(counts, key=counts.__getitem__):
            wholes = [whole for whole, parts in query.identifiers.items() if word in parts]
            shown = query.spellings.get(word, word)
            for (path,) in self._containing("path", word):
                words = matched.get(path, ())
                if len(words) < _MAX_SHOWN_WORDS and not any(whole in words for whole in wholes):
                    matched[path] = (*words, shown)
        return matched

    def _containing(self, column: str, word: str) -> sqlite3.Cursor:
        """Select a column of the files that contain a word in their text or path."""
        statement = f"SELECT {column} {_CONTAINING}"
        return self._connection.execute(statement, {"word": f'"{word}"'})

    def skip_reasons(self) -> dict[str, str]:
        """Return the reason for each file that is not searched because of its content."""
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

    def _indexed(self, files: Sequence[ListedFile] | None = None) -> dict[str, _IndexedFile]:
        """Return the entries of these files, or of all files, by path."""
        marks = "" if files is None else f" WHERE path IN ({', '.join('?' * len(files))})"
        rows = self._connection.execute(
            f"SELECT path, size, mtime_ns, sha256 FROM files{marks}",  # noqa: S608 - question marks
            [file.path for file in files or ()],
        )
        indexed: dict[str, _IndexedFile] = {}
        for path, size, mtime_ns, sha256 in rows:
            indexed[path] = _IndexedFile(ListedFile(path, size, mtime_ns), sha256)
        return indexed

    def _upsert(
        self,
        root: Path,
        file: ListedFile,
        indexed: _IndexedFile | None,
        split: Callable[[str], str],
    ) -> None:
        """Read a file, and write its entry and words unless its bytes are indexed already."""
        reason: SkipReason | None = None
        # Time 0 makes the next refresh read the file again.
        mtime_ns = file.mtime_ns if time.time_ns() - file.mtime_ns > _CLOCK_TICK_NS else 0
        content = None
        if file.size > MAX_FILE_BYTES:
            reason = "too large"
        else:
            content = ContainedFile(root, file.path).read(max_bytes=MAX_FILE_BYTES)
            if content is None:
                reason, mtime_ns = "unreadable", 0
        data = content or b""
        digest = hashlib.sha256(data + bool(reason).to_bytes()).digest()
        if indexed and indexed.sha256 == digest:
            times = (mtime_ns, file.size, file.path)
            self._connection.execute(
                "UPDATE files SET mtime_ns = ?, size = ? WHERE path = ?", times
            )
            return
        reason = reason or skip_reason_by_content(data, generated=self._generated)
        self._connection.execute("DELETE FROM files WHERE path = ?", (file.path,))
        row = self._connection.execute(
            "INSERT INTO files (path, mtime_ns, size, sha256, skip_reason) VALUES (?, ?, ?, ?, ?)",
            (file.path, mtime_ns, file.size, digest, reason),
        ).lastrowid
        if reason or content is None:
            return
        text = decoded(content[:_MAX_INDEXED_BYTES])
        names = " ".join(symbol.name for symbol in symbols_of(file.path, text))
        texts = {"contents": text, "paths": file.path, "symbols": names}
        for table, value in texts.items():
            words = " ".join(map(split, _WORD.findall(value)))
            self._connection.execute(
                f"INSERT INTO {table} (rowid, words) VALUES (?, ?)",  # noqa: S608 - our own table
                (row, words),
            )


class IndexQuery:
    """A text to search for.

    Args:
        text: Any text.

    Attributes:
        sentences: The words of each sentence, in lower case and without stop words.
        words: All these words, at most 128. That is more than a question needs, because a bug
            report may name the cause far from its beginning.
        identifiers: The parts of each word that the index has whole and in parts, such as
            `getPage`, by its spelling.
        spellings: The spelling of each such word, by the word in the index.
    """

    def __init__(self, text: str) -> None:
        words: dict[str, None] = {}
        sentences: dict[tuple[str, ...], None] = {}
        paragraphs = _PARAGRAPH_END.split(text[:_MAX_CHARS])
        for sentence in chain.from_iterable(map(sentences_in, paragraphs)):
            of_sentence: dict[str, None] = {}
            for word in split_identifiers(sentence).lower().split():
                if word not in STOP_WORDS and (word in words or len(words) < _MAX_WORDS):
                    of_sentence[word] = words[word] = None
            if of_sentence:
                sentences[tuple(of_sentence)] = None
        self.words = [*words]
        self.sentences = [*sentences][:_MAX_SENTENCES]
        self.identifiers: dict[str, list[str]] = {}
        self.spellings: dict[str, str] = {}
        for spelling in _WORD.findall(text):
            whole, *parts = split_identifiers(spelling).lower().split() or [""]
            # In scripts without spaces, the first word is only a character of the whole.
            if parts and whole == spelling.replace("_", "").lower():
                self.identifiers[spelling] = parts
                self.spellings.setdefault(whole, spelling)


def _changed(files: Sequence[ListedFile], indexed: Mapping[str, _IndexedFile]) -> list[ListedFile]:
    """Return the files that the index does not have with their size and modification time."""
    changed: list[ListedFile] = []
    for file in files:
        if file.path not in indexed or indexed[file.path].file != file:
            changed.append(file)
    return changed


def _split(word: str) -> str:
    """Return a word with its identifiers split, such as `getPage`. Numbers stay whole."""
    # Most words have nothing to split, and this test is much faster than the split.
    if word.isascii() and ((word.isalpha() and word.islower()) or word[0].isdigit()):
        return word
    return split_identifiers(word)


# The version of the tables, of how words are split and of what counts as generated. A new number
# leaves older indexes unread.
_FORMAT: Final = 4
_FILE_NAME = re.compile(r"(?P<key>[0-9a-f]{16})-(?P<generation>\d{1,6})\.sqlite")
# Errors of SQLite that a new file would not cure.
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


class IndexCache:
    """The indexes of many folders, one file each, in a cache folder.

    A problem with an index never stops a search and is reported in `notes`. A damaged index is
    never repaired, because another process may have it open. A new file with the next generation
    number replaces it. If no file can be used, the index is built in memory.

    Args:
        cache_dir: The cache folder. If missing, it is created for its owner only.
        lock_timeout_s: Seconds to wait while another process writes the same index.

    Attributes:
        notes: Problems with indexes so far, in words.
    """

    def __init__(self, cache_dir: Path, *, lock_timeout_s: float = 20.0) -> None:
        self._folder = cache_dir / "indexes"
        self._lock_timeout_s = lock_timeout_s
        self.notes: list[str] = []

    def use(
        self, root: Path, *, generated: bool, hidden: bool, work: Callable[[TreeIndex], T]
    ) -> T:
        """Call `work` with the index of a folder and return its result.

        Args:
            root: The folder, resolved.
            generated: Whether the index holds generated files.
            hidden: Whether the index holds hidden files.
            work: Refreshes and searches the index. Called again if the index was damaged.

        Raises:
            ConfigError: If SQLite was built without FTS5.
        """
        # One index per choice of files, or two concurrent calls would remove each other's files.
        name = f"{_FORMAT} {generated} {hidden} {root}"
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if hasattr(os, "geteuid") and self._folder.stat().st_uid != os.geteuid():
                raise PermissionError("the cache folder belongs to another user")
            generation = 1
            for path in self._folder.glob(f"{key}-*.sqlite"):
                if match := _FILE_NAME.fullmatch(path.name):
                    generation = max(generation, int(match["generation"]))
            file = self._folder / f"{key}-{generation}.sqlite"
            for attempt in range(2):
                try:
                    with (
                        sqlite_errors_as_store_errors(file),
                        closing(
                            TreeIndex(
                                file, generated=generated, lock_timeout_s=self._lock_timeout_s
                            )
                        ) as index,
                    ):
                        return work(index)
                except StoreError as exc:
                    if attempt or not _is_damaged(exc):
                        raise
                    self.notes.append("the index of the folder was damaged and has been rebuilt")
                    file = _next_generation(file)
        except (StoreError, OSError) as exc:
            problem = type(exc.__cause__ or exc).__name__
            self.notes.append(
                f"no index can be stored in {self._folder} ({problem}), so it was built in memory"
            )
        with closing(TreeIndex(None, generated=generated)) as index:
            return work(index)


def _next_generation(file: Path) -> Path:
    """Remove an index with SQLite's other files, and return the path that replaces it."""
    key, _, generation = file.stem.partition("-")
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            file.with_name(file.name + suffix).unlink()
    return file.with_name(f"{key}-{int(generation) + 1}.sqlite")


def _is_damaged(error: StoreError) -> bool:
    """Return whether a new file may help, unlike with a full disk or a lock."""
    if isinstance(error, LockTimeoutError | StoreFullError) or isinstance(error.__cause__, OSError):
        return False
    # Errors that Python's module raises itself have no code of SQLite.
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return code & 0xFF not in _NOT_DAMAGED
