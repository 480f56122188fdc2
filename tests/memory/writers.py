"""Lets processes append to one memory at the same time, and counts the faults afterwards."""

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Callable

from llm_common.memory import Event, Memory, MemoryFilters

__all__ = ["EVENTS", "PROCESSES", "faults", "write_together"]

PROCESSES, EVENTS = 8, 40
SHARED = "shared"

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.memory.writers", "llm_common.memory.postgres"])


def write_together(make: Callable[[], Memory], *, processes: int = PROCESSES) -> None:
    """Start processes that each append to a session of their own and to a shared one."""
    start = _CONTEXT.Barrier(processes)
    writers = [
        _CONTEXT.Process(target=_write, args=(make, number, start)) for number in range(processes)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join(60)
        assert process.exitcode == 0


def _write(
    make: Callable[[], Memory], process: int, start: "multiprocessing.synchronize.Barrier"
) -> None:
    start.wait(30)
    asyncio.run(_append(make(), process))


async def _append(memory: Memory, process: int) -> None:
    async with memory:
        for number in range(EVENTS):
            for session_id in (f"own{process}", SHARED):
                text = f"zebra of {session_id} by writer{process} number{number:03}"
                await memory.append_event(
                    session_id, Event(text=text, metadata={"process": process})
                )
            hits = await memory.retrieve("zebra", 10, MemoryFilters(session_id=f"own{process}"))
            assert len(hits) == min(number + 1, 10)
            assert all(f"of own{process} " in hit.event.text for hit in hits)


async def faults(memory: Memory, *, processes: int = PROCESSES) -> Counter[str]:
    """Count events that are missing, doubled, out of order, misplaced or not found."""
    wrong = Counter[str]()
    shared = [event.text for event in await memory.recent(SHARED, limit=10_000)]
    wrong["doubled"] = len(shared) - len(set(shared))
    for process in range(processes):
        texts = [event.text for event in await memory.recent(f"own{process}", limit=10_000)]
        expected = [
            f"zebra of own{process} by writer{process} number{number:03}"
            for number in range(EVENTS)
        ]
        wrong["missing"] += (
            len(set(expected) - set(texts))
            + EVENTS
            - sum(f"writer{process} " in text for text in shared)
        )
        wrong["of another session"] += len(set(texts) - set(expected))
        wrong["out of order"] += texts != expected
        filters = MemoryFilters(session_id=SHARED, metadata={"process": process})
        hits = await memory.retrieve(f"writer{process}", 1_000, filters)
        wrong["not found"] += EVENTS - len({hit.event.text for hit in hits})
    return +wrong
