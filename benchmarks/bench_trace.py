"""What a trace costs a run: wall and CPU time of the same run with and without one, in turns.

A run chooses tools with a model that answers after a while, as a fast endpoint does, keeps three
outputs of 40 KB, chooses among twenty outputs, packs 60 turns, 20 files and the outputs, and asks
for an answer.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from llm_common.agents import (
    ContextRelevanceSelector,
    FileContextPointerStore,
    PlannedTask,
    Tool,
    ToolRegistry,
    ToolSelector,
)
from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    TurnEntry,
    classify_intent,
)
from llm_common.core import LLMMessage, MessageRole, UpperBoundCounter, answer_text
from llm_common.testing import ScriptedClient
from llm_common.trace import Trace

LIMIT = 1.05
QUERY = "Which orders of the region fell in price, and what do the tickets say of it?"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
TEXT = (
    "The price of an order in the region fell, a customer wrote a ticket, and the team answered. "
)


async def track(city: str) -> str:
    return city


def pool(store: FileContextPointerStore, query_id: str) -> DataPoolSnapshot:
    return DataPoolSnapshot(
        session_log=tuple(
            TurnEntry(
                id=f"t{n}",
                timestamp=NOW - timedelta(hours=n),
                role="user",
                content=f"{n} {TEXT * 3}",
            )
            for n in range(60)
        ),
        context_files=tuple(
            ContextFile(id=f"{n}.py", path=f"{n}.py", name=f"{n}.py", content=TEXT * (10 * n + 1))
            for n in range(20)
        ),
        tool_outputs=tuple(store.list(query_id=query_id)),
    )


async def run(store: FileContextPointerStore, query_id: str, latency_s: float) -> None:
    async def after(reply: str) -> str:
        await asyncio.sleep(latency_s)
        return reply

    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    tools = [
        Tool(track, name=f"tool_{n}", description=TEXT, parameters=parameters) for n in range(40)
    ]
    call = '{"calls": [{"tool": "tool_1", "args": {"city": "Oslo"}}]}'
    task = PlannedTask(id=1, description=QUERY)
    await ToolSelector(ScriptedClient([lambda _: after(call)])).select_detailed(
        task=task, tool_registry=ToolRegistry(tools), query=QUERY
    )
    for n in range(20):
        result = [{"n": n, "text": TEXT}] * (400 if n < 3 else 4)
        await store.save(
            query_id=query_id, task_id="1", tool_name="track", args={"n": n}, result=result
        )
    pointers = store.list(query_id=query_id)
    chosen = f'{{"pointer_ids": ["{pointers[0].pointer_id}"]}}'
    await ContextRelevanceSelector(ScriptedClient([lambda _: after(chosen)])).select(
        query=QUERY, pointers=pointers
    )
    request = ContextSelectionRequest(
        intent=classify_intent(QUERY), token_budget=8_000, now=NOW, counter=UpperBoundCounter()
    )
    bundle = await ContextSelector(store=store).select(request, pool(store, query_id))
    messages = [
        LLMMessage(role=MessageRole.SYSTEM, content="Answer."),
        LLMMessage(role=MessageRole.USER, content=bundle.render()),
    ]
    await answer_text(
        ScriptedClient([lambda _: after("It fell.")]), messages, model=None, timeout_s=60
    )


def timed(
    folder: Path, number: int, latency_s: float, *, trace: Trace | None
) -> tuple[float, float]:
    """Return wall and CPU milliseconds of one run, including the writing of its trace."""
    query_id = f"q{number}"
    store = FileContextPointerStore(folder / "store")
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    with trace.run(query_id, query=QUERY) if trace else nullcontext():
        asyncio.run(run(store, query_id, latency_s))
    wall = time.perf_counter() - wall
    if trace:
        trace.flush()
    return wall * 1_000, (time.process_time() - cpu) * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25, help="runs of each kind")
    parser.add_argument(
        "--latency-ms", type=float, default=100, help="of each of the three model calls"
    )
    options = parser.parse_args()
    rows: dict[str, list[tuple[float, float]]] = {"off": [], "on": [], "texts": []}
    with TemporaryDirectory() as place:
        folder = Path(place)
        traces = {
            "off": None,
            "on": Trace(folder / "trace"),
            "texts": Trace(folder / "texts", texts=True),
        }
        for number in range(options.runs + 2):
            for kind, trace in traces.items():
                row = timed(folder / kind, number, options.latency_ms / 1_000, trace=trace)
                rows[kind] += [row] if number >= 2 else []  # the first ones load modules
        size = statistics.mean(path.stat().st_size for path in (folder / "trace").glob("*/*.jsonl"))
    middle = {
        kind: [statistics.median(column) for column in zip(*found, strict=True)]
        for kind, found in rows.items()
    }
    for kind, (wall_ms, cpu_ms) in middle.items():
        print(
            f"trace {kind}: {wall_ms:.1f} ms wall ({wall_ms / middle['off'][0]:.3f} times), "
            f"{cpu_ms:.1f} ms CPU ({cpu_ms / middle['off'][1]:.3f} times)"
        )
    print(f"a trace without texts has {size / 1_000:.0f} KB")
    if middle["on"][0] > LIMIT * middle["off"][0]:
        sys.exit(f"a trace costs over {LIMIT - 1:.0%} of a run")


if __name__ == "__main__":
    main()
