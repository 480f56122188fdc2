"""What a store makes of files that others damaged, and of what a killed writer left.

And what `verify` reports of them and repairs.
"""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, ContextPointerStore, FileContextPointerStore
from llm_common.errors import LockTimeoutError, StoreError, StoreFullError
from llm_common.pointers.records import LockedRecords, meta_bytes
from llm_common.storage import FileBlobStore, MemoryBlobStore
from llm_common.storage.blob import OWN_FOLDER
from tests.pointers.names import meta_key, next_key, reason, result_key

Key = Callable[[str, str], str]


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "base", durability="rename", lock_timeout_s=0.2)


def save(
    store: ContextPointerStore, result: Any, name: str = "call", /, **options: Any
) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": None,
        "tool_name": "tool",
        "args": {"name": name},
    }
    return asyncio.run(store.save(**(call | {"result": result} | options)))


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
    assert reason(store, broken) == "damaged"
    assert save(store, "healed", "a").pointer_id == broken.pointer_id
    assert len(store.list(query_id="q")) == 2


def test_unrecognized_files_are_counted_and_leftovers_invisible_f_017_f_021_f_024_f_053_s0_19(
    store: FileContextPointerStore,
) -> None:
    pointer = save(store, "x")
    folder = store.base_dir / "q"
    (folder / "notes.txt").write_text("mine")
    (folder / "deadbeefcafe.meta.json").mkdir()
    (folder / f"{'b' * 12}.meta.json").symlink_to(file_of(store, meta_key, pointer))
    (folder / f"{'a' * 12}.meta.json").write_bytes(file_of(store, meta_key, pointer).read_bytes())
    for leftover in (".tmp-1-aa", f"{'b' * 12}.next", f"{'c' * 12}.result.json"):
        (folder / leftover).write_text("1")
    listing = store.list_detailed(query_id="q")
    assert (listing.pointers, listing.skipped) == ((pointer,), 4)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        pytest.param(Path.unlink, "unknown", id="F-050"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged", id="F-051"),
        pytest.param(lambda path: path.write_bytes(b""), "damaged", id="F-051-empty"),
        pytest.param(
            lambda path: path.write_bytes(path.read_bytes() + b" "), "damaged", id="F-051-longer"
        ),
        pytest.param(lambda path: shutil.rmtree(path.parent), "unknown", id="F-055-folder"),
    ],
)
def test_a_result_that_is_missing_or_of_another_length_is_not_listed_f_056_s0_18(
    store: FileContextPointerStore, damage: Callable[[Path], object], why: str
) -> None:
    pointer = save(store, "some text")
    damage(file_of(store, result_key, pointer))
    assert store.list(query_id="q") == []
    assert reason(store, pointer) == why


def test_the_result_of_another_pointer_is_noticed_f_052(store: FileContextPointerStore) -> None:
    first, second = save(store, "one", "a"), save(store, "two", "b")
    shutil.copy(file_of(store, result_key, first), file_of(store, result_key, second))
    assert reason(store, second) == "damaged"


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
        assert reason(store, old) == "damaged"
        assert store.list(query_id="q") == []
    assert store.load_result(pointer=save(store, "newest")) == "newest"


class FullBlobStore(MemoryBlobStore):
    """Has no room for keys that end so, or for more than so many bytes."""

    def __init__(self, ending: str = "", room: int = 1_000_000) -> None:
        super().__init__()
        self.ending = ending
        self.room = room

    def put(self, key: str, data: bytes) -> None:
        sizes = {
            f"{folder}/{name}": blob.size
            for folder in ("q", "r", OWN_FOLDER)
            for name, blob in self.scan(folder).blobs.items()
        }
        taken = sum(sizes.values()) - sizes.get(key, 0)
        if (self.ending and key.endswith(self.ending)) or taken + len(data) > self.room:
            raise StoreFullError("No room left in the store")
        super().put(key, data)


