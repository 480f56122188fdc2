import json
import re
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from llm_common.agents import FileContextPointerStore, InMemoryContextPointerStore
from llm_common.apps.gateway import GatewayConfig, ServerConfig
from llm_common.apps.gateway.configuration.gateway_config import ResultLimits
from llm_common.apps.gateway.gateway import store_of
from llm_common.apps.gateway.host_results import (
    HostResults,
    ResultPreview,
    ResultScope,
    ServerOutput,
    as_json,
    query_of,
    stored_value,
)
from llm_common.apps.gateway.servers.tool_listing import CONTEXT
from llm_common.core import DefaultCounter
from llm_common.errors import InvalidIdError, ToolArgumentsError, ToolFailedError

COUNTER = DefaultCounter()
ITEMS = [
    {"id": number, "name": f"item {number}", "note": "a few words on it"} for number in range(2_000)
]


def results_of(store: Any = None, scope: Any = None, **settings: Any) -> HostResults:
    config = GatewayConfig(servers={}, **settings)
    return HostResults(config, store or InMemoryContextPointerStore(), scope=scope)


LIMITS = ResultLimits(max_whole_tokens=2_000, max_preview_tokens=400)


async def preview_of(at: HostResults, output: ServerOutput, **given: Any) -> ResultPreview | None:
    limits = given.pop("limits", LIMITS)
    return await at.preview(output, limits, tool="t", args=given.pop("args", {}), **given)


async def kept(at: HostResults, value: Any = ITEMS, tool: str = "list_items", **given: Any) -> str:
    output = ServerOutput({"result": value}, [json.dumps(value)])
    args = given.pop("args", {})
    preview = await at.preview(output, LIMITS, tool=tool, args=args, **given)
    assert preview is not None
    return preview.text


def id_in(text: str) -> str:
    return next(re.finditer(r"\b[0-9a-f]{12,16}\b", text))[0]


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


@pytest.mark.parametrize(
    ("args", "query"),
    [
        ({"q": "rain", "deep": {"a": ["b", True]}}, "rain b"),
        ({"max_count": 300, "page": 2}, ""),
        ({"repo_path": "gateway", "repoUrl": "x", "files": ["a", "b"], "q": "log"}, "log"),
        ({"profile": "admin", "query": "x", "revision": "HEAD~1"}, "admin x"),
        ({"q": "see https://a.example/b, src/main and notes.md"}, "see and"),
        ({"q": r"C:\Users\me ~/x .git session.close v1.2"}, "session.close v1.2"),
        ({"a": [None] * 100_000, "b": {"c": [True, "snow", 3]}}, "snow"),
        ({"q": "word " * 1_000}, "word " * 199 + "word"),
    ],
)
def test_words_of_the_call_choose_passages(args: dict[str, Any], query: str) -> None:
    assert query_of(args) == query


async def test_small_results_stay_and_large_ones_become_previews() -> None:
    at = results_of()
    assert await preview_of(at, ServerOutput({"result": 5}, ["5"])) is None
    output = ServerOutput(texts=["word " * 5_000])
    assert await preview_of(at, output, limits=ResultLimits(8_000, 400)) is None
    preview = await kept(at, args={"q": "item 1234"})
    assert COUNTER.count(preview) <= 400
    assert "name: item 1234\nid: 1234\nnote: a few words on it\n" in preview
    assert "For the call:" in preview
    assert f"read it with {CONTEXT} and the id {id_in(preview)}" in preview
    assert "2,000 records, 3 fields" in preview


LINKS = [
    types.ResourceLink(name=f"file {number}", uri=f"file:///a/{number}") for number in range(3_000)
]


async def test_few_links_stay_beside_a_preview_and_count() -> None:
    output = ServerOutput(None, ["word " * 1_800], LINKS[:20], LINKS[:20])
    assert await preview_of(results_of(), ServerOutput(texts=output.texts)) is None
    preview = await preview_of(results_of(), output)
    assert preview is not None
    assert preview.keeps_links
    assert COUNTER.count(preview.text) + COUNTER.count(json.dumps(as_json(LINKS[:20]))) <= 2_000


@pytest.mark.parametrize("count", [200, 3_000])
async def test_many_links_become_a_preview_and_are_read_back(count: int) -> None:
    at = results_of()
    links = LINKS[:count]
    blocks: list[types.ContentBlock] = [types.TextContent(text="all files"), *links]
    preview = await preview_of(at, ServerOutput(None, ["all files"], links, blocks))
    assert preview is not None
    assert not preview.keeps_links
    assert COUNTER.count(preview.text) <= 400
    assert "all files" in preview.text
    answer = await at.answer(CONTEXT, {"id": id_in(preview.text), "path": f"/{count - 10}"})
    link = as_json(links)[count - 11]
    assert json.dumps(link, separators=(",", ":")) in answer


