"""The findings of `verify` in damaged stores, and what it repairs."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, ContextPointerStore, FileContextPointerStore
from llm_common.errors import PointerNotFoundError, StoreFullError
from llm_common.pointers.records import LockedRecords, meta_bytes
from llm_common.storage import MemoryBlobStore

Damage = Callable[[Path, ContextPointer], object]


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


def verified(store: ContextPointerStore, *, repair: bool = False) -> set[tuple[str, str, bool]]:
    report = asyncio.run(store.verify(repair=repair))
    return {(finding.kind, finding.name, finding.repaired) for finding in report.findings}


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "base", durability="rename", lock_timeout_s=0.2)


def meta(pointer: ContextPointer) -> str:
    return f"{pointer.pointer_id}.meta.json"


def result(pointer: ContextPointer) -> str:
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
        lambda folder, one: (folder / meta(one)).write_bytes(b"nul"),
        "bad_meta",
        meta,
        False,
    ),
    "F-024": (
        lambda folder, one: (folder / meta(one)).write_bytes(
            (folder / meta(one)).read_bytes().replace(b'"q"', b'"r"')
        ),
        "bad_meta",
        meta,
        False,
    ),
    "F-050": (lambda folder, one: (folder / result(one)).unlink(), "missing_result", result, False),
    "F-050-meta": (
        lambda folder, one: (folder / meta(one)).unlink(),
        "orphan_result",
        result,
        False,
    ),
    "F-051": (lambda folder, one: flip(folder / result(one)), "digest_mismatch", result, False),
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
    named = [(kind, name(pointer))]
    for repair in (False, False, True):
        assert verified(store, repair=repair) == {(*one, repair) for one in named}
    assert verified(store, repair=True) == set()
    listed = {one.pointer_id for one in store.list(query_id="q")}
    assert listed == {whole.pointer_id} | ({pointer.pointer_id} if survives else set())
    assert len(list((store.base_dir / "q").iterdir())) == 1 + 2 * len(listed)
    if not survives:
        with pytest.raises(PointerNotFoundError) as caught:
            store.load_result(pointer=pointer)
        assert caught.value.reason == "erased"
    assert store.load_result(pointer=save(store, "anew", "b")) == "anew"


def test_an_unfinished_save_is_rolled_forward_f_054_s0_21(store: FileContextPointerStore) -> None:
    pointer = save(store, "old")
    folder = store.base_dir / "q"
    before = (folder / meta(pointer)).read_bytes()
    newer = save(store, "newer")
    (folder / f"{pointer.pointer_id}.next").write_bytes((folder / meta(pointer)).read_bytes())
    (folder / meta(pointer)).write_bytes(before)  # killed between result and meta
    assert verified(store, repair=True) == {("leftover_next", f"{pointer.pointer_id}.next", True)}
    assert (folder / meta(pointer)).read_bytes() == meta_bytes(newer)
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
    os.link(folder / meta(linked), tmp_path / "backup")  # the result beside it is no orphan
    (store.base_dir / "link").symlink_to(folder)
    expected = {
        ("unrecognized", "notes.txt", False),
        ("unrecognized", ".hidden", False),
        ("unsafe", f"{'a' * 12}.meta.json", False),
        ("unsafe", f"{'b' * 12}.result.json", False),
        ("unsafe", f"{'c' * 12}.result.json", False),
        ("unsafe", meta(linked), False),
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


class FullBlobStore(MemoryBlobStore):
    """A store with a limited number of bytes."""

    room = 4_000

    def put(self, key: str, data: bytes) -> None:
        sizes = {
            f"{one}/{name}": blob.size
            for one in ("q", "r", ".store")
            for name, blob in self.scan(one).blobs.items()
        }
        if sum(sizes.values()) - sizes.get(key, 0) + len(data) > self.room:
            raise StoreFullError("No room left in the store")
        super().put(key, data)


def test_a_full_store_stays_clean_and_recovers_with_space_f_065_s0_21() -> None:
    store = ContextPointerStore(LockedRecords(FullBlobStore()))
    saved = [save(store, "x", query_id="r")]
    fill(store, saved, size=200)
    assert len(saved) > 2
    assert verified(store) == set()
    # also where there is no room to note it first
    assert store.delete(query_id="q") == len(saved) - 1
    assert verified(store) == set()
    with pytest.raises(PointerNotFoundError) as caught:
        store.load_result(pointer=saved[-1])
    assert caught.value.reason == "erased"
    assert store.load_result(pointer=save(store, "x" * 200, "again")) == "x" * 200


def fill(store: ContextPointerStore, saved: list[ContextPointer], *, size: int) -> StoreFullError:
    """Save results until the store is full."""
    for number in range(1_000):
        try:
            saved.append(save(store, "x" * size, f"{number}"))
        except StoreFullError as exc:
            return exc
    pytest.fail("never full")
