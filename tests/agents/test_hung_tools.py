"""Tools that never return: the session and the program's own executor work on without them."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from llm_common._threads import MAX_TOOL_THREADS
from llm_common.agents import (
    OffloadPolicy,
    OffloadTurn,
    ReadBackTool,
    RunLimits,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from tests.agents.runs import call, executor_of

ROWS = [{"row": number, "text": "a row of data"} for number in range(500)]


@pytest.fixture
async def no_threads_left() -> AsyncIterator[ToolRegistry]:
    """Yield a registry while its tool hangs in every thread for tools and in the loop's executor."""
    end = Event()

    def hang() -> None:
        """Never returns."""
        end.wait()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    registry = ToolRegistry([hang])
    calls = [asyncio.create_task(registry.execute("hang", {})) for _ in range(MAX_TOOL_THREADS)]
    calls.append(asyncio.create_task(asyncio.to_thread(end.wait)))
    await asyncio.sleep(0.05)
    yield registry
    end.set()
    await asyncio.gather(*calls)


@pytest.mark.usefixtures("no_threads_left")
async def test_hung_tools_leave_the_session_free_f_161(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path, persist_threshold=0)
    request = ContextSelectionRequest(intent=classify_intent("rows?"), token_budget=2_000)
    turn = OffloadTurn(OffloadPolicy(max_whole_tokens=10))
    async with asyncio.timeout(60):
        pointer = await manager.save_context("rows", {}, ROWS, query_id="q1")
        assert [context.result for context in await manager.load_contexts([pointer])] == [ROWS]
        assert await manager.resume("q1") == [pointer]
        assert (await turn.preview(pointer, ROWS)).pointer_id == pointer.pointer_id
        reader = ReadBackTool(manager.load_payload)
        assert (await reader.run({"id": pointer.pointer_id, "path": "/7/row"})).text == "7"
        pool = DataPoolSnapshot(tool_outputs=(pointer,))
        assert (await ContextSelector(store=manager).select(request, pool)).outputs
        assert (await manager.pointer_store.gc()).expired == 0
        assert (await manager.pointer_store.verify()).pointers == 1
        await manager.clear()
    assert manager.size == 0


async def test_a_run_that_waits_for_a_thread_can_be_given_up_f_161(
    tmp_path: Path, no_threads_left: ToolRegistry
) -> None:
    executor = executor_of(tmp_path, registry=no_threads_left)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await executor.execute_tool_calls([call("hang")], 1, "q1")
    assert time.monotonic() - began < 10


class StubbornTool:
    """A tool that ignores its cancellation until it is released."""

    def __init__(self) -> None:
        self.cancellations = 0
        self.released = asyncio.Event()
        self.ended = asyncio.Event()

    async def stay(self) -> str:
        """Stays until it is released."""
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancellations += 1
        self.ended.set()
        raise ValueError("too late")

    async def release(self) -> None:
        self.released.set()
        await self.ended.wait()


async def test_a_tool_that_ignores_cancellation_is_left_f_203(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tool = StubbornTool()
    registry, limits = ToolRegistry([tool.stay]), RunLimits(timeout_s=1.0)
    executor = executor_of(tmp_path, registry=registry, limits=limits)
    async with asyncio.timeout(60):
        results = await executor.execute_tool_calls([call("stay")] * 2, 1, "q1")
    assert [result["limit"] for result in results] == [True, True]
    assert tool.cancellations == 2
    assert "a tool ignores its cancellation" in caplog.text

    await tool.release()
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_caller_that_gives_up_leaves_a_stubborn_tool_f_203(tmp_path: Path) -> None:
    tool = StubbornTool()
    executor = executor_of(tmp_path, registry=ToolRegistry([tool.stay]))
    run = asyncio.create_task(executor.execute_tool_calls([call("stay")], 1, "q1"))
    await asyncio.sleep(0.2)
    run.cancel()
    done, _ = await asyncio.wait({run}, timeout=60)
    assert run in done
    assert run.cancelled()
    await tool.release()


async def test_a_cancelled_tool_has_time_to_close_what_it_opened_f_203() -> None:
    closed: list[str] = []

    async def search() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            closed.append("connection")

    running = asyncio.create_task(ToolRegistry([search]).execute("search", {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert closed == ["connection"]
