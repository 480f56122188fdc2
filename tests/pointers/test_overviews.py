"""Overviews of a store: its queries, newest pointers, searches, and the dry run of `gc`."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.core import UpperBoundCounter
from llm_common.pointers import find_pointers
from llm_common.pointers.reading import ResultPart, read_payload
from llm_common.text.display import to_json
from tests.pointers.conftest import Open, opener


@pytest.fixture
async def store(open_store: Open) -> ContextPointerStore:
    """Create query `a` with five outputs, one of which expires, and query `b` with one."""
    made = open_store()

    for number in range(5):
        ttl_s = 60.0 if number == 4 else None
        await made.save(
            query_id="a",
            task_id=1,
            tool_name="prices",
            args={"page": number},
            result={"rice": number},
            ttl_s=ttl_s,
        )
    await made.save(
        query_id="b",
        task_id=1,
        tool_name="weather",
        args={"city": "Oslo"},
        result="Snow all day",
    )
    return made


def test_queries_report_their_pointers_and_bytes(store: ContextPointerStore) -> None:
    found = {one.query_id: one for one in store.queries()}
    assert {name: one.pointers for name, one in found.items()} == {"a": 5, "b": 1}
    assert all(one.bytes > 500 and one.changed_at and not one.problem for one in found.values())


@pytest.mark.parametrize("home", ["files", "memory"])
async def test_the_query_that_changed_last_is_listed_first(tmp_path: Path, home: str) -> None:
    store = opener(home, tmp_path / "base")()
    for number, query_id in enumerate(("b", "a", "c", "a")):
        await store.save(
            query_id=query_id, task_id=None, tool_name="t", args={"number": number}, result=1
        )
        await asyncio.sleep(0.05)  # above the resolution of a file's time
    assert [query.query_id for query in store.queries()] == ["a", "c", "b"]
    pages = [store.newest_queries(limit=2, offset=offset) for offset in (0, 2, 4)]
    ids = [[query.query_id for query in page.queries] for page in pages]
    assert ids == [["a", "c"], ["b"], []]
    assert {page.total for page in pages} == {3}


def test_a_page_of_queries_summarizes_those_whose_id_has_a_part(
    store: ContextPointerStore,
) -> None:
    asyncio.run(store.save(query_id="user:7/B", tool_name="t", args={}, result=1))
    everything = {query.query_id: query for query in store.queries()}
    for part, ids in (("b", {"b", "user:7/B"}), ("R:7/", {"user:7/B"}), ("x", set())):
        page = store.newest_queries(limit=9, part=part)
        assert {query.query_id: query for query in page.queries} == {
            query_id: everything[query_id] for query_id in ids
        }
        assert page.total == len(ids)


def test_a_page_of_queries_names_the_one_that_cannot_be_read(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path / "base", durability="rename")
    assert store.newest_queries(limit=9).total == 0
    asyncio.run(store.save(query_id="whole", tool_name="t", args={}, result=1))
    (tmp_path / "elsewhere").mkdir()
    (store.base_dir / "link").symlink_to(tmp_path / "elsewhere")
    (store.base_dir / "file").write_text("not a query")
    page = store.newest_queries(limit=9)
    assert {query.query_id: query.problem for query in page.queries} == {
        "whole": "",
        "link": "unsafe",
    }


def test_pages_contain_every_pointer_once(store: ContextPointerStore) -> None:
    pages = [store.newest(query_id="a", limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [len(page.pointers) for page in pages] == [2, 2, 1, 0]
    assert {page.total for page in pages} == {5}
    assert {one.pointer_id for page in pages for one in page.pointers} == {
        one.pointer_id for one in store.list(query_id="a")
    }
    assert store.newest(query_id="unknown", limit=2).total == 0


def test_words_of_a_call_or_a_result_find_its_pointer(store: ContextPointerStore) -> None:
    told: list[int] = []
    for words in ("snowing days", "Oslo", "weather"):
        found = find_pointers(store, words, progress=told.append)
        assert [one.pointer.query_id for one in found.matches] == ["b"]
        assert (found.total, found.searched, found.unreadable) == (1, 6, 0)
    assert max(told) == 6
    elsewhere = find_pointers(store, "weather", query_id="a")
    assert (elsewhere.matches, elsewhere.searched) == ((), 5)
    prices = find_pointers(store, "prices", limit=2)
    assert (len(prices.matches), prices.total) == (2, 5)
    assert find_pointers(store, " ").matches == ()


@pytest.mark.parametrize(
    "words", ["xylophone", "CAFÉ", "cafe", "flute", "drum", "4711", "xylophones 4711"]
)
def test_words_deep_in_a_result_are_found_on_request(
    store: ContextPointerStore, words: str
) -> None:
    end = "a\nxylophone\tin the Cafe\u0301\ndrum C:\\flute"
    deep = {"text": ["filler " * 400, end, 4711, "14711"]}
    for result in (deep, to_json(deep), f"{'filler ' * 400}{end} 4711 14711"):
        saved = asyncio.run(
            store.save(query_id="deep", task_id=1, tool_name="dump", args={}, result=result)
        )
        assert find_pointers(store, words, query_id="deep").matches == ()
        found = find_pointers(store, words, query_id="deep", in_results=True)
        assert [one.pointer for one in found.matches] == [saved]
        assert find_pointers(store, "1471", query_id="deep", in_results=True).matches == ()


def test_a_match_shows_the_position_of_its_words(store: ContextPointerStore) -> None:
    lines = "".join(f"line {number} of the log\n" for number in range(5_000))
    text = f"{lines}the gasket of pump 4711 failed\n{lines}"
    saved = asyncio.run(
        store.save(query_id="deep", task_id=1, tool_name="log", args={}, result=text)
    )
    [match] = find_pointers(store, "failing gaskets", query_id="deep", in_results=True).matches
    assert "the gasket of pump 4711 failed" in match.passage
    assert len(match.passage) <= 300
    assert match.total_chars == len(text)
    end = match.start + len(match.passage)
    read = read_payload(
        *store.load_payload(saved.pointer_id, query_id="deep"),
        part=ResultPart(chars=(match.start, end)),
        max_tokens=2_000,
        counter=UpperBoundCounter(),
    )
    assert read.text == match.passage
    [by_call] = find_pointers(store, "log", query_id="deep").matches
    assert (by_call.pointer, by_call.passage) == (saved, "")


def test_only_the_requested_pointers_are_searched(store: ContextPointerStore) -> None:
    first, second, *_ = store.list(query_id="a")
    found = find_pointers(store, "prices", query_id="a", pointer_ids=[second.pointer_id, "0" * 12])
    assert [match.pointer for match in found.matches] == [second]
    assert found.searched == 1
    assert find_pointers(store, "prices", query_id="a", pointer_ids=[]).searched == 0
    assert first.pointer_id in {
        one.pointer.pointer_id for one in find_pointers(store, "prices").matches
    }


def test_a_result_can_be_searched_in_parts(store: ContextPointerStore) -> None:
    messages = {"/1": "a red fox", "/2": "a door", "/10": "the red door", "/11": "the red door"}
    messages["a\nb\nc"] = "a badger"  # any text may be a path
    asyncio.run(store.save(query_id="h", task_id=1, tool_name="say", args={}, result=messages))

    def split(_: ContextPointer, payload: bytes) -> Iterator[tuple[str, str]]:
        yield from json.loads(payload).items()

    found = find_pointers(store, "red doors", query_id="h", in_results=True, split=split)
    assert [match.path for match in found.matches][:2] == ["/10", "/11"]
    assert [match.passage for match in found.matches][:2] == ["the red door"] * 2
    assert found.matches[0].score == found.matches[1].score == 1.0
    assert (found.total, found.searched) == (4, 1)
    [match] = find_pointers(store, "badger", query_id="h", in_results=True, split=split).matches
    assert (match.path, match.passage) == ("a\nb\nc", "a badger")


async def test_damaged_outputs_are_skipped_and_counted(
    files: FileContextPointerStore, tmp_path: Path
) -> None:

    saved = [
        await files.save(
            query_id="q", tool_name="log", args={"n": number}, result=f"pump {number} failed"
        )
        for number in range(4)
    ]
    folder = tmp_path / "q"
    (folder / f"{saved[0].pointer_id}.meta.json").write_text("{}")
    (folder / f"{saved[1].pointer_id}.result.json").write_text('"pump 9 failed"')
    (folder / f"{saved[2].pointer_id}.result.json").unlink()
    found = find_pointers(files, "pump", in_results=True)
    assert [match.pointer for match in found.matches] == [saved[3]]
    assert (found.searched, found.unreadable) == (1, 3)


def word(number: int) -> str:
    return f"{number:07}".translate(str.maketrans("0123456789", "bcfghjkmnp"))


@cache
def large_store() -> ContextPointerStore:
    """Create a store with one result of 1 MB of different words."""
    made = InMemoryContextPointerStore()
    text = "".join(
        f"{word(number)}{'é,'[number % 1_000 :][:1] or ' '}" for number in range(130_000)
    )
    asyncio.run(made.save(query_id="q", task_id=1, tool_name="dump", args={}, result=text))
    return made


@given(st.integers(0, 129_999))
@settings(max_examples=10)
def test_a_word_is_found_anywhere_in_a_large_result(number: int) -> None:
    assert find_pointers(large_store(), word(number), in_results=True).total == 1
    assert find_pointers(large_store(), word(number + 130_000), in_results=True).total == 0


async def test_the_best_match_comes_first_every_time(store: ContextPointerStore) -> None:
    for number in range(40):
        await store.save(
            query_id="c",
            task_id=1,
            tool_name="mail",
            args={"q": f"order {number}"},
            result="sent",
        )
    await store.save(
        query_id="c",
        task_id=1,
        tool_name="mail",
        args={"q": "refund of order 17"},
        result="sent",
    )
    found = find_pointers(store, "refund order 17", query_id="c")
    assert [one.pointer.args["q"] for one in found.matches[:2]] == [
        "refund of order 17",
        "order 17",
    ]
    assert (found.matches[0].score, found.total) == (1.0, 41)
    assert find_pointers(store, "refund order 17", query_id="c") == found


def test_a_dry_run_reports_what_gc_then_removes(store: ContextPointerStore) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    planned = asyncio.run(store.gc(now=later, dry_run=True))
    assert planned.expired == 1
    assert planned.freed_bytes > 0
    assert store.newest(query_id="a", limit=9).total == 5
    assert asyncio.run(store.gc(now=later)) == planned
    assert store.newest(query_id="a", limit=9).total == 4
    assert asyncio.run(store.gc(now=later, dry_run=True)).freed_bytes == 0


async def test_a_page_has_no_expired_and_no_damaged_pointer(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = FileContextPointerStore(tmp_path / "base", durability="rename", clock=lambda: now[0])
    saved = []
    for number, ttl_s in enumerate((None, 60.0, None, None)):
        pointer = await store.save(
            query_id="q", tool_name="t", args={"n": number}, result=number, ttl_s=ttl_s
        )
        saved.append(pointer)
        now[0] += timedelta(seconds=1)
    (store.base_dir / "q" / f"{saved[2].pointer_id}.meta.json").write_text("{}")
    now[0] += timedelta(seconds=100)
    page = store.newest(query_id="q", limit=10)
    assert (page.pointers, page.total) == ((saved[3], saved[0]), 4)


async def test_expired_outputs_are_not_found(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = InMemoryContextPointerStore(clock=lambda: now[0])
    for number, ttl_s in enumerate((None, 60.0)):
        await store.save(
            query_id="q", tool_name="gauge", args={"n": number}, result="rain", ttl_s=ttl_s
        )
    assert find_pointers(store, "gauge").total == 2
    now[0] += timedelta(seconds=61)
    for in_results in (False, True):
        found = find_pointers(store, "rain gauge", in_results=in_results)
        assert (found.total, found.searched, found.unreadable) == (1, 1, 0)
