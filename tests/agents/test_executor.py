"""`AgenticExecutor`: plans, tool calls, events, failures, cancellation and offloaded outputs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    InMemoryContextPointerStore,
    Offloaded,
    OffloadPolicy,
    RunLimits,
    StreamEvent,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import DefaultCounter
from llm_common.errors import ConfigError, LLMTimeoutError
from llm_common.pointers.reading import ContextReading
from llm_common.testing import ScriptedClient
from tests.agents.runs import Chosen, call, events_of, executor_of, tools

SECRET = "sk-canary-0123456789"
TASKS = ["Task 1", "Task 2", "Task 3"]


async def test_a_task_returns_its_results_in_call_order_and_saves_each(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, [call("echo", text="slow", delay_s=0.02), call("echo", text="fast")]
    )
    result = await executor.execute_task("Task", "q1")
    assert (result.task_id, result.sub_task_id, result.success, result.error) == (1, 0, True, None)
    assert [entry["output"] for entry in result.result] == [{"said": "slow"}, {"said": "fast"}]
    assert result.result[1]["tool"] == "echo"
    assert result.result[1]["args"] == {"text": "fast"}
    manager = executor.context_manager
    by_id = {pointer.pointer_id: pointer for pointer in manager.get_pointers_for_task("1")}
    for entry in result.result:
        pointer = by_id[entry["pointer_id"]]
        assert manager.pointer_store.load_result(pointer=pointer) == entry["output"]
        assert (pointer.query_id, pointer.args) == ("q1", entry["args"])


async def test_a_stream_yields_events_in_their_order(tmp_path: Path) -> None:
    registry = tools()
    fast_was_told = asyncio.Event()

    @registry.tool
    async def wait() -> str:
        """Waits for the other tool's event."""
        await fast_was_told.wait()
        return "slow"

    executor = executor_of(
        tmp_path,
        [call("wait"), call("echo", text="fast")],
        [],
        [call("sourced")],
        registry=registry,
    )
    events: list[StreamEvent] = []
    async with asyncio.timeout(60), aclosing(executor.run_stream(TASKS, "q1")) as stream:
        async for event in stream:
            events.append(event)
            if event.type == "tool_result":
                fast_was_told.set()
    assert [event.type for event in events] == [
        "thinking",
        "tool_call",
        "tool_call",
        "tool_result",
        "tool_result",
        "thinking",
        "text",
        "thinking",
        "tool_call",
        "tool_result",
        "sources",
    ]
    assert events[1].data == {"tool": "wait", "args": {}, "task": 1}
    assert [event.data["output"] for event in events[3:5]] == [{"said": "fast"}, "slow"]
    assert events[3].data["saved"] is True
    assert events[-1].data[0]["url"] == "https://a.example/"


async def test_a_plan_runs_its_tasks_in_order_and_asks_with_the_query(tmp_path: Path) -> None:
    selector = Chosen([call("echo", text="a")], [], [call("echo", text="b")])
    executor = AgenticExecutor(None, tools(), ToolContextManager(tmp_path), selector=selector)
    results = await executor.execute_plan(TASKS, "q1", query="what is said")
    assert [result.success for result in results] == [True, True, True]
    assert results[1].result == "No tools called"
    asked = [(choice["task"].id, choice["query"]) for choice in selector.asked]
    assert asked == [(1, "what is said"), (2, "what is said"), (3, "what is said")]


async def test_a_failed_task_halts_the_plan(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, [call("echo", text="a")], [call("broken", text="b")], [call("echo", text="c")]
    )
    results = await executor.execute_plan(TASKS, "q1")
    assert [(result.task_id, result.success) for result in results] == [(1, True), (2, False)]


async def test_a_failed_selection_is_an_error_and_not_no_tools_needed_s2_10(tmp_path: Path) -> None:
    client = ScriptedClient([], default=LLMTimeoutError("no answer", timeout_s=1))
    executor = AgenticExecutor(client, tools(), ToolContextManager(tmp_path))
    result = await executor.execute_task("Task", "q1")
    assert result.success is False
    assert result.result is None
    assert "timeout" in str(result.error)
    events = await events_of(executor.run_stream(TASKS[:1], "q1"))
    assert [event.type for event in events] == ["thinking", "error"]
    assert events[1].data == {"task": 1, "status": "timeout", "error": result.error}


