"""Saves of one query that come while another is on its way are committed together, and each has its own outcome."""

import asyncio
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from llm_common.errors import LockTimeoutError, StoreFullError
from llm_common.pointers.pointer import ContextPointer, compute_pointer_id
from llm_common.pointers.store import ContextPointerStore, FileContextPointerStore
from llm_common.storage import FileBlobStore, MemoryBlobStore

Outcome = ContextPointer | BaseException


class CountingBlobStore(MemoryBlobStore):
    """Knows how many were put together, and has no room for some keys."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = refused
        self.together: list[int] = []

    def put(self, key: str, data: bytes) -> None:
        if key.endswith(self.refused):
            raise StoreFullError("No room left in the store")
        super().put(key, data)

    def put_all(self, folder: str, blobs: Iterable[tuple[str, bytes]]) -> None:
        pairs = list(blobs)
        self.together.append(len(pairs))
        super().put_all(folder, pairs)


async def save(store: ContextPointerStore, name: str, result: Any, *, keep_repeats: bool = False) -> ContextPointer:
    return await store.save(
        query_id="q", task_id=None, tool_name="t", args={"name": name}, result=result, keep_repeats=keep_repeats
    )


async def save_at_once(
    store: ContextPointerStore, *calls: tuple[str, Any], keep_repeats: bool = False
) -> list[Outcome]:
    saves = (save(store, *call, keep_repeats=keep_repeats) for call in calls)
    return await asyncio.gather(*saves, return_exceptions=True)


def loaded(store: ContextPointerStore) -> dict[str, Any]:
    return {pointer.args["name"]: store.load_result(pointer=pointer) for pointer in store.list(query_id="q")}


async def test_saves_at_once_are_put_together_and_each_has_its_pointer_s0_05_s0_18() -> None:
    blobs = CountingBlobStore()
    store = ContextPointerStore(blobs)
    calls = [(str(number), number) for number in range(20)]
    pointers = await save_at_once(store, *calls)
    assert max(blobs.together) > 2
    assert sum(blobs.together) == 2 * len(calls)
    assert loaded(store) == dict(calls)
    for pointer, (_, result) in zip(pointers, calls, strict=True):
        assert isinstance(pointer, ContextPointer)
        assert store.load_result(pointer=pointer) == result


@pytest.mark.parametrize("part", ["meta.json", "result.json"])
async def test_a_save_without_room_fails_alone_f_058(part: str) -> None:
    full = compute_pointer_id(tool_name="t", args={"name": "5"}, query_id="q", task_id=None)
    blobs = CountingBlobStore(f"{full}.{part}")
    store = ContextPointerStore(blobs)
    outcomes = await save_at_once(store, *((str(number), number) for number in range(9)))
    assert max(blobs.together) > 2
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, StoreFullError)] == [5]
    assert loaded(store) == {str(number): number for number in range(9) if number != 5}
    assert not [key for key in blobs.list("q") if full in key]


async def test_the_same_call_saved_twice_at_once_is_saved_twice_s0_05() -> None:
    store = ContextPointerStore(CountingBlobStore())
    outcomes = await save_at_once(store, ("first", 0), ("same", 1), ("other", 2), ("same", 3), ("same", 4))
    ids = [outcome.pointer_id for outcome in outcomes if isinstance(outcome, ContextPointer)]
    assert ids[1] == ids[3] == ids[4]
    assert len(set(ids)) == 3
    assert loaded(store) == {"first": 0, "same": 4, "other": 2}
    assert {key.rpartition(".")[2] for key in store._blobs.list("q")} == {"json"}


async def test_repeats_saved_at_once_are_all_kept_s0_05() -> None:
    store = ContextPointerStore(CountingBlobStore())
    outcomes = await save_at_once(store, *(("same", number) for number in (0, 1, 1, 2, 3)), keep_repeats=True)
    ids = [outcome.pointer_id for outcome in outcomes if isinstance(outcome, ContextPointer)]
    assert len(set(ids)) == 4
    assert sorted(store.load_result(pointer=pointer) for pointer in store.list(query_id="q")) == [0, 1, 2, 3]


async def test_saves_at_once_keep_to_the_limit_of_a_query_s0_21(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", max_bytes_per_query=1_000)
    outcomes = await save_at_once(store, *((str(number), "x" * 298) for number in range(10)))
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(store.list(query_id="q")) == 3


async def test_saves_at_once_that_cannot_have_the_lock_fail_together_each_with_an_error_of_its_own_f_070(
    tmp_path: Path,
) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", lock_timeout_s=0.2)
    calls = [(str(number), number) for number in range(9)]
    with FileBlobStore(tmp_path).lock("q"):
        began_s = time.monotonic()
        outcomes = await save_at_once(store, *calls)
        assert time.monotonic() - began_s < 2
    assert [type(outcome) for outcome in outcomes] == 9 * [LockTimeoutError]
    assert len({id(outcome) for outcome in outcomes}) == 9
    assert store.list(query_id="q") == []
    await save_at_once(store, *calls)
    assert loaded(store) == dict(calls)


async def test_saves_at_once_share_the_flush_of_their_folder_s0_18(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real = FileContextPointerStore(tmp_path), os.fsync
    await save(store, "before", 0)
    flushed: dict[bool, int] = {False: 0, True: 0}

    def fsync(descriptor: int) -> None:
        flushed[stat.S_ISDIR(os.fstat(descriptor).st_mode)] += 1
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    await save_at_once(store, *((str(number), number) for number in range(30)))
    assert flushed[False] == 60
    assert flushed[True] < 15
    assert len(store.list(query_id="q")) == 31
