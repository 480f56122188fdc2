"""`ToolContextManager`: what one session saved."""

import asyncio
import builtins
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    InMemoryContextPointerStore,
    LexicalToolSelector,
    Session,
    Tool,
    ToolRegistry,
    ToolResult,
)
from llm_common.agents.context_pointers import FileContextPointerStore, compute_pointer_id
from llm_common.agents.tool_context import ToolContextManager
from llm_common.errors import InvalidIdError, StoreError, UnserialisableError


async def save(manager: ToolContextManager, result: Any, **changes: Any) -> str:
    call: dict[str, Any] = {
        "tool_name": "search",
        "args": {"q": "a"},
        "task_id": "1",
        "query_id": "q1",
    }
    return (await manager.save_context(**(call | {"result": result} | changes))).pointer_id


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}


async def test_one_store_holds_everything_s4_01(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    pointer = await manager.save_context("search", {"q": "a"}, {"found": 1}, "1", "q1")
    assert manager.pointer_store.load_result(pointer=pointer) == {"found": 1}
    assert manager.list_pointers("q1") == [pointer]
    assert manager.context_dir == tmp_path
    assert pointer.pointer_id == compute_pointer_id(
        tool_name="search", args={"q": "a"}, query_id="q1", task_id="1"
    )
    assert f"q1/{pointer.pointer_id}.meta.json" in files_below(tmp_path)


def test_a_ready_store_is_used_s4_01(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    assert ToolContextManager(pointer_store=store).pointer_store is store


def test_the_default_folder_is_the_stores_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path / "elsewhere"))
    assert ToolContextManager().context_dir == tmp_path / "elsewhere"


async def test_every_call_is_kept_in_save_order_s4_02(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    ids = [await save(manager, number) for number in range(3)]
    assert len(set(ids)) == 3
    assert [pointer.pointer_id for pointer in manager.get_all_pointers()] == ids
    assert [
        manager.pointer_store.load_result(pointer=pointer) for pointer in manager.get_all_pointers()
    ] == [0, 1, 2]
    assert manager.size == 3


async def test_the_same_call_with_the_same_result_is_one_pointer_and_the_newest_s4_02(
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path)
    first, second = await save(manager, "a"), await save(manager, "b", tool_name="other")
    assert await save(manager, "a") == first
    assert [pointer.pointer_id for pointer in manager.get_all_pointers()] == [second, first]


async def test_saves_may_run_side_by_side_s4_02(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    ids = await asyncio.gather(*(save(manager, number, args={"q": number}) for number in range(8)))
    assert sorted(pointer.pointer_id for pointer in manager.get_all_pointers()) == sorted(ids)


async def test_getters_return_copies_s4_02_f_153(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
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


async def test_pointers_are_found_by_query_and_by_task_s4_01(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    first = await save(manager, 1, query_id="q1", task_id="1")
    second = await save(manager, 2, query_id="q2", task_id=2)
    unfiled = await save(manager, 3, query_id=None, task_id=None)
    assert [pointer.pointer_id for pointer in manager.get_pointers_for_query("q1")] == [first]
    assert [pointer.pointer_id for pointer in manager.get_pointers_for_task(2)] == [second]
    assert [pointer.pointer_id for pointer in manager.get_pointers_for_task("2")] == [second]
    assert [
        pointer.pointer_id for pointer in manager.get_pointers_for_query(manager.session_id)
    ] == [unfiled]
    assert manager.get_pointers_for_query("q3") == []


async def test_a_call_without_a_query_is_filed_under_the_session(tmp_path: Path) -> None:
    first, second = ToolContextManager(tmp_path), ToolContextManager(tmp_path)
    pointer = await first.save_context("search", {}, "found")
    assert pointer.query_id == first.session_id != second.session_id
    assert pointer.task_id is None


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


async def test_a_hashed_query_is_a_valid_query_id_s4_04(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
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
    tmp_path: Path, changes: dict[str, Any], error: type[StoreError]
) -> None:
    manager = ToolContextManager(tmp_path)
    kept = await save(manager, "kept")
    with pytest.raises(error):
        await save(manager, **({"result": "found"} | changes))
    assert manager.size == 1
    assert [pointer.pointer_id for pointer in manager.list_pointers("q1")] == [kept]


async def test_sources_come_from_the_pointers(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    urls = ["https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/"]
    first = await save(manager, {"url": urls[0], "sources": [{"url": urls[1]}, "no dict"]})
    await save(
        manager, ToolResult(success=True, data=1, source_urls=[urls[2], urls[0]]), tool_name="fetch"
    )
    await save(manager, {"url": "https://other.example/"}, query_id="q2")
    await save(manager, {"url": 5, "source_urls": [urls[1], urls[3]], "sources": None}, args={})
    sources = manager.session.results.sources("q1")
    assert [source["url"] for source in sources] == urls
    assert sources[0] == {"tool": "search", "url": urls[0], "title": "search", "pointer_id": first}
    assert manager.session.results.sources("nothing") == []
