"""How many of the tools that a request needs are among the first that `ToolIndex` returns.

Reads `tools/` in the folder that LLM_COMMON_EVAL_DATA names: Recall@5 and @10, NDCG@10 (relevance 0
or 1), the share of requests with every tool in the first ten, and milliseconds a query after the
index is built. Where a set has a plan, a second row ranks each step of it. The `_select` sets have
candidates of their own and requests that no tool fits: how many right first tools `MIN_SCORE`
keeps, and how many of those requests it gives none. Then the calls that `LexicalToolSelector` fills
for each request: how many are right, and how many have another tool or other arguments than the
set. At last 10,000 tools.

A query belongs to the half `tune` when the last digit of the SHA-256 of its id is even, else to the
half `check`; the first digit already parted these sets from those that are held back. Run:

    LLM_COMMON_EVAL_DATA=… python benchmarks/quality_tools.py --half check
"""

import argparse
import asyncio
import logging
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.quality_context import read, read_half
from llm_common.agents import LexicalToolSelector, PlannedTask, ToolCall
from llm_common.ranking import Embedder
from llm_common.ranking.embeddings import installed_vectors
from llm_common.tools import ToolDefinition, ToolIndex
from llm_common.tools.tool_index import MIN_SCORE

COLUMNS = ("R@5", "R@10", "NDCG@10", "all@10", "ms")
MANY = 10_000
LIMIT_MS, LIMIT_S = 10.0, 3.0

Rank = Callable[[dict[str, Any]], list[str]]


def tools_of(path: Path) -> dict[str, ToolDefinition]:
    """Return the tools of a set by their key."""
    return {
        row.get("key", row["name"]): ToolDefinition(
            row["name"], row["description"] or "", row["parameters"] or {}
        )
        for row in read(path)
    }


def figures(gold: set[str], ranked: list[str]) -> tuple[float, float, float, float]:
    places = [place for place, name in enumerate(ranked[:10]) if name in gold]
    best = sum(1 / math.log2(place + 2) for place in range(min(len(gold), 10)))
    return (
        sum(place < 5 for place in places) / len(gold),
        len(places) / len(gold),
        sum(1 / math.log2(place + 2) for place in places) / best,
        float(len(places) == len(gold)),
    )


def measure(queries: list[dict[str, Any]], rank: Rank) -> list[float]:
    rows: list[tuple[float, ...]] = []
    for query in queries:
        started = time.perf_counter()
        ranked = rank(query)
        spent_ms = 1_000 * (time.perf_counter() - started)
        rows.append((*figures(set(query["gold"]), ranked), spent_ms))
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def print_row(label: str, values: list[float]) -> None:
    print(f"{label:46}" + "".join(f"{value:9.3f}" for value in values), flush=True)


def report_ranking(folder: Path, half: str, embedder: Embedder | None) -> None:
    print(f"{'tools':46}" + "".join(f"{name:>9}" for name in COLUMNS))
    results = []
    for path in sorted(folder.glob("*.tools.jsonl")):
        name = path.name.removesuffix(".tools.jsonl")
        if name.endswith("_select"):
            continue
        index = ToolIndex(tools_of(path).values(), embedder)
        queries = [
            row for row in read_half(path.with_name(f"{name}.queries.jsonl"), half) if row["gold"]
        ]

        def rank(
            row: dict[str, Any], steps: tuple[str, ...] = (), index: ToolIndex = index
        ) -> list[str]:
            return [tool.name for tool in index.rank(row["query"], 10, steps)]

        rank({"query": "builds the index"})
        results.append(measure(queries, rank))
        print_row(f"{name} ({len(index)}, {len(queries)} queries)", results[-1])
        if any(row.get("steps") for row in queries):
            by_step = measure(
                queries,
                lambda row, rank=rank: rank(row, tuple(row.get("steps") or ())),  # type: ignore[misc]
            )
            print_row(f"{name}, by step", by_step)
    print_row(
        "mean, without steps", [statistics.fmean(column) for column in zip(*results, strict=True)]
    )


