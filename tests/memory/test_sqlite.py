"""Tests `SqliteMemory`: the contract, damaged files, locks, processes and kills."""

import asyncio
import gc
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from llm_common.errors import ConfigError, LockTimeoutError, StoreError
from llm_common.memory import Event, MemoryFilters, SqliteMemory
from llm_common.memory.overview import list_events, list_sessions
from tests.contracts.memory_contract import FactMemoryContract
from tests.forking import run_in_child
from tests.memory.stored import run_sql
from tests.memory.writers import faults, write_together

ZEBRA = MemoryFilters(session_id="s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "memory.db"


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[SqliteMemory]:
    async with SqliteMemory(path) as memory:
        yield memory


class TestSqliteMemory(FactMemoryContract):
    """The contract of every memory."""


def zebra(more: str = "") -> Event:
    return Event(text=f"zebra{more}")


async def write_zebra(path: Path) -> None:
    async with SqliteMemory(path) as memory:
        await memory.append_event("s", Event(text="zebra", metadata={"n": 1}))


async def find_zebras(path: Path) -> list[str]:
    async with SqliteMemory(path) as memory:
        return [hit.event.text for hit in await memory.retrieve("zebra", 4, ZEBRA)]


@pytest.mark.parametrize("query", ["fail", "cafe", "CAFÉS", "failed"])
async def test_english_is_stemmed_and_accents_are_ignored_s3_05(
    memory: SqliteMemory, query: str
) -> None:
    await memory.append_event("s", Event(text="several cafés were failing"))
    assert len(await memory.retrieve(query, 4, ZEBRA)) == 1


@pytest.mark.parametrize("processes", [2, pytest.param(8, marks=pytest.mark.torture)])
async def test_processes_lose_nothing_and_mix_nothing_s3_05_f_145(
    path: Path, memory: SqliteMemory, processes: int
) -> None:
    make = partial(SqliteMemory, path, lock_timeout_s=60)
    await asyncio.to_thread(write_together, make, processes=processes)
    assert not await faults(memory, processes=processes)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.torture)])
async def test_a_killed_writer_leaves_every_acknowledged_event_s3_05(
    path: Path, kills: int
) -> None:
    program = f"""
import asyncio, itertools
from llm_common.memory import Event, SqliteMemory
async def work():
    memory = SqliteMemory({str(path)!r})
    for number in itertools.count():
        await memory.append_event("s", Event(text=f"zebra {{number}}"))
        print(number, flush=True)
asyncio.run(work())
"""
    for _ in range(kills):
        process = await asyncio.to_thread(
            lambda: subprocess.Popen(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
            )
        )
        assert process.stdout is not None
        acknowledged = [await asyncio.to_thread(process.stdout.readline) for _ in range(5)]
        process.kill()
        acknowledged += await asyncio.to_thread(process.stdout.readlines)
        process.stdout.close()
        process.wait()
        async with SqliteMemory(path) as memory:
            texts = [event.text for event in await memory.recent("s", limit=100_000)]
            assert {f"zebra {line.strip()}" for line in acknowledged} <= set(texts)
            newest = await memory.retrieve("zebra", 1, ZEBRA)
            assert newest[0].event.text == texts[-1]


async def test_only_the_owner_can_read_the_files_s3_05(path: Path, memory: SqliteMemory) -> None:
    mask = os.umask(0)
    try:
        await memory.append_event("s", zebra())
        modes = [stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()]
    finally:
        os.umask(mask)
    assert modes == [0o600] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def use_all(path: Path) -> None:
    async with SqliteMemory(path) as memory:
        await memory.recent("s", limit=1_000)
        await memory.retrieve("zebra", 400, ZEBRA)
        await memory.append_event("s", zebra())


def damage(path: Path, whole: bytes, page: int) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])


