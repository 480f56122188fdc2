"""A private SQLite file: opened and migrated, with errors as `StoreError`."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from llm_common.errors import LockTimeoutError, StoreError, StoreFullError

_PRIMARY_CODE: Final = 0xFF  # an extended error code's lowest byte is the plain one


def open_sqlite(
    path: Path, *, application_id: int, migrations: Sequence[Sequence[str]], lock_timeout_s: float
) -> sqlite3.Connection:
    """A connection to the file, made with mode 0600 if missing, and migrated.

    Any number of processes of one machine may read it while one of them writes (write-ahead log).

    Args:
        path: The file; missing folders are made with mode 0700.
        application_id: Marks files of this kind.
        migrations: The statements that each version adds; an older file gets those it lacks.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        StoreError: The file is damaged, of another kind, of a newer version, or cannot be opened.
        LockTimeoutError: Other processes held the lock for `lock_timeout_s`.
    """
    with sqlite_errors_as_store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only a new file is opened here: closing a descriptor of an open database would end
        # SQLite's locks on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            if _version(connection, application_id, len(migrations)) < len(migrations):
                _migrate(connection, application_id, migrations)
            _use_wal(connection, lock_timeout_s)
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


def open_sqlite_to_read(
    path: Path, *, application_id: int, version: int, lock_timeout_s: float
) -> sqlite3.Connection:
    """A connection to a file that is there, which changes neither the file nor its log.

    Where the file has a write-ahead log, its writers are followed, and SQLite makes the log's index
    if it is missing. Without a log the file is taken as it is: what another process begins to write
    meanwhile may not be seen.

    Args:
        path: The file.
        application_id: Marks files of this kind.
        version: Of the statements that the caller reads it by.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        StoreError: There is no such file, or it is damaged, of another kind or of another version.
    """
    with sqlite_errors_as_store_errors(path):
        if not path.is_file():
            raise StoreError(f"{path} is not there; name the file of a memory")
        log = path.with_name(f"{path.name}-wal")
        mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
        address = f"file:{quote(str(path))}?{mode}"
        connection = sqlite3.connect(
            address, uri=True, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            found = _version(connection, application_id, version)
        except BaseException:
            connection.close()
            raise
        if found == version:
            return connection
        connection.close()
        raise StoreError(
            f"{path} is of the older version {found}; "
            "let a program write to it once, which migrates it"
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A block under the write lock, whose writes are committed together or not at all."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def sqlite_errors_as_store_errors(path: Path) -> Iterator[None]:
    """A block whose SQLite and system errors are raised as `StoreError`."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _store_error(getattr(exc, "sqlite_errorcode", 0) & _PRIMARY_CODE, path) from exc
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be opened ({type(exc).__name__}); check the folder's permissions"
        ) from exc


def _store_error(code: int, path: Path) -> StoreError:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(
            f"{path} is damaged, or no SQLite file; move it away, or put a backup in its place"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(f"no room left for {path}; free some, nothing was written")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockTimeoutError(
            f"{path} stayed locked; raise lock_timeout_s, or stop the process that hangs"
        )
    return StoreError(
        f"SQLite cannot use {path} (error {code}); check the file, its folder and their permissions"
    )


def _migrate(
    connection: sqlite3.Connection, application_id: int, migrations: Sequence[Sequence[str]]
) -> None:
    with transaction(connection):
        # another process may have been first
        version = _version(connection, application_id, len(migrations))
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
        raise StoreError(
            f"the file is of version {version}, newer than this llm-common; upgrade it"
        )
    return int(version)


def _use_wal(connection: sqlite3.Connection, lock_timeout_s: float) -> None:
    """Turns on the write-ahead log, which the file remembers."""

    def is_busy(exc: BaseException) -> bool:
        return (
            isinstance(exc, sqlite3.OperationalError)
            and exc.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
        )

    # SQLite's own timeout does not cover the lock that this takes.
    retrying = Retrying(
        retry=retry_if_exception(is_busy),
        stop=stop_after_delay(lock_timeout_s),
        wait=wait_random_exponential(multiplier=0.004, max=0.05),
        reraise=True,
    )
    retrying(connection.execute, "PRAGMA journal_mode = WAL")
