"""No session id names a run: another session's runs can be neither read nor written through one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    FileContextPointerStore,
    LexicalToolSelector,
    Session,
    Sessions,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.errors import InvalidIdError, PointerNotFoundError
from tests.agents.test_busy_runs import REFUSED_IDS

QUESTION = "list the orders"
RUN = ToolContextManager.hash_query(QUESTION)
ROWS = [{"order": number, "total": number * 10} for number in range(5)]


@pytest.fixture
def calls() -> list[str]:
    """The calls of the tool so far."""
    return []


@pytest.fixture
def executor(tmp_path: Path, calls: list[str]) -> AgenticExecutor:
    def list_orders() -> list[dict[str, int]]:
        """List the orders."""
        calls.append("list_orders")
        return ROWS

    tools = ToolRegistry([Tool(list_orders, read_only=True)])
    return AgenticExecutor(None, tools, Session(tmp_path), selector=LexicalToolSelector())


IDS = {
    "of a named session": f"alice/{RUN}",
    "of a session in a session's folder": f"tenant/alice/{RUN}",
    "of a session without a name": RUN,
    "in capitals": f"alice/{RUN.upper()}",
}
WAYS: dict[str, Callable[[Path, str], object]] = {
    "Session": lambda folder, run_id: Session(folder, session_id=run_id),
    "ToolContextManager": lambda folder, run_id: ToolContextManager(folder, session_id=run_id),
    "Sessions.with_id": lambda folder, run_id: Sessions(folder).with_id(run_id),
}


REFUSED = [
    *(pytest.param(run_id, "query id of a run", id=name) for name, run_id in IDS.items()),
    *((refused_id, None) for refused_id in REFUSED_IDS),
]


@pytest.mark.parametrize(("refused_id", "why"), REFUSED)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_id_of_a_run_or_of_no_query_is_no_session_id_s0_11_f_216(
    tmp_path: Path, way: Callable[[Path, Any], object], refused_id: Any, why: str | None
) -> None:
    with pytest.raises(InvalidIdError, match=why):
        way(tmp_path, refused_id)


@pytest.mark.parametrize("session_id", [None, "ann"])
@pytest.mark.parametrize("refused_id", REFUSED_IDS)
async def test_a_manager_saves_under_no_id_that_its_store_refuses_s0_11(
    tmp_path: Path, refused_id: Any, session_id: str | None
) -> None:
    with pytest.raises(InvalidIdError):
        await ToolContextManager(tmp_path, session_id=session_id).save_context(
            "pay", {}, "paid", None, refused_id
        )


@pytest.mark.parametrize("run_id", IDS.values(), ids=IDS)
async def test_an_executor_refuses_the_id_of_a_run_as_a_session_f_216(
    executor: AgenticExecutor, calls: list[str], run_id: str
) -> None:
    with pytest.raises(InvalidIdError, match="query id of a run"):
        await executor.execute_plan([QUESTION], "q1", session=run_id)
    assert calls == []


@pytest.mark.parametrize("session_id", ["user/42", "alice/q_1", f"alice/{RUN}/2", f"alice/{RUN}0"])
async def test_other_ids_stay_session_ids_f_216(tmp_path: Path, session_id: str) -> None:
    shown = await Session(tmp_path, session_id=session_id).offload(
        "word " * 9_000, tool="web", args={}
    )
    again = Sessions(tmp_path).get(session_id)
    assert again.session_id == session_id
    assert (await again.read(shown.pointer_id)).text.startswith("word word")


async def test_a_conversation_named_like_a_run_sees_nothing_of_it_f_216(
    executor: AgenticExecutor, tmp_path: Path
) -> None:
    [result] = await executor.execute_plan([QUESTION], QUESTION, session="alice")
    pointer_id = result.result[0]["pointer_id"]
    other = Sessions(tmp_path).get(f"alice/{RUN}")
    assert other.results.list_all() == []
    assert await other.results.resume() == []
    assert await other.search("order total") == ()
    assert await other.tables() == ()
    assert (await other.query_rows("SELECT name FROM tables")).rows == ()
    with pytest.raises(PointerNotFoundError):
        await other.read(pointer_id)
    await other.clear()
    own = Session(tmp_path, session_id="alice")
    assert [pointer.pointer_id for pointer in own.results.list_all()] == [pointer_id]


async def test_a_conversation_named_like_a_run_plants_nothing_in_it_f_216(
    executor: AgenticExecutor, calls: list[str], tmp_path: Path
) -> None:
    other = Sessions(tmp_path).get(f"alice/{RUN}")
    await other.results.save("planted", tool="list_orders", args={}, task_id="1")
    [result] = await executor.execute_plan([QUESTION], QUESTION, session="alice", resume=True)
    assert len(calls) == 1
    assert "resumed" not in result.result[0]


@pytest.mark.parametrize("session_id", [None, "bob", "alic"])
async def test_no_session_saves_under_the_run_of_another_f_216(
    tmp_path: Path, session_id: str | None
) -> None:
    manager = ToolContextManager(tmp_path, session_id=session_id)
    with pytest.raises(InvalidIdError, match="the run of another session"):
        await manager.save_context("list_orders", {}, "planted", 1, f"alice/{RUN}")
    assert FileContextPointerStore(tmp_path).list(query_id=f"alice/{RUN}") == []


async def test_a_run_without_a_session_is_not_stored_as_that_of_one_f_216(
    executor: AgenticExecutor, calls: list[str]
) -> None:
    with pytest.raises(InvalidIdError, match="the run of another session"):
        await executor.execute_plan([QUESTION], f"alice/{RUN}")
    assert calls == []


SESSIONS: dict[str, Callable[[Path], Any]] = {
    "id": lambda folder: "alice",
    "session": lambda folder: Session(folder, session_id="alice"),
    "manager": lambda folder: ToolContextManager(folder, session_id="alice"),
}


@pytest.mark.parametrize("session_in", SESSIONS.values(), ids=SESSIONS)
async def test_a_stored_run_still_resumes_in_its_own_session_f_216(
    executor: AgenticExecutor,
    calls: list[str],
    tmp_path: Path,
    session_in: Callable[[Path], Any],
) -> None:
    """The files are those that every version so far has written."""
    store = FileContextPointerStore(tmp_path)
    run_id = f"alice/{RUN}"
    await store.save(
        query_id="alice",
        task_id=None,
        tool_name="(session query)",
        args={"query_id": list(run_id.encode())},
        result=run_id,
    )
    saved = await store.save(
        query_id=run_id, task_id="1", tool_name="list_orders", args={}, result=ROWS
    )
    [result] = await executor.execute_plan(
        [QUESTION], QUESTION, session=session_in(tmp_path), resume=True
    )
    assert calls == []
    assert result.result[0]["pointer_id"] == saved.pointer_id
    assert [pointer.pointer_id for pointer in Session(store, session_id="alice").results.list_all()]
