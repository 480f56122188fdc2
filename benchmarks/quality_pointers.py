"""How much of what a question needs is among the six stored outputs that are picked without a model.

Reads `pointers/` in the folder that LLM_COMMON_EVAL_DATA names. Recall@6 of our local ranking beside three baselines on
the same queries (with the last message of the assistant, where a set has it; the newest fill up what a baseline leaves
open); `all` is the share of questions for which
everything was found. In the `mix` sets the wanted outputs are the newest by construction, which flatters recency.
"""

import gzip
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from llm_common.agents.context_pointers import ContextPointer, deterministic_summary
from llm_common.agents.pointers.digest import describe_result
from llm_common.agents.pointers.relevance import rank_pointers
from llm_common.ranking import LexicalIndex

PICKED = 6
Method = Callable[[str, list[ContextPointer]], list[ContextPointer]]


def last(_: str, pointers: list[ContextPointer]) -> list[ContextPointer]:
    return pointers[::-1]


def keyword_overlap(query: str, pointers: list[ContextPointer]) -> list[ContextPointer]:
    words = set(re.findall(r"\w{3,}", query.lower()))
    return sorted(pointers, key=lambda each: len(words & set(re.findall(r"\w+", each.summary.lower()))))[::-1]


def bm25_on_summary(query: str, pointers: list[ContextPointer]) -> list[ContextPointer]:
    with LexicalIndex({"summary": 1}) as index:
        index.add_many((f"{number:06}", {"summary": each.summary}) for number, each in enumerate(pointers))
        matching = [pointers[int(hit.key)] for hit in index.search(query, limit=PICKED)]
    return matching + [each for each in pointers[::-1] if each not in matching]


def ours(query: str, pointers: list[ContextPointer]) -> list[ContextPointer]:
    return [entry.pointer for entry in rank_pointers(query, pointers)]


METHODS: dict[str, Method] = {
    "last 6": last,
    "overlap": keyword_overlap,
    "BM25": bm25_on_summary,
    "ours": ours,
}


def read(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def as_pointers(rows: list[dict[str, Any]]) -> list[ContextPointer]:
    return [as_pointer(number, row) for number, row in enumerate(rows)]


def as_pointer(number: int, row: dict[str, Any]) -> ContextPointer:
    result = row["result"]
    try:
        value = json.loads(result)
    except ValueError:
        value = result
    return ContextPointer(
        pointer_id=row["pointer_id"],
        query_id="q",
        tool_name=row["tool_name"],
        args=row["args"],
        created_at=f"{number:06}",
        summary=deterministic_summary(tool_name=row["tool_name"], args=row["args"]),
        result_path="",
        digest=describe_result(value, size_bytes=len(result.encode())),
    )


def found(row: dict[str, Any], picked: Iterable[ContextPointer]) -> list[bool]:
    ids = {pointer.pointer_id for pointer in picked}
    return [not ids.isdisjoint(group) for group in row.get("gold_groups") or [[each] for each in row["gold"]]]


def measure(rows: list[dict[str, Any]], pools: dict[Any, list[ContextPointer]]) -> dict[str, float]:
    results: dict[str, list[list[bool]]] = {name: [] for name in METHODS}
    spent_s = 0.0
    for row in rows:
        pointers = pools[row["pool_id"]] if "pool_id" in row else as_pointers(row["pointers"])
        query = "\n".join(filter(None, [row["query"], row.get("context")]))
        for name, method in METHODS.items():
            started = time.perf_counter()
            picked = method(query, pointers)[:PICKED]
            spent_s += (time.perf_counter() - started) if method is ours else 0.0
            results[name].append(found(row, picked))
    recalls = {name: statistics.fmean(map(statistics.fmean, each)) for name, each in results.items()}
    return recalls | {"all": statistics.fmean(map(all, results["ours"])), "ms": 1_000 * spent_s / len(rows)}


def main() -> None:
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds pointers/")
    folder = Path(data) / "pointers"
    pools = {
        row["pool_id"]: as_pointers(row["pointers"])
        for path in sorted(folder.glob("*_pools.jsonl*"))
        for row in read(path)
    }
    table: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*.jsonl*")):
        if "_pools" not in path.name:
            rows = [row for row in read(path) if "pool_id" in row or len(row["pointers"]) > PICKED]
            table[f"{path.name.split('.')[0]} ({len(rows)})"] = measure(rows, pools)
    columns = [*METHODS, "all", "ms"]
    table["mean"] = {name: statistics.fmean(row[name] for row in table.values()) for name in columns}
    print(f"{'Recall@6':24}" + "".join(f"{name:>9}" for name in columns))
    for name, row in table.items():
        print(
            f"{name:24}"
            + "".join(f"{row[column]:9.1f}" if column == "ms" else f"{row[column]:9.3f}" for column in columns)
        )


if __name__ == "__main__":
    main()
