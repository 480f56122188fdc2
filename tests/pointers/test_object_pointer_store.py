"""The pointer store over every store of bytes.

And, on a server process that speaks S3, many processes and kills.
"""

import asyncio
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    ObjectContextPointerStore,
)
from llm_common.errors import StoreError
from tests.contracts.pointer_contract import ContextPointerStoreContract
from tests.pointers.campaigns.traffic import kill_while_saving, save_together
from tests.s3_server import make_bucket, s3_options

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


def s3_store(endpoint: str, bucket: str | Path) -> ObjectContextPointerStore:
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


def test_a_directory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = ObjectContextPointerStore.from_url(tmp_path.as_uri())
    with pytest.raises(StoreError, match="FileContextPointerStore"):
        asyncio.run(save(store, 1))
    assert [path.name for path in tmp_path.iterdir()] == [".conditions"]


@pytest.mark.torture
@pytest.mark.parametrize("same", [False, True], ids=["different-calls", "one-call"])
def test_eight_processes_of_fifty_saves_lose_and_tear_nothing_s0_05_s0_18_f_072(
    s3_endpoint: str, same: bool
) -> None:
    make, bucket = partial(s3_store, s3_endpoint), Path(new_bucket(s3_endpoint))
    figures = save_together(make, bucket, processes=8, saves=50, same=same, reader=make)
    assert figures.pop("lists") >= 1
    assert figures == {"listed": 1 if same else 400}
    assert asyncio.run(make(bucket).verify()).is_clean


@pytest.mark.torture
@pytest.mark.parametrize("same", [False, True], ids=["first-saves", "later-saves"])
def test_a_hundred_kills_leave_nothing_torn_s0_18_f_066(s3_endpoint: str, same: bool) -> None:
    make, bucket = partial(s3_store, s3_endpoint), Path(new_bucket(s3_endpoint))
    assert not kill_while_saving(make, bucket, kills=100, same=same, reader=make)
