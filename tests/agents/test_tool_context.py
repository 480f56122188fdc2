"""`ToolContextManager`: what one session saved, loads, chooses, resumes and clears."""

import asyncio
import builtins
import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    LexicalToolSelector,
    Session,
    Tool,
    ToolRegistry,
    ToolResult,
)
from llm_common.agents.context_pointers import compute_pointer_id
from llm_common.agents.tool_context import DEFAULT_PERSIST_THRESHOLD, ToolContextManager
from llm_common.errors import (
    InvalidIdError,
    LLMTimeoutError,
    PointerNotFoundError,
    StoreError,
    UnserialisableError,
)
from llm_common.testing import ScriptedClient

LARGE = "x" * (DEFAULT_PERSIST_THRESHOLD + 1)


async def save(manager: ToolContextManager, result: Any, **changes: Any) -> ContextPointer:
    call: dict[str, Any] = {"tool_name": "search", "args": {"query": "a"}, "query_id": "q1"}
    return await manager.save_context(**(call | {"result": result} | changes))


def lose(pointer: ContextPointer) -> None:
    Path(pointer.result_path).unlink()


def damage(pointer: ContextPointer) -> None:
    Path(pointer.result_path).write_bytes(b"9")


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_below(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


async def test_one_store_holds_everything_s4_01(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    manager = ToolContextManager(pointer_store=store)
    pointer = await manager.save_context("search", {"q": "a"}, {"found": 1}, "1", "q1")
    assert store.load_result(pointer=pointer) == {"found": 1}
    assert manager.list_pointers("q1") == store.list(query_id="q1") == [pointer]
    assert pointer.pointer_id == compute_pointer_id(
        tool_name="search", args={"q": "a"}, query_id="q1", task_id="1"
    )


async def test_every_call_is_kept_in_save_order_s4_02(manager: ToolContextManager) -> None:
    saved = [await save(manager, number) for number in range(3)]
    assert len({pointer.pointer_id for pointer in saved}) == 3
    assert manager.get_all_pointers() == saved
    assert [manager.load_result(pointer=pointer) for pointer in saved] == [0, 1, 2]
    assert manager.size == 3


async def test_the_same_call_with_the_same_result_is_one_pointer_and_the_newest_s4_02(
    manager: ToolContextManager,
) -> None:
    first, second = await save(manager, "a"), await save(manager, "b", tool_name="other")
    again = await save(manager, "a")
    assert again.pointer_id == first.pointer_id
    assert manager.get_all_pointers() == [second, again]


async def test_getters_return_copies_s4_02_f_153(manager: ToolContextManager) -> None:
    args = {"q": {"deep": [1]}}
    returned = await manager.save_context("search", args, "found", "1", "q1")
    args["q"]["deep"].append(2)
    returned.args["q"]["deep"].append(3)
    for getter in (
        manager.get_all_pointers,
        lambda: manager.get_pointers_for_query("q1"),
        lambda: manager.get_pointers_for_task("1"),
    ):
        got = getter()
        got[0].args["q"]["deep"].append(4)
        got.clear()
    assert manager.get_all_pointers()[0].args == {"q": {"deep": [1]}}


class Copied:
    """An argument that counts its copies."""

    copies = 0

    def __deepcopy__(self, _: object) -> "Copied":
        self.copies += 1
        return self


class OnePointerStore(InMemoryContextPointerStore):
    """A store that lists a pointer whose copies are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = Copied()
        self.pointer = ContextPointer(
            pointer_id="0" * 12,
            query_id="user:1",
            tool_name="get_weather",
            args={"city": self.probe},
            created_at="2026-01-01T00:00:00.000000+00:00",
            summary="get_weather",
            result_path="",
        )

    def list(self, *, query_id: str) -> builtins.list[ContextPointer]:
        return [self.pointer] if query_id == self.pointer.query_id else []


async def test_a_run_copies_no_pointer_of_its_session_s4_02() -> None:
    store = OnePointerStore()
    registry = ToolRegistry([Tool(add_numbers, read_only=True)])
    executor = AgenticExecutor(
        None, registry, ToolContextManager(pointer_store=store), selector=LexicalToolSelector()
    )
    [result] = await executor.execute_plan(["Add the numbers"], "q", session="user:1")
    assert result.success
    session = Session(store, session_id="user:1")
    await session.results.resume()
    manager = ToolContextManager.over(session)
    assert manager.pointers == (store.pointer,)
    assert manager.pointers[0] is store.pointer
    assert manager.session.results.sources("user:1") == []
    assert store.probe.copies == 0
    manager.get_all_pointers()
    assert store.probe.copies == 1


def add_numbers() -> int:
    """Add the numbers."""
    return 7


async def test_pointers_are_found_by_query_and_by_task_s4_01(manager: ToolContextManager) -> None:
    first = await save(manager, 1, query_id="q1", task_id="1")
    second = await save(manager, 2, query_id="q2", task_id=2)
    unfiled = await save(manager, 3, query_id=None, task_id=None)
    assert manager.get_pointers_for_query("q1") == [first]
    assert manager.get_pointers_for_task(2) == manager.get_pointers_for_task("2") == [second]
    assert manager.get_pointers_for_query(manager.session_id) == [unfiled]
    assert manager.get_pointers_for_query("q3") == []


async def test_a_new_manager_on_an_old_folder_starts_empty_s4_06(tmp_path: Path) -> None:
    await save(ToolContextManager(tmp_path), "old")
    manager = ToolContextManager(tmp_path)
    assert (manager.size, manager.get_all_pointers()) == (0, [])
    assert len(manager.list_pointers("q1")) == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is TypeScript?", "q_62fe08d57c8e4872"),
        ("  what is typescript?\n", "q_62fe08d57c8e4872"),
        ("test query", "q_050579eeae87a043"),
        ("", "q_e3b0c44298fc1c14"),
    ],
    ids=["S4-04-golden", "S4-04-trimmed-and-lower-cased", "S4-04-words", "S4-04-empty"],
)
def test_a_query_has_a_stable_id(query: str, expected: str) -> None:
    assert ToolContextManager.hash_query(query) == expected


async def test_a_hashed_query_is_a_valid_query_id_s4_04(manager: ToolContextManager) -> None:
    query_id = manager.hash_query("../ \ud800")
    await save(manager, "found", query_id=query_id)
    assert manager.size == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"query_id": "../x"}, InvalidIdError),
        ({"result": (number for number in range(3))}, UnserialisableError),
    ],
    ids=["S4-05-id", "S4-05-result"],
)
async def test_a_failed_save_raises_and_leaves_no_pointer(
    manager: ToolContextManager, changes: dict[str, Any], error: type[StoreError]
) -> None:
    kept = await save(manager, "kept")
    with pytest.raises(error):
        await save(manager, **({"result": "found"} | changes))
    assert manager.size == 1
    assert manager.list_pointers("q1") == [kept]


async def test_sources_come_from_the_pointers(manager: ToolContextManager) -> None:
    urls = ["https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/"]
    first = await save(manager, {"url": urls[0], "sources": [{"url": urls[1]}, "no dict"]})
    await save(
        manager, ToolResult(success=True, data=1, source_urls=[urls[2], urls[0]]), tool_name="fetch"
    )
    await save(manager, {"url": "https://other.example/"}, query_id="q2")
    await save(manager, {"url": 5, "source_urls": [urls[1], urls[3]], "sources": None}, args={})
    sources = manager.session.results.sources("q1")
    assert [source["url"] for source in sources] == urls
    assert sources[0] == {
        "tool": "search",
        "url": urls[0],
        "title": "search",
        "pointer_id": first.pointer_id,
    }
    assert manager.session.results.sources("nothing") == []


async def test_results_load_in_order_without_missing_ones_s4_05(
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path, persist_threshold=0)
    first, second, gone, damaged = [await save(manager, number) for number in range(4)]
    lose(gone)
    damage(damaged)
    contexts = await manager.load_contexts([second.pointer_id, gone, first, damaged, second])
    assert [context.result for context in contexts] == [1, 0, 1]
    assert contexts[0].pointer == second
    assert await manager.load_contexts([]) == []


async def test_only_pointers_are_read_f_151(
    manager: ToolContextManager, caplog: pytest.LogCaptureFixture
) -> None:
    kept = await save(manager, "kept")
    outside = kept.model_copy(update={"pointer_id": "../../etc/passwd"})
    elsewhere = kept.model_copy(update={"query_id": "../q1"})
    contexts = await manager.load_contexts(
        ["/etc/passwd", "~/.ssh/id_rsa", outside, elsewhere, kept]
    )
    assert [context.result for context in contexts] == ["kept"]
    assert "left out 4 stored results" in caplog.text
    assert "passwd" not in caplog.text


async def test_loaded_results_are_the_callers_own_s4_02(manager: ToolContextManager) -> None:
    pointer = await save(manager, {"rows": [1]})
    (await manager.load_contexts([pointer]))[0].result["rows"].append(2)
    assert manager.load_result(pointer=pointer) == {"rows": [1]}


@pytest.mark.parametrize(
    ("result", "threshold", "stays"),
    [
        ("small", DEFAULT_PERSIST_THRESHOLD, True),
        (LARGE, DEFAULT_PERSIST_THRESHOLD, False),
        ("small", 0, False),
        ("12345", 7, True),
        ("123456", 7, False),
    ],
    ids=["S4-07-small", "S4-07-large", "S4-07-off", "S4-07-at-the-threshold", "S4-07-over-it"],
)
async def test_small_results_stay_in_memory_too(
    tmp_path: Path, result: str, threshold: int, stays: bool
) -> None:
    manager = ToolContextManager(tmp_path, persist_threshold=threshold)
    pointer = await save(manager, result)
    lose(pointer)
    contexts = await manager.load_contexts([pointer])
    assert [context.result for context in contexts] == ([result] if stays else [])
    # everything was on disk all the same: meta and lock are left
    assert len(files_below(tmp_path)) == 2


async def test_memory_is_bounded_s4_07(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_common.agents.session.saved._MAX_CACHED_BYTES", 2_500)
    manager = ToolContextManager(tmp_path)
    first, second = await save(manager, "a" * 1_000), await save(manager, "b" * 1_000)
    manager.load_result(pointer=first)
    third = await save(manager, "c" * 1_000)
    for pointer in (first, second, third):
        lose(pointer)
    kept = await manager.load_contexts([first, second, third])
    assert [context.pointer.pointer_id for context in kept] == [first.pointer_id, third.pointer_id]


async def test_a_result_that_changes_while_it_is_saved_is_not_kept_in_memory_s4_07(
    manager: ToolContextManager,
) -> None:
    result = {"rows": list(range(10))}
    saving = asyncio.create_task(save(manager, result))
    for _ in range(2):
        await asyncio.sleep(0)
    result["rows"].append(99)
    pointer = await saving
    assert manager.load_result(pointer=pointer) == manager.pointer_store.load_result(
        pointer=pointer
    )


POINTERS = {
    "auth": "find authentication errors",
    "db": "list database tables",
    "both": "database authentication",
}


async def three(manager: ToolContextManager) -> dict[str, ContextPointer]:
    return {
        name: await save(manager, name, args={"query": query}) for name, query in POINTERS.items()
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("AUTHENTICATION error in the database", ["both", "auth", "db"]),
        ("database", ["db", "both"]),
        ("the tables of a database", ["db", "both"]),
        ("nothing in common", ["auth", "db", "both"]),
        ("of a in", ["auth", "db", "both"]),
        ("", ["auth", "db", "both"]),
    ],
    ids=[
        "S4-03-best-first",
        "S4-03-ties",
        "S4-03-more-words",
        "S4-03-no-match",
        "S4-03-short-words",
        "S4-03-empty",
    ],
)
async def test_keywords_choose_pointers(
    manager: ToolContextManager, query: str, expected: list[str]
) -> None:
    by_name = await three(manager)
    chosen = manager.select_relevant_contexts(query, list(by_name.values()))
    assert chosen == [by_name[name] for name in expected]
    assert manager.select_relevant_contexts(query) == chosen


async def test_no_match_can_return_nothing_s4_03(manager: ToolContextManager) -> None:
    by_name = await three(manager)
    assert manager.select_relevant_contexts("nothing in common", on_no_match="none") == []
    assert manager.select_relevant_contexts("tables", on_no_match="none") == [by_name["db"]]
    assert manager.select_relevant_contexts("tables", []) == []


async def test_a_model_selects_the_outputs_in_the_text_s4_07(manager: ToolContextManager) -> None:
    by_name = await three(manager)
    client = ScriptedClient([json.dumps({"pointer_ids": [by_name["db"].pointer_id]})])
    text = await manager.select_relevant_contexts(
        "which tables?", query_id="q1", client=client, model="m"
    )
    assert by_name["db"].pointer_id in text
    assert by_name["auth"].pointer_id not in text
    assert client.calls[0].model == "m"


async def test_a_failed_choice_of_a_model_is_no_text_s4_07(manager: ToolContextManager) -> None:
    await three(manager)
    client = ScriptedClient([], default=LLMTimeoutError("no answer", timeout_s=1))
    assert await manager.select_relevant_contexts("which?", query_id="q1", client=client) == ""


async def test_every_output_of_a_query_as_text_s4_01(
    manager: ToolContextManager, tmp_path: Path
) -> None:
    await three(manager)
    await save(ToolContextManager(tmp_path), "of another session", args={"query": "b"})
    text = manager.load_relevant_contexts("q1")
    assert text.count("### search (") == 4
    assert len(manager.load_relevant_contexts("q1", max_chars=300)) <= 300
    assert manager.load_relevant_contexts("unknown") == ""


async def test_resuming_restores_the_pointers_of_a_query_s4_06(
    manager: ToolContextManager, tmp_path: Path
) -> None:
    earlier = ToolContextManager(tmp_path)
    saved = [await save(earlier, number) for number in range(3)]
    await save(earlier, "other", query_id="q2")
    assert await manager.resume("q1") == saved == manager.get_all_pointers()
    assert [context.result for context in await manager.load_contexts(saved)] == [0, 1, 2]
    assert manager.load_payload(saved[1].pointer_id)[1] == b"1"
    assert await manager.resume("q1") == saved
    assert manager.size == 3
    assert await manager.resume("unknown") == []


async def test_clearing_removes_the_librarys_files_and_no_others_s4_06_f_150(
    manager: ToolContextManager, tmp_path: Path
) -> None:
    await three(manager)
    for other in ("package.json", "q1/package.json", "q1/notes.result.json", "other/package.json"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("{}")
    for _ in range(2):
        await manager.clear()
        assert manager.size == 0
        assert files_below(tmp_path) == [
            "other/package.json",
            "package.json",
            "q1/.lock",
            "q1/notes.result.json",
            "q1/package.json",
        ]
    await save(manager, "works after clearing")
    assert manager.size == 1


async def test_clearing_leaves_other_sessions_alone_s4_06(tmp_path: Path) -> None:
    manager, other = ToolContextManager(tmp_path), ToolContextManager(tmp_path)
    await save(manager, "mine")
    theirs = await save(other, "theirs", args={"query": "b"})
    await manager.clear()
    assert other.list_pointers("q1") == [theirs]


async def test_pointers_and_files_are_cleared_apart_s4_06(manager: ToolContextManager) -> None:
    pointer = await save(manager, "found")
    manager.clear_pointers()
    assert manager.size == 0
    assert manager.list_pointers("q1") == [pointer]
    with pytest.raises(PointerNotFoundError) as caught:
        manager.load_payload(pointer.pointer_id)
    assert caught.value.reason == "unknown"
    await manager.clear_context_dir()
    assert manager.list_pointers("q1") == []


async def test_cleared_files_cannot_be_loaded_from_memory_s4_06(
    manager: ToolContextManager,
) -> None:
    pointer = await save(manager, "small")
    await manager.clear_context_dir()
    assert manager.size == 1
    assert await manager.load_contexts([pointer]) == []
    manager.clear_pointers()
    with pytest.raises(PointerNotFoundError) as caught:
        manager.load_payload(pointer.pointer_id)
    assert caught.value.reason == "erased"
    again = await save(manager, "small")
    assert manager.load_payload(again.pointer_id)[1] == b'"small"'


async def test_clearing_that_fails_can_be_called_again_s4_06(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, lock_timeout_s=0.05)
    manager = ToolContextManager(pointer_store=store)
    await save(manager, "found")
    with store._files.lock("q1"), pytest.raises(StoreError):
        await manager.clear()
    assert manager.size == 1
    await manager.clear()
    assert entries(tmp_path) == []


async def test_the_end_of_a_session_clears_only_on_request_s4_07(tmp_path: Path) -> None:
    async with ToolContextManager(tmp_path) as kept:
        await save(kept, "stays")
    assert kept.size == 1
    async with ToolContextManager(tmp_path, clear_on_exit=True) as cleared:
        await save(cleared, "goes", query_id=None)
    assert cleared.size == 0
    assert entries(tmp_path) == ["q1"]


async def test_a_cancelled_session_is_cleared_too_s4_07(tmp_path: Path) -> None:
    saved = asyncio.Event()

    async def session() -> None:
        async with ToolContextManager(tmp_path, clear_on_exit=True) as manager:
            await save(manager, "goes")
            saved.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(session())
    await saved.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert entries(tmp_path) == []


async def test_clearing_removes_the_files_of_a_cancelled_save(tmp_path: Path) -> None:
    async with ToolContextManager(tmp_path, clear_on_exit=True) as manager:
        saving = asyncio.create_task(save(manager, "x" * 1_000_000))
        for _ in range(1_000):
            if len(files_below(tmp_path)) > 1:  # beside the lock, what is being written
                break
            await asyncio.sleep(0.001)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert files_below(tmp_path) == []


async def test_resuming_keeps_the_order_of_saves(manager: ToolContextManager) -> None:
    saved = [await save(manager, query, query_id=query) for query in ("q1", "q2")]
    await manager.resume("q1")
    assert manager.get_all_pointers() == saved


async def test_an_argument_of_the_other_way_of_choosing_is_refused(
    manager: ToolContextManager,
) -> None:
    choose: Any = manager.select_relevant_contexts
    with pytest.raises(TypeError, match="pass client= too"):
        choose("What?", query_id="q1")
    with pytest.raises(TypeError, match="pass either pointers or client="):
        choose("What?", [], client=ScriptedClient([]), query_id="q1")


@pytest.mark.parametrize(
    "name",
    ["n" * 1_000, "../../evil", "инструмент/工具\n", ""],
    ids=["F-149-long", "F-149-climb", "F-149-unicode", "F-149-empty"],
)
async def test_a_tools_name_never_reaches_a_path(tmp_path: Path, name: str) -> None:
    manager = ToolContextManager(tmp_path / "base")
    pointer = await save(manager, "found", tool_name=name)
    assert all(len(Path(file).name) <= 64 for file in files_below(tmp_path))
    assert {Path(file).parts[:2] for file in files_below(tmp_path)} == {("base", "q1")}
    assert manager.load_result(pointer=pointer) == "found"


async def test_randomness_that_repeats_itself_loses_nothing_f_152(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    managers = [ToolContextManager(tmp_path) for _ in range(2)]
    saves = [save(manager, number, query_id=None) for manager in managers for number in range(5)]
    pointers = await asyncio.gather(*saves)
    stored = managers[0].list_pointers(managers[0].session_id)
    assert len({pointer.pointer_id for pointer in pointers}) == len(stored) >= 5
    assert managers[0].pointer_store.load_result(pointer=stored[-1]) in range(5)
