"""What a person sees of a store as a whole: its queries, the newest pointers, a search, and what `gc` would remove."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore.store
import pytest

from llm_common.pointers.object_records import ObjectContextPointerStore
from llm_common.pointers.store import ContextPointerStore, FileContextPointerStore, InMemoryContextPointerStore

MAKERS: dict[str, Callable[[Path], ContextPointerStore]] = {
    "files": lambda folder: FileContextPointerStore(folder, durability="rename"),
    "memory": lambda _: InMemoryContextPointerStore(),
    "objects": lambda _: ObjectContextPointerStore(obstore.store.MemoryStore()),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ContextPointerStore:
    """Query `a` with five outputs, one of which expires; query `b` with one."""
    made = MAKERS[request.param](tmp_path / "base")

    async def fill() -> None:
        for number in range(5):
            ttl_s = 60.0 if number == 4 else None
            await made.save(
                query_id="a", task_id=1, tool_name="prices", args={"page": number}, result={"rice": number}, ttl_s=ttl_s
            )
        await made.save(query_id="b", task_id=1, tool_name="weather", args={"city": "Oslo"}, result="Snow all day")

    asyncio.run(fill())
    return made


def test_queries_tell_what_they_hold(store: ContextPointerStore) -> None:
    found = {one.query_id: one for one in store.queries()}
    assert {name: one.pointers for name, one in found.items()} == {"a": 5, "b": 1}
    assert all(one.bytes > 500 and one.changed_at and not one.problem for one in found.values())


def test_pages_hold_every_pointer_once(store: ContextPointerStore) -> None:
    pages = [store.newest(query_id="a", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [len(page.pointers) for page in pages] == [2, 2, 1, 0]
    assert {page.total for page in pages} == {5}
    assert {one.pointer_id for page in pages for one in page.pointers} == {
        one.pointer_id for one in store.list(query_id="a")
    }
    assert store.newest(query_id="unknown", limit=2).total == 0


def test_words_of_a_call_or_a_result_find_its_pointer(store: ContextPointerStore) -> None:
    told: list[int] = []
    for words in ("snowy days", "Oslo", "weather"):
        matches, searched = store.find(words, progress=told.append)
        assert [one.pointer.query_id for one in matches] == ["b"]
        assert searched == 6
    assert max(told) == 6
    assert store.find("weather", query_id="a") == ([], 5)
    assert len(store.find("prices", limit=2)[0]) == 2
    assert store.find(" ")[0] == []


def test_a_dry_run_tells_what_gc_then_removes(store: ContextPointerStore) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    planned = asyncio.run(store.gc(now=later, dry_run=True))
    assert planned.expired == 1
    assert planned.freed_bytes > 0
    assert store.newest(query_id="a", limit=9).total == 5
    assert asyncio.run(store.gc(now=later)) == planned
    assert store.newest(query_id="a", limit=9).total == 4
    assert asyncio.run(store.gc(now=later, dry_run=True)).freed_bytes == 0
