"""Files that version 1.0.0 wrote are read: `files_of_1_0_0/README.md` says what each of them is.

`expected.json` there has what version 1.0.0 itself read from them.
"""

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    ContextPointerStore,
    ExecutionPlan,
    FileContextPointerStore,
    ObjectContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Sessions,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.context import AdaptiveWeights, IntentType
from llm_common.errors import PointerNotFoundError
from llm_common.memory import Event, MemoryFilters, SqliteMemory
from llm_common.testing import ScriptedClient
from llm_common.trace import read_trace
from tests.apps.cli.running import run

FOLDER = Path(__file__).with_name("files_of_1_0_0")
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
RUNS: dict[str, dict[str, Any]] = EXPECTED["traces"]["runs"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a copy of the files with the modes that git does not keep."""
    copy = tmp_path / "files"
    shutil.copytree(FOLDER, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


def clock_of(kind: str) -> Any:
    """Return a clock that has stopped when version 1.0.0 had written a store."""
    now = datetime.fromisoformat(EXPECTED[kind]["now"])
    return lambda: now


def store_of(kind: str, files: Path) -> ContextPointerStore:
    if kind == "seeds":
        return FileContextPointerStore(files / kind)
    if kind != "objects":
        return FileContextPointerStore(files / kind, clock=clock_of(kind))
    objects = obstore.store.MemoryStore()
    for path in (files / kind).rglob("*"):
        if path.is_file():
            objects.put(path.relative_to(files / kind).as_posix(), path.read_bytes())
    return ObjectContextPointerStore(objects, clock=clock_of(kind))


def pointer_of(query_id: str, pointer_id: str) -> ContextPointer:
    return ContextPointer(
        pointer_id=pointer_id,
        query_id=query_id,
        tool_name="",
        created_at="",
        summary="",
        result_path="",
    )


def assert_same(pointer: ContextPointer, fields: dict[str, Any]) -> None:
    """Check each field of version 1.0.0. A later version may have more."""
    if fields["renew_s"] is not None:
        # Version 1.0.0 kept the time of the last read in `{id}.read`, which is ignored now. Such a
        # result lives as long as its record says.
        fields = {name: value for name, value in fields.items() if name != "expires_at"}
    assert pointer.model_dump(mode="json", include=set(fields)) == fields


STORES = ["files", "objects", "sessions", "seeds"]


@pytest.mark.parametrize("kind", STORES)
def test_every_pointer_is_listed_and_loaded_s0_09_s0_10(kind: str, files: Path) -> None:
    store = store_of(kind, files)
    queries: dict[str, list[dict[str, Any]]] = EXPECTED[kind]["queries"]
    assert {query.query_id for query in store.queries()} == queries.keys()
    for query_id, entries in queries.items():
        pointers = store.list(query_id=query_id)
        assert len(pointers) == len(entries)
        for pointer, entry in zip(pointers, entries, strict=True):
            assert_same(pointer, entry["pointer"])
            _, payload = store.load_payload(pointer.pointer_id, query_id=query_id)
            digest = entry["pointer"]["result_sha256"]
            assert digest in (None, hashlib.sha256(payload).hexdigest())
            if "result" in entry:  # the large ones have only their digest
                assert store.load_result(pointer=pointer) == entry["result"]


@pytest.mark.parametrize("kind", STORES)
async def test_verify_finds_what_version_1_0_0_found(kind: str, files: Path) -> None:
    store = store_of(kind, files)
    report = await store.verify()
    findings = sorted(
        [finding.query_id, finding.name, finding.kind]
        for finding in report.findings
        if finding.kind != "unrecognized"
    )
    assert findings == EXPECTED[kind].get("findings", [])
    # The times of a last read, which version 1.0.0 kept beside some results, are no finding.
    assert [finding.name for finding in report.findings if finding.name.endswith(".read")] == []
    assert report.queries == len(EXPECTED[kind]["queries"])


@pytest.mark.parametrize("kind", ["files", "objects"])
def test_a_lookup_says_why_a_pointer_is_missing(kind: str, files: Path) -> None:
    store = store_of(kind, files)
    for query_id, reasons in EXPECTED[kind]["misses"].items():
        for pointer_id, reason in reasons.items():
            with pytest.raises(PointerNotFoundError) as missing:
                store.load_result(pointer=pointer_of(query_id, pointer_id))
            assert missing.value.reason == reason


async def test_interrupted_saves_are_finished_or_undone(files: Path) -> None:
    store = store_of("files", files)
    assert (await store.verify(repair=True)).is_clean
    results = {
        pointer.pointer_id: store.load_result(pointer=pointer)
        for pointer in store.list(query_id="killed")
    }
    assert results == EXPECTED["files"]["interrupted"]
    assert not list((files / "files").rglob("*.next"))


@pytest.mark.parametrize(
    ("kind", "query_id", "call"),
    [
        (
            "files",
            "user:42/session",
            {"task_id": "b", "tool_name": "list_animals", "args": {"limit": 2}},
        ),
        (
            "objects",
            "user:42/session",
            {"task_id": "b", "tool_name": "list_animals", "args": {"limit": 2}},
        ),
        ("seeds", "seed", {"task_id": "1", "tool_name": "search", "args": {"query": "otters"}}),
    ],
)
async def test_the_same_call_replaces_its_result_s0_05(
    kind: str, query_id: str, call: dict[str, Any], files: Path
) -> None:
    store = store_of(kind, files)
    before = store.list(query_id=query_id)
    saved = await store.save(query_id=query_id, result="saved again", **call)
    assert store.load_result(pointer=saved) == "saved again"
    after = {pointer.pointer_id for pointer in store.list(query_id=query_id)}
    assert after == {pointer.pointer_id for pointer in before}
    assert saved.pointer_id in after


async def test_a_deleted_query_leaves_nothing(files: Path) -> None:
    store = store_of("files", files)
    for query_id in EXPECTED["files"]["queries"]:
        store.delete(query_id=query_id)
    assert store.queries() == []


CONFIG = SessionConfig(offload=OffloadPolicy(max_whole_tokens=100, max_preview_tokens=150))


async def test_a_conversation_goes_on_with_its_tables_and_folded_messages(files: Path) -> None:
    old = EXPECTED["sessions"]["session"]
    sessions = Sessions(store_of("sessions", files), CONFIG)
    session = sessions.get(tuple(old["conversation"]))
    assert session.session_id == old["session_id"]
    tables = [[table.name, list(table.columns), table.rows] for table in await session.tables()]
    assert tables == old["tables"]
    rows = await session.query_rows(old["sql"])
    assert [list(row) for row in rows.rows] == old["rows"]
    for pointer_id, form, total_chars in old["shown"]:
        assert (form == "whole") is (pointer_id is None)
        if pointer_id is not None:
            assert (await session.read(pointer_id)).total_chars == total_chars
    [message] = await session.search("parcel P003 weighs", limit=1)
    assert "Parcel P003 weighs 3 kg." in str(message)


async def test_an_output_is_recognized_when_the_call_is_repeated(files: Path) -> None:
    session = Session(store_of("sessions", files), session_id="bob", config=CONFIG)
    old = EXPECTED["sessions"]["plain"]
    [[name, columns, rows]] = old["tables"]
    [table] = await session.tables()
    assert [table.name, list(table.columns), table.rows] == [name, columns, rows]
    animals = {"animals": [{"name": f"otter {n}", "weight": n} for n in range(90)]}
    again = await session.offload(animals, tool="zoo", args={"city": "Oslo"})
    assert again.pointer_id == old["pointer"]
    assert len(session.store.list(query_id="bob")) == 1


async def test_a_manager_resumes_all_queries_of_its_session_s4_06(files: Path) -> None:
    old = EXPECTED["sessions"]["manager"]
    manager = ToolContextManager(
        pointer_store=store_of("sessions", files), session_id=old["session_id"]
    )
    assert manager.size == 0
    resumed = await manager.resume()
    contexts = [
        [
            pointer.query_id,
            pointer.pointer_id,
            pointer.task_id,
            manager.load_result(pointer=pointer),
        ]
        for pointer in resumed
    ]
    assert sorted(contexts) == sorted(old["contexts"])


async def test_a_run_continues_without_the_calls_that_it_made(files: Path) -> None:
    old = EXPECTED["sessions"]["run"]
    cities: list[str] = []

    async def animals(city: str) -> str:
        cities.append(city)
        return f"otters of {city}"

    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    replies = [
        json.dumps({"calls": [{"tool": "animals", "args": {"city": city}}]})
        for city in ("Oslo", "Lima")
    ]
    description = "List the animals of a city."
    executor = AgenticExecutor(
        ScriptedClient(replies),
        ToolRegistry([Tool(animals, name="animals", description=description, parameters=schema)]),
        ToolContextManager(pointer_store=store_of("sessions", files)),
    )
    results = await executor.execute_plan(
        ExecutionPlan.model_validate(old["plan"]),
        old["query_id"],
        query=old["query"],
        session=old["session_id"],
        resume=True,
    )
    assert [result.success for result in results] == [True, True]
    assert cities == ["Lima"]


async def test_a_memory_finds_every_event_for_its_user(files: Path) -> None:
    old = EXPECTED["memory"]
    async with SqliteMemory(files / "memory.sqlite") as memory:
        for search in old["searches"]:
            hits = await memory.retrieve("zebra", 9, MemoryFilters(**search["filters"]))
            found = [hit.model_dump(mode="json", exclude={"score"}) for hit in hits]
            assert found == search["hits"], search["filters"]
        for scope, events in old["recent"].items():
            session_id, _, user = scope.partition("|")
            recent = await memory.recent(session_id, user=user or None)
            assert [event.model_dump(mode="json") for event in recent] == events
        await memory.append_event("s2", Event(text="A new zebra."))
        assert len(await memory.retrieve("zebra", 9, MemoryFilters(session_id="s2"))) == 2


async def test_learned_weights_are_read(files: Path) -> None:
    old = EXPECTED["weights"]
    weights = AdaptiveWeights(files / "weights.sqlite")
    now = datetime.fromisoformat(old["now"])
    assert await weights.weights(IntentType(old["intent"]), now=now) == old["factors"]


@pytest.mark.parametrize("name", RUNS)
def test_a_trace_is_read_and_shown(name: str, files: Path) -> None:
    path, old = files / "traces" / name, RUNS[name]
    trace = read_trace(path)
    assert trace.begin is not None
    assert trace.begin.query_id == old["query_id"]
    assert [line.kind for line in trace.lines] == old["kinds"]
    assert list(trace.notes) == old["notes"]
    assert (trace.end and trace.end.status) == old["status"]
    run("trace", "show", path)
    shown = json.loads(run("trace", "show", path, "--json").stdout)
    assert [line["kind"] for line in shown["lines"]] == old["kinds"]
    page = files / "run.html"
    run("trace", "export", path, page)
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")
