"""How long results stay: time to live, limits, pins, erasing, and clearing up, in every home."""

import asyncio
import hashlib
import itertools
import json
import math
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore.store
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    ObjectContextPointerStore,
)
from llm_common.errors import (
    PointerNotFoundError,
    ResultTooLargeError,
    StoreFullError,
    UnsafePathError,
)
from llm_common.pointers import find_pointers
from llm_common.pointers.listing import PointerListing
from llm_common.pointers.records import Transaction
from llm_common.pointers.tombstones import Tombstones
from llm_common.storage import MemoryBlobStore
from llm_common.storage.blob import OWN_FOLDER
from tests.pointers.campaigns.failpoints import open_descriptors
from tests.pointers.conftest import HOMES, Open, opener
from tests.pointers.names import next_key, reason

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment

    def move(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(open_store: Open, clock: Clock) -> Open:
    return partial(open_store, clock=clock)


async def save(
    store: ContextPointerStore, name: Any, result: Any = None, **options: Any
) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": None,
        "tool_name": "tool",
        "args": {"name": name},
    }
    return await store.save(**(call | {"result": name if result is None else result} | options))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_expired_results_are_no_longer_stored_f_160_s0_21(
    open_store: Open, clock: Clock
) -> None:
    store, other = open_store(max_bytes_per_query=1_000), open_store()
    brief = await save(store, "brief", ttl_s=60)
    erased, kept = await save(store, "erased"), await save(store, "kept", "x" * 600)

    def is_stored(pointer: ContextPointer) -> bool:
        return store.is_stored(query_id="q", pointer_id=pointer.pointer_id)

    assert all(map(is_stored, (brief, erased, kept)))
    clock.move(61)
    other.delete(query_id="q", pointer_ids=[erased.pointer_id])
    assert [is_stored(one) for one in (brief, erased, kept)] == [False, False, True]
    await save(other, "other")
    await save(store, "larger", "x" * 900)  # evicts the others
    assert not is_stored(kept)
    assert not store.is_stored(query_id="never-there", pointer_id=kept.pointer_id)
    with pytest.raises(UnsafePathError):
        store.is_stored(query_id="q", pointer_id="../x")


async def test_expired_results_stay_expired_when_the_clock_goes_back_s0_21_f_057(
    open_store: Open, clock: Clock
) -> None:
    store = open_store(ttl_s=60)
    pointer = await save(store, "first")
    clock.move(61)
    assert store.list(query_id="q") == []
    clock.move(-4)
    assert store.list(query_id="q") == []
    assert reason(store, pointer) == "expired"
    later = [await save(store, n, ttl_s=math.inf) for n in range(5)]
    assert store.list(query_id="q") == later  # saved later is later
    clock.move(4)
    assert (await store.gc()).expired == 1
    assert reason(open_store(), pointer) == "expired"  # also for those who have seen no other time


async def test_a_clock_that_once_jumped_ahead_is_forgotten_f_168_s0_21(
    open_store: Open, clock: Clock
) -> None:
    store, other = open_store(ttl_s=60), open_store(ttl_s=60)
    before = await save(other, "before")
    clock.move(365 * 24 * HOUR)
    assert store.list(query_id="q") == []
    clock.move(-365 * 24 * HOUR)
    fresh = await save(other, "fresh")
    brief = await save(store, "brief", ttl_s=1)
    for reader in (store, other):
        assert {one.pointer_id for one in reader.list(query_id="q")} == {
            one.pointer_id for one in (before, fresh, brief)
        }
    assert (await store.gc()).expired == 0
    clock.move(2)
    assert reason(store, brief) == reason(other, brief) == "expired"
    clock.move(1)
    store.list(query_id="q")
    clock.move(-3)
    # by the clock itself, not by the time that was seen last
    assert (await store.gc()).expired == 0
    clock.move(3)
    assert (await store.gc()).expired == 1


