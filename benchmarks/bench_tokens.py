"""How far the token bound lies above the exact counts, for each kind of text, and how quickly it reads.

The reference is the larger count of cl100k_base and o200k_base: a ratio of 1 is exact, one below 1
is a fault of the bound. Prose of several languages is in `prose.toml`; code is this Python's
standard library, Markdown the README. Needs the extra `tokens`. Run:

    python benchmarks/bench_tokens.py
"""

import argparse
import base64
import json
import random
import statistics
import sys
import time
import tomllib
from pathlib import Path

from llm_common.core import ExactCounter, UpperBoundCounter

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"English": 1.6, "Python": 1.4, "JSON": 1.4}


def texts() -> dict[str, str]:
    """Return a text of each kind."""
    standard_library = Path(json.__file__).parent.parent
    code = "".join(
        (standard_library / name).read_text(encoding="utf-8")
        for name in ("argparse.py", "shutil.py")
    )
    rows = [
        {"ticker": f"T{number}", "price": number * 1.25, "note": "closed higher"}
        for number in range(500)
    ]
    prose = tomllib.loads((ROOT / "benchmarks/prose.toml").read_text(encoding="utf-8"))
    return prose | {
        "Markdown": (ROOT / "README.md").read_text(encoding="utf-8"),
        "Python": code,
        "JSON": json.dumps(rows),
        "base64": base64.b64encode(random.Random(1).randbytes(20_000)).decode(),
    }


def megabytes_a_second(text: str, rounds: int) -> tuple[float, float]:
    """Return how fast a counter reads a text the first time, and again."""
    size_mb = len(text.encode()) / 1e6
    times_s: list[list[float]] = [[], []]
    for _ in range(rounds):
        counter = UpperBoundCounter()
        for spent_s in times_s:
            started = time.process_time()
            counter.count(text)
            spent_s.append(time.process_time() - started)
    first_s, again_s = (statistics.median(spent_s) for spent_s in times_s)
    return size_mb / first_s, size_mb / again_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the speed (default 7)")
    rounds = parser.parse_args().rounds
    bound, exact = UpperBoundCounter(), [ExactCounter("cl100k_base"), ExactCounter("o200k_base")]
    print(f"{'text':10}{'bound':>9}{'exact':>9}{'ratio':>8}")
    over: list[str] = []
    for kind, text in texts().items():
        known = max(counter.count(text) for counter in exact)
        ratio = bound.count(text) / known
        print(f"{kind:10}{bound.count(text):9,}{known:9,}{ratio:8.2f}")
        if ratio < 1 or ratio > LIMITS.get(kind, ratio):
            over.append(f"{kind}: {ratio:.2f}")
    first, again = megabytes_a_second(texts()["Python"], rounds)
    print(f"\nPython: {first:.0f} MB/s the first time, {again:.0f} MB/s again")
    if over:
        sys.exit(f"over a limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
