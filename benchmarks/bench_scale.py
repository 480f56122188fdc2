"""What grows with the number of pointers, tools, conversations and parallel runs, and how much.

    python benchmarks/bench_scale.py [--only pointers] [--pointers 1000000] [--rounds 50]

Each figure stands beside its growth from the size before. Sizes are decades. Ends with 1 if
something that should not depend on the size takes over 1.3 times as long at the largest size, if a
process takes over 300 MB, if the gateway's list has over 2,000 tokens or changes, or if a run
holds the event loop for over 100 ms.

A store of 1,000,000 pointers takes 20 minutes to build, 8.5 GB and 2,000,000 inodes. `--folder`
keeps the stores for a further run.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scale_gateway import run_gateway
from benchmarks.scale_memory import measure_memories
from benchmarks.scale_pointers import measure_pointers
from benchmarks.scale_runs import measure_runs
from benchmarks.scale_table import print_rows

LEAST = 1_000  # pointers


def decades(first: int, last: int) -> list[int]:
    """Return the powers of ten times `first`, up to `last`."""
    sizes = [first]
    while sizes[-1] * 10 <= last:
        sizes.append(sizes[-1] * 10)
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="pointers, gateway, memory or runs")
    parser.add_argument("--pointers", type=int, default=10_000, help="the most (default 10,000)")
    parser.add_argument("--conversations", type=int, default=1_000, help="the most (default 1,000)")
    parser.add_argument("--runs", type=int, default=100, help="the most at once (default 100)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="restarts and changes of a gateway (default 5)"
    )
    parser.add_argument("--folder", type=Path, help="keep the stores here, and use those in it")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        stores = options.folder or Path(temporary)

        def pointers() -> list[str]:
            rows = measure_pointers(
                stores, decades(LEAST, options.pointers), remove=not options.folder
            )
            return print_rows("pointers", rows)

        def memory() -> list[str]:
            rows = measure_memories(Path(temporary), decades(100, options.conversations))
            return print_rows("conversations", rows)

        def runs() -> list[str]:
            problems: list[str] = []
            for title, rows in measure_runs(Path(temporary), decades(1, options.runs)).items():
                problems += print_rows(f"runs at once, the tool waits in {title}", rows)
            return problems

        sections: dict[str, Callable[[], list[str]]] = {
            "pointers": pointers,
            "gateway": lambda: run_gateway(options.rounds),
            "memory": memory,
            "runs": runs,
        }
        problems: list[str] = []
        for name in options.only or sections:
            problems += sections[name]()
    if problems:
        sys.exit("over a limit: " + "; ".join(problems))


if __name__ == "__main__":
    main()
