"""How long a selection takes: 100 files of 20 KB and 1,000 turns, cold and warm, and how that grows with the pool.

Cold: a pool and a selector never used before. Warm: the same pool and selector, another request
each time, of words
that a session repeats and two new ones; and, beside it, of eight new words. The peer is
the formula of the specification in a plain loop (`exp` of the age, shared words, keywords looked
for in every file, then greedy by score with four characters a token): the least that one would
write oneself. Times are CPU times of the process, so that other programs hardly count, within one
event loop, as an application has it; the limits are for the default strategy.
"""

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from math import exp
from pathlib import Path

from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    TurnEntry,
    allocate_budget,
    classify_intent,
    pack,
)
from llm_common.context.scoring import STRATEGIES, score_pool
from llm_common.core import UpperBoundCounter
from llm_common.core.tokens import CountedOnce

START = datetime(2025, 1, 1, tzinfo=UTC)
BUDGET = 8_000
DEFAULT = "measured"
LIMIT_MS, LARGEST_LIMIT_MS = 100, 1_000
REQUESTS = (
    "fix the error when the store commits a pointer under a lock",
    "explain how the budget is shared among the kinds",
    "write a test for the lexical index and its stop words",
    "refactor the retry of requests after a timeout",
    "what does the selector do with a reply that is not JSON?",
    "add a parameter for the largest size of a result",
)
SOURCE = "\n".join(
    path.read_text() for path in sorted(Path(__file__).parents[1].glob("llm_common/**/*.py"))
)

WORDS = sorted(set(re.findall(r"[a-z]{4,}", SOURCE)))


def make_pool(files: int, turns: int, seed: int, file_chars: int = 20_000) -> DataPoolSnapshot:
    source = random.Random(seed)

    def piece(chars: int) -> str:
        start = source.randrange(len(SOURCE) - chars)
        return SOURCE[start : start + chars]

    return DataPoolSnapshot(
        context_files=tuple(
            ContextFile(
                id=f"f{number}",
                path=f"src/m{number}.py",
                name=f"m{number}.py",
                content=piece(file_chars),
            )
            for number in range(files)
        ),
        session_log=tuple(
            TurnEntry(
                id=f"t{number:05}",
                timestamp=START + timedelta(minutes=number),
                role=("user", "assistant")[number % 2],
                content=piece(source.randrange(20, 600)),
            )
            for number in range(turns)
        ),
    )


def new_words(number: int, words: int) -> str:
    """Return words of the source that differ for each number."""
    return " ".join(random.Random(number).sample(WORDS, words))


def make_request(number: int, strategy: str, text: str = "") -> ContextSelectionRequest:
    return ContextSelectionRequest(
        intent=classify_intent(
            text or f"{REQUESTS[number % len(REQUESTS)]} {new_words(number, 2)}"
        ),
        token_budget=BUDGET,
        strategy=strategy,
        now=START + timedelta(days=30),
    )


def plain_loop(pool: DataPoolSnapshot, text: str) -> int:
    """Run the formula of `spec` and its packing as a plain loop.

    Return the number of items.
    """
    words = set(re.findall(r"\w+", text.lower()))
    now = START + timedelta(days=30)
    turns = []
    for turn in pool.session_log:
        found = set(re.findall(r"\w+", turn.content.lower()))
        hours = (now - turn.timestamp).total_seconds() / 3_600
        turns.append(
            (
                0.7 * exp(-hours) + 0.2 * len(words & found) / len(words | found),
                turn.id,
                turn.content,
            )
        )
    files = []
    for file in pool.context_files:
        mentioned = file.name in text or file.path in text
        matches = sum(word in file.content.lower() for word in words)
        files.append((mentioned + 0.3 + 0.4 * matches / len(words), file.id, file.content))
    taken, room = 0, BUDGET
    for _, _, content in sorted(turns, reverse=True) + sorted(files, reverse=True):
        if len(content) // 4 <= room:
            room -= len(content) // 4
            taken += 1
    return taken


def milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1_000


async def select(
    selector: ContextSelector, pool: DataPoolSnapshot, number: int, strategy: str, text: str = ""
) -> float:
    """Return the milliseconds of one selection."""
    request = make_request(number, strategy, text)
    started = time.process_time()
    await selector.select(request, pool)
    return (time.process_time() - started) * 1_000


def line(name: str, times: list[float]) -> str:
    return f"{name:<34} p50 {statistics.median(times):7.1f} ms   p95 {percentile(times):7.1f} ms"


def percentile(times: list[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


async def report(strategy: str, rounds: int) -> list[str]:
    """Print the times of one strategy, and return those above their limit."""
    pool, selector, meter = (
        make_pool(100, 1_000, 0),
        ContextSelector(),
        CountedOnce(UpperBoundCounter()),
    )
    for number in range(len(REQUESTS)):  # a round that is not counted
        await select(selector, pool, number, strategy)
        pack_once(pool, number, strategy, meter)
    numbers = range(100, 100 + 2 * rounds)
    warm = [await select(selector, pool, number, strategy) for number in numbers]
    foreign = [
        await select(selector, pool, number, strategy, new_words(-number, 8)) for number in numbers
    ]
    packing = [pack_once(pool, number, strategy, meter) for number in numbers]
    texts = [REQUESTS[number % len(REQUESTS)] for number in numbers]
    peer = [milliseconds(partial(plain_loop, pool, text)) for text in texts]
    fresh = (make_pool(100, 1_000, seed) for seed in range(1, rounds + 1))
    cold = [
        await select(ContextSelector(), each, number, strategy) for number, each in enumerate(fresh)
    ]
    print(f"strategy {strategy}: 100 files of 20 KB, 1,000 turns, budget {BUDGET:,}")
    named = {
        "cold": cold,
        "warm": warm,
        "warm, all words new": foreign,
        "of which packing": packing,
        "plain loop": peer,
    }
    for name, times in named.items():
        print("  " + line(name, times))
    return [
        f"{strategy} {name}: over {LIMIT_MS} ms"
        for name, times in (("cold", cold), ("warm", warm))
        if percentile(times) > LIMIT_MS
    ]


def pack_once(pool: DataPoolSnapshot, number: int, strategy: str, meter: CountedOnce) -> float:
    request = make_request(number, strategy).model_copy(update={"counter": meter})
    scores = score_pool(pool, request, now=START + timedelta(days=30))
    allocation = allocate_budget(request)
    return milliseconds(lambda: pack(pool, scores, request, allocation, texts={}))


async def growth(strategy: str, rounds: int) -> list[str]:
    """Print how the time grows with the pool, and return what exceeds its limit."""
    print(f"strategy {strategy}: growth, cold")
    slowest = 0.0
    for factor in (1, 2, 5, 10):
        pools = [make_pool(100 * factor, 1_000 * factor, seed) for seed in range(rounds)]
        ours = [await select(ContextSelector(), pool, 0, strategy) for pool in pools]
        peer = [milliseconds(partial(plain_loop, pool, REQUESTS[0])) for pool in pools]
        slowest = statistics.median(ours)
        print(
            f"  {100 * factor:5,} files {1_000 * factor:6,} turns   ours {slowest:7.1f} ms   "
            f"{slowest / factor:6.1f} ms per hundred files   plain loop "
            f"{statistics.median(peer):7.1f} ms"
        )
    return (
        [f"{strategy} largest pool: over {LARGEST_LIMIT_MS} ms"]
        if slowest > LARGEST_LIMIT_MS
        else []
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=20, help="selections of each kind (default 20)"
    )
    rounds = parser.parse_args().rounds
    problems: list[str] = []
    for strategy in sorted(STRATEGIES):
        found = await report(strategy, rounds) + await growth(strategy, max(rounds // 5, 1))
        problems += found if strategy == DEFAULT else []
    if problems:
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    asyncio.run(main())
