"""What folding a conversation takes, and how much of each prompt a provider's cache knows from the turn before.

A conversation of made-up office talk, in which every fourth turn calls a tool whose output has 20
to 1,500 words, is folded at 8,000 tokens after each question of the user, as a chat loop does. The
floor of the time is one count of all tokens by the same counter.

    python benchmarks/bench_history.py
    python benchmarks/bench_history.py --files runs.json    # the first conversation of each file

Conversations of files, lists of messages in OpenAI's shape, are folded before each message of the
model.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from llm_common.agents import FileContextPointerStore
from llm_common.core import UpperBoundCounter
from llm_common.history import Message, fold

LIMIT_SHARE = 0.9
WORDS = [
    "account",
    "order",
    "price",
    "customer",
    "ticket",
    "server",
    "deploy",
    "region",
    "budget",
    "release",
    "team",
]


def conversation(turns: int, rng: random.Random) -> list[Message]:
    """Return questions, calls with outputs and answers in OpenAI's shape."""

    def said(words: int) -> str:
        return " ".join(rng.choices(WORDS, k=words)).capitalize() + f" {rng.randint(100, 999)}."

    messages: list[Message] = [{"role": "system", "content": said(80)}]
    for turn in range(turns):
        messages.append({"role": "user", "content": said(40)})
        if turn % 4 == 1:
            call = {"name": "lookup", "arguments": json.dumps({"number": turn})}
            calls = [{"id": f"c{turn}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            output = said(rng.choice([20, 200, 1_500]))
            messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": output})
        messages.append({"role": "assistant", "content": said(40)})
    return messages


def cpu_ms(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1_000


def shared_shares(prompts: Sequence[str]) -> list[float]:
    """Return the share of each prompt with which the next one begins."""
    shares = []
    for old, new in pairwise(prompts):
        place = 0
        for a, b in zip(old, new, strict=False):
            if a != b:
                break
            place += 1
        shares.append(place / len(old))
    return shares


async def measure_shares(messages: Sequence[Message]) -> float:
    """Return the mean share of the prompts of a conversation with which the next ones begin."""
    prompts: list[str] = []
    with TemporaryDirectory() as folder:
        store = FileContextPointerStore(folder, durability="rename")
        for end, message in enumerate(messages):
            if end and dict(message)["role"] == "assistant":
                folded = await fold(messages[:end], store=store, session_id="bench")
                prompts.append("\n".join(map(json.dumps, folded.messages)))
    return statistics.mean(shared_shares(prompts))


async def measure(turns: int) -> tuple[float, float, float, float, int, int]:
    """Return CPU times of folds and floor, the share of kept bytes, steps and maximum tokens."""
    messages = conversation(turns, random.Random(7))
    prompts: list[str] = []
    most = 0
    with TemporaryDirectory() as folder:
        store = FileContextPointerStore(folder, durability="rename")
        whole: dict[str, Any] = {"store": store, "session_id": "bench"}
        start = time.process_time()
        await fold(messages, **whole)
        first_ms = (time.process_time() - start) * 1_000
        start = time.process_time()
        await fold(messages, **whole)
        later_ms = (time.process_time() - start) * 1_000
        for end in (
            place for place, message in enumerate(messages, 1) if dict(message)["role"] == "user"
        ):
            folded = await fold(messages[:end], **whole)
            prompts.append("\n".join(map(json.dumps, folded.messages)))
            most = max(most, folded.tokens)
    alike = shared_shares(prompts)
    text = "\n".join(map(json.dumps, messages))
    floor_ms = statistics.median(cpu_ms(lambda: UpperBoundCounter().count(text)) for _ in range(5))
    return (
        first_ms,
        later_ms,
        floor_ms,
        statistics.mean(alike),
        sum(share < LIMIT_SHARE for share in alike),
        most,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--turns", type=int, nargs="+", default=[60, 300], help="lengths of conversations"
    )
    parser.add_argument("--files", type=Path, nargs="*", default=[], help="conversations in JSON")
    parser.add_argument("--max-messages", type=int, default=400, help="of a file")
    options = parser.parse_args()
    shares = []
    for path in options.files:
        messages = json.loads(path.read_text(encoding="utf-8"))[0][: options.max_messages]
        share = asyncio.run(measure_shares(messages))
        shares.append(share)
        print(f"{path.name}: {share:.1%} of each prompt begins the next one", flush=True)
    for turns in options.turns:
        first_ms, later_ms, floor_ms, share, steps, most = asyncio.run(measure(turns))
        shares.append(share)
        print(
            f"{turns} turns: {first_ms:.0f} ms CPU with storing, {later_ms:.0f} ms again, one "
            f"count of all tokens "
            f"{floor_ms:.0f} ms; {share:.1%} of each prompt begins the next one, {steps} steps; at "
            f"most {most:,} tokens"
        )
    if min(shares) < LIMIT_SHARE:
        sys.exit(f"less than {LIMIT_SHARE:.0%} of a prompt stay from turn to turn")


if __name__ == "__main__":
    main()