def report_abstaining(folder: Path, half: str, embedder: Embedder | None) -> None:
    print(f"\n{'the best of its own candidates':46}{'right':>9}{'kept':>9}{'refused':>9}")
    for path in sorted(folder.glob("*_select.tools.jsonl")):
        name = path.name.removesuffix(".tools.jsonl")
        tools = tools_of(path)
        outcomes = []
        for row in read_half(path.with_name(f"{name}.queries.jsonl"), half):
            # Schemas of one name differ between queries: the key is the name here.
            offered = [replace(tools[key], name=key) for key in row["candidates"] if key in tools]
            ranked = ToolIndex(offered, embedder).rank(row["query"], 1)
            first = [tool.name for tool in ranked]
            is_right = first and {first[0], tools[first[0]].name} & set(row["gold"])
            is_kept = bool(ranked) and ranked[0].score >= MIN_SCORE
            outcomes.append((bool(row["gold"]), bool(is_right), is_kept))
        right = [kept for wanted, is_right, kept in outcomes if wanted and is_right]
        wanted = sum(wanted for wanted, _, _ in outcomes)
        refused = [not kept for wanted, _, kept in outcomes if not wanted]
        print_row(
            f"{name} ({len(outcomes)})",
            [len(right) / wanted, statistics.fmean(right), statistics.fmean(refused)],
        )


def has_arguments(call: ToolCall, gold: dict[str, Any]) -> bool:
    """Return whether a call has the arguments of a set. "" marks one that may be left out."""
    wanted = gold.get("arguments_any_of") or {
        name: [value] for name, value in gold.get("arguments", {}).items()
    }
    for name in wanted.keys() | call.args.keys():
        options = [str(option).lower() for option in wanted.get(name, [])]
        if str(call.args.get(name, "")).lower() not in options:
            return False
    return True


async def report_filling(folder: Path, half: str) -> None:
    selector = LexicalToolSelector(allow_writes=True)
    logging.disable()  # a line for each request without a call
    print(f"\n{'calls a request, without a model':46}{'right':>9}{'wrong':>9}")
    for name in ("bfcl_select", "apibank", "nestful"):
        tools = tools_of(folder / f"{name}.tools.jsonl")
        right, wrong = 0, 0
        rows = read_half(folder / f"{name}.queries.jsonl", half)
        for row in rows:
            offered = [tools[key] for key in row.get("candidates", tools) if key in tools]
            selection = await selector.select_detailed(
                task=PlannedTask(id=1, description=row["query"]), tool_registry=ToolList(offered)
            )
            for call in selection.calls:
                gold = [each for each in row.get("gold_calls") or () if each["name"] == call.tool]
                is_right = any(has_arguments(call, each) for each in gold)
                right, wrong = right + is_right, wrong + (not is_right)
        print_row(f"{name} ({len(rows)})", [right / len(rows), wrong / len(rows)])
    logging.disable(logging.NOTSET)


class ToolList:
    """Offers tools as a registry of another package does."""

    def __init__(self, tools: list[ToolDefinition]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def get_tools_schema(self) -> list[dict[str, Any]]:
        """Return the tools with their schemas."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self._tools.values()
        ]


def report_many(folder: Path, embedder: Embedder | None) -> list[str]:
    """Measure 10,000 tools: those of all sets, repeated under other names."""
    paths = sorted(path for path in folder.glob("*.tools.jsonl") if "_select" not in path.name)
    own = [tool for path in paths for tool in tools_of(path).values()]
    tools = [
        replace(tool, name=f"{tool.name}_{number}")
        for number, tool in enumerate(islice(cycle(own), MANY))
    ]
    texts = [
        row["query"]
        for path in paths
        for row in islice(read(path.with_name(path.name.replace(".tools.", ".queries."))), 30)
    ]
    started = time.process_time()
    index = ToolIndex(tools, embedder)
    index.rank("builds the index")
    built_s = time.process_time() - started
    times_ms = []
    for text in texts:
        started = time.process_time()
        index.rank(text)
        times_ms.append(1_000 * (time.process_time() - started))
    p95_ms = statistics.quantiles(times_ms, n=20)[-1]
    print(
        f"\n{MANY:,} tools: built in {built_s:.1f} s, p50 {statistics.median(times_ms):.1f} ms, "
        f"p95 {p95_ms:.1f} ms"
    )
    return (
        []
        if p95_ms <= LIMIT_MS and built_s <= LIMIT_S
        else [f"10,000 tools: {built_s:.1f} s, {p95_ms:.1f} ms"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--half", choices=("tune", "check", "all"), default="check", help="default check"
    )
    parser.add_argument("--only", choices=("words", "vectors"), help="default both")
    options = parser.parse_args()
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds tools/")
    folder = Path(data) / "tools"
    embedders: dict[str, Embedder | None] = {"words": None}
    if vectors := installed_vectors():
        embedders["vectors"] = vectors
    asyncio.run(report_filling(folder, options.half))
    problems = []
    for title, embedder in embedders.items():
        if options.only in (None, title):
            print(f"\n{title}, half {options.half}")
            report_ranking(folder, options.half, embedder)
            report_abstaining(folder, options.half, embedder)
            found = report_many(folder, embedder)
            problems += found if embedder is None else []
    if problems:
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    main()
