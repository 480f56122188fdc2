"""Records of why pointers are gone: how many, for how long, and for which query."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.pointers.tombstones import Tombstones, not_found
from llm_common.storage import MemoryBlobStore
from llm_common.storage.blob import OWN_FOLDER

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pointer_id(number: int) -> str:
    return f"{number:012x}"


def test_a_pointer_that_is_removed_again_is_the_newest() -> None:
    tombstones = Tombstones(MemoryBlobStore())
    ids = [pointer_id(number) for number in range(1_024)]
    assert tombstones.mark("q", ids, "erased", now=NOW)
    tombstones.mark("q", ids[:1], "expired", now=NOW)
    tombstones.mark("q", [pointer_id(2_000)], "erased", now=NOW)
    reasons = [tombstones.reason("q", ids[number]) for number in (0, 1, 2)]
    assert reasons == ["expired", "unknown", "erased"]
    was_removed = tombstones.removed("q")
    assert [was_removed(ids[number]) for number in (0, 1, 2)] == [True, False, True]
    assert not tombstones.removed("another query")(ids[0])
    assert tombstones.reason("another query", ids[0]) == "unknown"


def test_a_removal_is_known_for_thirty_days() -> None:
    tombstones = Tombstones(MemoryBlobStore())
    tombstones.mark("q", [pointer_id(1)], "erased", now=NOW)
    tombstones.mark("q", [pointer_id(2)], "expired", now=NOW + timedelta(days=1))
    tombstones.mark("q", [pointer_id(3)], "erased", now=NOW + timedelta(days=30))
    assert tombstones.reason("q", pointer_id(1)) == "erased"
    tombstones.mark("q", [pointer_id(4)], "erased", now=NOW + timedelta(days=31))
    assert tombstones.reason("q", pointer_id(1)) == "unknown"
    assert tombstones.reason("q", pointer_id(2)) == "expired"


def test_nothing_to_mark_writes_nothing() -> None:
    blobs = MemoryBlobStore()
    assert Tombstones(blobs).mark("q", [], "erased", now=NOW)
    assert not blobs.scan(OWN_FOLDER).blobs


def test_a_damaged_record_is_replaced_by_the_next() -> None:
    blobs = MemoryBlobStore()
    tombstones = Tombstones(blobs)
    tombstones.mark("q", [pointer_id(1)], "erased", now=NOW)
    [name] = blobs.scan(OWN_FOLDER).blobs
    blobs.put(f"{OWN_FOLDER}/{name}", b"{")
    assert tombstones.reason("q", pointer_id(1)) == "unknown"
    assert tombstones.mark("q", [pointer_id(2)], "erased", now=NOW)
    assert tombstones.reason("q", pointer_id(2)) == "erased"


@pytest.mark.parametrize("reason", ["unknown", "expired", "erased", "elsewhere"])
def test_an_error_names_pointer_query_and_reason(reason: str) -> None:
    error = not_found(reason, "q 1", pointer_id(7))  # type: ignore[arg-type]
    assert error.reason == reason
    assert pointer_id(7) in error.message
    assert "'q 1'" in error.message
