"""A run of twenty calls, which other processes may run at the same time.

    python -m tests.agents.twenty_calls STORE FOLDER [fork]

resumes the run and prints how it ends: `done`, or `busy` if another run has begun. Each call adds a
line to FOLDER/calls. The first call waits for FOLDER/go. With `fork` it forks a child that sleeps,
prints the child's id, and kills its process.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llm_common.agents import (
    AgenticExecutor,
    ContextPointerStore,
    FileContextPointerStore,
    ObjectContextPointerStore,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import LLMMessage
from llm_common.errors import RunBusyError
from llm_common.testing import ScriptedClient
from tests.s3_server import s3_options

TASKS = [f"Do the work of task number {number} of this run" for number in range(5)]
CALLS_OF_A_TASK = 4
CALLS = len(TASKS) * CALLS_OF_A_TASK
SESSION_ID = "ann"
QUERY_ID = "q"


def open_store(place: str) -> ContextPointerStore:
    """Return the store in a folder, or in the bucket that `ENDPOINT#BUCKET` names."""
    endpoint, _, bucket = place.partition("#")
    if not bucket:
        return FileContextPointerStore(place, lock_timeout_s=60)
    return ObjectContextPointerStore.from_url(f"s3://{bucket}/runs", **s3_options(endpoint))


def executor_of(
    store: ContextPointerStore, folder: Path, *, forks: bool = False
) -> AgenticExecutor:
    """Return an executor whose tool notes its calls in a folder."""

    async def work(number: int) -> dict[str, Any]:
        """Does a part of the work."""
        with (folder / "calls").open("a") as lines:
            lines.write(f"{number}\n")
        await asyncio.to_thread(wait_for, folder / "go")
        if forks:
            fork_and_die()
        await asyncio.sleep(0.005)
        return {"number": number, "text": "x" * 500}

    def choose(messages: Sequence[LLMMessage]) -> str:
        prompt = "\n".join(str(message.content) for message in messages)
        task = int(re.findall(r"task number (\d)", prompt)[-1])
        numbers = range(task * CALLS_OF_A_TASK, (task + 1) * CALLS_OF_A_TASK)
        return json.dumps({"calls": [{"tool": "work", "args": {"number": n}} for n in numbers]})

    return AgenticExecutor(
        ScriptedClient([], default=choose),
        ToolRegistry([work]),
        ToolContextManager(pointer_store=store),
    )


async def resume(executor: AgenticExecutor) -> str:
    """Resume the run, and return how it ends."""
    try:
        results = await executor.execute_plan(TASKS, QUERY_ID, session=SESSION_ID, resume=True)
    except RunBusyError:
        return "busy"
    return "done" if all(result.success for result in results) else "failed"


def calls_made(folder: Path) -> Counter[int]:
    """Return how often each call was made."""
    path = folder / "calls"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


async def stored_calls(store: ContextPointerStore) -> list[int]:
    """Return the number of each stored call."""
    manager = ToolContextManager(pointer_store=store, session_id=SESSION_ID)
    return [pointer.args["number"] for pointer in await manager.resume()]


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def say(text: object) -> None:
    os.write(1, f"{text}\n".encode())


def fork_and_die() -> None:
    child = os.fork()
    if child == 0:
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # the test reads them to their end
        time.sleep(120)
        os._exit(0)
    say(child)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    place, folder, *options = sys.argv[1:]
    runner = executor_of(open_store(place), Path(folder), forks="fork" in options)
    say(asyncio.run(resume(runner)))