class DictRegistry:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
        self.calls.append((tool_name, args))
        return "ok"


class KeywordRegistry(DictRegistry):
    async def execute(self, tool_name: str, **kwargs: Any) -> str:  # type: ignore[override]
        return await super().execute(tool_name, kwargs)


class UnreadableRegistry(DictRegistry):
    """Has an `execute` whose signature cannot be told, as some extension modules do."""

    async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
        return await super().execute(tool_name, args)

    execute.__signature__ = "none"  # type: ignore[attr-defined]


class OptionalDictRegistry(DictRegistry):
    async def execute(  # type: ignore[override]
        self, tool_name: str, args: dict[str, Any] | None = None, /, **kwargs: Any
    ) -> str:
        assert not kwargs
        return await super().execute(tool_name, args or {})


@pytest.mark.parametrize(
    "registry",
    [DictRegistry(), KeywordRegistry(), OptionalDictRegistry(), UnreadableRegistry()],
    ids=["S2-15-dict", "S2-15-keywords", "S2-15-both", "S2-15-unreadable"],
)
async def test_a_registry_is_called_the_way_its_signature_says(
    tmp_path: Path, registry: DictRegistry
) -> None:
    executor = executor_of(tmp_path, registry=registry)
    await executor.execute_tool_calls([call("price", ticker="AAPL")], 1, "q1")
    assert registry.calls == [("price", {"ticker": "AAPL"})]


async def test_a_mocked_registry_and_context_work_as_callers_use_them_s2_15() -> None:
    client, registry, context = MagicMock(), MagicMock(), AsyncMock(spec=ToolContextManager)
    client.chat_completion = AsyncMock(
        return_value=MagicMock(
            content='{"calls": [{"tool": "price", "args": {"ticker": "AAPL"}, "reasoning": "r"}]}'
        )
    )
    registry.get_tools_schema.return_value = "{}"
    registry.execute = AsyncMock(return_value={"price": 150})
    result = await AgenticExecutor(client, registry, context).execute_task("Task", "q-1")
    assert result.success is True
    assert result.result == [
        {"tool": "price", "args": {"ticker": "AAPL"}, "output": {"price": 150}, "saved": True}
    ]
    registry.execute.assert_called_once_with("price", {"ticker": "AAPL"})
    context.save_context.assert_called_once_with(
        tool_name="price",
        args={"ticker": "AAPL"},
        result={"price": 150},
        task_id="1",
        query_id="q-1",
    )


async def test_arguments_that_a_registry_cannot_take_are_a_failed_tool_s2_15(
    tmp_path: Path,
) -> None:
    registry = KeywordRegistry()
    executor = executor_of(tmp_path, registry=registry)
    [result] = await executor.execute_tool_calls([call("price", tool_name="again")], 1, "q1")
    assert "TypeError" in result["error"]
    assert registry.calls == []


async def test_a_tool_that_raises_type_error_runs_once_s2_15(tmp_path: Path) -> None:
    registry = MagicMock()
    registry.execute = AsyncMock(side_effect=TypeError(SECRET))
    [result] = await executor_of(tmp_path, registry=registry).execute_tool_calls(
        [call("price")], 1, "q1"
    )
    assert "TypeError" in result["error"]
    assert registry.execute.call_count == 1


@pytest.mark.parametrize(("tool", "is_success"), [("absent", False), ("echo", True)])
async def test_a_task_is_a_success_if_one_of_its_tools_was_and_lists_the_others_s2_15(
    tmp_path: Path, tool: str, is_success: bool
) -> None:
    calls = [call("broken", text="a"), call(tool, text="b"), call("refusing", text="c")]
    result = await executor_of(tmp_path, calls).execute_task("Task", "q1")
    assert result.success is is_success
    assert ["error" in entry for entry in result.result] == [True, not is_success, True]
    assert "broken raised ValueError" in str(result.error)
    assert "'refusing' returned a failure" in str(result.error)


