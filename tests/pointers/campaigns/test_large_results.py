"""Concurrent large results, results over the limit, and large results in a prompt."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.errors import ResultTooLargeError
from tests.pointers.campaigns.children import answer, needs_memory_figures, peak_memory
from tests.pointers.campaigns.traffic import NAIVE, OURS, MakeStore, save

MB = 1_000_000


def rows(size: int) -> dict[str, Any]:
    """Return a result of about this many bytes of JSON that needs little memory itself."""
    return {"rows": [{"id": 12_345, "text": "x" * 970}] * (size // 1_000)}


def save_at_once(base: Path, make: MakeStore, count: int, size: int) -> dict[str, float]:
    """Return the longest and the 99th of 100 pauses of the event loop, and the memory growth."""
    pauses: list[float] = []

    async def breathe() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - start - 0.001)

    async def work() -> list[int | None]:
        store = make(base)
        breathing = asyncio.create_task(breathe())
        await asyncio.sleep(0.01)
        pointers = await asyncio.gather(
            *(save(store, f"call {number}", rows(size)) for number in range(count))
        )
        await asyncio.sleep(0.01)
        breathing.cancel()
        return [pointer.result_bytes for pointer in pointers]

    with peak_memory() as grown:
        sizes = asyncio.run(work())
        figures = {"grown": grown(), "in_flight": sum(size or 0 for size in sizes)}
    pauses.sort()
    return figures | {
        "p99_ms": pauses[int(len(pauses) * 0.99)] * 1_000,
        "longest_ms": pauses[-1] * 1_000,
    }


AT_ONCE = pytest.mark.parametrize(
    ("count", "size"),
    [
        pytest.param(6, MB, id="short"),
        pytest.param(100, 10 * MB, id="full", marks=pytest.mark.torture),
    ],
)


@needs_memory_figures
@AT_ONCE
def test_concurrent_large_saves_are_all_kept_without_blocking_the_loop_l11_s0_20(
    tmp_path: Path, count: int, size: int
) -> None:
    figures = answer(save_at_once, tmp_path, OURS, count, size, timeout_s=300)
    store = FileContextPointerStore(tmp_path)
    assert len(store.list(query_id="q")) == count
    assert all(
        store.load_result(pointer=pointer) == rows(size) for pointer in store.list(query_id="q")[:3]
    )
    if count >= 100:
        assert figures["grown"] < 3 * figures["in_flight"]
        assert figures["p99_ms"] < 100  # 20 on a machine that does nothing else


@needs_memory_figures
@AT_ONCE
def test_the_harness_catches_a_store_that_blocks_the_loop_l11(
    tmp_path: Path, count: int, size: int
) -> None:
    figures = answer(save_at_once, tmp_path, NAIVE, count // 5 or 1, 10 * size, timeout_s=300)
    assert figures["longest_ms"] > 20


def refuse(base: Path, limit: int, shape: str) -> int:
    """Return the memory growth while a result of ten times the limit is refused."""
    size = 10 * limit
    result: Any = "x" * size if shape == "text" else [["x" * 10_000] * 100] * (size // MB)
    store = FileContextPointerStore(base, max_result_bytes=limit)
    with peak_memory() as grown:
        try:
            asyncio.run(save(store, "a", result))
        except ResultTooLargeError:
            return grown()
    raise AssertionError("a result over the limit was saved")


@needs_memory_figures
@pytest.mark.parametrize("shape", ["text", "nested"])
@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(10 * MB, id="short"),
        pytest.param(100 * MB, id="full", marks=pytest.mark.torture),
    ],
)
def test_a_result_over_the_limit_is_refused_without_its_memory_f_040(
    tmp_path: Path, shape: str, limit: int
) -> None:
    grown = answer(refuse, tmp_path, limit, shape)
    # A text is refused by its length. A nested value is encoded first: it weighs what its JSON
    # weighs, ten limits.
    assert grown < (2.5 if shape == "text" else 15) * limit
    assert not list(tmp_path.rglob("*.json"))


RENDERING = """
import hashlib, sys, time
from llm_common.agents.context_pointers import FileContextPointerStore, format_selected_contexts
store = FileContextPointerStore(sys.argv[1])
for _ in range(int(sys.argv[2])):
    start = time.process_time()
    text = format_selected_contexts(pointers=store.list(query_id="q"), store=store, max_chars=20_000)
    print(len(text), hashlib.sha256(text.encode()).hexdigest(), time.process_time() - start)
"""


def render(base: Path, *, runs: int, hash_seed: int) -> list[list[str]]:
    """Return length, digest and CPU seconds of each rendering in a process with a hash seed."""
    done = subprocess.run(
        [sys.executable, "-c", RENDERING, base, str(runs)],
        env={
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": ":".join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("size", "seeds", "runs"),
    [
        pytest.param(100_000, 2, 2, id="short"),
        pytest.param(10 * MB, 10, 100, id="full", marks=pytest.mark.torture),
    ],
)
def test_large_results_always_render_to_the_same_bytes_l12_s0_51(
    tmp_path: Path, size: int, seeds: int, runs: int
) -> None:
    store = OURS(tmp_path)
    for number in range(6):
        result: Any = (
            rows(size) if number % 2 else {f"k{key}": "y" * 1_000 for key in range(size // 1_000)}
        )
        asyncio.run(save(store, f"call {number}", result))
    rendered = [
        line for seed in range(seeds) for line in render(tmp_path, runs=runs, hash_seed=seed)
    ]
    seconds = sorted(float(line[2]) for line in rendered)
    assert len({(length, digest) for length, digest, _ in rendered}) == 1
    assert int(rendered[0][0]) <= 20_000
    if size >= MB:
        assert seconds[len(seconds) // 2] < 3
