"""Records of why pointers are gone: how many, for how long, and for which query."""

from datetime import UTC, datetime, timedelta

from llm_common.pointers.tombstones import Tombstones
from llm_common.storage import MemoryBlobStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pointer_id(number: int) -> str:
    return f"{number:012x}"


def test_a_pointer_that_is_removed_again_is_the_newest_s0_21() -> None:
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


def test_a_removal_is_known_for_thirty_days_s0_21() -> None:
    tombstones = Tombstones(MemoryBlobStore())
    tombstones.mark("q", [pointer_id(1)], "erased", now=NOW)
    tombstones.mark("q", [pointer_id(2)], "expired", now=NOW + timedelta(days=1))
    tombstones.mark("q", [pointer_id(3)], "erased", now=NOW + timedelta(days=30))
    assert tombstones.reason("q", pointer_id(1)) == "erased"
    tombstones.mark("q", [pointer_id(4)], "erased", now=NOW + timedelta(days=31))
    assert tombstones.reason("q", pointer_id(1)) == "unknown"
    assert tombstones.reason("q", pointer_id(2)) == "expired"
