"""`ToolContextManager` over any store: lost results, and what callers may pass for a pointer."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import obstore
import pytest

from llm_common._threads import in_thread
from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    ObjectContextPointerStore,
    ReadBackTool,
    Redactor,
    Session,
    Sessions,
    ToolContextManager,
    format_selected_contexts,
)
from llm_common.agents.session.saved import SavedResults
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.errors import PointerNotFoundError, StoreError, ToolFailedError
from tests.agents.runs import REPORTS, WEATHER, forecaster
from tests.programs import printed

CANARY = "canary-of-an-erased-result"
STORES: dict[str, Callable[[Path], ContextPointerStore]] = {
    "files": FileContextPointerStore,
    "memory": lambda _: InMemoryContextPointerStore(),
    "objects": lambda _: ObjectContextPointerStore(obstore.store.MemoryStore()),
}


async def save(manager: ToolContextManager, result: Any = CANARY, **changes: Any) -> ContextPointer:
    call: dict[str, Any] = {"tool_name": "search", "args": {"query": "a"}, "query_id": "q1"}
    return await manager.save_context(**(call | {"result": result} | changes))


async def by_store(manager: ToolContextManager, pointer: ContextPointer) -> None:
    manager.pointer_store.delete(query_id=pointer.query_id)


async def by_process(manager: ToolContextManager, pointer: ContextPointer) -> None:
    program = (
        "from llm_common.agents import FileContextPointerStore as Store\n"
        f"assert Store({str(manager.context_dir)!r}).delete(query_id={pointer.query_id!r}) == 1"
    )
    await in_thread(printed, program)


async def by_quota(manager: ToolContextManager, pointer: ContextPointer) -> None:
    other = FileContextPointerStore(manager.context_dir, max_bytes_per_query=900)
    await other.save(
        query_id=pointer.query_id, task_id=None, tool_name="b", args={}, result="x" * 890
    )


async def by_lifetime(manager: ToolContextManager, pointer: ContextPointer) -> None:
    # the same call, saved by another session
    other = FileContextPointerStore(manager.context_dir, ttl_s=1e-9)
    await other.save(
        query_id="q1", task_id=None, tool_name="search", args={"query": "a"}, result=CANARY
    )


@pytest.mark.parametrize(
    ("lose", "reason"),
    [(by_store, "erased"), (by_process, "erased"), (by_quota, "erased"), (by_lifetime, "expired")],
    ids=["same-store", "other-process", "quota", "ttl"],
)
async def test_a_result_lost_by_the_store_is_not_returned_f_160(
    manager: ToolContextManager,
    lose: Callable[[ToolContextManager, ContextPointer], Awaitable[None]],
    reason: str,
) -> None:
    pointer = await save(manager)
    assert CANARY in format_selected_contexts(pointers=[pointer], store=manager)
    await lose(manager, pointer)
    with pytest.raises(PointerNotFoundError) as caught:
        manager.load_result(pointer=pointer)
    assert caught.value.reason == reason
    assert pointer.pointer_id in str(caught.value)
    assert CANARY not in format_selected_contexts(pointers=[pointer], store=manager)
    with pytest.raises(ToolFailedError):
        await ReadBackTool(manager.load_payload).run({"id": pointer.pointer_id})
    assert await manager.load_contexts([pointer]) == []
    request = ContextSelectionRequest(intent=classify_intent("a?"), token_budget=4_000)
    pool = DataPoolSnapshot(tool_outputs=(pointer,))
    assert CANARY not in (await ContextSelector(store=manager).select(request, pool)).render()
    assert len(manager.session.results._cache.keys()) == 0


@pytest.mark.parametrize("kind", STORES)
async def test_a_session_and_an_executor_work_over_any_store(tmp_path: Path, kind: str) -> None:
    manager = ToolContextManager(pointer_store=STORES[kind](tmp_path))
    [result] = await forecaster(None, tmp_path, manager).execute_plan(WEATHER[:1], "q1")
    assert result.success
    [context] = await manager.load_contexts(manager.get_all_pointers())
    assert context.result == REPORTS["Oslo"]
    other = ToolContextManager(pointer_store=manager.pointer_store)
    assert await other.resume("q1") == manager.get_all_pointers()
    manager.pointer_store.delete(query_id="q1")
    assert await manager.load_contexts([context.pointer]) == []
    await manager.clear()


@pytest.mark.parametrize(
    ("kind", "has_folder"), [("files", True), ("memory", False), ("objects", False)]
)
def test_only_a_store_of_files_has_a_folder(tmp_path: Path, kind: str, has_folder: bool) -> None:
    manager = ToolContextManager(pointer_store=STORES[kind](tmp_path))
    if has_folder:
        assert manager.context_dir == tmp_path
    else:
        with pytest.raises(StoreError, match="has no folder; use a FileContextPointerStore"):
            _ = manager.context_dir


@pytest.mark.parametrize("kind", [Session, Sessions])
def test_a_session_over_what_is_no_store_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="store is a int; pass a ContextPointerStore"):
        kind(3)


async def test_pointers_may_be_named_by_id_and_by_path_s4_05(
    manager: ToolContextManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await save(manager, 1), await save(manager, 2)
    named: list[Any] = [first.result_path, Path(second.result_path), second.pointer_id, first]
    assert [context.result for context in await manager.load_contexts(named)] == [1, 2, 2, 1]
    for single in (first, first.pointer_id, first.result_path):
        assert [context.result for context in await manager.load_contexts(single)] == [1]
        assert manager.load_result(pointer=single) == 1
    assert caplog.text == ""
    assert await ToolContextManager(tmp_path).load_contexts([first.result_path]) == []
    assert "resume(query_id) may add" in caplog.text


@pytest.mark.parametrize(
    "wrong", [5, None, {"pointer_id": "0" * 12}], ids=["number", "none", "dict"]
)
async def test_a_wrong_pointer_is_refused_with_a_hint(
    manager: ToolContextManager, wrong: Any
) -> None:
    with pytest.raises(TypeError, match="pass a ContextPointer, as save_context returns it"):
        await manager.load_contexts([wrong])
    with pytest.raises(TypeError, match="its id or its result_path"):
        manager.load_result(pointer=wrong)


async def test_two_managers_share_a_session_over_any_store(tmp_path: Path) -> None:
    for kind, store_in in STORES.items():
        store = store_in(tmp_path / kind)
        first, second, other = (
            ToolContextManager(pointer_store=store, session_id=name)
            for name in ("user:1", "user:1", "user:2")
        )
        question = first.query_id_of("What is it?")
        assert question != other.query_id_of("What is it?"), kind
        await save(first, "mine", query_id=question)
        await save(first, "without a query", query_id=None)
        await save(other, "theirs", query_id=other.query_id_of("What is it?"))
        assert [second.load_result(pointer=one) for one in await second.resume()] == [
            "mine",
            "without a query",
        ], kind
        await save(second, "later", query_id="q3")
        assert [first.load_result(pointer=one) for one in await first.resume()][-1] == "later", kind
        assert [other.load_result(pointer=one) for one in await other.resume()] == ["theirs"], kind


async def test_clearing_a_session_leaves_nothing_to_resume(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path, session_id="chat")
    await save(manager)
    await manager.clear()
    assert await manager.resume() == []
    assert FileContextPointerStore(tmp_path).list(query_id="chat") == []
    await save(manager)
    assert len(await ToolContextManager(tmp_path, session_id="chat").resume()) == 1


async def test_a_partly_cleared_session_resumes_with_later_results(
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path, session_id="chat")
    await save(manager, "before")
    folder = tmp_path / "q1"
    folder.rename(tmp_path / "away")
    # clearing the query fails, after the record of the session's queries is gone
    folder.write_bytes(b"")
    with pytest.raises(StoreError):
        await manager.clear()
    folder.unlink()
    await save(manager, "after")
    other = ToolContextManager(tmp_path, session_id="chat")
    assert [other.load_result(pointer=one) for one in await other.resume()] == ["after"]


@pytest.mark.parametrize("kind", STORES)
async def test_the_records_of_a_sessions_queries_are_no_outputs(tmp_path: Path, kind: str) -> None:
    manager = ToolContextManager(pointer_store=STORES[kind](tmp_path), session_id="chat")
    await save(manager, "mine", query_id=None)
    await save(manager, "of a query")
    [mine] = manager.list_pointers("chat")
    assert await manager.resume("chat") == [mine]
    assert manager.size == 2
    assert manager.load_relevant_contexts("chat").count("Tool output") == 1


async def test_a_tool_may_have_any_name_in_a_session_that_others_resume(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path, session_id="chat")
    await save(manager, "mine", tool_name="session_query", args={"query_id": "q2"}, query_id=None)
    await save(ToolContextManager(tmp_path), "theirs", query_id="q2")
    other = ToolContextManager(tmp_path, session_id="chat")
    assert [other.load_result(pointer=one) for one in await other.resume()] == ["mine"]


@pytest.mark.parametrize("session_id", ["user:123456789", "chat"])
async def test_a_session_whose_ids_look_like_secrets_is_resumed(session_id: str) -> None:
    store = InMemoryContextPointerStore(
        redactor=Redactor(extra_patterns=(r"\d{9}",)), redact_results=True
    )
    manager = ToolContextManager(pointer_store=store, session_id=session_id)
    await save(manager, query_id=manager.query_id_of("What is it?"))
    await save(manager, query_id="api_key=123456789")
    assert len(await ToolContextManager(pointer_store=store, session_id=session_id).resume()) == 2


def test_a_question_that_is_no_text_is_refused() -> None:
    wrong: Any = None
    with pytest.raises(TypeError, match="query must be a str, got NoneType"):
        ToolContextManager.hash_query(wrong)


@pytest.mark.parametrize("name", ["../../etc/passwd", "0123456789AB", "0" * 17, "", "q1"])
async def test_a_name_that_is_no_id_never_reaches_the_store(name: str) -> None:
    class Untouched(InMemoryContextPointerStore):
        def load_payload(self, pointer_id: str, *, query_id: str) -> tuple[ContextPointer, bytes]:
            raise AssertionError(pointer_id)

    manager = ToolContextManager(pointer_store=Untouched(), session_id="chat")
    with pytest.raises(PointerNotFoundError) as caught:
        manager.load_payload(name)
    assert "has 12 to 16 lower-case hex digits; use one from a preview" in caught.value.message
    assert not name or name not in caught.value.message  # it may be a secret
    assert caught.value.reason == "unknown"


async def test_a_result_of_the_same_users_other_session_is_elsewhere(
    store: InMemoryContextPointerStore,
) -> None:
    mine, theirs = SavedResults(store, "ann:2"), SavedResults(store, "bob:1")
    asked = SavedResults(store, "ann:1", siblings="ann:")
    alone = SavedResults(store, "ann:1")
    pointers = [
        await results.save(number, tool="search", args={"n": number})
        for number, results in enumerate((mine, theirs))
    ]
    for results, reasons in ((asked, ["elsewhere", "unknown"]), (alone, ["unknown"] * 2)):
        for pointer, reason in zip(pointers, reasons, strict=True):
            with pytest.raises(PointerNotFoundError) as caught:
                results.load_payload(pointer.pointer_id)
            assert caught.value.reason == reason


async def test_a_conversation_of_a_shared_id_lists_what_it_saved_or_read(
    store: InMemoryContextPointerStore,
) -> None:
    first, second = (SavedResults(store, "scope", lists_own=True) for _ in range(2))
    mine = await first.save("mine", tool="search", args={"n": 1})
    theirs = await second.save("theirs", tool="search", args={"n": 2})
    assert (first.list_all(), second.list_all()) == ([mine], [theirs])
    assert first.load_payload(theirs.pointer_id)[1] == b'"theirs"'
    assert first.list_all() == [mine, theirs]
    assert second.list_all() == [theirs]


@pytest.mark.parametrize("kind", STORES)
async def test_clearing_a_shared_id_leaves_what_another_conversation_saved_too(
    tmp_path: Path, kind: str
) -> None:
    store = STORES[kind](tmp_path)
    first, second = (SavedResults(store, "scope", lists_own=True) for _ in range(2))
    for savers in ((first, second), (second, first), (first, second, first)):
        call: dict[str, Any] = {"tool": "search", "args": {"n": len(savers)}}
        for saver in savers:
            pointer = await saver.save("both", **call)
        mine = await first.save("mine", **call)
        await first.clear_files()
        with pytest.raises(PointerNotFoundError):
            second.load_payload(mine.pointer_id)
        assert second.load_payload(pointer.pointer_id)[1] == b'"both"'
        await first.clear_files()
        assert [left.pointer_id for left in second.list_all()] == [pointer.pointer_id]
        await second.clear_files()
        assert store.list(query_id="scope") == []


async def test_clearing_a_shared_id_leaves_what_the_application_saved_too(
    store: InMemoryContextPointerStore,
) -> None:
    call: dict[str, Any] = {"tool_name": "search", "args": {}, "result": "both"}
    first = SavedResults(store, "scope", lists_own=True)
    await store.save(query_id="scope", **call)
    pointer = await first.save("both", tool="search", args={})
    await store.save(query_id="scope", **call)
    await first.clear_files()
    assert store.load_result(pointer=pointer) == "both"
    store.delete(query_id="scope")
    await first.save("both", tool="search", args={})
    await first.clear_files()
    assert store.list(query_id="scope") == []
