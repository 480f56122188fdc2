"""`only_run`: one run of a query in a session at a time."""

import asyncio
import logging
from pathlib import Path

import pytest

from llm_common.agents import (
    ContextPointerStore,
    FileContextPointerStore,
)
from llm_common.pointers.run_lease import only_run


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
