import json
import re
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore, InMemoryContextPointerStore
from llm_common.apps.gateway import GatewayConfig
from llm_common.apps.gateway.host_results import HostResults, query_of, stored_value
from llm_common.apps.gateway.tool_listing import LISTER, READER, SEARCHER
from llm_common.core import DefaultCounter
from llm_common.errors import ToolFailedError

COUNTER = DefaultCounter()
ITEMS = [
    {"id": number, "name": f"item {number}", "note": "a few words on it"} for number in range(2_000)
]


def results_of(store: Any = None, **settings: Any) -> HostResults:
    return HostResults(
        GatewayConfig(servers={}, **settings), store or InMemoryContextPointerStore()
    )


async def kept(at: HostResults, value: Any = ITEMS, tool: str = "list_items", **given: Any) -> str:
    preview = await at.preview(
        {"result": value}, [json.dumps(value)], tool=tool, args=given.pop("args", {}), **given
    )
    assert preview is not None
    return preview


def id_in(text: str) -> str:
    found = re.search(r"\b[0-9a-f]{12,16}\b", text)
    assert found
    return found[0]


@pytest.mark.parametrize(
    ("structured", "texts", "stored"),
    [
        ({"result": [1, 2]}, ["1", "2"], [1, 2]),
        ({"result": 4}, ["4"], 4),
        ({"result": "4"}, ["4"], "4"),
        ({"result": []}, [], []),
        ({"result": '[{"a": 1}]'}, ['[{"a": 1}]'], '[{"a": 1}]'),
        ({"content": '[{"a": 1}]'}, ['[{"a": 1}]'], '[{"a": 1}]'),
        ({"content": "plain"}, ["plain"], "plain"),
        ({"count": 1}, ["one row"], {"structuredContent": {"count": 1}, "text": "one row"}),
        ({"result": [{"a": 1}]}, ['{"a": 1}'], [{"a": 1}]),
        ({"result": ["a", "b"]}, ["a", "b"], ["a", "b"]),
        ({"result": "text"}, ["text"], "text"),
        ({"a": 1}, ['{\n  "a": 1.0\n}'], '{\n  "a": 1.0\n}'),
        ({"a": 1}, [], {"a": 1}),
        (
            {"count": 5},
            ["five long lines"],
            {"structuredContent": {"count": 5}, "text": "five long lines"},
        ),
        (None, ['[{"a": 1.10}]'], '[{"a": 1.10}]'),
        (None, ['{"a": 1}', '{"a": 2}'], ['{"a": 1}', '{"a": 2}']),
        (None, ["one", '{"a": 2}'], 'one\n{"a": 2}'),
        (None, ["{no json"], "{no json"),
        (None, ["plain"], "plain"),
    ],
)
def test_a_result_is_stored_as_the_server_wrote_it(
    structured: Any, texts: list[str], stored: Any
) -> None:
    assert stored_value(structured, texts) == stored


def test_a_preview_is_made_for_intent_and_arguments() -> None:
    assert (
        query_of({"q": "rain", "n": 5, "deep": {"a": ["b", True]}}, "in May") == "in May rain 5 b"
    )
    assert len(query_of({"q": "word " * 1_000}, "")) <= 1_000


async def test_small_results_stay_and_large_ones_become_previews() -> None:
    at = results_of()
    assert await at.preview({"result": 5}, ["5"], tool="t", args={}) is None
    preview = await kept(at, intent="item 1234")
    assert COUNTER.count(preview) <= 400
    assert '"name": "item 1234"' in preview
    assert f"read it with {READER} and the id {id_in(preview)}" in preview
    assert "list of 2,000 objects" in preview
    assert (at.counts.calls, at.counts.kept) == (2, 1)
    assert at.counts.tokens_not_sent > 10_000


async def test_a_result_with_only_large_text_is_stored_too() -> None:
    preview = await results_of().preview({"count": 5}, ["many words " * 2_000], tool="t", args={})
    assert preview is not None


async def test_the_reader_is_named_with_the_hosts_prefix() -> None:
    assert "with mcp__gate__read_context and the id" in await kept(
        results_of(host_prefix="mcp__gate__")
    )


