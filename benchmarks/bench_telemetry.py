"""CPU time of a save and of two selections: without opentelemetry, with it but no provider, and with the SDK.

    python benchmarks/bench_telemetry.py [--rounds N]

The three take turns, operation by operation, and each is compared with the one before it in the same turn; the figures
are medians. The SDK records every span and exports in batches, to an exporter that drops them. Exits with 1 if
telemetry costs more than 1 % of an operation while it is off, or more than 5 % while it is on.
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

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from llm_common import _telemetry
from llm_common.agents import FileContextPointerStore, LexicalRelevanceSelector
from llm_common.context import ContextSelectionRequest, ContextSelector, classify_intent
from llm_common.context.pool import ContextFile, DataPoolSnapshot
from llm_common.core import UpperBoundCounter

LIMITS = {"off": 1.01, "on": 1.05}
QUERY = "Which orders of the region fell in price, and what do the tickets say of it?"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
TEXT = "The price of an order in the region fell, a customer wrote a ticket, and the team answered. "
POINTERS = 200
Operation = Callable[[], Awaitable[object]]


class Dropping(SpanExporter):
    """Takes every span and keeps none."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the SDK's interface
        return SpanExportResult.SUCCESS


SPANS = TracerProvider()
SPANS.add_span_processor(BatchSpanProcessor(Dropping()))
METRICS = MeterProvider([InMemoryMetricReader()])
# What the library finds when it looks for opentelemetry.
PATCHES: dict[str, list[AbstractContextManager[object]]] = {
    "absent": [patch.object(_telemetry, "_api", lambda: None)],
    "off": [],
    "on": [
        patch.object(trace, "get_tracer_provider", lambda: SPANS),
        patch.object(metrics, "get_meter_provider", lambda: METRICS),
    ],
}


@contextmanager
def telemetry(kind: str) -> Iterator[None]:
    """The block runs with telemetry of this kind."""
    with ExitStack() as stack:
        for each in PATCHES[kind]:
            stack.enter_context(each)
        yield


async def operations(folder: Path) -> dict[str, Operation]:
    store = FileContextPointerStore(folder)
    for n in range(POINTERS):
        await store.save(query_id="q", task_id=None, tool_name="find", args={"n": n}, result=[{"text": TEXT}] * 4)
    pointers = store.list(query_id="q")
    pool = DataPoolSnapshot(
        context_files=tuple(
            ContextFile(id=f"{n}.py", path=f"{n}.py", name=f"{n}.py", content=TEXT * (10 * n + 1)) for n in range(20)
        ),
        tool_outputs=tuple(pointers[:20]),
    )
    request = ContextSelectionRequest(
        intent=classify_intent(QUERY), token_budget=8_000, now=NOW, counter=UpperBoundCounter()
    )
    outputs, context = LexicalRelevanceSelector(), ContextSelector(store=store)
    result = [{"n": n, "text": TEXT} for n in range(300)]  # 32 KB
    return {
        "a save of 32 KB": lambda: store.save(query_id="s", task_id=None, tool_name="find", args={}, result=result),
        f"a choice of {POINTERS} outputs": lambda: outputs.select(query=QUERY, pointers=pointers),
        "a packed context": lambda: context.select(request, pool),
    }


async def cpu_ms(kind: str, operation: Operation) -> float:
    """Of one operation, after one that is not counted: it makes the instruments."""
    with telemetry(kind):
        await operation()
        started = time.process_time()
        for _ in range(5):
            await operation()
        return (time.process_time() - started) * 200


async def turn(number: int, operation: Operation) -> dict[str, float]:
    """Of each kind of telemetry, another one first in each turn."""
    kinds = [*PATCHES]
    first = number % len(kinds)
    return {kind: await cpu_ms(kind, operation) for kind in kinds[first:] + kinds[:first]}


async def measure(rounds: int) -> list[str]:
    over: list[str] = []
    with TemporaryDirectory() as folder:
        for name, operation in (await operations(Path(folder))).items():
            gc.collect()
            gc.disable()  # its pauses would hit one of the three
            turns = [await turn(number, operation) for number in range(rounds)]
            gc.enable()
            base = statistics.median(each["absent"] for each in turns)
            print(f"{name}: {base:.2f} ms without opentelemetry", end="")
            for kind, limit in LIMITS.items():
                ratio = statistics.median(each[kind] / each["absent"] for each in turns)
                print(f", {kind} {ratio:.3f} times", end="")
                over += [f"{name}, {kind}"] if ratio > limit else []
            print()
    return over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="turns of each operation")
    over = asyncio.run(measure(parser.parse_args().rounds))
    SPANS.shutdown()
    if over:
        sys.exit(f"over the limit: {'; '.join(over)}")


if __name__ == "__main__":
    main()
