"""`only_run`: one run of a query in a session at a time."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from llm_common.agents import (
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.errors import RunBusyError
from llm_common.pointers.run_lease import only_run


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ContextPointerStore:
    if request.param == "files":
        return FileContextPointerStore(tmp_path / "store")
    return InMemoryContextPointerStore()


async def test_a_second_run_of_a_query_is_refused(store: ContextPointerStore) -> None:
    async with only_run(store, session_id="user:1", query_id="q"):
        with pytest.raises(RunBusyError, match="query q has begun and not ended"):
            async with only_run(store, session_id="user:1", query_id="q"):
                pytest.fail("a second run began")
        async with AsyncExitStack() as others:
            for session_id, query_id in (("user:1", "q2"), ("user:2", "q"), ("user:1q", "q")):
                run = only_run(store, session_id=session_id, query_id=query_id)
                await others.enter_async_context(run)
    async with only_run(store, session_id="user:1", query_id="q"):
        pass


async def test_a_cancelled_run_gives_its_lease_back(store: ContextPointerStore) -> None:
    started = asyncio.Event()

    async def run() -> None:
        async with only_run(store, session_id="s", query_id="q"):
            started.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(20):  # cancelled while it takes the lease
        running = asyncio.create_task(run())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    async with only_run(store, session_id="s", query_id="q"):
        pass


async def test_a_run_goes_on_where_the_store_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        async with only_run(
            FileContextPointerStore(tmp_path / "store"), session_id="s", query_id="q"
        ):
            pass
    assert "another run of the same query is not noticed" in caplog.text
