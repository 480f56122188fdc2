"""How many of the tools that a request needs are among the first that the local ranking returns.

Reads `tools/` in the folder that LLM_COMMON_EVAL_DATA names: Recall@5 and @10, NDCG@10 (relevance 0 or 1), the share of
requests with every tool in the first ten, and milliseconds a query after the index is built. Where a set has a plan, a
second row ranks the request and each step of its plan separately and fuses the rankings.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llm_common.selection.catalogue import Catalogue, ToolDefinition, rank_tools

COLUMNS = ("R@5", "R@10", "NDCG@10", "all@10", "ms")


def read(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def catalogue_of(path: Path) -> Catalogue:
    tools = [ToolDefinition(row["name"], row["description"] or "", row["parameters"] or {}) for row in read(path)]
    return Catalogue("", tuple(sorted(tools, key=lambda tool: tool.name)), checked=True, empty=not tools)


def figures(gold: set[str], ranked: list[str]) -> tuple[float, float, float, float]:
    places = [place for place, name in enumerate(ranked[:10]) if name in gold]
    best = sum(1 / math.log2(place + 2) for place in range(min(len(gold), 10)))
    return (
        sum(place < 5 for place in places) / len(gold),
        len(places) / len(gold),
        sum(1 / math.log2(place + 2) for place in places) / best,
        float(len(places) == len(gold)),
    )


def measure(
    catalogue: Catalogue, queries: list[dict[str, Any]], texts_of: Callable[[dict[str, Any]], list[str]]
) -> list[float]:
    rank_tools(catalogue, ["builds the index"], limit=1)
    rows: list[tuple[float, ...]] = []
    for query in queries:
        started = time.perf_counter()
        tools = rank_tools(catalogue, texts_of(query), limit=20)
        spent_ms = 1_000 * (time.perf_counter() - started)
        ranked = list(dict.fromkeys(tool.name for tool in tools))
        rows.append((*figures(set(query["gold"]), ranked), spent_ms))
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def main() -> None:
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds tools/")
    print(f"{'tools':42}" + "".join(f"{name:>9}" for name in COLUMNS))
    for path in sorted((Path(data) / "tools").glob("*.tools.jsonl")):
        name = path.name.removesuffix(".tools.jsonl")
        if name.endswith("_select"):
            continue  # requests with candidates of their own, to measure abstention
        catalogue = catalogue_of(path)
        queries = [row for row in read(path.with_name(f"{name}.queries.jsonl")) if row["gold"]]
        results = {name: measure(catalogue, queries, lambda row: [row["query"]])}
        if any(row.get("steps") for row in queries):
            results[f"{name}, by step"] = measure(
                catalogue, queries, lambda row: [row["query"], *(row.get("steps") or [])]
            )
        for label, row in results.items():
            title = f"{label} ({len(catalogue.definitions)}, {len(queries)} queries)"
            print(f"{title:42}" + "".join(f"{value:9.3f}" for value in row))


if __name__ == "__main__":
    main()