async def test_structured_data_is_stored_beside_many_links() -> None:
    at = results_of()
    preview = await preview_of(at, ServerOutput({"total": 3_000}, [], LINKS, LINKS))
    assert preview is not None
    part = {"id": id_in(preview.text), "path": "/structuredContent/total"}
    assert "3000" in await at.answer(CONTEXT, part)


@pytest.mark.parametrize(
    ("rules", "whole", "preview"),
    [
        ({}, 2_000, 400),
        ({"maxWholeTokens": 8_000}, 8_000, 400),
        ({"maxWholeTokens": 300, "maxPreviewTokens": 1_000}, 300, 300),
        ({"whole": ["read_*"]}, 25_000, 400),
        ({"whole": ["files/read_text"], "maxWholeTokens": 30_000}, 30_000, 400),
        ({"whole": ["other/*"]}, 2_000, 400),
    ],
)
def test_limits_are_those_of_the_server_then_of_all(
    rules: dict[str, Any], whole: int, preview: int
) -> None:
    server = ServerConfig.model_validate({"command": "x", "llmCommon": rules})
    other = ServerConfig.model_validate({"command": "x", "llmCommon": {"maxWholeTokens": 999}})
    config = GatewayConfig(servers={"files": server, "other": other})
    assert config.result_limits("files", "read_text") == ResultLimits(whole, preview)
    alone = GatewayConfig.model_validate({"servers": {"files": {"command": "x"}}, "rules": rules})
    assert alone.result_limits("files", "read_text") == ResultLimits(whole, preview)


async def test_the_reader_is_named_with_the_hosts_prefix() -> None:
    assert "with mcp__gate__context and the id" in await kept(results_of(host_prefix="mcp__gate__"))


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"path": "/7/name"}, "item 7"),
        ({"keys": True}, '{"list":2000'),
        ({"lines": [1, 1], "path": "/3/name"}, "item 3"),
        ({"chars": [0, 3], "path": "/3/name"}, "\nite\n"),
        ({"pattern": "item 199[89]"}, "item 1999"),
        ({"path": "/3/name", "filter": None, "cursor": None}, "item 3"),
    ],
)
async def test_every_part_can_be_selected(part: dict[str, Any], expected: str) -> None:
    at = results_of()
    assert expected in await at.answer(CONTEXT, {"id": id_in(await kept(at)), **part})


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"path": "/1"}, '"id" is a required'),
        ({"id": "0123456789ab", "words": "x"}, "pass only one of id and words"),
        ({"sql": "SELECT 1", "words": "x"}, "pass only one of sql and words"),
        ({"cursor": "5.a"}, "leave it out"),
        ({"id": "0123456789ab", "regexp": "x"}, "was not run"),
        ({"id": 5}, "was not run"),
        ({"id": "0123456789ab", "filter": "[0]"}, "filter"),
    ],
)
async def test_a_call_that_does_not_fit_is_explained(args: dict[str, Any], problem: str) -> None:
    at = results_of()
    await kept(at)
    with pytest.raises(ToolArgumentsError, match=problem):
        await at.answer(CONTEXT, args)


async def test_words_are_found_in_all_results_of_the_session() -> None:
    at = results_of()
    await kept(at, args={"page": 1})
    other = id_in(
        await kept(at, ["nothing here"] * 3_000 + ["the needle is at line 3000"], tool="grep")
    )
    answer = await at.answer(CONTEXT, {"words": "needle"})
    assert "the needle is at line 3000" in answer
    assert f"id {other}, grep" in answer
    assert "try others" in await at.answer(CONTEXT, {"words": "zygomorphic"})
    assert "try others" in await at.answer(CONTEXT, {"words": "?!"})