async def test_a_clock_half_a_minute_ahead_is_trusted_again_f_168_s0_21(
    store: ContextPointerStore, clock: Clock
) -> None:
    clock.move(30)
    store.list(query_id="q")
    clock.move(-30)
    brief = await save(store, "brief", ttl_s=2)
    assert datetime.fromisoformat(brief.created_at) == clock.moment
    clock.move(2)
    assert reason(store, brief) == "expired"


async def test_a_result_expires_exactly_on_time_s0_21(open_store: Open, clock: Clock) -> None:
    store = open_store(ttl_s=60)
    pointer = await save(store, "x")
    clock.moment = datetime.fromisoformat(pointer.expires_at or "") - timedelta(microseconds=1)
    assert open_store().is_stored(query_id="q", pointer_id=pointer.pointer_id)
    assert (await open_store().gc()).expired == 0
    clock.moment += timedelta(microseconds=1)
    reader = open_store()
    assert reader.list(query_id="q") == []
    assert (await open_store().gc()).expired == 1
    assert reason(open_store(), pointer) == "expired"


DAY = 24 * HOUR


async def test_a_read_restarts_the_life_of_a_result_s0_21(
    store: ContextPointerStore, open_store: Open, clock: Clock
) -> None:
    pointer = await save(store, "x", ttl_s=DAY, renew_on_read=True)
    for _ in range(3):
        clock.move(23 * HOUR)
        assert store.load_result(pointer=pointer) == "x"
        assert open_store().list(query_id="q") == store.list(query_id="q")
    for reader in (store, open_store()):  # another process sees the same expiry
        [current] = reader.list(query_id="q")
        assert current.expires_at == "2026-01-04T21:00:00.000000+00:00"
        assert (await reader.gc()).expired == 0
        assert reader.newest(query_id="q", limit=5).pointers == (current,)
        assert reader.is_stored(query_id="q", pointer_id=pointer.pointer_id)
        assert find_pointers(reader, "tool", query_id="q").total == 1
    assert store.unpin(store.pin(pointer)).pinned is False
    clock.move(DAY)
    for reader in (store, open_store()):
        assert reader.list(query_id="q") == []
        assert reason(reader, pointer) == "expired"
    assert (await store.gc()).expired == 1
    assert reason(open_store(), pointer) == "expired"
    assert not store.records.blobs.scan("q").blobs


@pytest.mark.parametrize(
    ("life_s", "due_s"), [(DAY, HOUR), (2 * HOUR, HOUR), (7_000.0, 3_500.0), (10.0, 5.0)]
)
async def test_a_read_counts_after_an_hour_or_half_of_a_short_life_s0_21(
    store: ContextPointerStore, open_store: Open, clock: Clock, life_s: float, due_s: float
) -> None:
    pointer = await save(store, "x", ttl_s=life_s, renew_on_read=True)
    for early_s in (-2 * HOUR, 2 * HOUR + due_s - 1e-6):
        clock.move(early_s)
        assert store.load_result(pointer=pointer) == "x"
        assert store.list(query_id="q") == [pointer]
    clock.move(1e-6)
    assert store.load_result(pointer=pointer) == "x"
    [renewed] = open_store().list(query_id="q")
    left = datetime.fromisoformat(renewed.expires_at or "") - clock.moment
    assert round(left.total_seconds(), 3) == life_s


async def test_a_renewable_save_shortens_no_life_s0_21(
    store: ContextPointerStore, clock: Clock
) -> None:
    for ttl_s in (math.inf, 30 * DAY):
        kept = await save(store, ttl_s, ttl_s=ttl_s)
        again = await save(store, ttl_s, ttl_s=DAY, renew_on_read=True, keep_repeats=True)
        assert (again.pointer_id, again.expires_at) == (kept.pointer_id, kept.expires_at)
    own = await save(store, "own", ttl_s=DAY, renew_on_read=True)
    clock.move(HOUR)
    for renews in (True, False):
        again = await save(store, "own", ttl_s=60, renew_on_read=renews)
        assert (again.expires_at, again.renew_s) == (own.expires_at, DAY)
    longer = await save(store, "own", ttl_s=2 * DAY)
    assert (longer.expires_at or "") > (own.expires_at or "")
    forever = await save(store, "own")
    assert (forever.expires_at, forever.renew_s) == (None, None)