@pytest.mark.parametrize("tool", ["broken", "refusing", "absent", "echo"])
async def test_errors_never_hold_arguments_or_outputs(tmp_path: Path, tool: str) -> None:
    executor = executor_of(
        tmp_path, [call(tool, text=SECRET, **({"delay_s": SECRET} if tool == "echo" else {}))]
    )
    result = await executor.execute_task("Task", "q1")
    assert result.success is False
    assert result.error
    assert SECRET not in result.error


async def test_a_failed_save_is_reported_and_the_output_returned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    executor = executor_of(
        tmp_path, [call("echo", text=SECRET)], manager=ToolContextManager(tmp_path / "file")
    )
    result = await executor.execute_task("Task", "q1")
    assert result.success is True
    assert "not saved (StoreError): The base of the store" in str(result.error)
    events = await events_of(executor.run_stream(TASKS[:1], "q1"))
    assert [event.type for event in events] == ["thinking", "tool_call", "tool_result", "error"]
    assert events[2].data["output"] == {"said": SECRET}
    assert events[2].data["saved"] is False
    assert events[3].data["error"] == result.error
    assert SECRET not in str(result.error)


async def test_an_operating_system_error_of_a_save_shows_no_path(tmp_path: Path) -> None:
    class FullDisk(ToolContextManager):
        async def save_context(self, *_: Any, **__: Any) -> ContextPointer:
            raise OSError(28, "No space left on device", "/home/ann/private")

    executor = executor_of(tmp_path, [call("echo", text="a")], manager=FullDisk(tmp_path))
    result = await executor.execute_task("Task", "q1")
    error = "the output of tool 'echo' was not saved (OSError)"
    assert (result.success, result.error) == (True, error)
    [entry] = result.result
    assert (entry["saved"], entry["save_error"]) == (False, error)
    assert entry["output"] == {"said": "a"}


@pytest.mark.usefixtures("blockbuster")
async def test_a_run_never_blocks_the_event_loop(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, [call("sourced"), call("echo", text="x" * 100_000)])
    assert (await executor.execute_task("Task", "q1")).success is True


async def test_a_tool_that_changes_its_arguments_changes_nothing_else(tmp_path: Path) -> None:
    class Greedy(DictRegistry):
        async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
            args["items"].clear()
            return "ok"

    executor = executor_of(tmp_path, registry=Greedy())
    [result] = await executor.execute_tool_calls([call("price", items=[1])], 1, "q1")
    assert result["args"] == {"items": [1]}
    assert executor.context_manager.get_all_pointers()[0].args == {"items": [1]}


class Watched:
    """A registry whose tools wait for their release, and which counts running and ended calls.

    The tool `quick` waits for nothing.
    """

    def __init__(self) -> None:
        self.running = self.most = self.cleaned = 0
        self.began = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
        if tool_name == "quick":
            return "quick"
        self.running += 1
        self.began.release()
        self.most = max(self.most, self.running)
        try:
            await self.release.wait()
        finally:
            await asyncio.sleep(0)
            self.running -= 1
            self.cleaned += 1
        return "ok"


@pytest.fixture
async def no_orphans() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


async def started(registry: Watched, number: int) -> None:
    for _ in range(number):
        await registry.began.acquire()


async def test_no_more_tools_run_at_once_than_allowed(tmp_path: Path) -> None:
    registry = Watched()
    executor = executor_of(tmp_path, registry=registry, limits=RunLimits(max_parallel=3))
    running = asyncio.create_task(
        executor.execute_tool_calls([call("wait", number=number) for number in range(7)], 1, "q1")
    )
    await started(registry, 3)
    registry.release.set()
    assert [result["args"]["number"] for result in await running] == list(range(7))
    assert registry.most == 3


