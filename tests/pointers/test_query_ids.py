"""Query ids of applications, mapped to folders and back in every store."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
    ToolContextManager,
    compute_pointer_id,
)
from llm_common.errors import InvalidIdError, PointerNotFoundError
from llm_common.storage.blob import folder_of
from tests.storage.test_blob import IDS

USED = (
    "user:42:session",
    "2024/01",
    "a b",
    "me@host+x=1,2",
    "https://host/p",
    "x" * 200,
    "plain-1.2",
)


async def save(
    store: ContextPointerStore, query_id: str, result: Any = "result", **changes: Any
) -> ContextPointer:
    call: dict[str, Any] = {"task_id": None, "tool_name": "t", "args": {}, "result": result}
    return await store.save(query_id=query_id, **(call | changes))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_every_method_of_a_store_accepts_the_id_s0_11(store: ContextPointerStore) -> None:
    for query_id in USED:
        pointer = await save(store, query_id)
        assert pointer.query_id == query_id
        assert pointer.pointer_id == compute_pointer_id(
            tool_name="t", args={}, query_id=query_id, task_id=None
        )
        assert folder_of(query_id) in pointer.result_path
        assert store.list(query_id=query_id) == [pointer]
        assert store.load_result(pointer=pointer) == "result"
        assert store.load_payload(pointer.pointer_id, query_id=query_id)[0] == pointer
        assert store.is_stored(query_id=query_id, pointer_id=pointer.pointer_id)
        assert store.unpin(store.pin(pointer)) == pointer
        again = await save(store, query_id, "again")
        assert (again.pointer_id, store.load_result(pointer=pointer)) == (
            pointer.pointer_id,
            "again",
        )
    report = await store.verify()
    assert (report.queries, report.pointers, report.findings) == (len(USED), len(USED), ())
    assert (await store.gc()).queries == len(USED)
    for query_id in USED:
        [pointer] = store.list(query_id=query_id)
        assert store.delete(query_id=query_id) == 1
        with pytest.raises(PointerNotFoundError, match=pointer.pointer_id):
            store.load_result(pointer=pointer)
    assert (await store.verify()).queries == 0


async def test_reports_name_the_users_id_s0_11(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    pointer = await save(files, "user:42", ttl_s=1e9)
    brief = await save(files, "2024/01", ttl_s=1e-6)
    assert names_in(tmp_path) == ["2024~01", "user;42"]
    (tmp_path / "user;42" / f"{pointer.pointer_id}.result.json").write_bytes(b"0")
    [finding] = (await files.verify()).findings
    assert (finding.query_id, finding.kind) == ("user:42", "digest_mismatch")
    assert (await files.gc()).expired == 1
    assert not (tmp_path / "2024~01").exists()
    with pytest.raises(PointerNotFoundError) as caught:
        files.load_result(pointer=brief)
    assert caught.value.reason == "expired"
    assert repr(brief.query_id) in str(caught.value)
    assert brief.pointer_id in str(caught.value)


async def test_folders_of_other_names_are_no_queries_s0_11(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    await save(files, "q")
    for name in ("a b", "a:b", "a~..", "~a", "a;", "x!!y", "nul", "é", "a\\b", ".git"):
        (tmp_path / name).mkdir()
    assert (await files.verify()).queries == (await files.gc()).queries == 1
    assert len(names_in(tmp_path)) == 11


async def test_a_session_accepts_the_id_s0_11(tmp_path: Path) -> None:
    async with ToolContextManager(tmp_path) as manager:
        pointer = await manager.save_context("t", {}, "result", query_id="user:42/chat 1")
        assert manager.load_result(pointer=pointer) == "result"
        assert await manager.resume("user:42/chat 1") == [pointer]
        with pytest.raises(InvalidIdError, match="hash_query"):
            await manager.save_context("t", {}, "result", query_id="What is AAPL revenue?")


@given(st.lists(IDS, min_size=1, max_size=3, unique=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_ids_are_kept_apart_below_the_base_s0_11(
    tmp_path: Path, query_ids: list[str]
) -> None:
    store = FileContextPointerStore(tmp_path / "base", durability="rename")
    pointers = [await save(store, query_id, query_id) for query_id in query_ids]
    assert [store.load_result(pointer=pointer) for pointer in pointers] == query_ids
    assert names_in(tmp_path) == ["base"]
    assert names_in(tmp_path / "base") == sorted(map(folder_of, query_ids))
    for query_id in query_ids:
        assert store.delete(query_id=query_id, remember=False) == 1
    assert names_in(tmp_path / "base") == []