async def test_a_read_file_of_an_earlier_version_is_only_removed_s0_21(
    store: ContextPointerStore, clock: Clock
) -> None:
    # by which time an object store takes what is written now for abandoned
    clock.moment = datetime.now(UTC) + timedelta(hours=2)
    saved = await save(store, "x", ttl_s=DAY, renew_on_read=True)
    read_key = f"q/{saved.pointer_id}.read"
    read = b'{"read_at":"2999-01-01T00:00:00.000000+00:00"}'
    store.records.blobs.put(read_key, read)
    assert store.list_detailed(query_id="q") == PointerListing(pointers=(saved,), skipped=0)
    assert store.load_payload(saved.pointer_id, query_id="q") == (saved, b'"x"')
    assert (await store.verify(repair=True)).findings == ()
    collected = await store.gc()
    assert (collected.expired, collected.orphans, collected.leftovers) == (0, 0, 0)
    assert store.records.blobs.get(read_key) == read
    clock.move(DAY)
    assert (await store.gc()).expired == 1
    assert not store.records.blobs.scan("q").blobs


async def test_read_files_of_an_earlier_version_do_not_keep_a_folder_s0_21(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    saved = await save(files, "x", query_id="saved")
    for query_id in ("saved", "deleted", "collected"):
        (tmp_path / query_id).mkdir(exist_ok=True)
        (tmp_path / query_id / f"{saved.pointer_id}.read").write_bytes(b"{}")
    assert files.delete(query_id="saved") == 1
    files.delete(query_id="deleted")
    await files.gc()
    assert files.queries() == []
    assert (await files.verify()).findings == ()


async def test_the_life_of_another_or_an_expired_result_of_a_call_does_not_count_s0_21(
    store: ContextPointerStore, clock: Clock
) -> None:
    kept = await save(store, "own", ttl_s=DAY)
    changed = await save(store, "own", "new", ttl_s=60)
    assert changed.pointer_id == kept.pointer_id
    clock.move(61)
    assert reason(store, changed) == "expired"
    again = await save(store, "own", "new", ttl_s=30, renew_on_read=True)
    assert again.renew_s == 30


async def test_reading_waits_for_no_writer_and_needs_no_write_s0_21(
    tmp_path: Path, clock: Clock
) -> None:
    store = partial(opener("files", tmp_path), clock=clock)(lock_timeout_s=60)
    pointer = await save(store, "x", ttl_s=DAY, renew_on_read=True)
    clock.move(20 * HOUR)

    def read(_: Transaction) -> Any:  # under the lock of a writer
        return partial(opener("files", tmp_path), clock=clock)(lock_timeout_s=60).load_result(
            pointer=pointer
        )

    assert store.records.change("q", read) == "x"
    assert store.list(query_id="q") == [pointer]
    assert store.load_result(pointer=pointer) == "x"
    assert store.list(query_id="q") != [pointer]


@pytest.mark.parametrize("ttl_s", [0, -1, math.nan])
async def test_an_invalid_ttl_is_refused_s0_21(open_store: Open, ttl_s: float) -> None:
    with pytest.raises(ValueError, match="ttl_s"):
        open_store(ttl_s=ttl_s)
    with pytest.raises(ValueError, match="ttl_s"):
        await save(open_store(), "x", ttl_s=ttl_s)
    with pytest.raises(ValueError, match="max_bytes"):
        open_store(max_bytes_per_query=0)
    assert open_store().list(query_id="q") == []
    assert (await save(open_store(), "x", ttl_s=1e300)).expires_at is None


async def test_tombstones_are_salted_s0_21(tmp_path: Path) -> None:
    """A pointer has another tag in every store, so a list of likely ids reveals nothing."""
    tags = []
    for number in range(3):
        store = FileContextPointerStore(tmp_path / str(number), durability="rename")
        pointer = await save(store, "x")
        store.delete(query_id="q")
        [path] = [
            one for one in (tmp_path / str(number) / OWN_FOLDER).iterdir() if one.name != ".lock"
        ]
        text = path.read_text()
        assert pointer.pointer_id not in text
        tags += json.loads(text)["gone"]
        assert reason(store, pointer) == "erased"
    assert len(set(tags)) == 3
    plain = [hashlib.blake2b(f"q/{pointer.pointer_id}".encode(), digest_size=8).hexdigest()]
    assert not {*plain} & {*tags}


def one_id(number: int) -> str:
    return f"{number:012x}"


def test_a_pointer_that_is_removed_again_is_the_newest_s0_21() -> None:
    tombstones = Tombstones(MemoryBlobStore())
    ids = [one_id(number) for number in range(1_024)]
    assert tombstones.mark("q", ids, "erased", now=START)
    tombstones.mark("q", ids[:1], "expired", now=START)
    tombstones.mark("q", [one_id(2_000)], "erased", now=START)
    reasons = [tombstones.reason("q", ids[number]) for number in (0, 1, 2)]
    assert reasons == ["expired", "unknown", "erased"]
    was_removed = tombstones.removed("q")
    assert [was_removed(ids[number]) for number in (0, 1, 2)] == [True, False, True]
    assert not tombstones.removed("another query")(ids[0])
    assert tombstones.reason("another query", ids[0]) == "unknown"


def test_a_removal_is_known_for_thirty_days_s0_21() -> None:
    tombstones = Tombstones(MemoryBlobStore())
    tombstones.mark("q", [one_id(1)], "erased", now=START)
    tombstones.mark("q", [one_id(2)], "expired", now=START + timedelta(days=1))
    tombstones.mark("q", [one_id(3)], "erased", now=START + timedelta(days=30))
    assert tombstones.reason("q", one_id(1)) == "erased"
    tombstones.mark("q", [one_id(4)], "erased", now=START + timedelta(days=31))
    assert tombstones.reason("q", one_id(1)) == "unknown"
    assert tombstones.reason("q", one_id(2)) == "expired"


def put_record(store: ContextPointerStore, pointer: ContextPointer) -> None:
    def put(transaction: Transaction) -> None:
        transaction.current(pointer.pointer_id)
        transaction.update(pointer)

    store.records.change(pointer.query_id, put)


async def test_pointers_of_older_versions_and_odd_times_never_expire_s0_09_s0_21(
    open_store: Open,
) -> None:
    store = open_store(ttl_s=60)
    pointer = await save(store, "old")
    for old in (
        {"expires_at": None},
        {"expires_at": "soon"},
        {"expires_at": "9999-99-99", "renew_s": DAY},
        {"expires_at": "9999-01-01T00:00:00.000000+00:00", "renew_s": 1e15},
    ):
        put_record(store, pointer.model_copy(update=old))
        assert len(store.list(query_id="q")) == 1
        assert reason(store, pointer) is None


async def test_the_oldest_are_evicted_when_a_query_is_full_s0_21(
    open_store: Open, clock: Clock
) -> None:
    store = open_store(max_bytes_per_query=1_000)
    saved = []
    for number in range(5):
        saved.append(await save(store, number, "x" * 298))  # 300 bytes each
        clock.move(1)
    assert store.list(query_id="q") == saved[2:]
    assert [reason(open_store(), pointer) for pointer in saved] == [
        "erased",
        "erased",
        None,
        None,
        None,
    ]
    await save(store, "other", "x" * 900, query_id="r")
    again = await save(store, 3, "x" * 398)  # its own old bytes do not count
    assert store.list(query_id="q") == [saved[2], saved[4], again]
    huge = await save(store, "huge", "x" * 998)
    assert store.list(query_id="q") == [huge]
    assert len(store.list(query_id="r")) == 1


async def test_expired_results_are_evicted_first_s0_21(open_store: Open, clock: Clock) -> None:
    store = open_store(max_bytes_per_query=1_000)
    old = await save(store, "old", "x" * 400)
    clock.move(1)
    brief = await save(store, "brief", "x" * 400, ttl_s=1)
    clock.move(5)
    new = await save(store, "new", "x" * 400)
    assert store.list(query_id="q") == [old, new]
    assert reason(open_store(), brief) == "expired"


async def test_a_result_that_does_not_fit_evicts_nothing_s0_21(
    open_store: Open, clock: Clock
) -> None:
    store = open_store(max_bytes_per_query=1_000)
    pinned, free = await save(store, "pinned", "x" * 498), await save(store, "free", "x" * 298)
    store.pin(pinned)
    before = store.list(query_id="q")
    with pytest.raises(ResultTooLargeError):
        await save(store, "new", "x" * 999)
    with pytest.raises(StoreFullError, match="Unpin or delete"):
        await save(store, "new", "x" * 499)
    with pytest.raises(StoreFullError):
        await save(store, "free", "x" * 499)
    assert store.list(query_id="q") == before
    assert reason(store, free) is None
    new = await save(store, "new", "x" * 498)
    assert [pointer.pointer_id for pointer in store.list(query_id="q")] == [
        pinned.pointer_id,
        new.pointer_id,
    ]
    assert reason(store, free) == "erased"


async def test_a_deleted_query_leaves_no_byte_s0_21(tmp_path: Path, clock: Clock) -> None:
    base = tmp_path / "base"
    store = FileContextPointerStore(base, ttl_s=60, clock=clock)
    pointers = [await save(store, f"canary {n}", query_id="canary-query") for n in range(3)]
    expired = await save(store, "canary 9", query_id="canary-query", ttl_s=1)
    clock.move(2)
    await store.gc()
    store.pin(pointers[0])
    folder = base / "canary-query"
    (folder / ".tmp-1-aa").write_text("canary, half")
    (folder / f"{'b' * 12}.next").write_text("canary")
    (folder / f"{'c' * 12}.meta.json").write_text("canary, damaged")
    (folder / f"{'d' * 12}.result.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("canary of another")
    os.link(folder / f"{pointers[1].pointer_id}.result.json", tmp_path / "copy")
    assert store.delete(query_id="canary-query") == 6
    assert [path.name for path in base.iterdir()] == [OWN_FOLDER]
    left = [path for path in base.rglob("*") if path.is_file()]
    names = " ".join(str(path.relative_to(base)) for path in left).encode()
    everything = names + b"".join(path.read_bytes() for path in left)
    for trace in ("canary", "tool", *(pointer.pointer_id for pointer in (*pointers, expired))):
        assert trace.encode() not in everything
    assert (tmp_path / "elsewhere").read_text() == "canary of another"
    again = FileContextPointerStore(base, clock=clock)
    assert [reason(again, pointer) for pointer in (*pointers, expired)] == ["erased"] * 3 + [
        "expired"
    ]
    assert reason(again, pointers[0].model_copy(update={"pointer_id": "0" * 12})) == "unknown"


async def test_remains_of_a_killed_writer_are_deleted_for_good_s4_06(
    store: ContextPointerStore,
) -> None:
    pointer = await save(store, "x")
    record = pointer.model_dump_json().encode()
    store.records.blobs.put(next_key("q", pointer.pointer_id), record)
    assert store.delete(query_id="q") == 1
    assert store.records.blobs.scan("q").blobs == {}
    assert (await save(store, "x")).created_at > pointer.created_at


async def test_concurrent_saves_and_deletions_never_fail_s4_06(
    files: FileContextPointerStore,
) -> None:
    stop = threading.Event()

    def delete() -> None:
        while not stop.is_set():
            files.delete(query_id="q")

    with ThreadPoolExecutor(2) as threads:
        deleting = [threads.submit(delete) for _ in range(2)]
        for number in range(50):
            await save(files, number)
        stop.set()
        for done in deleting:
            done.result()
    last = await save(files, "last")
    assert last in files.list(query_id="q")


async def test_unrecognized_files_survive_the_deletion_of_a_query_s0_21(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    await save(store, "x")
    (tmp_path / "q" / "notes.txt").write_text("mine")
    (tmp_path / "q" / f"{'a' * 12}.meta.json").mkdir()
    store.delete(query_id="q", remember=False)
    assert {path.name for path in (tmp_path / "q").iterdir()} == {
        "notes.txt",
        f"{'a' * 12}.meta.json",
    }
    assert not (tmp_path / OWN_FOLDER).exists()


async def test_garbage_is_collected_from_every_query_and_nothing_else_s0_21_f_053(
    tmp_path: Path, clock: Clock
) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", clock=clock)
    for number in range(20):
        await save(store, "brief", query_id=f"brief-{number}", ttl_s=10)
    kept = await save(store, "kept")
    folder = tmp_path / "q"
    for name, age_s in (("old", 3_700), ("new", 3_500)):
        (folder / f".tmp-1-{name}").write_bytes(b"12345")
        os.utime(folder / f".tmp-1-{name}", (time.time() - age_s,) * 2)
    (folder / f"{'b' * 12}.next").write_bytes(b"123")
    (folder / f"{'c' * 12}.result.json").write_bytes(b"1")
    (folder / "notes.txt").write_text("mine")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "mine.js").write_text("mine")
    (tmp_path / "link").symlink_to(folder)
    clock.move(60)
    report = await store.gc()
    assert report.model_dump(exclude={"freed_bytes"}) == {
        "queries": 23,
        "passed_over": 1,  # the link
        "expired": 20,
        "orphans": 1,
        "leftovers": 1,
        "temporaries": 1,
    }
    assert report.freed_bytes > 20 * 300
    assert names_in(tmp_path) == [OWN_FOLDER, "link", "node_modules", "q"]
    assert set(names_in(folder)) == {
        ".lock",
        ".tmp-1-new",
        "notes.txt",
        f"{kept.pointer_id}.meta.json",
        f"{kept.pointer_id}.result.json",
    }
    again = await store.gc()
    assert (again.queries, again.freed_bytes, again.expired) == (3, 0, 0)


async def test_garbage_collection_skips_a_locked_query_s0_21(tmp_path: Path, clock: Clock) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", lock_timeout_s=0.05, clock=clock)
    held = await save(store, "x", query_id="held", ttl_s=1)
    await save(store, "x", ttl_s=1)
    clock.move(2)
    with store._files.lock("held"):
        report = await store.gc()
        assert (report.expired, report.passed_over) == (1, 1)
        assert reason(store, held) == "expired"
    assert (await store.gc()).expired == 1


async def test_a_cancelled_collection_ends_at_the_next_query_s0_21(
    tmp_path: Path, clock: Clock
) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", clock=clock)
    for number in range(300):
        (tmp_path / f"q{number}").mkdir()
        (tmp_path / f"q{number}" / f"{'c' * 12}.result.json").write_bytes(b"1")
    collecting = asyncio.create_task(store.gc())
    await asyncio.sleep(0)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    await asyncio.sleep(0.1)
    left = len(names_in(tmp_path))
    assert left > 100
    await asyncio.sleep(0.05)
    assert len(names_in(tmp_path)) == left


async def test_remains_on_an_object_store_are_collected_after_an_hour_s0_21_f_054() -> None:
    objects = obstore.store.MemoryStore()
    store = ObjectContextPointerStore(objects)
    pointer = await save(store, "x")
    for name in (
        f"{pointer.pointer_id}.{'0' * 12}.result.json",
        f"{pointer.pointer_id}.{'0' * 16}.next",
    ):
        objects.put(f"q/{name}", b"1")
    assert (await store.verify()).is_clean  # a writer may be on its way
    for minutes in (0, 58):
        assert (await store.gc(now=datetime.now(UTC) + timedelta(minutes=minutes))).freed_bytes == 0
    report = await store.gc(now=datetime.now(UTC) + timedelta(minutes=62))
    assert (report.orphans, report.leftovers) == (1, 1)
    assert reason(store, pointer) is None
    assert len(store.records.blobs.scan("q").blobs) == 2


# --- the law, against a model


class Retaining(RuleBasedStateMachine):
    """A store lists and loads what a dictionary holds, whatever is saved, pinned or removed."""

    names = st.integers(0, 4)
    home = "files"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.open_store = partial(
            opener(self.home, Path(self.folder.name) / "base"), clock=self.clock
        )
        self.results: dict[str, tuple[int, float | None, bool]] = {}
        self.pointers: dict[str, ContextPointer] = {}
        self.reasons: dict[str, str] = {}
        self.versions = itertools.count()
        self.seconds = 0.0
        self.latest = 0.0

    @initialize(limit=st.sampled_from([None, 400]))
    def begin(self, limit: int | None) -> None:
        self.limit = limit
        self.store = self.open_store(ttl_s=50, max_bytes_per_query=limit)

    @property
    def now(self) -> float:
        """Return the model's time, which never steps back by less than five seconds."""
        return self.latest if self.seconds < self.latest <= self.seconds + 5 else self.seconds

    def gone(self, pointer_id: str, now: float | None = None) -> str | None:
        if pointer_id not in self.results:
            return self.reasons.get(pointer_id, "unknown")
        _, expires, pinned = self.results[pointer_id]
        now = self.now if now is None else now
        return "expired" if expires is not None and expires <= now and not pinned else None

    def age(self, pointer_id: str) -> tuple[str, str]:
        return self.pointers[pointer_id].created_at, pointer_id

    @rule(name=names, ttl_s=st.sampled_from([None, 10, math.inf]), keep=st.booleans())
    def save(self, name: int, ttl_s: float | None, keep: bool) -> None:
        version = next(self.versions)
        others = {one: value for one, value in self.results.items() if one[:12] != self.id_of(name)}
        free = (
            None
            if self.limit is None
            else self.limit - sum(100 for value in others.values() if value[2])
        )
        if keep and any(one[:12] == self.id_of(name) for one in self.results):
            return  # ids of repeats are the contract's
        if free is not None and free < 100:
            with pytest.raises(StoreFullError):
                self.runner.run(save(self.store, name, f"{version:098}", ttl_s=ttl_s))
            return
        pointer = self.runner.run(
            save(self.store, name, f"{version:098}", ttl_s=ttl_s, keep_repeats=keep)
        )
        pinned = self.results.get(pointer.pointer_id, (0, None, False))[2]
        self.evict(pointer.pointer_id)
        expires = None if ttl_s == math.inf else self.now + (50 if ttl_s is None else ttl_s)
        self.results.pop(pointer.pointer_id, None)
        self.results[pointer.pointer_id] = (version, expires, pinned)
        self.pointers[pointer.pointer_id] = pointer
        assert pointer.pinned == pinned

    def id_of(self, name: int) -> str:
        known = [
            pointer.pointer_id
            for pointer in self.pointers.values()
            if pointer.args == {"name": name}
        ]
        return known[0] if known else ""

    def evict(self, saved: str) -> None:
        """Remove from the model what must be evicted: expired entries, then the oldest."""
        others = sorted((one for one in self.results if one != saved), key=self.age)
        beyond = 0 if self.limit is None else len(others) + 1 - self.limit // 100
        free = [one for one in others if not self.results[one][2]]
        for one in sorted(free, key=lambda one: self.gone(one) is None)[: max(beyond, 0)]:
            self.reasons[one] = self.gone(one) or "erased"
            del self.results[one]

    @rule(name=names, pinned=st.booleans())
    def pin(self, name: int, pinned: bool) -> None:
        pointer_id = self.id_of(name)
        if not pointer_id:
            return
        change = self.store.pin if pinned else self.store.unpin
        why = self.gone(pointer_id)
        if why is None:
            assert change(self.pointers[pointer_id]).pinned == pinned
            self.results[pointer_id] = (*self.results[pointer_id][:2], pinned)
        else:
            with pytest.raises(PointerNotFoundError) as caught:
                change(self.pointers[pointer_id])
            assert caught.value.reason == why

    @rule(seconds=st.sampled_from([-30, -3, 0.7, 15, 60]))
    def move_clock(self, seconds: float) -> None:
        self.latest = self.now
        self.seconds += seconds
        self.clock.move(seconds)
        self.store.list(query_id="q")  # a store that has not looked cannot know the time

    @rule(name=st.none() | names)
    def delete(self, name: int | None) -> None:
        pointer_ids = None if name is None else [self.id_of(name) or "0" * 12]
        going = [one for one in self.results if pointer_ids is None or one in pointer_ids]
        assert self.store.delete(query_id="q", pointer_ids=pointer_ids) == len(going)
        for one in going:
            self.reasons[one] = "erased"
            del self.results[one]

    @rule()
    def collect(self) -> None:
        expired = [one for one in self.results if self.gone(one, self.seconds)]
        assert self.runner.run(self.store.gc()).expired == len(expired)
        for one in expired:
            self.reasons[one] = "expired"
            del self.results[one]

    @rule()
    def restart(self) -> None:
        """Open the store as a new process, which knows only the system's time."""
        if self.seconds >= self.latest:
            self.seconds += 0.001
            self.clock.move(0.001)
            self.store = self.open_store(ttl_s=50, max_bytes_per_query=self.limit)

    @rule()
    def verify(self) -> None:
        report = self.runner.run(self.store.verify(repair=True))
        assert (report.findings, report.pointers) == ((), len(self.results))

    @invariant()
    def is_as_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        there = sorted((one for one in self.results if self.gone(one) is None), key=self.age)
        assert [pointer.pointer_id for pointer in self.store.list(query_id="q")] == there
        for one, pointer in self.pointers.items():
            assert reason(self.store, pointer) == self.gone(one)
            if one in there:
                assert self.store.load_result(pointer=pointer) == f"{self.results[one][0]:098}"

    def teardown(self) -> None:
        self.runner.close()
        self.folder.cleanup()


@pytest.mark.parametrize(
    "examples", [pytest.param(12, id="short"), pytest.param(1_000, marks=pytest.mark.torture)]
)
@pytest.mark.parametrize("home", HOMES)
def test_the_store_matches_its_model_s0_21(home: str, examples: int) -> None:
    machine = type("Machine", (Retaining,), {"home": home})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # files, on a machine that others use too
        ),
    )


