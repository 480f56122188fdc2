"""Tools that never return: the session and the program's own executor work on without them."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from llm_common._threads import MAX_TOOL_THREADS
from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    LexicalToolSelector,
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
from llm_common.errors import ToolFailedError

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


async def load(manager: ToolContextManager, pointer: ContextPointer) -> object:
    return [context.result for context in await manager.load_contexts([pointer])] == [ROWS]


async def resume(manager: ToolContextManager, pointer: ContextPointer) -> object:
    return await manager.resume("q1") == [pointer]


async def preview(manager: ToolContextManager, pointer: ContextPointer) -> object:
    turn = OffloadTurn(OffloadPolicy(max_whole_tokens=10))
    return await turn.preview(pointer, ROWS)


async def read_back(manager: ToolContextManager, pointer: ContextPointer) -> object:
    return await ReadBackTool(manager.load_payload).run({"id": pointer.pointer_id, "path": "/7"})


async def pack(manager: ToolContextManager, pointer: ContextPointer) -> object:
    request = ContextSelectionRequest(intent=classify_intent("rows?"), token_budget=2_000)
    return await ContextSelector(store=manager).select(
        request, DataPoolSnapshot(tool_outputs=(pointer,))
    )


async def collect(manager: ToolContextManager, pointer: ContextPointer) -> object:
    await manager.pointer_store.gc()
    return await manager.pointer_store.verify()


async def clear(manager: ToolContextManager, pointer: ContextPointer) -> object:
    await manager.clear()
    return manager.size == 0


WORK = [load, resume, preview, read_back, pack, collect, clear]


@pytest.mark.usefixtures("no_threads_left")
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
async def test_hung_tools_leave_the_session_free_f_161(
    tmp_path: Path, work: Callable[[ToolContextManager, ContextPointer], Awaitable[Any]]
) -> None:
    manager = ToolContextManager(tmp_path, persist_threshold=0)
    pointer = await manager.save_context("rows", {}, ROWS, query_id="q1")
    async with asyncio.timeout(20):
        assert await work(manager, pointer)


async def test_a_run_that_waits_for_a_thread_can_be_given_up_f_161(
    tmp_path: Path, no_threads_left: ToolRegistry
) -> None:
    executor = AgenticExecutor(
        None, no_threads_left, ToolContextManager(tmp_path), selector=LexicalToolSelector()
    )
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await executor.execute_tool_calls([{"tool": "hang", "args": {}}], 1, "q1")
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
    executor = AgenticExecutor(
        None,
        ToolRegistry([tool.stay]),
        ToolContextManager(tmp_path),
        selector=LexicalToolSelector(),
        limits=RunLimits(timeout_s=1.0),
    )
    calls = [{"tool": "stay", "args": {}}, {"tool": "stay", "args": {}}]
    async with asyncio.timeout(60):
        results = await executor.execute_tool_calls(calls, 1, "q1")
    assert [result["limit"] for result in results] == [True, True]
    assert tool.cancellations == 2
    assert "a tool ignores its cancellation" in caplog.text

    await tool.release()
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_caller_that_gives_up_leaves_a_stubborn_tool_f_203(tmp_path: Path) -> None:
    tool = StubbornTool()
    executor = AgenticExecutor(
        None,
        ToolRegistry([tool.stay]),
        ToolContextManager(tmp_path),
        selector=LexicalToolSelector(),
    )
    run = asyncio.create_task(executor.execute_tool_calls([{"tool": "stay", "args": {}}], 1, "q1"))
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

    call = asyncio.create_task(ToolRegistry([search]).execute("search", {}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert closed == ["connection"]


async def test_a_tool_that_cancels_itself_or_fails_is_reported_f_203() -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    async def fail() -> None:
        raise ValueError("no such city")

    registry = ToolRegistry([cancel, fail])
    with pytest.raises(asyncio.CancelledError):
        await registry.execute("cancel", {})
    with pytest.raises(ToolFailedError, match="no such city"):
        await registry.execute("fail", {})
