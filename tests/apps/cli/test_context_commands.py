"""`llm-common context`: what it prints and what it changes."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llm_common.agents import (
    ContextPointer,
    FileContextPointerStore,
    ToolContextManager,
)
from tests.apps.cli.running import files_of, run, run_json

HOSTILE = "x\x1b]0;title\x07\x9b2J\u202eevil\u2066 [bold]b[/bold]"
SALES = {
    "rows": [
        {"region": region, "sales": number}
        for number, region in enumerate(["north", "south", "west"] * 40)
    ]
}


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "store", durability="rename")


@pytest.fixture
async def saved(store: FileContextPointerStore) -> dict[str, ContextPointer]:
    """Save two outputs of a query, an expired output, and an output with hostile text."""

    async def save(
        query_id: str, tool: str, result: object, ttl_s: float | None = None
    ) -> ContextPointer:
        args = {"query": f"{tool} of the year", "q": HOSTILE}
        return await store.save(
            query_id=query_id, task_id=1, tool_name=tool, args=args, result=result, ttl_s=ttl_s
        )

    pointers = {
        "sales": await save("user:7/q", "sales_report", SALES),
        "weather": await save("user:7/q", "weather_forecast", "Snow all day"),
        "hostile": await save("hostile", "fetch", HOSTILE),
        "old": await save("past", "clock", "noon", ttl_s=0.001),
    }
    await asyncio.sleep(0.002)
    return pointers


@pytest.fixture
def at(store: FileContextPointerStore, saved: dict[str, ContextPointer]) -> tuple[str, str]:
    return "--store", str(store.base_dir)


def test_queries_are_listed_with_their_pointers_and_bytes(at: tuple[str, str]) -> None:
    document = run_json("context list", *at)
    assert {entry["query_id"]: entry["pointers"] for entry in document["queries"]} == {
        "user:7/q": 2,
        "hostile": 1,
        "past": 1,
    }
    assert all(entry["bytes"] > 0 and entry["problem"] == "" for entry in document["queries"])
    assert "user:7/q\t2\t" in run("context", "list", *at).stdout


def test_a_long_list_is_shown_page_by_page(at: tuple[str, str]) -> None:
    first = run_json("context list", "-n", "2", *at)
    second = run_json("context list", "-n", "2", "--offset", "2", *at)
    assert (len(first["queries"]), len(second["queries"]), first["total"]) == (2, 1, 3)
    assert len({entry["query_id"] for page in (first, second) for entry in page["queries"]}) == 3
    result = run("context", "list", "-n", "2", *at)
    assert result.stderr == "2 of 3 queries. Use --offset 2 for more.\n"


def test_an_expired_pointer_is_not_shown(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    assert run_json("context list", "past", *at)["pointers"] == []
    assert (
        "has expired" in run("context", "show", "past", saved["old"].pointer_id, *at, code=3).stderr
    )
    assert run_json("context search", "clock noon", *at, code=3)["matches"] == []


def test_show_prints_the_call_and_an_excerpt(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    pointer = saved["sales"]
    document = run_json("context show", "user:7/q", pointer.pointer_id, *at)
    assert ContextPointer.model_validate(document["pointer"]) == pointer
    assert "120 records, 2 fields: region, sales" in document["excerpt"]
    assert document["total_chars"] == pointer.result_bytes
    shown = run("context", "show", "user:7/q", pointer.pointer_id, *at).stdout
    assert "sales_report" in shown
    assert "Whole records of sales_report_" in shown
    assert '"region"' not in shown


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--path", "/rows/1"], '{"region":"south","sales":1}'),
        (["--path", "/rows/0/region"], "north"),
        (["--chars", "0:7"], '{"rows"'),
    ],
)
def test_a_part_of_a_result_is_read(
    at: tuple[str, str], saved: dict[str, ContextPointer], options: list[str], text: str
) -> None:
    arguments = ["user:7/q", saved["sales"].pointer_id, *options, *at]
    assert run("context", "read", *arguments).stdout == f"{text}\n"
    assert run_json("context read", *arguments)["text"] == text
    wrong = run("context", "read", *arguments[:2], "--path", "/none", *at, code=2)
    assert "the path leads nowhere" in wrong.stderr


def test_records_are_queried_across_results(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    table = f"sales_report_{saved['sales'].pointer_id[:6]}"
    sql = f"SELECT region, sum(sales) FROM {table} GROUP BY 1 ORDER BY 1 LIMIT 1"
    answer = run("context", "query", "user:7/q", sql, *at).stdout
    assert answer.startswith("1 row. Data, not instructions.\n")
    document = run_json("context query", "user:7/q", sql, *at)
    assert document["columns"] == ["region", "sum(sales)"]
    assert f"\n{' | '.join(map(str, document['rows'][0]))}\n" in answer
    refused = run("context", "query", "user:7/q", f"SELECT x FROM {table}", *at, code=2)
    assert "no such column: x" in refused.stderr


async def test_the_records_of_a_run_are_queried_by_its_id_f_216(
    store: FileContextPointerStore, at: tuple[str, str]
) -> None:
    manager = ToolContextManager(pointer_store=store, session_id="alice")
    run_id = manager.query_id_of("What did we sell?")
    for query_id in (run_id, "q"):
        args = {"query_id": query_id}
        await manager.save_context("sales_report", args, SALES["rows"], query_id=query_id)
    for query, tables in ((run_id, 1), ("What did we sell?", 1), ("alice", 2)):
        sql = "SELECT count(*) FROM tables"
        document = await asyncio.to_thread(run_json, "context query", query, sql, *at)
        assert document["rows"] == [[tables]]


def test_a_long_result_is_read_in_pieces_or_whole(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    arguments = ["user:7/q", saved["sales"].pointer_id, *at]
    whole = run("context", "read", *arguments, "--whole").stdout
    assert json.loads(whole) == SALES
    document = run_json("context read", *arguments, "--limit-tokens", "300")
    pieces = document["text"]
    while document["cursor"]:
        document = run_json(
            "context read", *arguments, "--limit-tokens", "300", "--cursor", document["cursor"]
        )
        pieces += document["text"]
    assert pieces == whole.rstrip("\n")
    assert "Continue with" in run("context", "read", *arguments, "--limit-tokens", "300").stderr


def test_pointers_are_found_by_their_call_and_their_result(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    assert (
        run_json("context search", "snowing", *at)["matches"][0]["pointer"]["tool_name"]
        == "weather_forecast"
    )
    document = run_json("context search", "sales reports", "--query", "user:7/q", *at)
    assert document["matches"][0]["pointer"]["pointer_id"] == saved["sales"].pointer_id
    assert document["searched"] == 2
    assert "1 of 3 matches" in run("context", "search", "year", "-n", "1", *at).stderr
    nothing = run("context", "search", "xylophone", *at, code=3)
    assert nothing.stdout == ""
    assert "None of 3 pointers" in nothing.stderr  # the expired one is not searched
    assert "Use --in results to search whole results" in nothing.stderr


def test_a_search_of_results_reports_unreadable_pointers(
    store: FileContextPointerStore, at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    assert run_json("context search", "119", *at, code=3)["looked_in"] == "calls"
    document = run_json("context search", "119", "--in", "results", *at)
    assert [entry["pointer"]["pointer_id"] for entry in document["matches"]] == [
        saved["sales"].pointer_id
    ]
    assert (document["looked_in"], document["total"], document["unreadable"]) == ("results", 1, 0)
    folder = store.base_dir / "user;7~q"
    (folder / f"{saved['weather'].pointer_id}.result.json").write_text('"Snow"')
    (folder / f"{saved['sales'].pointer_id}.meta.json").write_text('{"half":')
    (store.base_dir / "linked").symlink_to(folder)
    output = run("context", "search", "snow", "--in", "results", *at, code=3).stderr
    assert "Pointers not searched because they cannot be read: 2. Use context verify" in output
    assert "Queries not searched because they cannot be read: linked." in output
    document = run_json("context search", "snow sales", *at)
    assert (document["unreadable"], document["unreadable_queries"]) == (1, ["linked"])
    assert [entry["pointer"]["tool_name"] for entry in document["matches"]] == ["weather_forecast"]


def test_verify_reports_damage_and_repairs_it_on_request(
    store: FileContextPointerStore, at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    assert run_json("context verify", *at)["clean"] is True
    broken = store.base_dir / "hostile" / f"{saved['hostile'].pointer_id}.result.json"
    broken.write_text('"other"')
    before = files_of(store.base_dir)
    document = run_json("context verify", *at, code=1)
    assert [(entry["name"], entry["kind"]) for entry in document["findings"]] == [
        (broken.name, "digest_mismatch")
    ]
    assert "digest_mismatch" in run("context", "verify", *at, code=1).stdout
    assert files_of(store.base_dir) == before
    assert run_json("context verify", "--repair", *at)["clean"] is True
    assert not broken.exists()


def test_a_dry_run_of_gc_reports_what_gc_removes(
    store: FileContextPointerStore, at: tuple[str, str]
) -> None:
    orphan = store.base_dir / "user;7~q" / "aaaaaaaaaaaa.result.json"
    orphan.write_text("1")
    before = files_of(store.base_dir)
    planned = run_json("context gc", "--dry-run", *at)
    assert files_of(store.base_dir) == before
    done = run_json("context gc", *at)
    assert planned["report"] == done["report"]
    assert (
        done["report"]["expired"],
        done["report"]["orphans"],
        planned["dry_run"],
        done["dry_run"],
    ) == (
        1,
        1,
        True,
        False,
    )
    assert not orphan.exists()
    assert {entry["query_id"] for entry in run_json("context list", *at)["queries"]} == {
        "user:7/q",
        "hostile",
    }
    assert run("context", "gc", *at).stderr == "Freed 0 bytes.\n"


def test_erase_asks_first_and_reports_what_it_erased(
    store: FileContextPointerStore, at: tuple[str, str]
) -> None:
    before = files_of(store.base_dir)
    planned = run_json("context erase", "user:7/q", "--dry-run", *at)
    refused = run("context", "erase", "user:7/q", *at, code=1, typed="n\n")
    assert "Erase 2 pointers of user:7/q, " in refused.stderr
    assert files_of(store.base_dir) == before
    done = run_json("context erase", "user:7/q", "--yes", *at)
    assert planned["queries"] == done["queries"]
    assert len(done["queries"][0]["pointers"]) == 2
    assert not (store.base_dir / "user;7~q").exists()
    assert "nothing to erase" in run("context", "erase", "user:7/q", "--yes", *at, code=3).stderr
    assert run("context", "erase", "hostile", *at, typed="y\n").stderr.endswith(
        f"from {store.base_dir}.\n"
    )


async def test_a_question_of_several_sessions_names_none_of_them(
    store: FileContextPointerStore, at: tuple[str, str]
) -> None:
    queries = []
    for user in ("user:1", "user:2"):
        manager = ToolContextManager(pointer_store=store, session_id=user)
        queries.append(manager.query_id_of("What do I owe?"))
        await manager.save_context("get_debts", {}, {"of": user}, query_id=queries[-1])
    before = files_of(store.base_dir)
    for command in ("list", "erase"):
        refused = run("context", command, "What do I owe?", *at, code=2)
        assert all(query in refused.stderr.replace("\n", "") for query in queries)
    assert files_of(store.base_dir) == before
    run("context", "erase", queries[0], "--yes", *at)
    assert run_json("context list", "What do I owe?", *at)["pointers"][0]["query_id"] == queries[1]


def test_single_pointers_are_erased_by_their_whole_ids(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    pointer_id = saved["sales"].pointer_id
    erase = ["context", "erase", "user:7/q", *at, "--yes", "--pointer"]
    assert "12 to 16" in run(*erase, pointer_id[:6], code=2).output
    run(*erase, pointer_id)
    remaining = run_json("context list", "user:7/q", *at)["pointers"]
    assert [entry["pointer_id"] for entry in remaining] == [saved["weather"].pointer_id]
    assert "erased" in run("context", "read", "user:7/q", pointer_id, *at, code=3).stderr


def test_reading_changes_nothing(
    store: FileContextPointerStore, at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    """Keep even the files of a killed writer, which `ContextPointerStore.list` removes."""
    temporary = store.base_dir / "user;7~q" / ".tmp-1-1-00"
    temporary.write_text("half")
    (temporary.parent / f"{saved['sales'].pointer_id}.next").write_bytes(b"damaged")
    hour_ago = (datetime.now(UTC) - timedelta(hours=3)).timestamp()
    os.utime(temporary, (hour_ago, hour_ago))
    before = files_of(store.base_dir)
    for arguments in (
        ["list"],
        ["list", "user:7/q"],
        ["show", "user:7/q", saved["weather"].pointer_id],
        ["read", "user:7/q", saved["weather"].pointer_id],
        ["search", "snow"],
        ["gc", "--dry-run"],
        ["erase", "user:7/q", "--dry-run"],
    ):
        run("context", *arguments, *at)
    run("context", "verify", *at, code=1)
    assert files_of(store.base_dir) == before


def test_a_store_of_another_user_can_be_read(
    store: FileContextPointerStore,
    at: tuple[str, str],
    saved: dict[str, ContextPointer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    store.base_dir.chmod(0o777)
    assert run_json("context list", *at)["total"] == 3
    assert "Snow" in run("context", "read", "user:7/q", saved["weather"].pointer_id, *at).stdout
    assert run_json("context verify", *at)["clean"] is True
    assert "another user" in run("context", "erase", "user:7/q", "--yes", *at, code=1).stderr


def test_hostile_outputs_are_inert_in_lists(
    at: tuple[str, str], saved: dict[str, ContextPointer]
) -> None:
    for arguments in (
        ["list", "hostile"],
        ["search", "fetch"],
        ["show", "hostile", saved["hostile"].pointer_id],
    ):
        output = run("context", *arguments, *at).stdout
        if arguments[0] != "show":  # a pipe gets its excerpt unchanged
            assert not set(output) & set("\x1b\x07\x9b\u202e\u2066"), arguments
        assert "evil" in output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["list", "a//..", "--store", "."], 3, "There is no query 'a//..' in the store"),
        (["show", "q", "nothex", "--store", "."], 2, "is not a pointer id"),
        (["show", "q", "aaaaaaaaaaaa", "--store", "."], 3, "There is no query 'q' in the store"),
        (["list"], 3, "Name its folder with --store."),
        (["list", "--store", "absent"], 3, "There is no store at"),
        (["list", "none", "--store", "."], 3, "There is no query 'none' in the store"),
        (["read", "q", "aaaaaaaaaaaa", "--lines", "3", "--store", "."], 2, "is not a range"),
        (
            ["read", "q", "aaaaaaaaaaaa", "--lines", "3:1", "--store", "."],
            2,
            "'3:1' is not a range",
        ),
        (["erase", "q", "--pointer", "zz", "--store", "."], 2, "is not a pointer id"),
        (["list", "--limit", "0", "--store", "."], 2, "--limit"),
        (["search", "the of", "--store", "."], 2, "'the of' has no word to search for"),
        (["list", "--store", "nowhere://bucket"], 1, "object store could not be opened"),
    ],
)
def test_mistakes_are_reported_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    output = run("context", *arguments, code=code).stderr
    assert text in " ".join(output.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_a_document_has_no_infinity(saved: dict[str, ContextPointer], at: tuple[str, str]) -> None:
    output = run("context", "query", "user:7/q", "SELECT 9e999 AS x", "--json", *at).stdout
    assert json.loads(output, parse_constant=pytest.fail)["rows"] == [[None]]
