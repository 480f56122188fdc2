"""Is what the next call needs still in the prompt after folding, and after one search?

The set: `history/airline.tune.json` in `LLM_COMMON_EVAL_DATA`, 100 runs of a tool-calling model
over an airline's service desk (sierra-research/tau-bench, MIT). At each tool call, a needed value
is an argument of four characters or more that an earlier message contains. Only calls count whose
history exceeds the limit, which is counted beside the system message.

Two other ways to shorten a history are measured beside `fold`: the newest messages that fit, and
the same after all outputs but the newest three were cleared.

    python benchmarks/quality_provenance.py              # 1,000 and 2,000 tokens
    python benchmarks/quality_provenance.py 1000 --search  # and one search for each missing value
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy, fold, search_history

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
COUNTER: Final = DefaultCounter()
MIN_VALUE_CHARS: Final = 4
KEPT_OUTPUTS: Final = 3
# The shares that a change may not lose, by limit.
FLOORS: Final = {1_000: 0.65, 2_000: 0.78}

Messages = list[dict[str, Any]]


def tokens_of(message: dict[str, Any]) -> int:
    return COUNTER.count(json.dumps(message))


def values_of(argument: Any) -> Iterator[str]:
    """Yield the values of an argument that are long enough to be recognised."""
    if isinstance(argument, dict):
        argument = [*argument.values()]
    if isinstance(argument, list):
        for item in argument:
            yield from values_of(item)
    elif len(str(argument)) >= MIN_VALUE_CHARS:
        yield str(argument)


def text_of(messages: Sequence[dict[str, Any]]) -> str:
    contents = [message.get("content") for message in messages]
    return json.dumps(contents, ensure_ascii=False)


def newest_that_fit(messages: Messages, limit: int) -> Messages:
    """Return the newest messages within a limit. Outputs stay with their calls."""
    kept: Messages = []
    used = 0
    end = len(messages)
    while end:
        start = end - 1
        while start and messages[start]["role"] == "tool":
            start -= 1
        used += sum(map(tokens_of, messages[start:end]))
        if used > limit:
            break
        kept = messages[start:end] + kept
        end = start
    return kept


def cleared(messages: Messages, limit: int) -> Messages:
    """Return the newest messages that fit after all outputs but the newest three were cleared."""
    outputs = [index for index, message in enumerate(messages) if message["role"] == "tool"]
    old = {*outputs[:-KEPT_OUTPUTS]}
    shortened: Messages = []
    for index, message in enumerate(messages):
        shortened.append({**message, "content": "[cleared]"} if index in old else message)
    return newest_that_fit(shortened, limit)


def needed_by(message: dict[str, Any], text: str) -> set[str]:
    """Return the values of a message's calls that stand in a text."""
    needed: set[str] = set()
    for call in message["tool_calls"]:
        for value in values_of(json.loads(call["function"]["arguments"])):
            if value in text:
                needed.add(value)
    return needed


async def found_values(values: Sequence[str], store: Any, session_id: str) -> int:
    """Return how many values one search for each finds."""
    count = 0
    for value in values:
        matches = await search_history(value, store=store, session_id=session_id)
        count += any(value in match.text for match in matches)
    return count


@dataclass
class Provenance:
    """How many needed values are in each kind of prompt.

    Attributes:
        calls: The number of calls that need a value of their history.
        needed: The number of these values.
        held: How many of them each kind of prompt has.
        sizes: The tokens of each prompt, by its kind.
    """

    calls: int = 0
    needed: int = 0
    held: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sizes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def share(self, name: str) -> float:
        return self.held[name] / self.needed

    def mean_tokens(self, name: str) -> float:
        return statistics.mean(self.sizes[name])


async def measured(runs: Sequence[dict[str, Any]], limit: int, *, with_search: bool) -> Provenance:
    """Return how many needed values are in each kind of prompt."""
    found = Provenance()
    for number, run in enumerate(runs):
        system, *messages = run["messages"]
        store = InMemoryContextPointerStore()
        policy = FoldPolicy(max_tokens=limit + tokens_of(system))
        for index, message in enumerate(messages):
            before = messages[:index]
            if not message.get("tool_calls") or sum(map(tokens_of, before)) <= limit:
                continue
            needed = needed_by(message, text_of(before))
            if not needed:
                continue
            found.calls += 1
            found.needed += len(needed)
            folded = await fold(
                [system, *before], store=store, session_id=f"r{number}", policy=policy
            )
            prompts = {
                "fold": [dict(sent) for sent in folded.messages[1:]],
                "newest that fit": newest_that_fit(before, limit),
                "all outputs but 3 cleared": cleared(before, limit),
            }
            for name, prompt in prompts.items():
                prompt_text = text_of(prompt)
                found.held[name] += sum(value in prompt_text for value in needed)
                found.sizes[name].append(sum(map(tokens_of, prompt)))
            if with_search:
                prompt_text = text_of(prompts["fold"])
                missing = [value for value in needed if value not in prompt_text]
                searched = await found_values(missing, store, f"r{number}")
                found.held["fold and one search"] += len(needed) - len(missing) + searched
    return found


async def measure(runs: Sequence[dict[str, Any]], limit: int, *, with_search: bool) -> float:
    """Print the share of needed values in each kind of prompt, and return that of `fold`."""
    found = await measured(runs, limit, with_search=with_search)
    print(f"{limit:,} tokens: {found.calls} calls need {found.needed} values")
    for name in found.held:
        size = f"{found.mean_tokens(name):,.0f} tokens" if name in found.sizes else ""
        print(f"  {name:28} {found.share(name):.3f}  {size}")
    return found.share("fold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("limits", type=int, nargs="*", default=[*FLOORS])
    parser.add_argument("--search", action="store_true", help="search for each missing value")
    options = parser.parse_args()
    if not DATA:
        sys.exit("set LLM_COMMON_EVAL_DATA to the folder of the evaluation sets")
    runs = json.loads((Path(DATA) / "history" / "airline.tune.json").read_text())
    missed = []
    for limit in options.limits:
        share = asyncio.run(measure(runs, limit, with_search=options.search))
        if share < FLOORS.get(limit, 0):
            missed.append(limit)
    if missed:
        sys.exit(f"fewer values are in view than before, at {missed} tokens")


if __name__ == "__main__":
    main()
