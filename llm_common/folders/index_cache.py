"""`IndexCache`: where the indexes of folders are kept, and what serves when they cannot be."""

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
from llm_common.errors import ConfigError, LockTimeoutError, StoreError, StoreFullError
from llm_common.folders.tree_index import TreeIndex
from llm_common.storage.sqlite_file import sqlite_errors_as_store_errors

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
