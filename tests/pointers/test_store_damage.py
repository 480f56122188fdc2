"""What a store makes of files that others damaged, and of what a killed writer left."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, ContextPointerStore, FileContextPointerStore
from llm_common.errors import (
    CorruptPointerError,
    LockTimeoutError,
    PointerNotFoundError,
    StoreError,
    StoreFullError,
)
from llm_common.pointers.records import LockedRecords
from llm_common.storage import FileBlobStore, MemoryBlobStore
from tests.pointers.names import meta_key, next_key, result_key

Key = Callable[[str, str], str]


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "base", durability="rename", lock_timeout_s=0.2)


def save(
    store: ContextPointerStore, result: Any, name: str = "call", /, **options: Any
) -> ContextPointer:
    return asyncio.run(
        store.save(
            query_id="q",
            task_id=None,
            tool_name="tool",
            args={"name": name},
            result=result,
            **options,
        )
    )


def file_of(store: FileContextPointerStore, key: Key, pointer: ContextPointer) -> Path:
    return store.base_dir / key("q", pointer.pointer_id)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="F-047-empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="F-047-truncated"),
        pytest.param(lambda data: b"\x80\xff\x00" * 50, id="F-047-binary"),
        pytest.param(lambda data: b"\xef\xbb\xbf" + data, id="F-047-bom"),
        pytest.param(lambda data: b"null", id="F-047-null"),
        pytest.param(lambda data: b"[" + data + b"]", id="F-047-list"),
        pytest.param(lambda data: b"[" * 100_000, id="F-047-deep"),
        pytest.param(lambda data: b"1" * 5_000, id="F-044-in-list"),
        pytest.param(
            lambda data: data.replace(b'"tool_name":', b'"tool":'), id="F-047-field-missing"
        ),
        pytest.param(lambda data: data.replace(b'"query_id":"q"', b'"query_id":"r"'), id="F-024"),
    ],
)
def test_a_damaged_record_is_skipped_and_counted(
    store: FileContextPointerStore,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
) -> None:
    broken, whole = save(store, "broken", "a"), save(store, "whole", "b")
    meta = file_of(store, meta_key, broken)
    meta.write_bytes(damage(meta.read_bytes()))
    listing = store.list_detailed(query_id="q")
    assert (listing.pointers, listing.skipped) == ((whole,), 1)
    assert store.list(query_id="q") == [whole]
    assert "skipped 1 unrecognized or damaged" in caplog.text
    with pytest.raises(CorruptPointerError):
        store.load_result(pointer=broken)
    assert save(store, "healed", "a").pointer_id == broken.pointer_id
    assert len(store.list(query_id="q")) == 2


def test_unrecognized_files_are_skipped_f_017_f_021_f_024_s0_19(
    store: FileContextPointerStore,
) -> None:
    pointer = save(store, "x")
    folder = store.base_dir / "q"
    (folder / "notes.txt").write_text("mine")
    (folder / "deadbeefcafe.meta.json").mkdir()
    (folder / f"{'b' * 12}.meta.json").symlink_to(file_of(store, meta_key, pointer))
    (folder / f"{'a' * 12}.meta.json").write_bytes(file_of(store, meta_key, pointer).read_bytes())
    listing = store.list_detailed(query_id="q")
    assert (listing.pointers, listing.skipped) == ((pointer,), 4)


def test_a_missing_result_is_not_listed_f_050_s0_18(store: FileContextPointerStore) -> None:
    pointer = save(store, "x")
    file_of(store, result_key, pointer).unlink()
    assert store.list(query_id="q") == []
    with pytest.raises(PointerNotFoundError) as caught:
        store.load_result(pointer=pointer)
    assert caught.value.reason == "unknown"


def test_a_result_of_another_length_is_not_listed_f_051_s0_18(
    store: FileContextPointerStore,
) -> None:
    pointer = save(store, "some text")
    path = file_of(store, result_key, pointer)
    for data in (path.read_bytes()[:-1], b"", path.read_bytes() + b" "):
        path.write_bytes(data)
        assert store.list(query_id="q") == []
        with pytest.raises(CorruptPointerError):
            store.load_result(pointer=pointer)


def test_the_result_of_another_pointer_is_noticed_f_052(store: FileContextPointerStore) -> None:
    first, second = save(store, "one", "a"), save(store, "two", "b")
    shutil.copy(file_of(store, result_key, first), file_of(store, result_key, second))
    with pytest.raises(CorruptPointerError):
        store.load_result(pointer=second)


def test_deleted_between_list_and_load_f_055_f_056(store: FileContextPointerStore) -> None:
    pointer = save(store, "x")
    shutil.rmtree(store.base_dir / "q")
    assert store.list(query_id="q") == []
    with pytest.raises(PointerNotFoundError):
        store.load_result(pointer=pointer)


def test_leftovers_are_invisible_f_053(store: FileContextPointerStore) -> None:
    pointer = save(store, "x")
    folder = store.base_dir / "q"
    (folder / ".tmp-1-aa").write_text("half")
    (folder / f"{'b' * 12}.next").write_text("{}")
    (folder / f"{'c' * 12}.result.json").write_text("1")
    listing = store.list_detailed(query_id="q")
    assert (listing.pointers, listing.skipped) == ((pointer,), 0)


class Killed(KeyboardInterrupt):
    """Simulates a kill, or Ctrl-C at this moment."""


class DyingBlobStore(MemoryBlobStore):
    """Dies for good after a number of changes, each of which is whole or did not happen."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left = 1_000

    def _change(self) -> None:
        if self.changes_left == 0:
            raise Killed
        self.changes_left -= 1

    def put(self, key: str, data: bytes) -> None:
        self._change()
        super().put(key, data)

    def delete(self, key: str) -> None:
        self._change()
        super().delete(key)

    def alive(self) -> ContextPointerStore:
        self.changes_left = 1_000
        return ContextPointerStore(LockedRecords(self))


