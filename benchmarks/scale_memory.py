"""A `SqliteMemory` of up to 10,000 conversations, 20 lines each, in a file.

An append, a search in one conversation, the newest lines of one, and the erasure of one. Times are
CPU times of the process with its threads.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.bench_memory import Language, fill
from benchmarks.scale_table import Row
from llm_common.memory import Event, MemoryFilters, SqliteMemory

LINES = 20  # of a conversation
CALLS = 200
ERASED = 3
MAX_GROWTH = 1.3


async def median_ms(call: Callable[[int], Awaitable[object]], calls: int = CALLS) -> float:
    """Return the median CPU time of some calls."""
    times: list[float] = []
    for number in range(calls):
        started = time.process_time()
        await call(number)
        times.append(1_000 * (time.process_time() - started))
    return statistics.median(times)


def size_mb(path: Path) -> float:
    return path.stat().st_size / 1e6


async def measure(path: Path, conversations: int) -> dict[str, float]:
    """Fill a memory, and measure it."""
    language = Language(seed=conversations)
    await fill(path, language, lines=LINES * conversations, sessions=conversations)
    queries = [language.query() for _ in range(CALLS)]
    lines = [language.line() for _ in range(CALLS)]

    async with SqliteMemory(path) as memory:

        def session(number: int) -> str:
            return str(number * 7_919 % conversations)

        async def append(number: int) -> None:
            await memory.append_event(session(number), Event(text=lines[number]))

        async def retrieve(number: int) -> None:
            filters = MemoryFilters(session_id=session(number))
            await memory.retrieve(queries[number], 4, filters)

        async def recent(number: int) -> None:
            await memory.recent(session(number))

        async def erase(number: int) -> None:
            await memory.forget(session_id=session(number))

        await retrieve(0)
        return {
            "append, p50 ms": await median_ms(append),
            "search in one conversation, p50 ms": await median_ms(retrieve),
            "newest lines of one, p50 ms": await median_ms(recent),
            "erasure of one, s": await median_ms(erase, ERASED) / 1_000,
            "file, MB": size_mb(path),
        }


def measure_memories(folder: Path, sizes: Sequence[int]) -> list[Row]:
    """Measure a memory of each number of conversations."""
    columns = {size: asyncio.run(measure(folder / f"{size}.db", size)) for size in sizes}
    rows: list[Row] = []
    for name in columns[sizes[0]]:
        values = {size: figures[name] for size, figures in columns.items()}
        max_growth = MAX_GROWTH if name.endswith("ms") else None
        rows.append(Row(name, values, max_growth=max_growth, base=1_000))
    return rows