@pytest.mark.parametrize("ending", [".meta.json", ".result.json"])
def test_a_first_save_on_a_full_disk_leaves_nothing_f_058_f_061(ending: str) -> None:
    blobs = FullBlobStore(ending)
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


# --- what `verify` finds and repairs

Damage = Callable[[Path, ContextPointer], object]


def verified(store: ContextPointerStore, *, repair: bool = False) -> set[tuple[str, str, bool]]:
    report = asyncio.run(store.verify(repair=repair))
    return {(finding.kind, finding.name, finding.repaired) for finding in report.findings}


def meta_of(pointer: ContextPointer) -> str:
    return f"{pointer.pointer_id}.meta.json"


def result_of(pointer: ContextPointer) -> str:
    return f"{pointer.pointer_id}.result.json"


def old_temporary(folder: Path, _: ContextPointer) -> None:
    (folder / ".tmp-1-old").write_text("half")
    os.utime(folder / ".tmp-1-old", (time.time() - 7_200,) * 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1] ^= 4
    path.write_bytes(bytes(data))


def pending(folder: Path, pointer: ContextPointer) -> None:
    (folder / f"{pointer.pointer_id}.next").write_bytes(
        meta_bytes(pointer.model_copy(update={"created_at": "later"}))
    )


REPAIRABLE: dict[str, tuple[Damage, str, Callable[[ContextPointer], str], bool]] = {
    "F-047": (
        lambda folder, one: (folder / meta_of(one)).write_bytes(b"nul"),
        "bad_meta",
        meta_of,
        False,
    ),
    "F-024": (
        lambda folder, one: (folder / meta_of(one)).write_bytes(
            (folder / meta_of(one)).read_bytes().replace(b'"q"', b'"r"')
        ),
        "bad_meta",
        meta_of,
        False,
    ),
    "F-050": (
        lambda folder, one: (folder / result_of(one)).unlink(),
        "missing_result",
        result_of,
        False,
    ),
    "F-050-meta": (
        lambda folder, one: (folder / meta_of(one)).unlink(),
        "orphan_result",
        result_of,
        False,
    ),
    "F-051": (
        lambda folder, one: flip(folder / result_of(one)),
        "digest_mismatch",
        result_of,
        False,
    ),
    "F-053": (old_temporary, "stale_temporary", lambda _: ".tmp-1-old", True),
    "F-053-next": (
        lambda folder, one: (folder / f"{'b' * 12}.next").write_text("{}"),
        "leftover_next",
        lambda _: f"{'b' * 12}.next",
        True,
    ),
    "F-054": (pending, "leftover_next", lambda one: f"{one.pointer_id}.next", True),
}


@pytest.mark.parametrize(
    ("damage", "kind", "name", "survives"), REPAIRABLE.values(), ids=REPAIRABLE
)
def test_damage_is_reported_then_repaired_s0_21(
    store: FileContextPointerStore,
    damage: Damage,
    kind: str,
    name: Callable[[ContextPointer], str],
    survives: bool,
) -> None:
    whole, pointer = save(store, "whole", "a"), save(store, "some text", "b")
    damage(store.base_dir / "q", pointer)
    for repair in (False, False, True):
        assert verified(store, repair=repair) == {(kind, name(pointer), repair)}
    assert verified(store, repair=True) == set()
    listed = {one.pointer_id for one in store.list(query_id="q")}
    assert listed == {whole.pointer_id} | ({pointer.pointer_id} if survives else set())
    assert len(list((store.base_dir / "q").iterdir())) == 1 + 2 * len(listed)
    assert reason(store, pointer) == (None if survives else "erased")
    assert store.load_result(pointer=save(store, "anew", "b")) == "anew"


def test_an_unfinished_save_is_rolled_forward_f_054_s0_21(store: FileContextPointerStore) -> None:
    pointer = save(store, "old")
    folder = store.base_dir / "q"
    before = (folder / meta_of(pointer)).read_bytes()
    newer = save(store, "newer")
    (folder / f"{pointer.pointer_id}.next").write_bytes((folder / meta_of(pointer)).read_bytes())
    (folder / meta_of(pointer)).write_bytes(before)  # killed between result and meta
    assert verified(store, repair=True) == {("leftover_next", f"{pointer.pointer_id}.next", True)}
    assert (folder / meta_of(pointer)).read_bytes() == meta_bytes(newer)
    assert verified(store) == set()


