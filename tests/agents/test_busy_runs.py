"""Runs of one query at once, as a redelivered job of a queue starts them."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import obstore
import pytest

from llm_common.agents import (
    AgenticExecutor,
    ObjectContextPointerStore,
    RunLimits,
    Session,
    Sessions,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.errors import InvalidIdError, RunBusyError
from llm_common.testing import ScriptedClient
from tests.agents.runs import call, proposed

PLAN = ["Pay the invoices"]
REFUSED_IDS: list[Any] = ["../x", "", "a" * 201, 5, "a\nb"]
REPLY = proposed(*(("pay", {"number": number}) for number in range(5)))


def executor_of(folder: Path, made: list[int]) -> AgenticExecutor:
    async def pay(number: int) -> int:
        """Pays an invoice."""
        made.append(number)
        await asyncio.sleep(0)
        return number

    return AgenticExecutor(
        ScriptedClient([], default=REPLY), ToolRegistry([pay]), ToolContextManager(folder)
    )


async def test_other_sessions_and_queries_run_at_once(tmp_path: Path) -> None:
    made: list[int] = []
    runs = [
        executor_of(tmp_path, made).execute_plan(PLAN, query, session=session)
        for session, query in (("ann", "q1"), ("ann", "q2"), ("bob", "q1"))
    ]
    unnamed = executor_of(tmp_path, made)
    runs += [unnamed.execute_plan(PLAN, "q1"), unnamed.execute_plan(PLAN, "q1")]
    await asyncio.gather(*runs)
    assert len(made) == 25


async def test_a_run_whose_stream_is_left_early_gives_its_lease_back(tmp_path: Path) -> None:
    made: list[int] = []
    executor = executor_of(tmp_path, made)
    async with contextlib.aclosing(executor.run_stream(PLAN, "q1", session="ann")) as stream:
        await anext(stream)
        with pytest.raises(RunBusyError):
            await executor.execute_plan(PLAN, "q1", session="ann")
    await executor.execute_plan(PLAN, "q1", session="ann", resume=True)
    assert sorted(set(made)) == list(range(5))


@pytest.mark.parametrize("refused_id", REFUSED_IDS)
async def test_an_id_that_the_store_refuses_calls_no_tool_s0_11(
    tmp_path: Path, refused_id: Any
) -> None:
    made: list[int] = []
    executor = executor_of(tmp_path, made)
    for run in (
        executor.execute_plan(PLAN, refused_id),
        executor.execute_task(PLAN[0], refused_id),
        executor.execute_tool_calls([call("pay", number=1)], 1, refused_id),
        anext(executor.run_stream(PLAN, refused_id)),
        executor.execute_plan(PLAN, "q", session=refused_id),
        executor.run("Pay?", session=refused_id),
        anext(executor.run_stream(PLAN, "q", session=refused_id)),
        anext(executor.answer_stream("Pay?", session=refused_id)),
    ):
        # An int is not the id of a session either.
        with pytest.raises((InvalidIdError, TypeError)):
            await run
    assert made == []


@pytest.mark.parametrize("session_id", ["ann:", "ann+", "ann="])
async def test_a_session_whose_own_id_is_no_query_id_is_refused(
    tmp_path: Path, session_id: str
) -> None:
    with pytest.raises(InvalidIdError):
        Session(tmp_path, session_id=session_id)
    shown = await Sessions(tmp_path).get(session_id).offload("word " * 9_000, tool="t", args={})
    assert shown.pointer_id


@pytest.mark.parametrize("paused_in", ["a call", "the model"])
async def test_a_run_that_was_paused_longer_than_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch, paused_in: str
) -> None:
    # No timer renews the lease, and whoever asks for it takes it over.
    monkeypatch.setattr("llm_common.storage.object_store.RENEW_S", 3_600.0)
    monkeypatch.setattr("llm_common.storage.object_store.LEASE_S", 0.0)
    store = ObjectContextPointerStore(obstore.store.MemoryStore())
    manager = ToolContextManager(pointer_store=store)
    made: list[str] = []
    paused, goes_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        if not paused.is_set():
            paused.set()
            await goes_on.wait()

    def executor_of_run(run: str) -> AgenticExecutor:
        async def pay(number: int) -> int:
            """Pays an invoice."""
            made.append(f"{run}{number}")
            if paused_in == "a call":
                await pause()
            return number

        async def reply(_: object) -> str:
            if paused_in == "the model":
                await pause()
            return REPLY

        registry, limits = ToolRegistry([pay]), RunLimits(max_parallel=1)
        client = ScriptedClient([], default=reply)
        return AgenticExecutor(client, registry, manager, limits=limits)

    first = asyncio.create_task(
        executor_of_run("a").execute_plan(PLAN, "q1", session="ann", resume=True)
    )
    await paused.wait()
    second = executor_of_run("b")
    await second.execute_plan(PLAN, "q1", session="ann", resume=True)
    goes_on.set()
    with pytest.raises(RunBusyError, match="lost its lease"):
        await first
    begun = ["a0"] if paused_in == "a call" else []
    assert made == [*begun, *(f"b{number}" for number in range(5))]
