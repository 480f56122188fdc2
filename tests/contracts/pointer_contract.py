"""Contract suite for pointer stores: a pytest class that tests a `ContextPointerStore`."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llm_common.agents import ContextPointer, ContextPointerStore, compute_pointer_id
from llm_common.errors import (
    InvalidIdError,
    PointerNotFoundError,
    ResultTooLargeError,
    UnserialisableError,
)

_RESULTS: tuple[Any, ...] = (
    None,
    0,
    "",
    [],
    {},
    "\u2028é😀",
    2**200,  # orjson encodes at most 64 bits
    {"rows": [1, 2.5, None]},
    {"\ud800": 1},  # UTF-8 cannot encode a lone surrogate
    "x" * 1_000_000,
)


async def _save(store: ContextPointerStore, result: Any, /, **changes: Any) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": "t",
        "tool_name": "tool",
        "args": {"query": "x"},
    }
    return await store.save(**(call | {"result": result} | changes))


class ContextPointerStoreContract:
    """The tests of a `ContextPointerStore`.

    Inherit from it in a test class with a fixture `store` that returns a new, empty store, created
    with `max_result_bytes=2_000_000`.
    """

    async def test_a_saved_result_is_listed_and_loaded(self, store: ContextPointerStore) -> None:
        """List and load it under the id of its call."""
        pointer = await _save(store, {"a": 1})
        assert pointer.pointer_id == compute_pointer_id(
            tool_name="tool", args={"query": "x"}, query_id="q", task_id="t"
        )
        assert store.list(query_id="q") == [pointer]
        assert store.load_result(pointer=pointer) == {"a": 1}

    async def test_the_twins_for_coroutines_do_the_same(self, store: ContextPointerStore) -> None:
        """List, load and delete with `alist`, `aload_result` and `adelete`."""
        pointer = await _save(store, {"a": 1})
        other = await _save(store, {"a": 2}, args={"n": 2})
        assert await store.alist(query_id="q") == store.list(query_id="q")
        assert await store.aload_result(pointer=pointer) == {"a": 1}
        assert await store.adelete(query_id="q", pointer_ids=[pointer.pointer_id]) == 1
        with pytest.raises(PointerNotFoundError):
            await store.aload_result(pointer=pointer)
        assert [kept.pointer_id for kept in await store.alist(query_id="q")] == [other.pointer_id]
        assert await store.adelete(query_id="q") == 1

    async def test_every_json_value_is_loaded_unchanged(self, store: ContextPointerStore) -> None:
        """Save values of every type, large values and unusual characters."""
        for index, result in enumerate(_RESULTS):
            pointer = await _save(store, result, args={"n": index})
            assert store.load_result(pointer=pointer) == json.loads(json.dumps(result))
        assert len(store.list(query_id="q")) == len(_RESULTS)

    async def test_the_same_call_replaces_its_result(self, store: ContextPointerStore) -> None:
        """Replace a result by a longer, a shorter and an equal one."""
        first = await _save(store, "old")
        for result in ("new and longer", "n", "n"):
            pointer = await _save(store, result)
            assert pointer.pointer_id == first.pointer_id
            assert store.list(query_id="q") == [pointer]
            assert store.load_result(pointer=first) == result

    async def test_repeats_are_kept_on_request(self, store: ContextPointerStore) -> None:
        """Save each changed result under a new id, in the order of the saves."""
        # The second `b` changes nothing, so it has the id of the first.
        saves = [("a", ""), ("b", "0001"), ("b", "0001"), ("a", "0002"), ("c", "0003")]
        for result, suffix in saves:
            pointer = await _save(store, result, keep_repeats=True)
            assert pointer.pointer_id[12:] == suffix
        assert _load_all(store, "q") == ["a", "b", "a", "c"]

    async def test_concurrent_saves_are_all_kept(self, store: ContextPointerStore) -> None:
        """Save different calls, and one call whose repeats are kept."""
        await asyncio.gather(*(_save(store, index, args={"n": index}) for index in range(8)))
        await asyncio.gather(
            *(_save(store, index, query_id="r", keep_repeats=True) for index in range(8))
        )
        for query_id in "qr":
            assert sorted(_load_all(store, query_id)) == list(range(8))

    async def test_concurrent_saves_of_one_call_leave_one_whole_result(
        self, store: ContextPointerStore
    ) -> None:
        """Keep the result and the size of the same save."""
        await asyncio.gather(*(_save(store, [index] * 10) for index in range(8)))
        (pointer,) = store.list(query_id="q")
        result = store.load_result(pointer=pointer)
        # A mix of two saves would have two numbers.
        assert result == [result[0]] * 10
        assert pointer.result_bytes == len(json.dumps(result, separators=(",", ":")))

    async def test_queries_are_isolated(self, store: ContextPointerStore) -> None:
        """List, load and delete nothing of another query."""
        pointer = await _save(store, 1)
        assert store.list(query_id="r") == []
        with pytest.raises(PointerNotFoundError):
            store.load_result(pointer=pointer.model_copy(update={"query_id": "r"}))
        assert store.delete(query_id="r") == 0
        assert store.list(query_id="q") == [pointer]

    async def test_a_deleted_query_can_be_used_again(self, store: ContextPointerStore) -> None:
        """Delete one pointer, then all pointers, then nothing, and save again."""
        first = await _save(store, 0, args={"n": 0})
        second = await _save(store, 1, args={"n": 1})
        third = await _save(store, 2, args={"n": 2})
        assert store.delete(query_id="q", pointer_ids=[second.pointer_id]) == 1
        assert store.list(query_id="q") == [first, third]
        assert store.delete(query_id="q") == 2
        assert store.delete(query_id="q") == 0
        assert store.list(query_id="q") == []
        for pointer in (first, second):
            _assert_missing(store, pointer, "erased")
        again = await _save(store, "again")
        assert store.list(query_id="q") == [again]

    async def test_a_refused_save_leaves_nothing(self, store: ContextPointerStore) -> None:
        """Refuse an invalid id, a value that is not JSON, and a result over the limit."""
        refused: list[tuple[type[Exception], Any, str]] = [
            (InvalidIdError, 1, "../q"),
            (UnserialisableError, 10**5000, "q"),  # Python refuses to print over 4,300 digits
            (ResultTooLargeError, "x" * 2_000_000, "q"),
        ]
        for error, result, query_id in refused:
            with pytest.raises(error):
                await _save(store, result, query_id=query_id)
        assert store.list_detailed(query_id="q").model_dump() == {"pointers": (), "skipped": 0}

    async def test_an_expired_result_cannot_be_loaded(self, store: ContextPointerStore) -> None:
        """Hide it before and after `gc`, which removes nothing else."""
        expired = await _save(store, 1, args={"n": 1}, ttl_s=1e-6)  # expires before it returns
        current = await _save(store, 1, args={"n": 2}, ttl_s=1e6)
        for _ in range(2):
            assert store.list(query_id="q") == [current]
            _assert_missing(store, expired, "expired")
            removed = await store.gc()
        # The first `gc` removed it, so the second finds nothing.
        assert (removed.expired, removed.passed_over) == (0, 0)
        assert store.load_result(pointer=current) == 1
        again = await _save(store, "again", args={"n": 1})
        assert store.load_result(pointer=expired) == "again"
        assert again.expires_at is None

    async def test_a_pinned_result_does_not_expire(self, store: ContextPointerStore) -> None:
        """Keep the pin through a save and `gc`, until `unpin`."""
        pointer = await _save(store, 1)
        pinned = store.pin(pointer)
        assert (
            store.list(query_id="q")
            == [store.pin(pinned)]
            == [pointer.model_copy(update={"pinned": True})]
        )
        again = await _save(store, "again", ttl_s=1e-6)
        assert again.pinned
        await store.gc()
        assert store.load_result(pointer=pointer) == "again"
        store.unpin(pointer)
        _assert_missing(store, pointer, "expired")
        for method in (store.pin, store.unpin):
            with pytest.raises(PointerNotFoundError) as caught:
                method(pointer)
            assert caught.value.reason == "expired"

    async def test_a_read_extends_the_life_of_a_result(self, store: ContextPointerStore) -> None:
        """Extend it from the read on, for `gc` too, and only where the save asked for it."""
        day_s, saved_at = 86_400.0, datetime.now(UTC) - timedelta(hours=20)
        renewable = await _save(store, 1, args={"n": 1}, ttl_s=day_s, renew_on_read=True)
        fixed = await _save(store, 2, args={"n": 2}, ttl_s=day_s)
        for pointer in (renewable, fixed):
            _set_expiry(store, pointer, saved_at + timedelta(days=1))
            assert store.load_result(pointer=pointer)
        current, same = store.list(query_id="q")
        assert datetime.fromisoformat(current.expires_at or "") > saved_at + timedelta(hours=43)
        assert same.expires_at == _time_text(saved_at + timedelta(days=1))
        # Another read within the hour writes nothing.
        assert store.load_result(pointer=renewable) == 1
        assert store.list(query_id="q") == [current, same]
        report = await store.gc(now=saved_at + timedelta(hours=30))
        assert (report.expired, store.list(query_id="q")) == (1, [current])
        assert (await store.verify()).is_clean
        assert (await store.gc(now=saved_at + timedelta(hours=45))).expired == 1
        assert not store.records.blobs.scan("q").blobs

    async def test_an_evicted_id_returns_no_other_result(self, store: ContextPointerStore) -> None:
        """Save new results of a call under new ids after its older ones were removed."""
        removed: set[str] = set()
        for number in range(6):
            pointer = await _save(store, number, keep_repeats=True)
            assert pointer.pointer_id not in removed
            # Every other time all results of the call are gone.
            if number % 2:
                for old in store.list(query_id="q"):
                    removed.add(old.pointer_id)
                store.delete(query_id="q", pointer_ids=removed)
        # A gap, as the eviction of the oldest leaves it.
        kept = [await _save(store, result, keep_repeats=True) for result in "abc"]
        store.delete(query_id="q", pointer_ids=[pointer.pointer_id for pointer in kept[:2]])
        again = await _save(store, "d", keep_repeats=True)
        assert again.pointer_id not in removed.union(pointer.pointer_id for pointer in kept)
        assert (await _save(store, "d", keep_repeats=True)).pointer_id == again.pointer_id

    async def test_a_lookup_error_says_why(self, store: ContextPointerStore) -> None:
        """Say `erased`, or `unknown` for a pointer that was deleted with `remember=False`."""
        erased = await _save(store, 0, args={"n": 0})
        forgotten = await _save(store, 1, args={"n": 1})
        store.delete(query_id="q", pointer_ids=[forgotten.pointer_id], remember=False)
        store.delete(query_id="q")
        # The hash that remembers the erasure is not among the results.
        assert not store.records.blobs.scan("q").blobs
        _assert_missing(store, erased, "erased")
        _assert_missing(store, forgotten, "unknown")
        _assert_missing(store, erased.model_copy(update={"query_id": "r"}), "unknown")
        with pytest.raises(PointerNotFoundError):
            store.pin(erased)

    async def test_damage_is_reported_and_repaired(self, store: ContextPointerStore) -> None:
        """Repair damaged pointers, and keep whole ones and unrecognized files."""
        damaged = await _save(store, 0, args={"n": 0})
        missing = await _save(store, 1, args={"n": 1})
        whole = await _save(store, 2, args={"n": 2})
        assert (await store.verify()).model_dump() == {"queries": 1, "pointers": 3, "findings": ()}
        blobs = store.records.blobs
        damaged_name = store.records.result_names(damaged)[0]
        missing_name = store.records.result_names(missing)[0]
        # Valid JSON with the size of the true result, so only the digest shows the damage.
        blobs.put(f"q/{damaged_name}", b"7")
        blobs.delete(f"q/{missing_name}")
        blobs.put("q/notes.txt", b"mine")
        kinds = {
            (damaged_name, "digest_mismatch"),
            (missing_name, "missing_result"),
            ("notes.txt", "unrecognized"),
        }
        for repair in (False, True):
            report = await store.verify(repair=repair)
            assert {(finding.name, finding.kind) for finding in report.findings} == kinds
            assert report.is_clean is repair
        report = await store.verify()
        assert report.is_clean
        assert [finding.name for finding in report.findings] == ["notes.txt"]
        assert store.list(query_id="q") == [whole]
        assert blobs.get("q/notes.txt") == b"mine"


def _set_expiry(store: ContextPointerStore, pointer: ContextPointer, moment: datetime) -> None:
    """Change a record as if its result had been saved earlier."""
    # Not `created_at`, on which the name of an object depends.
    expiry = {"expires_at": _time_text(moment)}

    def change(transaction: Any) -> None:
        stored = transaction.current(pointer.pointer_id)
        assert stored is not None
        transaction.update(stored.model_copy(update=expiry))

    store.records.change(pointer.query_id, change)


def _time_text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _load_all(store: ContextPointerStore, query_id: str) -> list[Any]:
    return [store.load_result(pointer=pointer) for pointer in store.list(query_id=query_id)]


def _assert_missing(store: ContextPointerStore, pointer: ContextPointer, reason: str) -> None:
    with pytest.raises(PointerNotFoundError) as caught:
        store.load_result(pointer=pointer)
    assert caught.value.reason == reason
    assert "again" not in str(caught.value)