def test_files_of_others_are_reported_and_never_touched_s0_21(
    store: FileContextPointerStore, tmp_path: Path
) -> None:
    pointer, linked = save(store, "x", "a"), save(store, "y", "b")
    folder = store.base_dir / "q"
    (folder / "notes.txt").write_text("mine")
    (folder / ".hidden").write_text("mine")
    (folder / f"{'a' * 12}.meta.json").mkdir()
    os.mkfifo(folder / f"{'b' * 12}.result.json")
    (folder / f"{'c' * 12}.result.json").symlink_to("/etc/passwd")
    os.link(folder / meta_of(linked), tmp_path / "backup")  # the result beside it is no orphan
    (store.base_dir / "link").symlink_to(folder)
    expected = {
        ("unrecognized", "notes.txt", False),
        ("unrecognized", ".hidden", False),
        ("unsafe", f"{'a' * 12}.meta.json", False),
        ("unsafe", f"{'b' * 12}.result.json", False),
        ("unsafe", f"{'c' * 12}.result.json", False),
        ("unsafe", meta_of(linked), False),
        ("unsafe", "", False),
    }
    names = sorted(path.name for path in folder.iterdir())
    for repair in (False, True, False):
        assert verified(store, repair=repair) == expected
    asyncio.run(store.gc())
    assert sorted(path.name for path in folder.iterdir()) == names
    assert not asyncio.run(store.verify()).is_clean
    assert store.load_result(pointer=pointer) == "x"
    allowing = FileContextPointerStore(store.base_dir, allow_hard_links=True)
    assert allowing.load_result(pointer=linked) == "y"


def test_an_unreadable_query_does_not_end_the_walk_s0_21(
    store: FileContextPointerStore,
) -> None:
    save(store, "x", query_id="a")
    save(store, "x", query_id="z")
    (store.base_dir / "m").symlink_to(store.base_dir / "a")
    report = asyncio.run(store.verify())
    assert (report.queries, report.pointers) == (3, 2)
    assert [(finding.query_id, finding.kind) for finding in report.findings] == [("m", "unsafe")]


def test_an_unfinished_save_of_a_live_writer_is_not_reported_s0_21(
    store: FileContextPointerStore,
) -> None:
    """A scan without a lock is repeated under the lock."""
    stop = False

    async def saves() -> None:
        number = 0
        while not stop:
            number += 1
            call = {"query_id": "q", "task_id": None, "tool_name": "tool"}
            await store.save(**call, args={"n": number % 3}, result="x" * number)  # type: ignore[arg-type]
            store.delete(
                query_id="q", pointer_ids=[one.pointer_id for one in store.list(query_id="q")[:1]]
            )

    async def check() -> None:
        nonlocal stop
        other = FileContextPointerStore(store.base_dir, durability="rename")
        saving = asyncio.create_task(saves())
        for repair in (False, True) * 15:
            assert (await other.verify(repair=repair)).findings == ()
        stop = True
        await saving

    asyncio.run(check())


def test_a_full_store_stays_clean_and_recovers_with_space_f_065_s0_21() -> None:
    store = ContextPointerStore(LockedRecords(FullBlobStore(room=4_000)))
    saved = [save(store, "x", query_id="r")]
    with suppress(StoreFullError):
        for number in range(1_000):
            saved.append(save(store, "x" * 200, f"{number}"))
    assert 2 < len(saved) < 1_000
    assert verified(store) == set()
    # also where there is no room to note it first
    assert store.delete(query_id="q") == len(saved) - 1
    assert verified(store) == set()
    assert reason(store, saved[-1]) == "erased"
    assert store.load_result(pointer=save(store, "x" * 200, "again")) == "x" * 200
