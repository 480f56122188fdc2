"""Up to 100 runs at once in one process, each of three tasks with one call of a slow tool.

The runs share an executor, and each has a session of its own in one store of files. The tool waits
for a fixed time, in a coroutine or in a thread. So no run can end before three waits. "Of the
waits" is the time of all runs as a multiple of that.

The stall is the longest CPU time of the event loop's thread between two of its ticks. The load of
the machine does not count.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.scale_table import Row
from llm_common.agents import (
    AgenticExecutor,
    FileContextPointerStore,
    LexicalToolSelector,
    Session,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from tests.loop_cpu import longest_tick_s

WAIT_S = 2.0
TASKS = ("Get the weather of Oslo", "Get the weather of Rome", "Get the weather of Bern")
# Made once, so that the tool takes no time of the event loop.
RESULT = [f"day {number}: rain of {number % 30} mm" for number in range(1_000)]
MAX_STALL_MS = 100.0


async def awaited_weather() -> list[str]:
    """Get the weather of all cities."""
    await asyncio.sleep(WAIT_S)
    return RESULT


def blocking_weather() -> list[str]:
    """Get the weather of all cities."""
    time.sleep(WAIT_S)
    return RESULT


async def measure(folder: Path, tool: Callable[[], object], runs: int) -> dict[str, float]:
    """Run plans at the same time."""
    store = FileContextPointerStore(folder)
    executor = AgenticExecutor(
        None,
        ToolRegistry([Tool(tool, name="get_weather", read_only=True)]),
        ToolContextManager(pointer_store=store),
        selector=LexicalToolSelector(),
    )

    async def run(number: int) -> None:
        session = Session(store, session_id=f"user:{number}")
        results = await executor.execute_plan(list(TASKS), f"run-{number}", session=session)
        assert all(result.success for result in results), results

    async def run_all() -> None:
        await asyncio.gather(*map(run, range(runs)))

    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    stall_s, _ = await longest_tick_s(run_all())
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return {
        "of the waits": wall_s / (WAIT_S * len(TASKS)),
        "CPU ms of a run": 1_000 * cpu_s / runs,
        "longest stall of the event loop, ms": 1_000 * stall_s,
    }


def measure_runs(folder: Path, sizes: Sequence[int]) -> dict[str, list[Row]]:
    """Measure each number of runs with each kind of tool."""
    tables: dict[str, list[Row]] = {}
    tools: dict[str, Callable[[], object]] = {
        "a coroutine": awaited_weather,
        "a thread": blocking_weather,
    }
    for title, tool in tools.items():
        asyncio.run(measure(folder / title / "first", tool, 1))  # imports modules
        columns: dict[int, dict[str, float]] = {}
        for size in sizes:
            columns[size] = asyncio.run(measure(folder / title / str(size), tool, size))
        rows: list[Row] = []
        for name in columns[sizes[0]]:
            values = {size: figures[name] for size, figures in columns.items()}
            most = MAX_STALL_MS if name.endswith("loop, ms") else None
            rows.append(Row(name, values, most=most))
        tables[title] = rows
    return tables
