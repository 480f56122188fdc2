"""The life of a result after a read, from the records alone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore.store
import pytest

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    ObjectContextPointerStore,
)
from llm_common.pointers.listing import PointerListing
from llm_common.pointers.records import renewed

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY_S = 86_400.0


def pointer(*, life_s: float | None = DAY_S, left_s: float | None = DAY_S) -> ContextPointer:
    """Return a pointer that expires some seconds after the start."""
    expires_at = None if left_s is None else (START + timedelta(seconds=left_s)).isoformat()
    return ContextPointer(
        pointer_id="0" * 12,
        query_id="q",
        tool_name="t",
        result_path="",
        created_at=START.isoformat(),
        summary="",
        expires_at=expires_at,
        renew_s=life_s,
    )


def test_a_read_extends_the_life_from_its_own_time() -> None:
    read_at = START + timedelta(hours=5)
    longer = renewed(pointer(), read_at)
    assert longer is not None
    assert datetime.fromisoformat(longer.expires_at or "") == read_at + timedelta(days=1)


@pytest.mark.parametrize("hours", [-5, 0])
def test_a_read_before_the_save_shortens_nothing(hours: float) -> None:
    assert renewed(pointer(), START + timedelta(hours=hours)) is None


def test_only_a_renewable_result_is_extended() -> None:
    for saved in (pointer(life_s=None), pointer(left_s=None)):
        assert renewed(saved, START + timedelta(days=300)) is None


@pytest.mark.parametrize(
    ("life_s", "due_s"), [(DAY_S, 3_600.0), (7_200.0, 3_600.0), (7_000.0, 3_500.0), (10.0, 5.0)]
)
def test_a_read_counts_after_an_hour_or_half_of_a_short_life(life_s: float, due_s: float) -> None:
    saved = pointer(life_s=life_s, left_s=life_s)
    assert renewed(saved, START + timedelta(seconds=due_s))
    assert not renewed(saved, START + timedelta(seconds=due_s, microseconds=-1))


def test_a_time_that_cannot_be_read_is_never_due() -> None:
    assert renewed(pointer().model_copy(update={"expires_at": "tomorrow"}), START) is None
    assert renewed(pointer(life_s=1e15), START) is None


def in_two_hours() -> datetime:
    """Return a time by which an object store takes what is written now for abandoned."""
    return datetime.now(UTC) + timedelta(hours=2)


@pytest.fixture(params=["files", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ContextPointerStore:
    if request.param == "files":
        return FileContextPointerStore(tmp_path, durability="rename", clock=in_two_hours)
    return ObjectContextPointerStore(obstore.store.MemoryStore(), clock=in_two_hours)


async def test_a_read_file_of_an_earlier_version_is_only_removed(
    store: ContextPointerStore,
) -> None:
    saved = await store.save(
        query_id="q", tool_name="t", args={}, result="x", ttl_s=DAY_S, renew_on_read=True
    )
    read_key = f"q/{saved.pointer_id}.read"
    read = b'{"read_at":"2999-01-01T00:00:00.000000+00:00"}'
    store.records.blobs.put(read_key, read)
    listing = store.list_detailed(query_id="q")
    assert listing == PointerListing(pointers=(saved,), skipped=0)
    assert store.load_payload(saved.pointer_id, query_id="q") == (saved, b'"x"')
    assert (await store.verify(repair=True)).findings == ()
    collected = await store.gc()
    assert (collected.expired, collected.orphans, collected.leftovers) == (0, 0, 0)
    assert store.records.blobs.get(read_key, max_bytes=1_000) == read
    assert (await store.gc(now=in_two_hours() + timedelta(days=1))).expired == 1
    assert not store.records.blobs.scan("q").blobs


async def test_read_files_of_an_earlier_version_do_not_keep_a_folder(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename")
    saved = await store.save(query_id="saved", tool_name="t", args={}, result="x")
    for query_id in ("saved", "deleted", "collected"):
        (tmp_path / query_id).mkdir(exist_ok=True)
        (tmp_path / query_id / f"{saved.pointer_id}.read").write_bytes(b"{}")
    assert store.delete(query_id="saved") == 1
    store.delete(query_id="deleted")
    await store.gc()
    assert store.queries() == []
    assert (await store.verify()).findings == ()