@pytest.mark.usefixtures("no_orphans")
async def test_cancelling_a_run_cancels_its_tools_and_waits_for_them(tmp_path: Path) -> None:
    registry = Watched()
    executor = executor_of(
        tmp_path, [call("wait", number=1), call("wait", number=2)], registry=registry
    )
    running = asyncio.create_task(executor.execute_plan(TASKS[:1], "q1"))
    await started(registry, 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (registry.running, registry.cleaned) == (0, 2)
    assert executor.context_manager.size == 0


@pytest.mark.usefixtures("no_orphans")
async def test_closing_a_stream_cancels_its_tools_and_waits_for_them(tmp_path: Path) -> None:
    registry = Watched()
    executor = executor_of(tmp_path, [call("quick"), call("wait")], registry=registry)
    stream = executor.run_stream(TASKS[:1], "q1")
    types = []
    async for event in stream:
        types.append(event.type)
        if event.type == "tool_result":
            break
    await started(registry, 1)
    await stream.aclose()
    assert types == ["thinking", "tool_call", "tool_call", "tool_result"]
    assert (registry.running, registry.cleaned) == (0, 1)


async def test_a_tool_that_cancels_itself_is_a_failed_tool_f_203(tmp_path: Path) -> None:
    async def cancel() -> None:
        """Cancels itself."""
        raise asyncio.CancelledError

    executor = executor_of(tmp_path, registry=ToolRegistry([cancel]))
    [result] = await executor.execute_tool_calls([call("cancel")], 1, "q1")
    assert "cancelled itself" in result["error"]


CANARY = "snowfall in Oslo"


def report(lines: int) -> list[str]:
    """Gives a report."""
    return [f"line {number}" for number in range(lines)] + [CANARY]


def reporter_of(tmp_path: Path, *calls: ToolCall, **options: Any) -> AgenticExecutor:
    options = {"registry": ToolRegistry([report])} | options
    return executor_of(tmp_path, calls, **options)


async def run(executor: AgenticExecutor, *calls: ToolCall) -> list[dict[str, Any]]:
    return await executor.execute_tool_calls(calls, 1, "q1", query="where is snowfall?")


async def test_long_outputs_are_offloaded_once_they_are_saved_s4_08(tmp_path: Path) -> None:
    executor = reporter_of(
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
    [result] = await run(reporter_of(tmp_path), call("report", lines=5_000))
    assert len(result["output"]) == 5_001


async def test_a_streams_previews_are_made_for_the_task_s4_08(tmp_path: Path) -> None:
    executor = reporter_of(
        tmp_path, call("report", lines=5_000), offload=OffloadPolicy(max_whole_tokens=100)
    )
    events = await events_of(executor.run_stream(["Find snowfall"], "q1"))
    [result] = [event for event in events if event.type == "tool_result"]
    assert CANARY in result.data["output"].text


async def test_offloaded_outputs_are_read_back_and_not_saved_again_s4_08(
    tmp_path: Path,
) -> None:
    policy = OffloadPolicy(max_whole_tokens=0, max_turn_tokens=300)
    executor = reporter_of(tmp_path, offload=policy, read_back=True)
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
    executor, other = (reporter_of(tmp_path, registry=registry, read_back=True) for _ in range(2))
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
    executor = reporter_of(tmp_path, offload=policy, read_back=read_back)
    [stored] = await run(executor, call("report", lines=5_000))
    note = stored["output"].text.splitlines()[1]
    assert f"have not read the rest: read it with {name} and the id {stored['pointer_id']}" in note
    [read] = await run(executor, call(name, id=stored["pointer_id"], path="/5000"))
    assert read["output"].text == CANARY


async def test_a_large_output_of_a_resumed_run_is_a_preview_again(tmp_path: Path) -> None:
    policy = OffloadPolicy(max_whole_tokens=100, max_preview_tokens=300)
    for resume in (False, True):
        executor = reporter_of(tmp_path, call("report", lines=5_000), offload=policy)
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
    executor = reporter_of(
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
    executor = reporter_of(tmp_path, manager=manager, offload=OffloadPolicy(max_whole_tokens=1))
    [result] = await run(executor, call("report", lines=50))
    assert len(result["output"]) == 51
    assert result["saved"] is False


def test_a_third_party_registry_takes_no_read_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ToolRegistry"):
        reporter_of(tmp_path, registry=AsyncMock(spec=["execute"]), read_back=True)
