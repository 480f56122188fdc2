"""`ContextPointerStoreContract`: what every home of pointers must do, as a pytest class."""

import asyncio
import json
from typing import Any

import pytest

from llm_common.errors import (
    InvalidIdError,
    PointerNotFoundError,
    ResultTooLargeError,
    UnserialisableError,
)
from llm_common.pointers.pointer import ContextPointer, compute_pointer_id
from llm_common.pointers.store import ContextPointerStore

_RESULTS: tuple[Any, ...] = (
    *(
        None,
        0,
        "",
        [],
        {},
        "\u2028é😀",
        2**200,
        {"rows": [1, 2.5, None]},
        {"\ud800": 1},
        "x" * 1_000_000,
    ),
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
    """What a `ContextPointerStore` promises.

    Inherit it where a fixture `store` gives a new, empty store. The store must have been made with
    `max_result_bytes=2_000_000`.
    """

    async def test_a_saved_result_is_listed_and_loaded(self, store: ContextPointerStore) -> None:
        """Under the id of its call."""
        pointer = await _save(store, {"a": 1})
        assert pointer.pointer_id == compute_pointer_id(
            tool_name="tool", args={"query": "x"}, query_id="q", task_id="t"
        )
        assert store.list(query_id="q") == [pointer]
        assert store.load_result(pointer=pointer) == {"a": 1}

    async def test_every_json_value_comes_back_as_it_was(self, store: ContextPointerStore) -> None:
        """Whatever its size and its characters."""
        for number, result in enumerate(_RESULTS):
            pointer = await _save(store, result, args={"n": number})
            assert store.load_result(pointer=pointer) == json.loads(json.dumps(result))
        assert len(store.list(query_id="q")) == len(_RESULTS)

    async def test_the_same_call_replaces_its_result(self, store: ContextPointerStore) -> None:
        """Longer, shorter or the same."""
        first = await _save(store, "old")
        for result in ("new and longer", "n", "n"):
            pointer = await _save(store, result)
            assert pointer.pointer_id == first.pointer_id
            assert store.list(query_id="q") == [pointer]
            assert store.load_result(pointer=first) == result

    async def test_repeats_are_kept_on_request(self, store: ContextPointerStore) -> None:
        """Each under an id of its own, in the order of the saves."""
        kept = [
            await _save(store, result, keep_repeats=True) for result in ("a", "b", "b", "a", "c")
        ]
        assert [pointer.pointer_id[12:] for pointer in kept] == ["", "0001", "0001", "0002", "0003"]
        assert [store.load_result(pointer=pointer) for pointer in store.list(query_id="q")] == [
            "a",
            "b",
            "a",
            "c",
        ]

    async def test_saves_at_the_same_time_are_all_kept(self, store: ContextPointerStore) -> None:
        """Of different calls, and of one call whose repeats are kept."""
        await asyncio.gather(*(_save(store, number, args={"n": number}) for number in range(8)))
        await asyncio.gather(
            *(_save(store, number, query_id="r", keep_repeats=True) for number in range(8))
        )
        for query_id in "qr":
            results = [
                store.load_result(pointer=pointer) for pointer in store.list(query_id=query_id)
            ]
            assert sorted(results) == list(range(8))

    async def test_saves_of_one_call_at_the_same_time_leave_one_of_them(
        self, store: ContextPointerStore
    ) -> None:
        """Whole."""
        await asyncio.gather(*(_save(store, [number] * 10) for number in range(8)))
        (pointer,) = store.list(query_id="q")
        result = store.load_result(pointer=pointer)
        assert result == [result[0]] * 10
        assert pointer.result_bytes == len(json.dumps(result, separators=(",", ":")))

    async def test_queries_are_apart(self, store: ContextPointerStore) -> None:
        """Neither listing nor loading nor deleting reaches another query."""
        pointer = await _save(store, 1)
        assert store.list(query_id="r") == []
        with pytest.raises(PointerNotFoundError):
            store.load_result(pointer=pointer.model_copy(update={"query_id": "r"}))
        assert store.delete(query_id="r") == 0
        assert store.list(query_id="q") == [pointer]

    async def test_a_deleted_query_is_gone_and_can_be_filled_again(
        self, store: ContextPointerStore
    ) -> None:
        """One pointer, then all; deleting is idempotent."""
        one, two, three = [await _save(store, number, args={"n": number}) for number in range(3)]
        assert store.delete(query_id="q", pointer_ids=[two.pointer_id]) == 1
        assert store.list(query_id="q") == [one, three]
        assert [store.delete(query_id="q") for _ in range(2)] == [2, 0]
        assert store.list(query_id="q") == []
        for pointer in (one, two):
            with pytest.raises(PointerNotFoundError):
                store.load_result(pointer=pointer)
        again = await _save(store, "again")
        assert store.list(query_id="q") == [again]

    async def test_what_cannot_be_saved_leaves_nothing(self, store: ContextPointerStore) -> None:
        """A bad id, a value that is no JSON, a result over the limit."""
        with pytest.raises(InvalidIdError):
            await _save(store, 1, query_id="../q")
        with pytest.raises(UnserialisableError):
            await _save(store, 10**5000)
        with pytest.raises(ResultTooLargeError):
            await _save(store, "x" * 2_000_000)
        assert store.list_detailed(query_id="q").model_dump() == {"pointers": (), "skipped": 0}

    async def test_a_result_whose_time_is_over_is_gone(self, store: ContextPointerStore) -> None:
        """For every reader, before and after `gc`, which removes it and nothing else."""
        over, kept = [
            await _save(store, 1, args={"n": n}, ttl_s=ttl_s) for n, ttl_s in ((1, 1e-6), (2, 1e6))
        ]
        for _ in range(2):
            assert store.list(query_id="q") == [kept]
            _assert_missing(store, over, "expired")
            removed = await store.gc()
        assert (removed.expired, removed.passed_over) == (0, 0)
        assert store.load_result(pointer=kept) == 1
        again = await _save(store, "again", args={"n": 1})
        assert store.load_result(pointer=over) == "again"
        assert again.expires_at is None

    async def test_a_pin_outlasts_time_and_saves(self, store: ContextPointerStore) -> None:
        """Until it is taken back."""
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
        for use in (store.pin, store.unpin):
            with pytest.raises(PointerNotFoundError) as caught:
                use(pointer)
            assert caught.value.reason == "expired"

    async def test_a_miss_says_why(self, store: ContextPointerStore) -> None:
        """Erased, or never known; nothing at all is remembered on request."""
        erased, forgotten = [await _save(store, n, args={"n": n}) for n in range(2)]
        store.delete(query_id="q", pointer_ids=[forgotten.pointer_id], remember=False)
        store.delete(query_id="q")
        assert not store.records.blobs.scan("q").blobs
        _assert_missing(store, erased, "erased")
        _assert_missing(store, forgotten, "unknown")
        _assert_missing(store, erased.model_copy(update={"query_id": "r"}), "unknown")
        with pytest.raises(PointerNotFoundError):
            store.pin(erased)

    async def test_damage_is_named_and_repaired(self, store: ContextPointerStore) -> None:
        """Once, and without touching what is whole."""
        bad, lost, whole = [await _save(store, n, args={"n": n}) for n in range(3)]
        assert (await store.verify()).model_dump() == {"queries": 1, "pointers": 3, "findings": ()}
        blobs = store.records.blobs
        names = [store.records.result_names(pointer)[0] for pointer in (bad, lost)]
        blobs.put(f"q/{names[0]}", b"7")
        blobs.delete(f"q/{names[1]}")
        blobs.put("q/notes.txt", b"mine")
        kinds = {
            (names[0], "digest_mismatch"),
            (names[1], "missing_result"),
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


def _assert_missing(store: ContextPointerStore, pointer: ContextPointer, reason: str) -> None:
    with pytest.raises(PointerNotFoundError) as caught:
        store.load_result(pointer=pointer)
    assert caught.value.reason == reason
    assert "again" not in str(caught.value)
