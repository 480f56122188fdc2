"""Where the index of a folder is kept, and what happens when it cannot be."""

import hashlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from llm_common._env import XDG_CACHE_HOME, read_path
from llm_common.folders.tree_index import TreeIndex

__all__ = ["IndexFolder", "default_cache_dir"]

_FORMAT: Final = 1  # of the tables and of how words are split; another number leaves older indexes unread
_FILE_NAME = re.compile(r"(?P<key>[0-9a-f]{16})-(?P<generation>\d{1,6})\.sqlite")
_NOT_DAMAGED: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
T = TypeVar("T")


def default_cache_dir() -> Path:
    """The folder for this user's caches of this library, as the platform has it; it need not exist."""
    if chosen := read_path(XDG_CACHE_HOME):
        return chosen / "llm-common"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/llm-common"
    if sys.platform == "win32":
        return Path.home() / "AppData/Local/llm-common/Cache"
    return Path.home() / ".cache/llm-common"


class IndexFolder:
    """The indexes of many folders, each in a file of its own, below a cache folder.

    An index is a cache: whatever is wrong with it, the work is done all the same, and `notes` says how. A damaged one
    is left for a new file under the next number, never mended in place, since another process may have it open. Where
    none can be kept, one in memory serves.

    Args:
        cache_dir: The cache folder; made, for its owner alone, when it is missing.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._folder = cache_dir / "indexes"
        self.notes: list[str] = []

    def use(self, root: Path, *, generated: bool, hidden: bool, work: Callable[[TreeIndex], T]) -> T:
        """What the work returns on the index of a folder; it may be done again when the index turns out damaged.

        Args:
            root: The folder, resolved.
            generated: Whether the index takes in generated files.
            hidden: Whether it takes in hidden ones.
            work: Refreshes the index and asks it.

        Raises:
            ConfigError: SQLite was built without FTS5.
        """
        # One index for each choice of files, or two commands at once would undo each other's.
        name = f"{_FORMAT} {generated} {hidden} {root}"
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        try:
            self._make()
            file = self._newest(key)
            for attempt in range(2):
                try:
                    with TreeIndex(file, generated=generated) as index:
                        return work(index)
                except sqlite3.Error as exc:
                    if attempt or not _is_damage(exc):
                        raise
                    self.notes.append("the index of the folder was damaged; it was built anew")
                    file = _next_generation(file)
        except (sqlite3.Error, OSError) as exc:
            self.notes.append(f"no index can be kept in {self._folder} ({type(exc).__name__}); it was built in memory")
        with TreeIndex(None, generated=generated) as index:
            return work(index)

    def _make(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "geteuid") and self._folder.stat().st_uid != os.geteuid():
            raise PermissionError("the cache folder belongs to another user")

    def _newest(self, key: str) -> Path:
        """The file of the highest generation, or the first one's name."""
        names = (_FILE_NAME.fullmatch(file.name) for file in self._folder.glob(f"{key}-*.sqlite"))
        generation = max((int(name["generation"]) for name in names if name), default=1)
        return self._folder / f"{key}-{generation}.sqlite"


def _next_generation(file: Path) -> Path:
    """The name that follows; the file is gone with what SQLite keeps beside it."""
    key, _, generation = file.stem.partition("-")
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            file.with_name(file.name + suffix).unlink()
    return file.with_name(f"{key}-{int(generation) + 1}.sqlite")


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)  # none where this module and not SQLite complains
    return code is None or code & 0xFF not in _NOT_DAMAGED
