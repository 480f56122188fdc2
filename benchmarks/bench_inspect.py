"""Measures how long `llm-common inspect` takes for each page of 100,000 pointers, and its memory.

The server is the real command in a separate process. It keeps nothing between two pages: the list
of queries reads the folders of its page, a search reads every record, and a page of a query reads
its folder and fifty records. Each page is requested three times and the median counts.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from llm_common.agents import ContextPointer
from llm_common.pointers.records import meta_bytes
from llm_common.pointers.save import Call, Retention, describe
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.canonical import encode_json

MAX_PAGE_MS = 10_000
MAX_WHOLE_SEARCH_MS = 60_000  # reads and ranks every result
WHOLE_SEARCH = "search through the results"
MAX_MEMORY_MB = 400  # the part of 100 MB is loaded, compared with its digest, and decoded
REQUESTS = 3
NOW = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = (
    "parcel",
    "storm",
    "harbour",
    "delay",
    "customer",
    "refund",
    "label",
    "region",
    "carrier",
    "invoice",
    "ticket",
)
LARGE_ITEMS = 1_700_000


def pointer_of(query_id: str, number: int) -> tuple[ContextPointer, bytes]:
    words = [WORDS[number % 11], WORDS[number // 11 % 11], str(number)]
    call = Call.checked(
        query_id=query_id,
        task_id="1",
        tool_name=f"tool_{number % 20}",
        args={"query": " ".join(words)},
        redactor=DEFAULT_REDACTOR,
    )
    result = {"hits": [{"rank": n, "text": " ".join(words[::-1])} for n in range(number % 8 + 1)]}
    encoded = encode_json(result)
    made = describe(
        call,
        encoded,
        source_urls=(),
        redactor=DEFAULT_REDACTOR,
        created_at=NOW + timedelta(seconds=number),
        retention=Retention(),
    )
    return made, encoded.data


def fill(folder: Path, pointers: int, queries: int) -> None:
    """Write the files of a store without flushing each of them."""
    folder.mkdir(mode=0o700)
    for number in range(pointers):
        query_id = f"query-{number % queries}"
        place = folder / query_id
        place.mkdir(mode=0o700, exist_ok=True)
        made, data = pointer_of(query_id, number)
        (place / f"{made.pointer_id}.meta.json").write_bytes(meta_bytes(made))
        (place / f"{made.pointer_id}.result.json").write_bytes(data)


def fill_large(folder: Path) -> str:
    """Store a result of about 100 MB in a separate query, and return the URL of its page."""
    call = Call.checked(
        query_id="large", task_id=None, tool_name="dump", args={}, redactor=DEFAULT_REDACTOR
    )
    encoded = encode_json(
        [f"the parcel {number} left the warehouse, says he" for number in range(LARGE_ITEMS)]
    )
    made = describe(
        call,
        encoded,
        source_urls=(),
        redactor=DEFAULT_REDACTOR,
        created_at=NOW,
        retention=Retention(),
    )
    (folder / "large").mkdir(mode=0o700)
    (folder / "large" / f"{made.pointer_id}.meta.json").write_bytes(meta_bytes(made))
    (folder / "large" / f"{made.pointer_id}.result.json").write_bytes(encoded.data)
    return f"/queries/large/{made.pointer_id}?page=2000"


def memory_mb(pid: int, name: str) -> float:
    """Return the memory of a process: `VmRSS`, or its maximum as `VmHWM`."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1_000 if found else 0.0


def ask(client: httpx.Client, address: str) -> float:
    """Return how many milliseconds a page takes."""
    started = time.perf_counter()
    client.get(address).raise_for_status()
    return (time.perf_counter() - started) * 1_000


def measure(store: Path, pages: dict[str, str], label: str) -> bool:
    """Print the figures of one store, and return whether they are within the limits."""
    command = [
        sys.executable,
        "-c",
        "from llm_common.apps.cli import main; main()",
        "inspect",
        "--store",
        str(store),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            started = time.perf_counter()
            address = server.stderr.readline().split()[1]
            print(f"{label}: it listens after {time.perf_counter() - started:.2f} s")
            with httpx.Client(
                base_url=address.partition("/?")[0], follow_redirects=True, timeout=60
            ) as client:
                client.get(address).raise_for_status()
                medians = {}
                for name, page in pages.items():
                    medians[name] = statistics.median(ask(client, page) for _ in range(REQUESTS))
                    print(f"  {name}: {medians[name]:,.0f} ms")
            most = memory_mb(server.pid, "VmHWM")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)
    print(f"  most memory: {most:.0f} MB")
    is_found = medians.pop(WHOLE_SEARCH) <= MAX_WHOLE_SEARCH_MS
    return is_found and max(medians.values()) <= MAX_PAGE_MS and most <= MAX_MEMORY_MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pointers", type=int, default=100_000)
    options = parser.parse_args()
    kept = True
    for queries in (1_000, 1):
        with TemporaryDirectory() as place:
            store = Path(place) / "store"
            fill(store, options.pointers, queries)
            pages = {
                "queries": "/queries",
                "a query": "/queries/query-0",
                "its last page": f"/queries/query-0?page={options.pointers // queries // 50}",
                "search for a rare word": "/search?words=4711",
                "search for a common word": "/search?words=parcel",
                WHOLE_SEARCH: "/search?words=4711&in=results",
                "a part of 100 MB": fill_large(store),
            }
            kept &= measure(store, pages, f"{options.pointers:,} pointers in {queries:,} queries")
    if not kept:
        sys.exit(f"a page takes over {MAX_PAGE_MS:,} ms, or the server over {MAX_MEMORY_MB} MB")


if __name__ == "__main__":
    main()