async def test_one_item_is_read_back_in_one_call() -> None:
    at = results_of()
    answer = await at.answer(
        READER, {"pointer_id": id_in(await kept(at)), "select": {"path": "/1234"}}
    )
    assert '{"id":1234,"name":"item 1234","note":"a few words on it"}' in answer
    assert at.counts.tokens_read_back == COUNTER.count(answer)


async def test_own_answers_stay_within_the_limit() -> None:
    at = results_of(max_whole_tokens=500)
    pointer_id = id_in([await kept(at, args={"page": page}) for page in range(30)][-1])
    calls: list[tuple[str, dict[str, Any]]] = [
        (READER, {"pointer_id": pointer_id}),
        (SEARCHER, {"query": "item words few"}),
        (LISTER, {}),
    ]
    for name, args in calls:
        assert COUNTER.count(await at.answer(name, args)) <= 500, name


async def test_words_are_found_in_all_results_of_the_session() -> None:
    at = results_of()
    await kept(at, args={"page": 1})
    other = id_in(
        await kept(at, ["nothing here"] * 3_000 + ["the needle is at line 3000"], tool="grep")
    )
    answer = await at.answer(SEARCHER, {"query": "needle"})
    assert "the needle is at line 3000" in answer
    assert f"id {other}, grep" in answer
    assert "try others" in await at.answer(SEARCHER, {"query": "zygomorphic"})
    assert "try others" in await at.answer(SEARCHER, {"query": "?!"})


async def test_results_are_listed_newest_first_in_pages() -> None:
    at = results_of(max_whole_tokens=300)
    ids = [id_in(await kept(at, args={"page": page})) for page in range(30)]
    first = await at.answer(LISTER, {})
    shown = [pointer_id for pointer_id in ids if pointer_id in first]
    assert shown == ids[-len(shown) :]
    assert f"{30 - len(shown)} older ones follow after {len(shown)}" in first
    assert ids[-len(shown) - 1] in await at.answer(LISTER, {"after": len(shown)})


async def test_a_session_cannot_read_the_results_of_another() -> None:
    store = InMemoryContextPointerStore()
    one, two = results_of(store), results_of(store)
    pointer_id = id_in(await kept(one))
    with pytest.raises(ToolFailedError, match="no stored result of this session"):
        await two.answer(READER, {"pointer_id": pointer_id})
    assert "0 results are stored" in await two.answer(LISTER, {})
    assert "No stored result" in await two.answer(SEARCHER, {"query": "item"})
    await two.close()
    assert "item 7" in await one.answer(
        READER, {"pointer_id": pointer_id, "select": {"path": "/7"}}
    )


async def test_secrets_reach_neither_disk_nor_preview(tmp_path: Any) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    at = results_of(FileContextPointerStore(tmp_path, redact_results=True))
    preview = await kept(at, [{"api_key": secret}, *ITEMS], args={"token": secret})
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert written
    assert secret.encode() not in written
    assert secret not in preview


async def test_a_result_that_cannot_be_stored_is_not_replaced_t_12() -> None:
    small = results_of(InMemoryContextPointerStore(max_result_bytes=100))
    assert await small.preview({"result": ITEMS[:200]}, [], tool="t", args={}) is None
    cut = await small.preview({"result": ITEMS}, [], tool="t", args={})
    assert "characters were not kept: the store failed" in str(cut)


async def test_nothing_is_stored_without_a_limit() -> None:
    at = results_of(max_whole_tokens=None)
    assert await at.preview({"result": ITEMS}, [], tool="t", args={}) is None
    assert at.tools == {}


@pytest.mark.parametrize("name", ["", "../../etc", "a b", "x" * 500, "工具"])
async def test_any_tool_name_can_be_stored(name: str) -> None:
    assert id_in(await kept(results_of(), tool=name))


async def test_results_are_removed_when_a_session_ends() -> None:
    store = InMemoryContextPointerStore()
    at = results_of(store)
    await kept(at)
    await at.close()
    assert (await store.verify()).pointers == 0


def test_the_query_has_the_words_among_many_other_values() -> None:
    assert query_of({"a": [None] * 100_000, "b": {"c": [True, "snow", 3]}}, "find") == "find snow 3"
    assert len(query_of({"a": ["x" * 600] * 9}, "find")) == 1_000
