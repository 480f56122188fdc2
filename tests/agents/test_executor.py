"""`AgenticExecutor`: plans, tool calls, events, failures and cancellation."""

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
    ExecutionPlan,
    PlannedTask,
    RunLimits,
    StreamEvent,
    SubTask,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
    ToolSelection,
)
from llm_common.errors import LLMTimeoutError
from llm_common.testing import ScriptedClient

SECRET = "sk-canary-0123456789"


class Chosen:
    """A selector with scripted choices, one for each task, which records its tasks."""

    def __init__(self, *choices: list[ToolCall]) -> None:
        self._choices = list(choices)
        self.asked: list[tuple[int, str | None]] = []

    async def select_detailed(
        self,
        *,
        task: PlannedTask,
        tool_registry: Any,
        query: str | None = None,
        context: dict[str, Any] | None = None,
        rounds_left: int = 0,
    ) -> ToolSelection:
        self.asked.append((task.id, query))
        calls = self._choices.pop(0)
        return ToolSelection(calls=tuple(calls), status="ok" if calls else "empty", used="lexical")


def call(tool: str, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args)


def plan(tasks: int = 1) -> ExecutionPlan:
    return ExecutionPlan(
        tasks=[
            PlannedTask(
                id=number,
                description=f"Task {number}",
                sub_tasks=[SubTask(id=1, description="look")],
            )
            for number in range(1, tasks + 1)
        ]
    )


def tools() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    async def echo(text: str, delay_s: float = 0) -> dict[str, str]:
        """Says it again."""
        await asyncio.sleep(delay_s)
        return {"said": text}

    @registry.tool
    def broken(text: str) -> str:
        """Always fails."""
        raise ValueError(f"cannot work with {text}")

    @registry.tool
    def refusing(text: str) -> ToolResult:
        """Returns a failure."""
        return ToolResult(success=False, error=f"refused {text}")

    @registry.tool
    def sourced() -> ToolResult:
        """Has a source."""
        return ToolResult(success=True, data=1, source_urls=["https://a.example/"])

    return registry


def executor_of(
    tmp_path: Path, *choices: list[ToolCall], registry: Any = None, **options: Any
) -> AgenticExecutor:
    return AgenticExecutor(
        None,
        tools() if registry is None else registry,
        options.pop("manager", None) or ToolContextManager(tmp_path),
        selector=Chosen(*choices),
        **options,
    )


async def events_of(executor: AgenticExecutor, tasks: int = 1) -> list[StreamEvent]:
    async with aclosing(executor.run_stream(plan(tasks), "q1")) as stream:
        return [event async for event in stream]