async def test_results_are_listed_newest_first_in_pages() -> None:
    at = results_of(max_whole_tokens=300)
    ids = [id_in(await kept(at, args={"page": page})) for page in range(30)]
    listed: list[str] = []
    while len(listed) < 30:
        page = await at.answer(CONTEXT, {"cursor": str(len(listed))} if listed else {})
        assert COUNTER.count(page) <= 300
        assert re.fullmatch(r"[^\n]*\n<<<(\w+)\n.*\n\1>>>", page, re.DOTALL)
        lines = re.findall(r"^(\w+): .* \(([\d,]+) bytes\)$", page, re.MULTILINE)
        listed += [pointer_id for pointer_id, _ in lines]
        assert {size for _, size in lines} == {f"{len(json.dumps(json.dumps(ITEMS))):,}"}
        older = f'{30 - len(listed)} older ones follow with cursor "{len(listed)}"'
        assert (older in page) is (len(listed) < 30)
    assert listed == ids[::-1]


async def test_only_results_that_can_be_read_are_listed() -> None:
    store = InMemoryContextPointerStore()
    at = results_of(store, scope=ResultScope("host"))
    ids = [id_in(await kept(at, args={"page": page})) for page in range(4)]
    store.delete(query_id="host", pointer_ids=ids[:2])
    await at.answer(CONTEXT, {"id": ids[2]})
    listed = await at.answer(CONTEXT, {})
    assert "2 results are stored" in listed
    assert re.findall(r"^(\w+): ", listed, re.MULTILINE) == [ids[3], ids[2]]


async def test_a_session_cannot_read_the_results_of_another() -> None:
    store = InMemoryContextPointerStore()
    one, two = results_of(store), results_of(store)
    pointer_id = id_in(await kept(one))
    with pytest.raises(ToolFailedError, match="no stored result of this session"):
        await two.answer(CONTEXT, {"id": pointer_id})
    assert "0 results are stored" in await two.answer(CONTEXT, {})
    assert "Nothing was found" in await two.answer(CONTEXT, {"words": "item"})
    await two.close()
    assert "item 7" in await one.answer(CONTEXT, {"id": pointer_id, "path": "/7"})


async def test_secrets_reach_neither_disk_nor_preview(tmp_path: Any) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    at = results_of(store_of(GatewayConfig(servers={}, folder=tmp_path)))
    preview = await kept(at, [{"api_key": secret}, *ITEMS], args={"token": secret})
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert written
    assert secret.encode() not in written
    assert secret not in preview


async def test_a_result_that_cannot_be_stored_is_not_replaced_t_12() -> None:
    small = results_of(InMemoryContextPointerStore(max_result_bytes=100))
    assert await preview_of(small, ServerOutput({"result": ITEMS[:200]})) is None
    cut = await preview_of(small, ServerOutput({"result": ITEMS}))
    assert "characters were not kept: the store failed" in str(cut)


async def test_nothing_is_stored_without_a_limit() -> None:
    at = results_of(max_whole_tokens=None)
    assert await preview_of(at, ServerOutput({"result": ITEMS})) is None
    assert at.tools == {}


@pytest.mark.parametrize("name", ["", "../../etc", "a b", "x" * 500, "工具"])
async def test_any_tool_name_can_be_stored(name: str) -> None:
    assert id_in(await kept(results_of(), tool=name))


SCOPE = ResultScope("stdio-user-project", "stdio-user-")
PART = {"path": "/7"}


async def test_a_resumed_host_reads_the_results_of_its_scope_t_02(tmp_path: Path) -> None:
    first = results_of(FileContextPointerStore(tmp_path), scope=SCOPE)
    pointer_id = id_in(await kept(first))
    await first.close()
    store = FileContextPointerStore(tmp_path)
    second, beside = results_of(store, scope=SCOPE), results_of(store, scope=SCOPE)
    # Another conversation of the same user finds nothing before it reads.
    assert "0 results are stored" in await second.answer(CONTEXT, {})
    assert "Nothing was found" in await second.answer(CONTEXT, {"words": "item"})
    read = {"id": pointer_id, **PART}
    assert "item 7" in await second.answer(CONTEXT, read)
    assert pointer_id in await second.answer(CONTEXT, {})
    assert "item" in await second.answer(CONTEXT, {"words": "item"})
    assert "0 results are stored" in await beside.answer(CONTEXT, {})