@pytest.mark.parametrize("changes", range(2))
def test_a_first_save_that_dies_is_invisible_s0_18_f_066_f_067(changes: int) -> None:
    blobs = DyingBlobStore()
    blobs.changes_left = changes
    with pytest.raises(Killed):
        save(ContextPointerStore(LockedRecords(blobs)), "new")
    store = blobs.alive()
    assert store.list_detailed(query_id="q").skipped == 0
    assert store.list(query_id="q") == []
    assert store.load_result(pointer=save(store, "again")) == "again"


@pytest.mark.parametrize("then", ["read", "save"])
@pytest.mark.parametrize("changes", range(4))
def test_a_second_save_that_dies_leaves_old_or_new_s0_18_f_054_f_066_f_067(
    changes: int, then: str
) -> None:
    blobs = DyingBlobStore()
    old = save(ContextPointerStore(LockedRecords(blobs)), "old")
    blobs.changes_left = changes
    with pytest.raises(Killed):
        save(ContextPointerStore(LockedRecords(blobs)), "newer")
    store = blobs.alive()
    if then == "read":
        (pointer,) = store.list(query_id="q")
        expected = "newer" if changes >= 2 else "old"
        assert store.load_result(pointer=pointer) == store.load_result(pointer=old) == expected
        assert pointer.result_bytes == len(expected) + 2
        assert (pointer == old) is (expected == "old")
    for stop in range(8):  # dying again and again while it is put right
        blobs.changes_left = stop
        try:
            newest = save(ContextPointerStore(LockedRecords(blobs)), "newest")
        except Killed:
            (pointer,) = blobs.alive().list(query_id="q")
            assert store.load_result(pointer=pointer) in ("old", "newer", "newest")
        else:
            break
    else:
        pytest.fail("never came to an end")
    assert blobs.alive().list(query_id="q") == [newest]
    assert [f"q/{name}" for name in blobs.scan("q").blobs] == [
        key("q", old.pointer_id) for key in (meta_key, result_key)
    ]


@pytest.mark.parametrize("key", [meta_key, next_key], ids=["meta", "next"])
def test_a_record_without_digest_beside_a_pending_one_is_repaired_f_054(key: Key) -> None:
    blobs = DyingBlobStore()
    old = save(ContextPointerStore(LockedRecords(blobs)), "old")
    blobs.changes_left = 2
    with pytest.raises(Killed):
        save(ContextPointerStore(LockedRecords(blobs)), "newer")
    store = blobs.alive()
    blobs.put(key("q", old.pointer_id), b"damaged")
    if key is meta_key:
        assert store.load_result(pointer=old) == "newer"
    else:
        with pytest.raises(CorruptPointerError):
            store.load_result(pointer=old)
        assert store.list(query_id="q") == []
    assert store.load_result(pointer=save(store, "newest")) == "newest"


class FullBlobStore(MemoryBlobStore):
    """Has no room for keys that end so."""

    ending = ""

    def put(self, key: str, data: bytes) -> None:
        if self.ending and key.endswith(self.ending):
            raise StoreFullError("No room left in the store")
        super().put(key, data)


@pytest.mark.parametrize("ending", [".meta.json", ".result.json"])
def test_a_first_save_on_a_full_disk_leaves_nothing_f_058_f_061(ending: str) -> None:
    blobs = FullBlobStore()
    blobs.ending = ending
    with pytest.raises(StoreFullError):
        save(ContextPointerStore(LockedRecords(blobs)), "new")
    assert blobs.scan("q").blobs == {}


@pytest.mark.parametrize("ending", [".meta.json", ".result.json", ".next"])
def test_a_full_disk_leaves_one_version_and_later_saves_work_f_058_f_065(
    ending: str,
) -> None:
    blobs = FullBlobStore()
    store = ContextPointerStore(LockedRecords(blobs))
    old = save(store, "old")
    blobs.ending = ending
    with pytest.raises(StoreError):
        save(store, "new")
    (pointer,) = store.list(query_id="q")
    assert store.load_result(pointer=pointer) == ("new" if ending == ".meta.json" else "old")
    blobs.ending = ""
    newest = save(store, "newest")
    assert store.list(query_id="q") == [newest]
    assert store.load_result(pointer=old) == "newest"
    assert len(blobs.scan("q").blobs) == 2


def test_a_writer_that_hangs_is_a_typed_error_f_070(store: FileContextPointerStore) -> None:
    pointer = save(store, "x")
    blobs = store.records.blobs
    assert isinstance(blobs, FileBlobStore)
    with blobs.lock("q"):
        with pytest.raises(LockTimeoutError):
            save(store, "y")
        assert store.load_result(pointer=pointer) == "x"
        assert store.list(query_id="q") == [pointer]
    assert store.load_result(pointer=save(store, "y")) == "y"


def test_records_are_plain_json_with_the_fields_of_a_pointer_s0_18(
    store: FileContextPointerStore,
) -> None:
    pointer = save(store, {"a": 1})
    record = json.loads(file_of(store, meta_key, pointer).read_text())
    assert record == pointer.model_dump()
    assert record["result_bytes"] == 7