async def test_a_task_returns_its_results_in_call_order_and_saves_each(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, [call("echo", text="slow", delay_s=0.02), call("echo", text="fast")]
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
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
    async with asyncio.timeout(60), aclosing(executor.run_stream(plan(3), "q1")) as stream:
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
    results = await executor.execute_plan(plan(3), "q1", query="what is said")
    assert [(result.task_id, result.success) for result in results] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    assert results[1].result == "No tools called"
    assert selector.asked == [(1, "what is said"), (2, "what is said"), (3, "what is said")]


async def test_a_failed_task_halts_the_plan(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, [call("echo", text="a")], [call("broken", text="b")], [call("echo", text="c")]
    )
    results = await executor.execute_plan(plan(3), "q1")
    assert [(result.task_id, result.success) for result in results] == [(1, True), (2, False)]


async def test_a_failed_selection_is_an_error_and_not_no_tools_needed_s2_10(tmp_path: Path) -> None:
    client = ScriptedClient([], default=LLMTimeoutError("no answer", timeout_s=1))
    executor = AgenticExecutor(client, tools(), ToolContextManager(tmp_path))
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert result.success is False
    assert result.result is None
    assert "timeout" in str(result.error)
    events = await events_of(executor)
    assert [event.type for event in events] == ["thinking", "error"]
    assert events[1].data == {"task": 1, "status": "timeout", "error": result.error}


async def test_an_empty_selection_is_a_success_s2_10(tmp_path: Path) -> None:
    executor = AgenticExecutor(
        ScriptedClient(['{"calls": []}']), tools(), ToolContextManager(tmp_path)
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert (result.success, result.result, result.error) == (True, "No tools called", None)


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

    def __init__(self) -> None:
        super().__init__()
        plain = super().execute

        class Execute:
            __signature__ = "none"

            def __call__(self, tool_name: str, args: dict[str, Any]) -> Any:
                return plain(tool_name, args)

        self.execute = Execute()  # type: ignore[method-assign]


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
    result = await AgenticExecutor(client, registry, context).execute_task(plan().tasks[0], "q-1")
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


async def test_our_registry_explains_wrong_calls(tmp_path: Path) -> None:
    calls = [call("ech", text="a"), call("echo", words="a")]
    unknown, wrong = await executor_of(tmp_path).execute_tool_calls(calls, 1, "q1")
    assert "use one of the nearest: echo" in unknown["error"]
    assert "echo was not run" in wrong["error"]


async def test_a_tool_that_raises_type_error_runs_once_s2_15(tmp_path: Path) -> None:
    registry = MagicMock()
    registry.execute = AsyncMock(side_effect=TypeError(SECRET))
    [result] = await executor_of(tmp_path, registry=registry).execute_tool_calls(
        [call("price")], 1, "q1"
    )
    assert "TypeError" in result["error"]
    assert registry.execute.call_count == 1


async def test_a_task_whose_tools_all_failed_is_not_a_success_s2_15(tmp_path: Path) -> None:
    executor = executor_of(
        tmp_path, [call("broken", text="a"), call("refusing", text="b"), call("absent")]
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert result.success is False
    assert [entry["tool"] for entry in result.result if "error" in entry] == [
        "broken",
        "refusing",
        "absent",
    ]


async def test_a_task_of_which_some_tools_failed_is_a_success_that_lists_them_s2_15(
    tmp_path: Path,
) -> None:
    executor = executor_of(
        tmp_path, [call("broken", text="a"), call("echo", text="b"), call("refusing", text="c")]
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert result.success is True
    assert "broken raised ValueError" in str(result.error)
    assert "'refusing' returned a failure" in str(result.error)


async def test_a_returned_failure_is_saved_like_any_output(tmp_path: Path) -> None:
    executor = executor_of(tmp_path)
    [result] = await executor.execute_tool_calls([call("refusing", text="x")], 1, "q1")
    pointer = executor.context_manager.get_all_pointers()[0]
    assert result["pointer_id"] == pointer.pointer_id
    assert result["output"].error == "refused x"


@pytest.mark.parametrize("tool", ["broken", "refusing", "absent", "echo"])
async def test_errors_never_hold_arguments_or_outputs(tmp_path: Path, tool: str) -> None:
    executor = executor_of(
        tmp_path, [call(tool, text=SECRET, **({"delay_s": SECRET} if tool == "echo" else {}))]
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert result.success is False
    assert result.error
    assert SECRET not in result.error


async def test_a_failed_call_is_an_error_event_with_its_call(tmp_path: Path) -> None:
    events = await events_of(
        executor_of(tmp_path, [call("broken", text="a"), call("echo", text="b")])
    )
    [error] = [event for event in events if event.type == "error"]
    assert (error.data["tool"], error.data["args"], error.data["task"]) == (
        "broken",
        {"text": "a"},
        1,
    )
    assert "ValueError" in error.data["error"]


async def test_a_failed_save_is_reported_and_the_output_returned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    executor = executor_of(
        tmp_path, [call("echo", text=SECRET)], manager=ToolContextManager(tmp_path / "file")
    )
    events = await events_of(executor)
    assert [event.type for event in events] == ["thinking", "tool_call", "tool_result", "error"]
    assert events[2].data["output"] == {"said": SECRET}
    assert events[2].data["saved"] is False
    assert "not saved" in events[3].data["error"]
    assert SECRET not in events[3].data["error"]


async def test_a_failed_save_leaves_the_task_a_success_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    executor = executor_of(
        tmp_path, [call("echo", text="a")], manager=ToolContextManager(tmp_path / "file")
    )
    result = await executor.execute_task(plan().tasks[0], "q1")
    assert result.success is True
    assert "not saved (StoreError): The base of the store" in str(result.error)
    assert "is not a directory" in str(result.error)


async def test_an_operating_system_error_of_a_save_shows_no_path(tmp_path: Path) -> None:
    class FullDisk(ToolContextManager):
        async def save_context(self, *_: Any, **__: Any) -> ContextPointer:
            raise OSError(28, "No space left on device", "/home/ann/private")

    executor = executor_of(tmp_path, [call("echo", text="a")], manager=FullDisk(tmp_path))
    result = await executor.execute_task(plan().tasks[0], "q1")
    error = "the output of tool 'echo' was not saved (OSError)"
    assert (result.success, result.error) == (True, error)
    [entry] = result.result
    assert (entry["saved"], entry["save_error"]) == (False, error)
    assert entry["output"] == {"said": "a"}


@pytest.mark.usefixtures("blockbuster")
async def test_a_run_never_blocks_the_event_loop(tmp_path: Path) -> None:
    executor = executor_of(tmp_path, [call("sourced"), call("echo", text="x" * 100_000)])
    assert (await executor.execute_task(plan().tasks[0], "q1")).success is True


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
    """A registry whose one tool waits for its release, and which counts running and ended calls."""

    def __init__(self) -> None:
        self.running = self.most = self.cleaned = 0
        self.began = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
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
    running = asyncio.create_task(executor.execute_plan(plan(), "q1"))
    await started(registry, 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (registry.running, registry.cleaned) == (0, 2)
    assert executor.context_manager.size == 0


@pytest.mark.usefixtures("no_orphans")
async def test_closing_a_stream_cancels_its_tools_and_waits_for_them(tmp_path: Path) -> None:
    registry = Watched()

    class OneIsQuick(DictRegistry):
        async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
            return "quick" if tool_name == "quick" else await registry.execute(tool_name, args)

    executor = executor_of(tmp_path, [call("quick"), call("wait")], registry=OneIsQuick())
    stream = executor.run_stream(plan(), "q1")
    types = []
    async for event in stream:
        types.append(event.type)
        if event.type == "tool_result":
            break
    await started(registry, 1)
    await stream.aclose()
    assert types == ["thinking", "tool_call", "tool_call", "tool_result"]
    assert (registry.running, registry.cleaned) == (0, 1)


@pytest.mark.usefixtures("no_orphans")
async def test_a_timeout_around_a_run_ends_it(tmp_path: Path) -> None:
    registry = Watched()
    executor = executor_of(tmp_path, [call("wait")], registry=registry)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await executor.execute_task(plan().tasks[0], "q1")
    assert registry.running == 0


async def test_a_tool_that_cancels_itself_is_a_failed_tool(tmp_path: Path) -> None:
    class SelfCancelling(DictRegistry):
        async def execute(self, tool_name: str, args: dict[str, Any]) -> str:
            raise asyncio.CancelledError

    [result] = await executor_of(tmp_path, registry=SelfCancelling()).execute_tool_calls(
        [call("price")], 1, "q1"
    )
    assert "cancelled itself" in result["error"]


async def test_no_calls_give_no_results(tmp_path: Path) -> None:
    assert await executor_of(tmp_path).execute_tool_calls([], 1, "q1") == []


def test_something_must_choose_the_tools(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="client and selector are both None"):
        AgenticExecutor(None, tools(), ToolContextManager(tmp_path))
