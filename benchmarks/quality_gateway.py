"""Whether `search_tools` of a gateway finds over the wire what `ToolIndex` finds in the same tools.

Serves the tools of livemcpbench, in the folder that LLM_COMMON_EVAL_DATA names, to a gateway in a
separate process, and sends its requests through the official client. Recall@5 and @10 by the
names that the answer holds, beside those of `ToolIndex`; and the requests whose first ten differ.
Ends with 1 if a recall differs.
"""

import asyncio
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.bench_gateway import text_of, through_gateway
from benchmarks.quality_context import read
from benchmarks.quality_tools import figures, tools_of
from llm_common.tools import ToolIndex

NAME = re.compile(r"^([A-Za-z0-9_./-]+)\(", re.MULTILINE)


async def found_over_the_wire(path: Path, queries: list[dict[str, Any]]) -> list[list[str]]:
    async with through_gateway(str(path), "--tools", "search") as host:
        texts = [
            text_of(await host.call_tool("search_tools", {"query": row["query"]}))
            for row in queries
        ]
    return [NAME.findall(text) for text in texts]


def main() -> None:
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds tools/")
    path = Path(data) / "tools" / "livemcpbench.tools.jsonl"
    queries = [row for row in read(path.with_name("livemcpbench.queries.jsonl")) if row["gold"]]
    index = ToolIndex(tools_of(path).values())
    here = [[tool.name for tool in index.rank(row["query"], 10)] for row in queries]
    there = asyncio.run(found_over_the_wire(path, queries))
    recalls = []
    for title, ranked in (("ToolIndex", here), ("search_tools", there)):
        rows = [
            figures(set(row["gold"]), names)[:2] for row, names in zip(queries, ranked, strict=True)
        ]
        recalls.append([statistics.fmean(column) for column in zip(*rows, strict=True)])
        print(
            f"{title:14} R@5 {recalls[-1][0]:.3f}  R@10 {recalls[-1][1]:.3f}  ({len(queries)} "
            f"requests)"
        )
    differ = sum(names[:10] != found[:10] for names, found in zip(here, there, strict=True))
    print(
        f"{differ} of {len(queries)} requests have another first ten, {min(map(len, there))} "
        f"names at least"
    )
    if recalls[0] != recalls[1]:
        sys.exit("the gateway finds other tools than ToolIndex")


if __name__ == "__main__":
    main()
