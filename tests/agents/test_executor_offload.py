"""`AgenticExecutor` with offloaded outputs, read-back and pointers as arguments."""

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from llm_common.agents import (
    AgenticExecutor,
    InMemoryContextPointerStore,
    Offloaded,
    OffloadPolicy,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import DefaultCounter
from llm_common.errors import ConfigError
from llm_common.pointers.reading import ContextReading
from tests.agents import runs
from tests.agents.runs import call, events_of

CANARY = "snowfall in Oslo"


def report(lines: int) -> list[str]:
    """Gives a report."""
    return [f"line {number}" for number in range(lines)] + [CANARY]


def executor_of(tmp_path: Path, *calls: ToolCall, **options: Any) -> AgenticExecutor:
    options = {"registry": ToolRegistry([report])} | options
    return runs.executor_of(tmp_path, calls, **options)


async def run(executor: AgenticExecutor, *calls: ToolCall) -> list[dict[str, Any]]:
    return await executor.execute_tool_calls(calls, 1, "q1", query="where is snowfall?")


async def test_long_outputs_are_offloaded_once_they_are_saved_s4_08(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, offload=OffloadPolicy(max_whole_tokens=100, max_turn_tokens=1_600)
    )
    short, *long = await run(
        executor, call("report", lines=1), *(call("report", lines=5_000 + n) for n in range(3))
    )
    assert short["output"] == ["line 0", CANARY]
    total = DefaultCounter().count('["line 0","snowfall in Oslo"]')
    for result in long:
        assert isinstance(result["output"], Offloaded)
        assert result["output"].pointer_id == result["pointer_id"]
        assert CANARY in result["output"].text
        total += DefaultCounter().count(result["output"].text)
    assert total <= 1_600
    assert executor.context_manager.size == 4


async def test_without_a_policy_outputs_stay_whole(tmp_path: Path) -> None:
    [result] = await run(executor_of(tmp_path), call("report", lines=5_000))
    assert len(result["output"]) == 5_001


async def test_a_streams_previews_are_made_for_the_task_s4_08(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, call("report", lines=5_000), offload=OffloadPolicy(max_whole_tokens=100)
    )
    events = await events_of(executor.run_stream(["Find snowfall"], "q1"))
    [result] = [event for event in events if event.type == "tool_result"]
    assert CANARY in result.data["output"].text


async def test_offloaded_outputs_are_read_back_and_not_saved_again_s4_08(
    tmp_path: Path,
) -> None:
    policy = OffloadPolicy(max_whole_tokens=0, max_turn_tokens=300)
    executor = executor_of(tmp_path, offload=policy, read_back=True)
    assert "read_context" in executor.registry.get_tools_schema()
    [stored] = await run(executor, call("report", lines=5_000))
    reads = [call("read_context", id=stored["pointer_id"], path=path) for path in ("", "/5000")]
    whole, last = await run(executor, *reads)
    assert isinstance(whole["output"], ContextReading)
    assert whole["output"].cursor
    assert last["output"].text == CANARY
    assert "saved" not in last
    assert executor.context_manager.size == 1


async def test_a_run_queries_the_outputs_of_its_own_session_s4_08(tmp_path: Path) -> None:
    def list_orders(count: int) -> list[dict[str, int]]:
        """Lists orders."""
        return [{"order": number, "euros": number % 90} for number in range(count)]

    registry = ToolRegistry([list_orders])
    executor, other = (executor_of(tmp_path, registry=registry, read_back=True) for _ in range(2))
    [stored] = await run(executor, call("list_orders", count=3_000))
    sql = f"SELECT max(euros) FROM list_orders_{stored['pointer_id'][:6]}"
    [result] = await run(executor, call("query_context", sql=sql))
    assert "\n89\n" in result["output"]
    [foreign] = await run(other, call("query_context", sql=sql))
    assert "no such table" in foreign["error"]
    assert registry.names == ("list_orders",)


@pytest.mark.parametrize(("read_back", "name"), [("look_up", "look_up"), (True, "read_context")])
async def test_previews_name_the_reader_and_the_unread_rest(
    tmp_path: Path, read_back: bool | str, name: str
) -> None:
    policy = OffloadPolicy(max_whole_tokens=0, reader_name="elsewhere")
    executor = executor_of(tmp_path, offload=policy, read_back=read_back)
    [stored] = await run(executor, call("report", lines=5_000))
    note = stored["output"].text.splitlines()[1]
    assert f"have not read the rest: read it with {name} and the id {stored['pointer_id']}" in note
    [read] = await run(executor, call(name, id=stored["pointer_id"], path="/5000"))
    assert read["output"].text == CANARY


async def test_a_large_output_of_a_resumed_run_is_a_preview_again(tmp_path: Path) -> None:
    policy = OffloadPolicy(max_whole_tokens=100, max_preview_tokens=300)
    for resume in (False, True):
        executor = executor_of(tmp_path, call("report", lines=5_000), offload=policy)
        [task] = await executor.execute_plan(
            ["Find snowfall"], "q1", query="where is snowfall?", session="ann", resume=resume
        )
        [result] = task.result
        assert result.get("resumed", False) is resume
        output = result["output"]
        assert isinstance(output, Offloaded)
        assert output.pointer_id == result["pointer_id"]
        assert CANARY in output.text
        assert DefaultCounter().count(output.text) <= 300


KEY = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize("redact_results", [False, True])
@pytest.mark.parametrize(
    ("max_result_bytes", "shown"),
    [(1_000_000, "characters are stored"), (100, "characters were not kept: the store failed")],
    ids=["stored", "not-stored"],
)
async def test_a_run_shows_what_the_store_keeps_or_would_keep_t_12(
    tmp_path: Path, max_result_bytes: int, shown: str, redact_results: bool
) -> None:
    def settings() -> str:
        """Returns the settings of a service."""
        return f"github_token: {KEY}\n" + "timeout: 30\n" * 20_000

    store = InMemoryContextPointerStore(
        max_result_bytes=max_result_bytes, redact_results=redact_results
    )
    executor = executor_of(
        tmp_path,
        call("settings"),
        registry=ToolRegistry([settings]),
        manager=ToolContextManager(pointer_store=store),
        offload=OffloadPolicy(),
    )
    result = await executor.execute_task("Show the github_token", "q1")
    output = result.result[0]["output"]
    assert isinstance(output, Offloaded)
    assert "github_token" in output.text
    assert (KEY in output.text) is not redact_results
    assert shown in output.text
    for pointer in store.list(query_id="q1"):
        assert (KEY in store.load_result(pointer=pointer)) is not redact_results


async def test_an_output_that_was_not_saved_stays_whole_t_12(tmp_path: Path) -> None:
    manager = ToolContextManager(pointer_store=InMemoryContextPointerStore(max_result_bytes=100))
    executor = executor_of(tmp_path, manager=manager, offload=OffloadPolicy(max_whole_tokens=1))
    [result] = await run(executor, call("report", lines=50))
    assert len(result["output"]) == 51
    assert result["saved"] is False


def test_a_third_party_registry_takes_no_read_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ToolRegistry"):
        executor_of(tmp_path, registry=AsyncMock(spec=["execute"]), read_back=True)
