"""A SQLite file of the library's own."""

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from llm_common.errors import LockTimeoutError, StoreError
from llm_common.storage.sqlite_file import (
    open_sqlite,
    open_sqlite_to_read,
    sqlite_errors_as_store_errors,
    transaction,
)

FIRST = ("CREATE TABLE rain (day TEXT) STRICT",)
SECOND = ("ALTER TABLE rain ADD COLUMN litres REAL NOT NULL DEFAULT 0",)


def opened(
    path: Path, *migrations: Sequence[str], application_id: int = 7, wait: float = 5.0
) -> sqlite3.Connection:
    return open_sqlite(
        path, application_id=application_id, migrations=migrations, lock_timeout_s=wait
    )


def test_a_new_file_is_private_and_of_the_newest_version(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "made" / "rain.db", FIRST, SECOND)) as connection:
        connection.execute("INSERT INTO rain VALUES ('monday', 2)")
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        modes = {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "made").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


def test_an_older_file_is_migrated(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "rain.db", FIRST)) as connection:
        connection.execute("INSERT INTO rain VALUES ('monday')")
    with closing(opened(tmp_path / "rain.db", FIRST, SECOND)) as connection:
        assert connection.execute("SELECT * FROM rain").fetchall() == [("monday", 0.0)]


def test_concurrent_openers_of_a_new_file_all_succeed(tmp_path: Path) -> None:
    def write(number: int) -> None:
        with closing(opened(tmp_path / "rain.db", FIRST, SECOND)) as connection:
            connection.execute("INSERT INTO rain VALUES (?, 1)", (str(number),))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(24)))
    with closing(opened(tmp_path / "rain.db", FIRST, SECOND)) as connection:
        assert connection.execute("SELECT count(*) FROM rain").fetchone() == (24,)


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "rain.db", FIRST)) as connection:
        with suppress(RuntimeError), transaction(connection):
            connection.execute("INSERT INTO rain VALUES ('monday')")
            raise RuntimeError
        assert connection.execute("SELECT * FROM rain").fetchall() == []


def test_waiting_for_another_writer_ends(tmp_path: Path) -> None:
    path = tmp_path / "rain.db"
    with (
        closing(opened(path, FIRST)) as busy,
        closing(opened(path, FIRST, wait=0.05)) as waiting,
        transaction(busy),
    ):
        begun = transaction(waiting)
        with pytest.raises(LockTimeoutError), sqlite_errors_as_store_errors(path):
            begun.__enter__()


def test_damage_and_directories_are_store_errors_without_contents(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a secret, and no database at all " * 99)
    with pytest.raises(StoreError, match="or not a SQLite file") as caught:
        opened(tmp_path / "text", FIRST)
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError):
        opened(tmp_path, FIRST)
    with pytest.raises(StoreError, match="permissions"):
        opened(tmp_path / "text" / "below.db", FIRST)


def read(path: Path, *, version: int, application_id: int = 7) -> sqlite3.Connection:
    return open_sqlite_to_read(
        path, application_id=application_id, version=version, lock_timeout_s=5.0
    )


def test_a_read_only_file_includes_its_log(tmp_path: Path) -> None:
    path = tmp_path / "a file?.db"
    with closing(opened(path, FIRST)) as writer:
        writer.execute("INSERT INTO rain VALUES ('monday')")
        with closing(read(path, version=1)) as reader:
            assert reader.execute("SELECT day FROM rain").fetchall() == [("monday",)]
            with pytest.raises(sqlite3.OperationalError):
                reader.execute("INSERT INTO rain VALUES ('tuesday')")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with closing(read(path, version=1)) as reader:
        assert reader.execute("SELECT day FROM rain").fetchall() == [("monday",)]
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_reading_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        read(tmp_path / "absent.db", version=1)
    assert not any(tmp_path.iterdir())


def descriptors_of(path: Path) -> int:
    """Return how many descriptors of this process are open on a file."""
    status = path.stat()
    count = 0
    for descriptor in range(512):
        with suppress(OSError):
            count += os.path.samestat(os.fstat(descriptor), status)
    return count


REFUSED: dict[str, Callable[[Path], sqlite3.Connection]] = {
    "newer": lambda path: opened(path, FIRST),
    "another kind": lambda path: opened(path, FIRST, SECOND, application_id=8),
    "older version 2": lambda path: read(path, version=3),
    "of another kind": lambda path: read(path, version=2, application_id=8),
}


@pytest.mark.parametrize(("words", "use"), REFUSED.items(), ids=REFUSED)
def test_a_file_that_is_refused_is_left_alone_and_closed(
    tmp_path: Path, words: str, use: Callable[[Path], sqlite3.Connection]
) -> None:
    path = tmp_path / "rain.db"
    opened(path, FIRST, SECOND).close()
    content, descriptors = path.read_bytes(), descriptors_of(path)
    with pytest.raises(StoreError, match=words):
        use(path)
    assert descriptors_of(path) == descriptors
    assert path.read_bytes() == content


def test_a_file_with_an_empty_log_is_read_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "rain.db"
    with closing(opened(path, FIRST)) as writer:
        writer.execute("INSERT INTO rain VALUES ('monday')")
    log = path.with_name("rain.db-wal")
    log.write_bytes(b"")
    with closing(read(path, version=1)) as reader:
        assert reader.execute("SELECT day FROM rain").fetchall() == [("monday",)]
        assert sorted(each.name for each in tmp_path.iterdir()) == ["rain.db", "rain.db-wal"]