async def test_a_damaged_file_raises_only_store_errors_s3_05(path: Path) -> None:
    async with SqliteMemory(path) as memory:
        for number in range(100):
            await memory.append_event("s", Event(text=f"zebra {number} " * 20))
    whole = await asyncio.to_thread(path.read_bytes)
    noticed = 0
    for page in range(len(whole) // 4096):
        damage(path, whole, page)
        try:
            await use_all(path)
        except StoreError:
            noticed += 1
    assert noticed > len(whole) // 4096 // 2


async def test_a_file_that_is_not_a_database_raises_with_its_path_s3_05(path: Path) -> None:
    path.parent.mkdir()
    damage(path, b"", 0)
    with pytest.raises(StoreError, match=f"{path} is damaged, or not a SQLite file"):
        await use_all(path)


async def test_an_unreadable_event_raises_s3_05(path: Path, memory: SqliteMemory) -> None:
    await write_zebra(path)
    run_sql(path, "UPDATE events SET metadata = '{'")
    with pytest.raises(StoreError, match="damaged"):
        await find_zebras(path)
    with pytest.raises(StoreError, match="damaged"):
        await list_events(memory, session_id="s", limit=9)
    run_sql(path, "UPDATE events SET timestamp = 'noon'")
    with pytest.raises(StoreError, match="damaged"):
        await list_sessions(memory, limit=9)


async def test_the_database_of_another_program_is_not_changed_s3_05(path: Path) -> None:
    path.parent.mkdir()
    run_sql(path, "CREATE TABLE theirs (x)")
    before = await asyncio.to_thread(path.read_bytes)
    with pytest.raises(StoreError, match="another kind"):
        await find_zebras(path)
    assert await asyncio.to_thread(path.read_bytes) == before


async def test_a_newer_file_raises_and_an_empty_file_is_migrated_s3_05(path: Path) -> None:
    path.parent.mkdir()
    path.open("x").close()
    await write_zebra(path)
    assert run_sql(path, "PRAGMA user_version") == [(2,)]
    run_sql(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="Upgrade"):
        await find_zebras(path)


@pytest.mark.parametrize(
    "bad", ["", "memory.db/inside", "."], ids=["a-folder", "under-a-file", "here"]
)
async def test_a_path_that_cannot_be_a_file_raises_s3_05(path: Path, bad: str) -> None:
    await write_zebra(path)
    with pytest.raises(StoreError):
        await find_zebras(path.parent / bad)


async def test_waiting_too_long_for_another_writer_raises_s3_05(path: Path) -> None:
    await write_zebra(path)
    async with SqliteMemory(path, lock_timeout_s=0.05) as memory:
        with another_process_that_writes(path):
            with pytest.raises(LockTimeoutError):
                await memory.append_event("s", Event(text="late"))
            assert len(await memory.retrieve("zebra", 4, ZEBRA)) == 1
        await memory.append_event("s", zebra())
        assert len(await memory.recent("s")) == 2


async def test_a_full_disk_raises_and_keeps_stored_events_s3_05(memory: SqliteMemory) -> None:
    await memory.append_event("s", zebra())
    connection = memory._writer.connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 30")
    with pytest.raises(StoreError, match="No space"):
        await memory.append_event("s", zebra(" zebra" * 100_000))
    assert [event.text for event in await memory.recent("s")] == ["zebra"]
    await memory.append_event("s", zebra(" again"))
    assert len(await memory.retrieve("zebra", 4, ZEBRA)) == 2


async def test_a_closed_memory_raises_s3_05(path: Path) -> None:
    memory = SqliteMemory(path)
    await memory.aclose()
    with pytest.raises(StoreError, match="closed"):
        await memory.recent("s")
    assert not list(path.parent.parent.iterdir())


def descriptors_of(path: Path) -> int:
    """Count the descriptors of this process that are open on the file."""
    return open_inodes().count(path.stat().st_ino)


def open_inodes() -> list[int]:
    inodes = []
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing is closed by now
            inodes.append(os.fstat(int(descriptor.name)).st_ino)
    return inodes


async def test_a_deleted_memory_closes_its_file_s3_05(path: Path) -> None:
    memory = SqliteMemory(path)
    await memory.append_event("s", zebra())
    assert descriptors_of(path) > 0
    del memory
    for _ in range(100):  # the thread drops its reference a moment after it returns
        gc.collect()
        if descriptors_of(path) == 0:
            break
        await asyncio.sleep(0.02)
    assert descriptors_of(path) == 0


async def test_the_event_loop_never_waits_for_the_disk_s3_05(
    path: Path, blockbuster: BlockBuster
) -> None:
    await write_zebra(path)
    assert await find_zebras(path) == ["zebra"]


async def test_a_cancelled_call_leaves_the_memory_usable_s3_05(memory: SqliteMemory) -> None:
    appending = [asyncio.create_task(memory.append_event("s", zebra())) for _ in range(20)]
    await asyncio.sleep(0)
    for task in appending:
        task.cancel()
    await asyncio.gather(*appending, return_exceptions=True)
    await memory.append_event("s", zebra(" at last"))
    events = await memory.recent("s", limit=100)
    assert events[-1].text == "zebra at last"
    assert len(await memory.retrieve("zebra", 100, ZEBRA)) == len(events)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process_that_writes(path: Path) -> Iterator[None]:
    """Run a process that holds the file's write lock during the block."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()


async def test_reads_do_not_wait_and_writes_share_a_deadline_s3_05_f_169(
    path: Path,
) -> None:
    await write_zebra(path)
    async with SqliteMemory(path, lock_timeout_s=1.0) as memory:
        await memory.append_event("s", Event(text="zebra"))
        with another_process_that_writes(path):
            start = time.monotonic()
            appends = [
                asyncio.create_task(memory.append_event("s", Event(text="late"))) for _ in range(6)
            ]
            await asyncio.sleep(0)
            for _ in range(5):
                assert (
                    len(await memory.recent("s"))
                    == len(await memory.retrieve("zebra", 4, ZEBRA))
                    == 2
                )
            assert not any(append.done() for append in appends)
            errors = await asyncio.gather(*appends, return_exceptions=True)
            waited = time.monotonic() - start
        assert [type(error) for error in errors] == [LockTimeoutError] * 6
        assert 1.0 <= waited < 5  # one after the other they would take 6 s
        await memory.append_event("s", Event(text="zebra again"))
        assert [event.text for event in await memory.recent("s")] == [
            "zebra",
            "zebra",
            "zebra again",
        ]


async def test_a_memory_opens_while_another_process_writes_s3_05_f_169(path: Path) -> None:
    await write_zebra(path)
    with another_process_that_writes(path):
        assert await find_zebras(path) == ["zebra"]


def remove_all(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


CHANGES: dict[str, Callable[[Path], object]] = {
    "remove": Path.unlink,
    "remove_all": remove_all,
    "replace": lambda path: Path(shutil.copy(path, path.with_name("other"))).rename(path),
    "move_the_folder": lambda path: path.parent.rename(path.parent.with_name("moved")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_deleted_or_replaced_file_raises_f_175(
    path: Path, memory: SqliteMemory, change: Callable[[Path], object]
) -> None:
    await memory.append_event("s", zebra())
    await asyncio.to_thread(change, path)
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{path} was deleted or replaced"):
            await memory.append_event("s", Event(text="in vain"))
        with pytest.raises(StoreError, match="make another memory"):
            await memory.recent("s")
    await memory.aclose()
    await write_zebra(path)
    assert "zebra" in await find_zebras(path)


async def test_a_file_deleted_before_the_first_write_raises_f_175(path: Path) -> None:
    await write_zebra(path)
    async with SqliteMemory(path) as memory:  # opened for reading, not yet for writing
        remove_all(path)
        with pytest.raises(StoreError, match="deleted"):
            await memory.append_event("s", Event(text="in vain"))
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("bad", ["", " ", ":memory:"])
def test_a_path_without_a_file_name_raises(bad: str) -> None:
    with pytest.raises(ConfigError, match="use InMemoryMemory"):
        SqliteMemory(bad)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_an_invalid_timeout_raises(path: Path, bad: float) -> None:
    with pytest.raises(ConfigError, match="lock_timeout_s"):
        SqliteMemory(path, lock_timeout_s=bad)


def test_a_forked_child_uses_the_memory_of_its_parent_f_201(path: Path) -> None:
    async def append(text: str) -> None:
        await memory.append_event("s", zebra(f" {text}"))

    def use_in_child() -> None:
        # SQLite must not have it open on both sides of a fork.
        assert descriptors_of(path) == 0
        for number in range(20):
            asyncio.run(append(f"child {number}"))

    async def append_until_stopped() -> None:
        while not stopped.is_set():
            await append("parent")

    memory, stopped = SqliteMemory(path, lock_timeout_s=60), threading.Event()
    asyncio.run(append("parent"))
    thread = threading.Thread(target=lambda: asyncio.run(append_until_stopped()))
    thread.start()
    try:
        for _ in range(3):
            assert run_in_child(use_in_child) == 0
    finally:
        stopped.set()
        thread.join()
    asyncio.run(append("parent"))
    texts = [event.text for event in asyncio.run(memory.recent("s", limit=10_000))]
    assert texts.count("zebra child 19") == 3
    asyncio.run(memory.aclose())
    assert run_sql(path, "PRAGMA integrity_check") == [("ok",)]
