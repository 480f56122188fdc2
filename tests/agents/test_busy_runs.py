"""Runs of one query at once, as a redelivered job of a queue starts them."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import AgenticExecutor, ToolContextManager, ToolRegistry
from llm_common.errors import InvalidIdError, RunBusyError
from llm_common.testing import ScriptedClient

PLAN = ["Pay the invoices"]
REPLY = json.dumps({"calls": [{"tool": "pay", "args": {"number": n}} for n in range(5)]})


def executor_of(folder: Path, made: list[int]) -> AgenticExecutor:
    async def pay(number: int) -> int:
        """Pays an invoice."""
        made.append(number)
        await asyncio.sleep(0)
        return number

    return AgenticExecutor(
        ScriptedClient([], default=REPLY), ToolRegistry([pay]), ToolContextManager(folder)
    )


async def test_a_query_that_is_resumed_four_times_at_once_makes_each_call_once(
    tmp_path: Path,
) -> None:
    made: list[int] = []
    runs = [
        executor_of(tmp_path, made).execute_plan(PLAN, "q1", session="ann", resume=True)
        for _ in range(4)
    ]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert sorted(made) == list(range(5))
    assert [type(outcome) for outcome in outcomes].count(RunBusyError) == 3
    await executor_of(tmp_path, made).execute_plan(PLAN, "q1", session="ann", resume=True)
    assert len(made) == 5


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


@pytest.mark.parametrize("query_id", ["../x", "", "a" * 201, 5])
async def test_an_id_that_the_store_refuses_is_refused_before_the_first_tool(
    tmp_path: Path, query_id: Any
) -> None:
    made: list[int] = []
    executor = executor_of(tmp_path, made)
    with pytest.raises(InvalidIdError):
        await executor.execute_plan(PLAN, query_id)
    with pytest.raises(InvalidIdError):
        await executor.execute_tool_calls([{"tool": "pay", "args": {"number": 1}}], 1, query_id)
    assert made == []
