"""Tools that never return: the session and the program's own executor work on without them."""

import asyncio
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
    ToolContextManager,
    ToolRegistry,
)
from llm_common.context import (
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)

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
    return await ReadBackTool(manager.load_payload).run(
        {"pointer_id": pointer.pointer_id, "select": {"path": "/7"}}
    )


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
