"""A run without a model in a session that holds thousands of outputs, and previews of records.

    python benchmarks/bench_session.py [--pointers N] [--rounds N]

A run ranks the session's outputs for the choice of its tools, which takes time linear in their
number. Everything else that it does with them is compared with this ranking, measured in turns in
the same process. Figures are lower quartiles of CPU time. Exits with 1 if a run takes over 2.5
times as long as the ranking, if it holds the event loop for over .75 times as long, or if twice
the outputs take over three times as long.

Then 1 MB of records is saved, and offloaded with its preview for a question, in turns. Exits with 1
if the preview takes over 60 ms of CPU time more than the save.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from llm_common.agents import (
    AgenticExecutor,
    FileContextPointerStore,
    LexicalToolSelector,
    Session,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.selection.relevance_ranking import rank_pointers

RUN_LIMIT, LOOP_LIMIT, GROWTH_LIMIT = 2.5, 0.75, 3.0
PREVIEW_LIMIT_MS = 60.0
RECORDS = 8_200  # 1.1 MB of JSON
RECORDS_QUESTION = "Which open orders from Oslo have a total over 11000?"
TASK, QUERY = "Add the numbers of the weather", "What is the weather in City 77?"


class Costs(NamedTuple):
    """Milliseconds of CPU time.

    Attributes:
        rank: A ranking of the session's outputs.
        run: A run in the executor's own session.
        loop: The part of a run that holds the event loop.
        named_loop: The same for a session that is passed by id, and listed from the store.
    """

    rank: float
    run: float
    loop: float
    named_loop: float


def add(first: int = 1) -> int:
    """Add numbers of the weather."""
    return first + 1


async def run(executor: AgenticExecutor, session: Session | None) -> tuple[float, float]:
    """Return the milliseconds of a run, and those in the thread of the event loop."""
    process_s, thread_s = time.process_time(), time.thread_time()
    await executor.execute_plan([TASK], "q", query=QUERY, session=session)
    process_s, thread_s = time.process_time() - process_s, time.thread_time() - thread_s
    return process_s * 1_000, thread_s * 1_000


async def measure(folder: Path, pointers: int, rounds: int) -> Costs:
    manager = ToolContextManager(
        pointer_store=FileContextPointerStore(folder, durability="rename"), session_id="user:1"
    )
    for number in range(pointers):
        args = {"city": f"City {number}", "day": number % 30}
        text = f"Sunny in City {number}, {number % 40} degrees, wind of {number % 9} m/s"
        await manager.save_context("get_weather", args, {"number": number, "text": text})
    registry = ToolRegistry([Tool(add, read_only=True)])
    executor = AgenticExecutor(None, registry, manager, selector=LexicalToolSelector())
    turns = []
    for _ in range(rounds + 1):
        pool = manager.get_all_pointers()
        rank_s = time.process_time()
        rank_pointers(f"{TASK} {QUERY}", pool, limit=200)
        rank_s = time.process_time() - rank_s
        own, own_loop = await run(executor, None)
        _, named_loop = await run(executor, Session(manager.pointer_store, session_id="user:1"))
        turns.append(Costs(rank_s * 1_000, own, own_loop, named_loop))
    # The first turn imports modules and fills caches.
    return Costs(*(statistics.quantiles(column)[0] for column in zip(*turns[1:], strict=True)))


def orders(seed: int) -> list[dict[str, str | float]]:
    """Return records of which the question names a few."""
    records: list[dict[str, str | float]] = []
    for number in range(RECORDS):
        record: dict[str, str | float] = {
            "no": f"W{seed}-{number:05}",
            "customer": f"customer {number * 7 % 997}",
            "state": ("open", "paid", "sent", "late")[number % 4],
            "city": ("Bern", "Oslo", "Rome")[number % 3],
            "total": round(number * 1.37, 2),
            "created": f"2026-{1 + number % 12:02}-{1 + number % 28:02}",
            "note": "handle with care",
        }
        records.append(record)
    return records


async def preview_costs(folder: Path, rounds: int) -> tuple[float, float]:
    """Return the milliseconds of a save of 1 MB of records, and of an offload with a preview."""
    store = FileContextPointerStore(folder, durability="rename")
    session = Session(store, session_id="user:2")
    saves, offloads = [], []
    for number in range(2 * rounds + 1):
        saved, offloaded = orders(number), orders(1_000 + number)
        start_s = time.process_time()
        await store.save(
            query_id="saves", task_id=None, tool_name="get_orders", args={"n": number}, result=saved
        )
        saves.append((time.process_time() - start_s) * 1_000)
        start_s = time.process_time()
        await session.offload(
            offloaded, tool="get_orders", args={"n": number}, query=RECORDS_QUESTION
        )
        offloads.append((time.process_time() - start_s) * 1_000)
    return statistics.quantiles(saves[1:])[0], statistics.quantiles(offloads[1:])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pointers", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    costs = []
    for pointers in (arguments.pointers, 2 * arguments.pointers):
        with TemporaryDirectory() as folder:
            cost = asyncio.run(measure(Path(folder), pointers, arguments.rounds))
        costs.append(cost)
        print(
            f"{pointers:,} outputs: a run takes {cost.run:.0f} ms, of which {cost.loop:.0f} hold "
            f"the event loop, and {cost.named_loop:.0f} in a session by id; ranking alone takes "
            f"{cost.rank:.0f} ms"
        )
    few, many = costs
    ratios = {
        "a run": (few.run / few.rank, RUN_LIMIT),
        "the event loop": (max(few.loop, few.named_loop) / few.rank, LOOP_LIMIT),
        "twice the outputs": (many.run / few.run, GROWTH_LIMIT),
    }
    for name, (ratio, limit) in ratios.items():
        print(f"{name}: {ratio:.2f} times, at most {limit}")
    over = [name for name, (ratio, limit) in ratios.items() if ratio > limit]
    with TemporaryDirectory() as folder:
        save, offload = asyncio.run(preview_costs(Path(folder), arguments.rounds))
    print(
        f"1 MB of records: a save takes {save:.0f} ms, and with its preview {offload:.0f} ms; the "
        f"preview takes {offload - save:.0f} ms, at most {PREVIEW_LIMIT_MS:.0f}"
    )
    if offload - save > PREVIEW_LIMIT_MS:
        over.append("a preview of records")
    if over:
        sys.exit(f"over the limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
