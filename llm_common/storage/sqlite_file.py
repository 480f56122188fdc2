"""A SQLite file of the library's own: opened, private, of the right version, its errors ours."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from llm_common.errors import LockTimeoutError, StoreError, StoreFullError

__all__ = ["as_store_errors", "open_sqlite", "transaction"]

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.05
_PRIMARY_CODE: Final = 0xFF  # an extended error code's lowest byte is the plain one


def open_sqlite(
    path: Path, *, application_id: int, migrations: Sequence[Sequence[str]], lock_timeout_s: float
) -> sqlite3.Connection:
    """A connection to the file, which is made if there is none, readable by its owner alone, and brought up to date.

    Readers and one writer work side by side (write-ahead log), in any number of processes of one machine.

    Args:
        path: Where it is; missing folders are made for its owner alone.
        application_id: Tells this kind of file from others.
        migrations: The statements that each version adds; a file of an older version gets the rest.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        StoreError: The file is damaged, of another kind, of a newer version, or cannot be opened.
        LockTimeoutError: Other processes wrote all the time.
    """
    with as_store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only ever created here: closing a descriptor of an open database would end SQLite's locks on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False)
        try:
            if _version(connection, application_id, len(migrations)) < len(migrations):
                _migrate(connection, application_id, migrations)
            _use_wal(connection, time.monotonic() + lock_timeout_s)
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A block that writes alone, and whose writes are kept together or not at all."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    """A block whose errors of SQLite and the system leave as ours, naming the file and nothing that it holds."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _store_error(getattr(exc, "sqlite_errorcode", 0) & _PRIMARY_CODE, path) from exc
    except OSError as exc:
        raise StoreError(f"{path} cannot be opened ({type(exc).__name__}); check the folder and its rights") from exc


def _store_error(code: int, path: Path) -> StoreError:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(f"{path} is damaged, or no SQLite file; move it away, or put a backup in its place")
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(f"no room left for {path}; free some, nothing was written")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockTimeoutError(f"other processes kept {path} locked; raise lock_timeout_s, or end the one that hangs")
    return StoreError(f"SQLite cannot use {path} (error {code}); check the file, its folder and their rights")


def _migrate(connection: sqlite3.Connection, application_id: int, migrations: Sequence[Sequence[str]]) -> None:
    with transaction(connection):
        version = _version(connection, application_id, len(migrations))  # another process may have been faster
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute(f"PRAGMA application_id = {application_id}")


def _version(connection: sqlite3.Connection, application_id: int, newest: int) -> int:
    """The version of the file, 0 for an empty one."""
    # The tables first: they are committed together with the id that is read after them.
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    [found_id] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if tables and found_id != application_id:
        raise StoreError("the file is a database of another kind; choose another path")
    if version > newest:
        raise StoreError(f"the file is of version {version}, newer than this llm-common; upgrade it")
    return int(version)


def _use_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """The file remembers it. SQLite does not wait for the lock that this takes."""
    pause = _FIRST_PAUSE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
