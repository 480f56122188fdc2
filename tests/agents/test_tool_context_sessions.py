"""`ToolContextManager`: loading, choosing, caching, resuming and clearing."""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents.context_pointers import ContextPointer, FileContextPointerStore
from llm_common.agents.tool_context import DEFAULT_PERSIST_THRESHOLD, ToolContextManager
from llm_common.errors import LLMTimeoutError, PointerNotFoundError, StoreError
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ToolContextManager(tmp_path)
    kept = await save(manager, "kept")
    outside = kept.model_copy(update={"pointer_id": "../../etc/passwd"})
    elsewhere = kept.model_copy(update={"query_id": "../q1"})
    contexts = await manager.load_contexts(
        ["/etc/passwd", "~/.ssh/id_rsa", outside, elsewhere, kept]
    )
    assert [context.result for context in contexts] == ["kept"]
    assert "left out 4 stored results" in caplog.text
    assert "passwd" not in caplog.text


async def test_loaded_results_are_the_callers_own_s4_02(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
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
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path)
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
async def test_keywords_choose_pointers(tmp_path: Path, query: str, expected: list[str]) -> None:
    manager = ToolContextManager(tmp_path)
    by_name = await three(manager)
    chosen = manager.select_relevant_contexts(query, list(by_name.values()))
    assert chosen == [by_name[name] for name in expected]
    assert manager.select_relevant_contexts(query) == chosen


async def test_no_match_can_return_nothing_s4_03(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    by_name = await three(manager)
    assert manager.select_relevant_contexts("nothing in common", on_no_match="none") == []
    assert manager.select_relevant_contexts("tables", on_no_match="none") == [by_name["db"]]
    assert manager.select_relevant_contexts("tables", []) == []


async def test_a_model_selects_the_outputs_in_the_text_s4_07(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    by_name = await three(manager)
    client = ScriptedClient([json.dumps({"pointer_ids": [by_name["db"].pointer_id]})])
    text = await manager.select_relevant_contexts(
        "which tables?", query_id="q1", client=client, model="m"
    )
    assert by_name["db"].pointer_id in text
    assert by_name["auth"].pointer_id not in text
    assert client.calls[0].model == "m"


async def test_a_failed_choice_of_a_model_is_no_text_s4_07(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    await three(manager)
    client = ScriptedClient([], default=LLMTimeoutError("no answer", timeout_s=1))
    assert await manager.select_relevant_contexts("which?", query_id="q1", client=client) == ""


async def test_every_output_of_a_query_as_text_s4_01(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    await three(manager)
    await save(ToolContextManager(tmp_path), "of another session", args={"query": "b"})
    text = manager.load_relevant_contexts("q1")
    assert text.count("### search (") == 4
    assert len(manager.load_relevant_contexts("q1", max_chars=300)) <= 300
    assert manager.load_relevant_contexts("unknown") == ""


async def test_resuming_restores_the_pointers_of_a_query_s4_06(tmp_path: Path) -> None:
    earlier = ToolContextManager(tmp_path)
    saved = [await save(earlier, number) for number in range(3)]
    await save(earlier, "other", query_id="q2")
    manager = ToolContextManager(tmp_path)
    assert await manager.resume("q1") == saved == manager.get_all_pointers()
    assert [context.result for context in await manager.load_contexts(saved)] == [0, 1, 2]
    assert manager.load_payload(saved[1].pointer_id)[1] == b"1"
    assert await manager.resume("q1") == saved
    assert manager.size == 3
    assert await manager.resume("unknown") == []


async def test_clearing_removes_the_librarys_files_and_no_others_s4_06_f_150(
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path)
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


async def test_a_folder_goes_with_its_last_file_s4_06(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    await three(manager)
    await manager.clear()
    assert entries(tmp_path) == []
    await manager.clear()


async def test_clearing_leaves_other_sessions_alone_s4_06(tmp_path: Path) -> None:
    manager, other = ToolContextManager(tmp_path), ToolContextManager(tmp_path)
    await save(manager, "mine")
    theirs = await save(other, "theirs", args={"query": "b"})
    await manager.clear()
    assert other.list_pointers("q1") == [theirs]


async def test_pointers_and_files_are_cleared_apart_s4_06(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    pointer = await save(manager, "found")
    manager.clear_pointers()
    assert manager.size == 0
    assert manager.list_pointers("q1") == [pointer]
    with pytest.raises(PointerNotFoundError) as caught:
        manager.load_payload(pointer.pointer_id)
    assert caught.value.reason == "unknown"
    await manager.clear_context_dir()
    assert manager.list_pointers("q1") == []


async def test_cleared_files_cannot_be_loaded_from_memory_s4_06(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
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


async def test_a_session_that_ends_with_an_error_is_cleared_too_s4_07(tmp_path: Path) -> None:
    async def session() -> None:
        async with ToolContextManager(tmp_path, clear_on_exit=True) as manager:
            await save(manager, "goes")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await session()
    assert entries(tmp_path) == []


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


async def test_resuming_keeps_the_order_of_saves(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    saved = [await save(manager, query, query_id=query) for query in ("q1", "q2")]
    await manager.resume("q1")
    assert manager.get_all_pointers() == saved


async def test_an_argument_of_the_other_way_of_choosing_is_refused(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
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
