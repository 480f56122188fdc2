"""A save and three selections: without opentelemetry, with it but no provider, and with the SDK.

    python benchmarks/bench_telemetry.py [--rounds N]

The three take turns of 25 operations; the figures are the lower quartiles of all turns, since what
else runs on the machine only adds. The SDK records every span and exports in batches, to an
exporter that drops them. Exits with 1 if telemetry costs more than 1 % of a save's CPU time or of a
choice by a model while it is off, or more than 5 % while it is on, each with 2 % for noise. The
other two are shown beside.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from llm_common import _telemetry
from llm_common.agents import (
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
)
from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.core import UpperBoundCounter
from llm_common.testing import ScriptedClient

LIMITS = {"off": 1.01, "on": 1.05}
NOISE = 0.02  # between two equal ones in one run
QUERY = "Which orders of the region fell in price, and what do the tickets say of it?"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
TEXT = (
    "The price of an order in the region fell, a customer wrote a ticket, and the team answered. "
)
POINTERS, CALLS, LATENCY_S = 200, 25, 0.02
SAVE, MODEL = (
    "a save of 32 KB",
    f"a choice among {POINTERS} outputs by a model that takes {LATENCY_S * 1_000:.0f} ms",
)
LIMITED = {SAVE: "CPU", MODEL: "wall"}  # the disk makes a save's own time useless
Operation = Callable[[], Awaitable[object]]


class Dropping(SpanExporter):
    """An exporter that drops every span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the SDK's interface
        return SpanExportResult.SUCCESS


SPANS = TracerProvider()
SPANS.add_span_processor(BatchSpanProcessor(Dropping()))
# What the library finds when it looks for opentelemetry.
PATCHES: dict[str, list[AbstractContextManager[object]]] = {
    "absent": [patch.object(_telemetry, "_api", lambda: None)],
    "off": [],
    "on": [patch.object(trace, "get_tracer_provider", lambda: SPANS)],
}


@contextmanager
def telemetry(kind: str) -> Iterator[None]:
    """Run the block with telemetry of this kind."""
    with ExitStack() as stack:
        for each in PATCHES[kind]:
            stack.enter_context(each)
        yield


async def operations(folder: Path) -> dict[str, Operation]:
    store = FileContextPointerStore(folder)
    for n in range(POINTERS):
        await store.save(
            query_id="q", task_id=None, tool_name="find", args={"n": n}, result=[{"text": TEXT}] * 4
        )
    pointers = store.list(query_id="q")
    pool = DataPoolSnapshot(
        context_files=tuple(
            ContextFile(id=f"{n}.py", path=f"{n}.py", name=f"{n}.py", content=TEXT * (10 * n + 1))
            for n in range(20)
        ),
        tool_outputs=tuple(pointers[:20]),
    )
    request = ContextSelectionRequest(
        intent=classify_intent(QUERY), token_budget=8_000, now=NOW, counter=UpperBoundCounter()
    )
    outputs, context = LexicalRelevanceSelector(), ContextSelector(store=store)

    async def reply(_: object) -> str:
        await asyncio.sleep(LATENCY_S)
        return f'{{"pointer_ids": ["{pointers[0].pointer_id}"]}}'

    asked = ContextRelevanceSelector(ScriptedClient([], default=reply))
    result = [{"n": n, "text": TEXT} for n in range(300)]  # 32 KB
    return {
        SAVE: lambda: store.save(
            query_id="s", task_id=None, tool_name="find", args={}, result=result
        ),
        f"a choice among {POINTERS} outputs by words": lambda: outputs.select(
            query=QUERY, pointers=pointers
        ),
        MODEL: lambda: asked.select(query=QUERY, pointers=pointers),
        "a packed context": lambda: context.select(request, pool),
    }


async def timed(kind: str, operation: Operation) -> tuple[float, float]:
    """Return wall and CPU milliseconds of an operation, after a warm-up that makes the instruments."""
    with telemetry(kind):
        await operation()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(CALLS):
            await operation()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall * 1_000 / CALLS, cpu * 1_000 / CALLS


async def turn(number: int, operation: Operation) -> dict[str, tuple[float, float]]:
    """Run each kind of telemetry, in an order that rotates with each turn."""
    kinds = [*PATCHES]
    first = number % len(kinds)
    return {kind: await timed(kind, operation) for kind in kinds[first:] + kinds[:first]}


async def measure(rounds: int) -> list[str]:
    over: list[str] = []
    with TemporaryDirectory() as folder:
        for name, operation in (await operations(Path(folder))).items():
            gc.collect()
            gc.disable()  # its pauses would hit one of the three
            turns = [await turn(number, operation) for number in range(rounds)]
            gc.enable()
            for place, clock in enumerate(("wall", "CPU")):
                least = {
                    kind: statistics.quantiles([each[kind][place] for each in turns])[0]
                    for kind in PATCHES
                }
                base = least["absent"]
                ratios = {kind: least[kind] / base for kind in LIMITS}
                told = ", ".join(f"{kind} {ratio:.3f} times" for kind, ratio in ratios.items())
                print(f"{name}, {clock}: {base:.2f} ms without opentelemetry; {told}")
                limited = LIMITED.get(name) == clock
                over += [
                    f"{name}, {kind}"
                    for kind, most in LIMITS.items()
                    if limited and ratios[kind] > most + NOISE
                ]
    return over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=18, help="turns of each operation")
    over = asyncio.run(measure(parser.parse_args().rounds))
    SPANS.shutdown()
    if over:
        sys.exit(f"over the limit: {'; '.join(over)}")


if __name__ == "__main__":
    main()
