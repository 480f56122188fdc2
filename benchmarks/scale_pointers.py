"""A store of up to a million pointers: 100 in each query, and 1,000 in one more.

The library's own saves fill it, without flushes, and each tenth query expires after a day. What is
measured runs in a process of its own, so its peak of memory counts no other work. Times are CPU
times of the process with its threads, which the load of a machine moves less than wall times.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from benchmarks.bench_store import peak_mb
from benchmarks.scale_table import Row
from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector

PER_QUERY = 100
LISTED, LISTED_QUERY = 1_000, "listed"
SAVES, ROUNDS = 400, 9
LIFE_S = 86_400.0
FILLERS = 2  # processes
TOKEN, PORT = "a-token-of-the-benchmark", 8_000
MAX_GROWTH, MAX_MB = 1.3, 300.0


def queries_of(pointers: int) -> int:
    """Return how many queries hold the pointers besides the listed one."""
    return max((pointers - LISTED) // PER_QUERY, 0)


async def fill_query(store: FileContextPointerStore, query_id: str, pointers: int) -> None:
    """Save small results of different calls."""
    number = query_id.partition("-")[2]
    expires = number.endswith("0")
    for place in range(pointers):
        hits = [
            {"rank": rank, "text": f"result {place} of {number}"} for rank in range(place % 8 + 1)
        ]
        await store.save(
            query_id=query_id,
            tool_name="search",
            args={"query": f"words {number} {place}"},
            result={"hits": hits},
            ttl_s=LIFE_S if expires else None,
        )


async def fill(base: Path, first: int, end: int) -> None:
    """Fill some of the queries."""
    store = FileContextPointerStore(base, durability="rename")
    for number in range(first, end):
        await fill_query(store, f"many-{number}", PER_QUERY)


def build(base: Path, pointers: int) -> None:
    """Build a store with several processes, unless an earlier run has done so."""
    if not (base / LISTED_QUERY).exists():
        queries = queries_of(pointers)
        share = -(-queries // FILLERS)
        fillers = []
        for first in range(0, queries, share or 1):
            bounds = str(first), str(min(first + share, queries))
            fillers.append(subprocess.Popen([sys.executable, __file__, "fill", str(base), *bounds]))
        for filler in fillers:
            if filler.wait():
                sys.exit("a process could not fill the store")
        store = FileContextPointerStore(base, durability="rename")
        # Last, so that its folder marks a store that is complete.
        asyncio.run(fill_query(store, LISTED_QUERY, LISTED))


def cpu_ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median CPU time of some work."""
    times: list[float] = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(1_000 * (time.process_time() - started))
    return statistics.median(times)


async def save_ms(base: Path) -> float:
    """Return the median CPU time of saves that flush, into queries of different sizes."""
    store = FileContextPointerStore(base)
    times: list[float] = []
    for number in range(SAVES):
        started = time.process_time()
        await store.save(
            query_id=f"new-{number % 20}",
            tool_name="search",
            args={"query": f"words {number}", "run": time.time_ns()},
            result={"hits": [{"rank": 1, "text": f"result {number}"}]},
        )
        times.append(1_000 * (time.process_time() - started))
    for number in range(20):
        store.delete(query_id=f"new-{number}")
    return statistics.median(times)


def list_cold(base: Path) -> None:
    """List the query of a thousand with a store that has cached nothing."""
    listed = FileContextPointerStore(base).list(query_id=LISTED_QUERY)
    assert len(listed) == LISTED


async def show_first_page(base: Path) -> None:
    """Ask for the first page of `inspect`."""
    inspector = Inspector(base).app(token=TOKEN, port=PORT)
    address = f"http://127.0.0.1:{PORT}"
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(inspector), base_url=address, follow_redirects=True
    ) as client:
        (await client.get(f"/?token={TOKEN}")).raise_for_status()


def list_all(base: Path) -> None:
    """List every query with one store, as a service does that stays up."""
    store = FileContextPointerStore(base)
    for folder in [*store.records.blobs.folders()]:
        store.list(query_id=folder)


async def collect(base: Path, *, dry_run: bool) -> int:
    """Collect what has expired in two days, and return the number."""
    store = FileContextPointerStore(base, durability="rename")
    later = datetime.now(UTC) + timedelta(seconds=2 * LIFE_S)
    return (await store.gc(now=later, dry_run=dry_run)).expired


def measure(base: Path, *, remove: bool) -> dict[str, float]:
    """Measure one store in this process."""
    figures = {
        "save, p50 ms": asyncio.run(save_ms(base)),
        "list of a query of 1,000, new store, ms": cpu_ms(lambda: list_cold(base)),
        "first page of `inspect`, ms": cpu_ms(lambda: asyncio.run(show_first_page(base))),
        "dry run of `gc`, s": cpu_ms(lambda: count_expired(base), rounds=1) / 1_000,
    }
    figures["peak of memory so far, MB"] = peak_mb()
    figures["list of every query, s"] = cpu_ms(lambda: list_all(base), rounds=1) / 1_000
    figures["peak of memory after it, MB"] = peak_mb()
    if remove:
        started = time.process_time()
        figures["pointers that `gc` removes"] = asyncio.run(collect(base, dry_run=False))
        figures["`gc` that removes a tenth, s"] = time.process_time() - started
    return figures


def count_expired(base: Path) -> None:
    """Count what a collection would remove."""
    asyncio.run(collect(base, dry_run=True))


def measure_pointers(folder: Path, sizes: Sequence[int], *, remove: bool) -> list[Row]:
    """Build and measure a store of each size.

    Args:
        folder: Where the stores are, or will be.
        sizes: Numbers of pointers.
        remove: Whether to remove what expires, at last.
    """
    columns: dict[int, dict[str, float]] = {}
    for size in sizes:
        base = folder / f"pointers-{size}"
        started = time.perf_counter()
        build(base, size)
        print(f"{size:,} pointers: built in {time.perf_counter() - started:.0f} s", flush=True)
        command = [sys.executable, __file__, "measure", str(base), "remove" if remove else "keep"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        columns[size] = json.loads(printed)
    rows: list[Row] = []
    for name in columns[sizes[0]]:
        values = {size: figures[name] for size, figures in columns.items()}
        max_growth = MAX_GROWTH if name.endswith("ms") else None
        most = MAX_MB if name.endswith("MB") else None
        rows.append(Row(name, values, max_growth=max_growth, most=most))
    return rows


def main(arguments: Sequence[str]) -> None:
    """Run the part that a process of its own runs."""
    what, base, *rest = arguments
    if what == "fill":
        asyncio.run(fill(Path(base), int(rest[0]), int(rest[1])))
    else:
        print(json.dumps(measure(Path(base), remove=rest == ["remove"])))


if __name__ == "__main__":
    main(sys.argv[1:])