# --- beside others


async def test_collecting_during_saves_loses_nothing_s0_21(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    other = FileContextPointerStore(tmp_path, durability="rename")
    stop = False

    async def collect() -> int:
        runs = 0
        while not stop:
            assert (await other.gc()).passed_over == 0
            runs += 1
        return runs

    collecting = asyncio.create_task(collect())
    for number in range(100):
        kept = await save(files, "kept", number, query_id=f"q{number % 3}")
        await save(files, "brief", number, query_id=f"q{number % 3}", ttl_s=1e-6)
        assert files.load_result(pointer=kept) == number
    stop = True
    assert await collecting > 3
    await files.gc()
    assert [len(list((tmp_path / f"q{number}").iterdir())) for number in range(3)] == [3] * 3


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux shows them"
)
@pytest.mark.parametrize(
    "saves",
    [
        pytest.param(250, id="L20-short"),
        pytest.param(1_000_000, id="L20", marks=pytest.mark.torture),
    ],
)
async def test_saves_with_collections_leave_nothing_behind_s0_21(
    tmp_path: Path, saves: int
) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename", max_bytes_per_query=20_000)
    await save(store, "first")
    before = open_descriptors()
    every = max(saves // 20, 100)
    for number in range(saves):
        await save(
            store,
            number % 50,
            number,
            query_id=f"q{number % 7}",
            ttl_s=None if number % 3 else 1e-6,
        )
        if number % every == 0:
            report = await store.gc()
            assert report.passed_over == 0
            assert open_descriptors() == before
    await store.gc()
    assert open_descriptors() == before
    names = [name for folder in names_in(tmp_path) for name in names_in(tmp_path / folder)]
    assert len(names) < 7 * 2 * 50 + 300
    assert (await store.verify()).is_clean
    assert not [name for name in names if name.startswith(".tmp")]
