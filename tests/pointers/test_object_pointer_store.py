"""The pointer store over every store of bytes.

And, on a server process that speaks S3, many processes and kills.
"""

import asyncio
import itertools
import random
import time
import uuid
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import obstore.store
import pytest
from blockbuster import BlockBuster

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    ObjectContextPointerStore,
)
from llm_common.errors import StoreError
from tests.contracts.pointer_contract import ContextPointerStoreContract
from tests.pointers.campaigns.children import PROCESSES, child, heard_until_the_end
from tests.s3_server import make_bucket, s3_options

PROCESSES.set_forkserver_preload(["tests.pointers.test_object_pointer_store"])

MAX_BYTES = 2_000_000


class TestInFiles(ContextPointerStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ContextPointerStore:
        return FileContextPointerStore(tmp_path, durability="rename", max_result_bytes=MAX_BYTES)


class TestInMemory(ContextPointerStoreContract):
    @pytest.fixture
    def store(self) -> ContextPointerStore:
        return InMemoryContextPointerStore(max_result_bytes=MAX_BYTES)


class TestInObjectsInMemory(ContextPointerStoreContract):
    @pytest.fixture
    def store(self) -> ContextPointerStore:
        return ObjectContextPointerStore(obstore.store.MemoryStore(), max_result_bytes=MAX_BYTES)


@pytest.mark.torture
class TestOnS3(ContextPointerStoreContract):
    @pytest.fixture
    def store(self, s3_endpoint: str) -> ContextPointerStore:
        return s3_store(s3_endpoint, new_bucket(s3_endpoint))


def new_bucket(endpoint: str) -> str:
    name = f"b{uuid.uuid4().hex}"
    make_bucket(endpoint, name)
    return name


def s3_store(endpoint: str, bucket: str) -> ObjectContextPointerStore:
    url = f"s3://{bucket}/some/prefix"
    return ObjectContextPointerStore.from_url(
        url, max_result_bytes=MAX_BYTES, **s3_options(endpoint)
    )


async def save(
    store: ContextPointerStore, result: Any, name: str = "call", /, **options: Any
) -> ContextPointer:
    return await store.save(
        query_id="q", task_id=None, tool_name="tool", args={"n": name}, result=result, **options
    )


async def test_a_query_of_files_can_be_copied_into_a_bucket_s0_10_s0_12(tmp_path: Path) -> None:
    files = FileContextPointerStore(tmp_path, durability="rename")
    for number in range(3):
        await save(files, number, "same")
        await save(files, number, str(number))
    kept = files.list(query_id="q")
    objects = obstore.store.MemoryStore()
    for path in (tmp_path / "q").glob("*.json"):
        objects.put(f"q/{path.name}", path.read_bytes())
    store = ObjectContextPointerStore(objects)
    assert store.list(query_id="q") == kept
    assert [store.load_result(pointer=pointer) for pointer in kept] == [0, 1, 2, 2]
    again = await save(store, "once more", "same")
    assert again.pointer_id in {pointer.pointer_id for pointer in kept}
    assert len(store.list(query_id="q")) == 4
    assert (await store.verify()).is_clean


async def test_saving_never_blocks_the_event_loop_s0_20(blockbuster: BlockBuster) -> None:
    store = ObjectContextPointerStore(obstore.store.MemoryStore())
    saving, turns = asyncio.ensure_future(save(store, "x" * 500_000)), 0
    while not saving.done():
        await asyncio.sleep(0)
        turns += 1
    await saving
    assert turns > 1


def test_a_directory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = ObjectContextPointerStore.from_url(tmp_path.as_uri())
    with pytest.raises(StoreError, match="FileContextPointerStore"):
        asyncio.run(save(store, 1))
    assert [path.name for path in tmp_path.iterdir()] == [".conditions"]


def content(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "n": number, "body": f"{name}-{number} " * (3_000 if number % 2 else 30)}


def write(
    told: Connection, endpoint: str, bucket: str, name: str, numbers: range | None, *, same: bool
) -> None:
    """Save one result after another, and report the index of each completed save."""

    async def work() -> None:
        store = s3_store(endpoint, bucket)
        for number in itertools.count() if numbers is None else numbers:
            await save(store, content(name, number), "same" if same else f"{name} {number}")
            told.send(number)

    asyncio.run(work())


def writer(
    endpoint: str, bucket: str, name: str, *, same: bool, numbers: range | None = None
) -> AbstractContextManager[tuple[BaseProcess, Connection]]:
    return child(write, endpoint, bucket, name, numbers, same=same)


def look(store: ContextPointerStore) -> tuple[set[tuple[str, int]], Counter[str]]:
    """Return the listed results, and the number of problems by kind."""
    wrong, found = Counter[str](), set()
    listing = store.list_detailed(query_id="q")
    wrong["skipped"] += listing.skipped
    for pointer in listing.pointers:
        try:
            result = store.load_result(pointer=pointer)
        except StoreError as exc:
            wrong[type(exc).__name__] += 1
        else:
            wrong["mixed"] += result != content(result["name"], result["n"])
            found.add((result["name"], result["n"]))
    return found, +wrong


def assert_saves_at_once_are_kept(endpoint: str, *, processes: int, saves: int, same: bool) -> None:
    """Check that concurrent saves of several processes are whole at all times and complete."""
    bucket = new_bucket(endpoint)
    store = s3_store(endpoint, bucket)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                writer(endpoint, bucket, f"w{number}", same=same, numbers=range(saves))
            )
            for number in range(processes)
        ]
        writers[0][1].recv()
        while any(process.is_alive() for process, _ in writers):
            found, wrong = look(store)
            assert not wrong
            assert found
            assert not same or len(found) == 1
            time.sleep(0.05)
        assert [process.exitcode for process, _ in writers] == [0] * processes
        told = [heard_until_the_end(heard) for _, heard in writers]
        assert [len(numbers) for numbers in told] == [saves - 1, *[saves] * (processes - 1)]
    found, wrong = look(store)
    everything = {(f"w{number}", one) for number in range(processes) for one in range(saves)}
    assert not wrong
    assert found <= {(name, saves - 1) for name, _ in everything} if same else found == everything
    assert asyncio.run(store.verify()).is_clean


