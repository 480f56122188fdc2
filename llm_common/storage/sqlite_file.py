"""Private SQLite files: open them, migrate them, and translate their errors."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from llm_common.errors import LockTimeoutError, StoreError, StoreFullError

# The lowest byte of an extended error code is its primary code (sqlite.org/rescode.html).
_PRIMARY_CODE: Final = 0xFF


def open_sqlite(
    path: Path, *, application_id: int, migrations: Sequence[Sequence[str]], lock_timeout_s: float
) -> sqlite3.Connection:
    """Open a SQLite file, create it if it is missing, and migrate it.

    Any number of processes on one machine can read the file while one writes (write-ahead log). A
    new file has mode 0600, a new folder 0700.

    Args:
        path: The file.
        application_id: Marks files of this kind.
        migrations: The statements of each version. An older file gets those it lacks.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        StoreError: If the file is damaged, of another kind or of a newer version, or cannot be
            opened.
        LockTimeoutError: If other processes held the lock for `lock_timeout_s`.
    """
    with sqlite_errors_as_store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Opens new files only: closing any descriptor of an open database ends SQLite's POSIX locks
        # on it (sqlite.org/howtocorrupt.html, 2.2).
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(
            path, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            if _version(connection, application_id, len(migrations)) < len(migrations):
                _migrate(connection, application_id, migrations)
            _use_wal(connection, lock_timeout_s)
            # With a write-ahead log, NORMAL keeps the file consistent. A power failure can undo the
            # newest transactions.
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


def open_sqlite_to_read(
    path: Path, *, application_id: int, version: int, lock_timeout_s: float
) -> sqlite3.Connection:
    """Open an existing SQLite file without changing the file or its write-ahead log.

    If the file has a log, the connection sees what other processes commit. SQLite then creates a
    missing index of the log. Without a log, later writes of other processes may not be visible.

    Args:
        path: The file.
        application_id: Marks files of this kind.
        version: The version that the caller can read.
        lock_timeout_s: Seconds to wait while another process writes.

    Raises:
        StoreError: If the file is missing, damaged, of another kind or of another version.
    """
    with sqlite_errors_as_store_errors(path):
        if not path.is_file():
            raise StoreError(f"{path} does not exist. Name the file of a memory")
        log = path.with_name(f"{path.name}-wal")
        # `immutable` reads a file in a read-only folder too, where no index can be created.
        mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
        address = f"file:{quote(str(path))}?{mode}"
        connection = sqlite3.connect(
            address, uri=True, timeout=lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            file_version = _version(connection, application_id, version)
        except BaseException:
            connection.close()
            raise
        if file_version == version:
            return connection
        connection.close()
        raise StoreError(
            f"{path} has the older version {file_version}. "
            "Let a program write to it once, which migrates it"
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block under the write lock, and commit all of its writes or none."""
    with connection:
        # A deferred transaction would fail at its first write, without waiting, if another process
        # has written since its first read.
        connection.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def sqlite_errors_as_store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite and system errors of the block into a `StoreError`."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _store_error(getattr(exc, "sqlite_errorcode", 0) & _PRIMARY_CODE, path) from exc
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be opened ({type(exc).__name__}). Check the folder's permissions"
        ) from exc


def _store_error(code: int, path: Path) -> StoreError:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(
            f"{path} is damaged, or not a SQLite file. Move it away, or restore a backup"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(f"No space left for {path}, and nothing was written. Free some")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LockTimeoutError(
            f"{path} stayed locked. Raise lock_timeout_s, or stop the process that hangs"
        )
    return StoreError(
        f"SQLite cannot use {path} (error {code}). Check the file, its folder and their permissions"
    )


def _migrate(
    connection: sqlite3.Connection, application_id: int, migrations: Sequence[Sequence[str]]
) -> None:
    with transaction(connection):
        # Read again under the lock: another process may have migrated the file.
        version = _version(connection, application_id, len(migrations))
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        # PRAGMA takes no parameters. Both values are integers of the program.
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute(f"PRAGMA application_id = {application_id}")


def _version(connection: sqlite3.Connection, application_id: int, newest: int) -> int:
    """Return the version of the file, 0 for an empty file."""
    # Tables before the id, because another process commits both together. The reverse order could
    # see tables that have no id yet.
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    [file_id] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if tables and file_id != application_id:
        raise StoreError("The file is a database of another kind. Choose another path")
    if version > newest:
        raise StoreError(
            f"The file has version {version}, newer than this llm-common. Upgrade llm-common"
        )
    return int(version)


def _use_wal(connection: sqlite3.Connection, lock_timeout_s: float) -> None:
    """Turn on the write-ahead log, which the file remembers."""

    def is_busy(exc: BaseException) -> bool:
        return (
            isinstance(exc, sqlite3.OperationalError)
            and exc.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
        )

    # SQLite's own timeout does not cover the exclusive lock that this statement needs.
    retrying = Retrying(
        retry=retry_if_exception(is_busy),
        stop=stop_after_delay(lock_timeout_s),
        wait=wait_random_exponential(multiplier=0.004, max=0.05),
        reraise=True,
    )
    retrying(connection.execute, "PRAGMA journal_mode = WAL")