async def test_each_new_gateway_of_a_scope_queries_the_tables_of_earlier_previews_t_04(
    tmp_path: Path,
) -> None:
    def started(scope: ResultScope = SCOPE) -> HostResults:
        return results_of(FileContextPointerStore(tmp_path), scope=scope)

    shown = await kept(started())
    found = re.search(r"^Table (\w+):", shown, re.MULTILINE)
    assert found
    sql = f"SELECT count(*) FROM {found[1]}"
    # Some clients start a gateway for each call.
    assert "\n2000\n" in await started().answer(CONTEXT, {"sql": sql})
    restarted = started()
    for _ in range(2):
        assert "\n2000\n" in await restarted.answer(CONTEXT, {"sql": sql})
    assert "by the name of its table" in await started().answer(CONTEXT, {})
    way_out = "queried by its whole name, and a result is read by its id"
    with pytest.raises(ToolFailedError, match=way_out):
        await started().answer(CONTEXT, {"sql": "SELECT * FROM list_items_ffffff"})
    with pytest.raises(ToolFailedError, match=way_out):
        await started(ResultScope("http-another")).answer(CONTEXT, {"sql": sql})


async def test_results_live_for_the_ttl_after_the_last_read_t_02() -> None:
    store = InMemoryContextPointerStore()
    at = results_of(store, scope=SCOPE, ttl_s=3_600.0)
    await kept(at)
    [pointer] = store.list(query_id=SCOPE.session_id)
    assert (pointer.renew_s, pointer.expires_at is None) == (3_600.0, False)
    # What an application saves in the same store without a lifetime stays.
    own = await store.save(query_id="own", tool_name="t", args={}, result=1)
    assert own.expires_at is None


async def test_a_host_that_forgets_removes_its_own_results_only_t_02(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    other = results_of(store, scope=SCOPE)
    kept_id = id_in(await kept(other, args={"page": 1}))
    at = results_of(store, scope=SCOPE, forget=True)
    erased_id = id_in(await kept(at, args={"page": 2}))
    await at.answer(CONTEXT, {"id": kept_id, **PART})
    await at.close()
    again = results_of(store, scope=SCOPE)
    assert "item 7" in await again.answer(CONTEXT, {"id": kept_id, **PART})
    with pytest.raises(ToolFailedError, match="it was erased"):
        await again.answer(CONTEXT, {"id": erased_id})


async def test_only_the_same_user_learns_that_a_result_is_elsewhere_t_02(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    read = {"id": id_in(await kept(results_of(store, scope=SCOPE)))}
    moved = results_of(store, scope=ResultScope("stdio-user-other", "stdio-user-"))
    with pytest.raises(ToolFailedError, match="another session of this user has the stored result"):
        await moved.answer(CONTEXT, read)
    for stranger in (ResultScope("stdio-other-x", "stdio-other-"), ResultScope.of_token("t"), None):
        with pytest.raises(ToolFailedError, match="no stored result of this session"):
            await results_of(store, scope=stranger).answer(CONTEXT, read)
        found = await results_of(store, scope=stranger).answer(CONTEXT, {"words": "item"})
        assert "Nothing was found" in found


async def test_the_oldest_results_of_a_scope_give_way_t_02(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, max_bytes_per_query=300_000)
    ids = []
    for page in range(4):
        ids.append(id_in(await kept(results_of(store, scope=SCOPE), args={"page": page})))
    again = results_of(store, scope=SCOPE)
    with pytest.raises(ToolFailedError, match="it was erased"):
        await again.answer(CONTEXT, {"id": ids[0]})
    assert "item 7" in await again.answer(CONTEXT, {"id": ids[3], **PART})


def test_a_scope_is_a_user_with_a_configuration_and_a_folder_t_02(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [Path("a.json"), Path("b.json")]
    scope = ResultScope.of_process(paths)
    assert ResultScope.of_process([tmp_path / "b.json", *paths[:1]]) == scope
    others = [ResultScope.of_process(paths[:1]), ResultScope.of_process([])]
    (tmp_path / "c").mkdir()
    monkeypatch.chdir(tmp_path / "c")
    others.append(ResultScope.of_process([tmp_path / "a.json", tmp_path / "b.json"]))
    assert len({scope, *others}) == 4
    assert {other.siblings for other in others} == {scope.siblings}
    assert scope.session_id.startswith(scope.siblings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.getuid", lambda: 12_345)
    assert not ResultScope.of_process(paths).session_id.startswith(scope.siblings)
    tokens = {ResultScope.of_token(token) for token in ("Bearer a", "Bearer b")}
    assert len(tokens) == 2
    assert not any("Bearer" in token.session_id for token in tokens)


def test_the_scope_of_a_host_is_never_the_run_of_a_session_f_216() -> None:
    run_id = "alice/q_22fbe4b4990061c5"
    with pytest.raises(InvalidIdError, match="query id of a run"):
        results_of(scope=ResultScope(run_id))
    assert results_of(scope=ResultScope.of_token(run_id)).tools