@pytest.mark.torture
@pytest.mark.parametrize("same", [False, True], ids=["different-calls", "one-call"])
def test_eight_processes_of_fifty_saves_lose_and_tear_nothing_s0_05_s0_18_f_072(
    s3_endpoint: str, same: bool
) -> None:
    assert_saves_at_once_are_kept(s3_endpoint, processes=8, saves=50, same=same)


def kill_while_saving(endpoint: str, *, kills: int, same: bool) -> Counter[str]:
    """Kill writers at random moments, and return the problems and the missing saves."""
    chance, wrong = random.Random(7), Counter[str]()
    saved, found = set[tuple[str, int]](), set[tuple[str, int]]()
    bucket = new_bucket(endpoint)
    store = s3_store(endpoint, bucket)
    for number in range(kills):
        with writer(endpoint, bucket, f"w{number}", same=same) as (process, heard):
            told = [heard.recv()]
            time.sleep(chance.uniform(0, 0.04))
            process.kill()
            told += heard_until_the_end(heard)
        saved |= {(f"w{number}", one) for one in told}
        if same or number == kills - 1:
            found, faults = look(store)
            wrong += faults
            wrong["nothing listed"] += not found
    if not same:
        wrong["missing"] = len(saved - found)
    return +wrong


@pytest.mark.torture
@pytest.mark.parametrize("same", [False, True], ids=["first-saves", "later-saves"])
def test_a_hundred_kills_leave_nothing_torn_s0_18_f_066(s3_endpoint: str, same: bool) -> None:
    assert not kill_while_saving(s3_endpoint, kills=100, same=same)
