"""Measurements with a limit: consecutive flushed saves, and selections from a large pool."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_context import BUDGET, make_pool, make_request
from llm_common.agents import FileContextPointerStore
from llm_common.context import ContextSelector
from tests.pointers.campaigns.naive_store import NaiveStore
from tests.pointers.campaigns.traffic import save

SIZE = 20_000


async def save_seconds(store: Any, count: int) -> list[float]:
    """Measure several saves of 20 KB."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        await save(store, str(number), f"{number}" + "x" * SIZE)
        took.append(time.perf_counter() - began)
    return took


def flush_seconds(folder: Path, count: int) -> list[float]:
    """Measure the flush of as many bytes in two files and their folder."""
    took = []
    directory = os.open(folder, os.O_RDONLY)
    for number in range(count):
        began = time.perf_counter()
        for kind in "ab":
            descriptor = os.open(folder / f"{kind}{number}", os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, b"x" * (SIZE if kind == "a" else 1_000))
            os.fsync(descriptor)
            os.close(descriptor)
        os.fsync(directory)
        took.append(time.perf_counter() - began)
    os.close(directory)
    return took


@pytest.mark.parametrize(
    "count", [pytest.param(20, id="short"), pytest.param(500, id="full", marks=pytest.mark.torture)]
)
def test_a_flushed_save_of_20_kb_is_fast_l10_s0_18(tmp_path: Path, count: int) -> None:
    store = FileContextPointerStore(tmp_path / "base", durability="full")
    median_s = statistics.median(asyncio.run(save_seconds(store, count)))
    assert len(store.list(query_id="q")) == count
    floor_s = statistics.median(flush_seconds(tmp_path, count))
    if count > 100:
        assert median_s < max(0.003, 3 * floor_s)  # a busy disk is no fault of the store


class SlowStore(NaiveStore):
    async def save(self, **call: Any) -> Any:
        await asyncio.sleep(0.02)
        return await super().save(**call)


def test_the_harness_catches_a_slow_save_l10(tmp_path: Path) -> None:
    assert statistics.median(asyncio.run(save_seconds(SlowStore(tmp_path), 5))) > 0.02


async def selections(
    files: int, turns: int, rounds: int, make: Callable[[], Any] = ContextSelector
) -> list[float]:
    """Measure the CPU seconds of several selections, each within its budget."""
    pool, selector, took = make_pool(files, turns, 0), make(), []
    for number in range(rounds + 1):
        request = make_request(number, "measured")
        began = time.process_time()
        bundle = await selector.select(request, pool)
        took.append(time.process_time() - began)
        assert 0 < bundle.metadata.total_tokens <= BUDGET
    return took[1:]


@pytest.mark.torture
async def test_selections_from_a_large_pool_are_fast_l15() -> None:
    took = await selections(100, 1_000, 1_000)
    [largest] = await selections(1_000, 10_000, 1)
    p95 = statistics.quantiles(took, n=20)[-1]
    assert p95 < 0.1
    assert largest < 1
