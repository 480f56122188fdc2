"""Deleting stored pointers: only ours, while others read and write."""

import threading
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.errors import InvalidIdError, PointerNotFoundError, UnsafePathError
from tests.pointers.names import next_key


async def save(store: ContextPointerStore, result: Any, **changes: Any) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": None,
        "tool_name": "tool",
        "args": {"query": result},
    }
    return await store.save(**(call | {"result": result} | changes))


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ContextPointerStore:
    return (
        FileContextPointerStore(tmp_path)
        if request.param == "files"
        else InMemoryContextPointerStore()
    )


async def test_a_deleted_query_leaves_other_queries_alone_s4_06(
    store: ContextPointerStore,
) -> None:
    pointers = [await save(store, number) for number in range(3)]
    other = await save(store, "other", query_id="q2")
    assert store.delete(query_id="q") == 3
    assert store.list(query_id="q") == []
    assert store.list(query_id="q2") == [other]
    with pytest.raises(PointerNotFoundError):
        store.load_result(pointer=pointers[0])
    assert store.delete(query_id="q") == 0
    assert store.delete(query_id="never-there") == 0


async def test_requested_pointers_are_deleted_s4_06(store: ContextPointerStore) -> None:
    first, second = await save(store, 1), await save(store, 2)
    assert store.delete(query_id="q", pointer_ids=[first.pointer_id, "0123456789ab"]) == 1
    assert store.list(query_id="q") == [second]


async def test_remains_of_a_killed_writer_are_deleted_for_good_s4_06(
    store: ContextPointerStore,
) -> None:
    pointer = await save(store, 1)
    keys = (pointer.query_id, pointer.pointer_id)
    store.records.blobs.put(next_key(*keys), pointer.model_dump_json().encode())
    assert store.delete(query_id="q") == 1
    assert store.records.blobs.scan("q").blobs == {}
    again = await save(store, 1)
    assert again.created_at > pointer.created_at


@pytest.mark.parametrize("query_id", ["../x", "", "/abs"])
def test_an_id_outside_the_rules_deletes_nothing_s4_06(
    store: ContextPointerStore, query_id: str
) -> None:
    with pytest.raises(InvalidIdError):
        store.delete(query_id=query_id)


async def test_a_folder_that_is_a_link_is_left_alone_s4_06(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path / "base")
    pointer = await save(store, 1)
    (tmp_path / "base" / "link").symlink_to(tmp_path / "base" / "q")
    with pytest.raises(UnsafePathError):
        store.delete(query_id="link")
    assert store.list(query_id="q") == [pointer]


async def test_concurrent_saves_and_deletions_never_fail_s4_06(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename")
    stop = threading.Event()
    failures: list[BaseException] = []

    def delete() -> None:
        try:
            while not stop.is_set():
                store.delete(query_id="q")
        except BaseException as exc:  # noqa: BLE001 - shown below
            failures.append(exc)

    deleting = [threading.Thread(target=delete) for _ in range(2)]
    for thread in deleting:
        thread.start()
    for number in range(50):
        await save(store, number)
    stop.set()
    for thread in deleting:
        thread.join()
    assert failures == []
    last = await save(store, "last")
    assert last in store.list(query_id="q")
