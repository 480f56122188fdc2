"""What a decision model adds to the local ranking, and what it costs: words, vectors, decisions on outputs and tools.

Reads `pointers/` and `tools/metatool_multi` in the folder that LLM_COMMON_EVAL_DATA names. No
decision model is asked: a scripted one answers from the gold. Each of its predicates is right with
the given probability, independently (a right one says .9 or .1, a wrong one the other), and its
choice spreads one over the candidates by the same figures. So the rows say what the selectors make
of a model that is as good as that, not how good any model is. The requests go to a server on
loopback in the wire format `systemone`, where they are counted; tokens are those of a request's
body (o200k), dollars those of Jev's price.

Outputs: Recall@6, and how many are kept. Tools: the share of the needed tools among those chosen,
at most five, and how
many are chosen. `words` and `vectors` take the first six and five of the ranking, as many as the
caps allow.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import statistics
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality_context import PICKED, as_outputs, read as read_rows
from benchmarks.quality_tools import tools_of
from llm_common.agents import ContextPointer, PlannedTask, ToolSelectionConfig
from llm_common.core import ExactCounter
from llm_common.decisions import (
    DecisionConfig,
    DecisionRelevanceSelector,
    DecisionToolSelector,
    HttpDecisionClient,
)
from llm_common.errors import ConfigError
from llm_common.ranking import Embedder, StaticVectors
from llm_common.selection.relevance_ranking import rank_pointers
from llm_common.tools import ToolIndex

CHOSEN = 5
SURE = 0.9
USD_PER_MILLION = 0.042  # Jev at TypeSafe, as in `decisions/http_client.py`
TOOL_SET = "metatool_multi"
_LINE = re.compile(r"^((?:output|tool) \d+): (.*)$", re.MULTILINE)


class Row(NamedTuple):
    """The result of one method on one set: recall, count, requests and tokens per query."""

    recall: float
    chosen: float
    calls: float = 0.0
    tokens: float = 0.0


class NoisyModel:
    """A decision model that knows the gold of the current query, and errs at random.

    Attributes:
        wanted: Texts of which one stands in the line of a candidate that is needed.
        requests: Bodies received.
    """

    def __init__(self, right: float, *, seed: int) -> None:
        self.wanted: Sequence[str] = ()
        self.requests: list[bytes] = []
        self._right = right
        self._random = random.Random(seed)

    def answer(self, body: bytes) -> bytes:
        """Return the reply to a request in the format `systemone`."""
        self.requests.append(body)
        asked = json.loads(body)
        fits: dict[str, float] = {}
        for label, line in _LINE.findall(asked["state"]):
            needed = any(text in line for text in self.wanted)
            fits[label] = SURE if needed == (self._random.random() < self._right) else 1 - SURE
        none = 1 - max(fits.values())
        scale = (1 - none) / sum(fits.values())
        shares = {label: p * scale for label, p in fits.items()} | {"none of these": none}
        answers: dict[str, object] = {}
        for name, question in asked["questions"].items():
            if question["type"] == "choice":
                answers[name] = {"type": "choice", "probabilities": shares}
            else:
                [label] = re.findall(r"(?:output|tool) \d+", question["instructions"])
                answers[name] = {"type": "noul", "noul": fits[label]}
        return json.dumps({"model": "scripted", "answers": answers}).encode()


@asynccontextmanager
async def serving(model: NoisyModel) -> AsyncIterator[HttpDecisionClient]:
    """Return a client of the model on loopback."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().lower():
                size = int(re.findall(r"content-length: (\d+)", head)[0])
                reply = model.answer(await reader.readexactly(size))
                fields = f"content-type: application/json\r\ncontent-length: {len(reply)}"
                writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**22)
    port = server.sockets[0].getsockname()[1]
    try:
        async with HttpDecisionClient(
            DecisionConfig(url=f"http://127.0.0.1:{port}", model="scripted")
        ) as client:
            yield client
    finally:
        server.close()


def sampled(rows: Sequence[Any], most: int) -> list[Any]:
    """Return at most a number of the rows, chosen by a hash of their ids."""
    return sorted(rows, key=lambda row: hashlib.sha256(str(row["id"]).encode()).digest())[:most]


def row_of(found: Sequence[tuple[float, int]], model: NoisyModel | None = None) -> Row:
    """Return the means. Counts and tokens are those of the model's requests."""
    recall, chosen = (statistics.fmean(column) for column in zip(*found, strict=True))
    if model is None:
        return Row(recall, chosen)
    tokens = sum(map(ExactCounter().count, (body.decode() for body in model.requests)))
    return Row(recall, chosen, len(model.requests) / len(found), tokens / len(found))


async def outputs(
    path: Path, rights: Sequence[float], embedder: Embedder | None, most: int
) -> dict[str, Row]:
    """Select stored outputs of one set by each method."""
    pools = {
        row["pool_id"]: as_outputs(row)
        for each in path.parent.glob("*_pools.jsonl*")
        for row in read_rows(each)
    }
    cases = []
    for row in sampled([*read_rows(path)], most):
        pool = (pools[row["pool_id"]] if "pool_id" in row else as_outputs(row)).tool_outputs
        if len(pool) > PICKED:
            groups = row.get("gold_groups") or [[wanted] for wanted in row["gold"]]
            cases.append(
                ("\n".join(filter(None, [row["query"], row.get("context")])), pool, groups)
            )

    def recall(
        kept: Sequence[ContextPointer], groups: Sequence[Sequence[str]]
    ) -> tuple[float, int]:
        ids = {pointer.pointer_id for pointer in kept}
        return statistics.fmean(not ids.isdisjoint(group) for group in groups), len(kept)

    table = {}
    methods: dict[str, Embedder | None] = {"words": None} | (
        {"vectors": embedder} if embedder else {}
    )
    for name, vectors in methods.items():
        found = [
            recall(
                [entry.pointer for entry in rank_pointers(query, pool, embedder=vectors)][:PICKED],
                groups,
            )
            for query, pool, groups in cases
        ]
        table[name] = row_of(found)
    for right in rights:
        model, found = NoisyModel(right, seed=7), []
        async with serving(model) as client:
            selector = DecisionRelevanceSelector(client, max_selected=PICKED, include_digest=True)
            for query, pool, groups in cases:
                gold = {pointer_id for group in groups for pointer_id in group}
                model.wanted = [line_of(pointer) for pointer in pool if pointer.pointer_id in gold]
                found.append(recall(await selector.select(query=query, pointers=pool), groups))
        table[f"decisions {right}"] = row_of(found, model)
    return table


def line_of(pointer: ContextPointer) -> str:
    """Return the beginning of an output's line, by which the model recognises it."""
    shown = {"summary": " ".join(pointer.summary.split())[:250]}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))[:-2]


async def tools(
    folder: Path, embedder: Embedder | None, rights: Sequence[float], most: int
) -> dict[str, Row]:
    """Select the tools of one set by each method."""
    offered = tools_of(folder / f"{TOOL_SET}.tools.jsonl").values()
    queries = sampled(
        [row for row in read_rows(folder / f"{TOOL_SET}.queries.jsonl") if row["gold"]], most
    )

    class Registry:
        def get_tools_schema(self) -> list[Mapping[str, Any]]:
            return [
                {"name": tool.name, "description": tool.description, "parameters": {}}
                for tool in offered
            ]

    def recall(names: Sequence[str], gold: Sequence[str]) -> tuple[float, int]:
        return len(set(names) & set(gold)) / len(set(gold)), len(names)

    table: dict[str, Row] = {}
    for method, vectors in (
        (("words", None), ("vectors", embedder)) if embedder else (("words", None),)
    ):
        index = ToolIndex(offered, vectors, min_score=0.0)
        found = [
            recall([tool.name for tool in index.rank(row["query"], CHOSEN)], row["gold"])
            for row in queries
        ]
        table[method] = row_of(found)
    for right in rights:
        model, found = NoisyModel(right, seed=7), []
        async with serving(model) as client:
            selector = DecisionToolSelector(client, ToolSelectionConfig(max_calls=CHOSEN))
            for row in queries:
                model.wanted = [f"{name}(" for name in row["gold"]]
                task = PlannedTask(id=1, description=row["query"])
                selection = await selector.select_detailed(task=task, tool_registry=Registry())
                found.append(
                    recall(
                        [each.tool for each in selection.choices if each.reason == "chosen"],
                        row["gold"],
                    )
                )
        table[f"decisions {right}"] = row_of(found, model)
    return table


def show(title: str, table: Mapping[str, Row]) -> None:
    for method, row in table.items():
        dollars = row.tokens * USD_PER_MILLION / 1_000_000
        print(
            f"{title:34}{method:16}{row.recall:8.3f}{row.chosen:8.1f}{row.calls:8.1f}{row.tokens:9,.0f}{dollars:11.5f}",
            flush=True,
        )


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--right",
        type=float,
        nargs="*",
        default=[0.8, 0.9, 0.97],
        help="how often a predicate is right",
    )
    parser.add_argument("--most", type=int, default=1_000, help="most queries of a set")
    options = parser.parse_args()
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds pointers/ and tools/")
    embedder: Embedder | None = None
    try:
        embedder = StaticVectors()
    except ConfigError as error:
        print(error, file=sys.stderr)
    print(
        f"{'set':34}{'method':16}{'recall':>8}{'chosen':>8}{'calls':>8}{'tokens':>9}{'dollars':>11}"
    )
    tables = []
    for path in sorted((Path(data) / "pointers").glob("*.jsonl*")):
        if "_pools" not in path.name:
            tables.append(await outputs(path, options.right, embedder, options.most))
            show(path.name.split(".")[0], tables[-1])
    means = {
        method: Row(
            *(
                statistics.fmean(column)
                for column in zip(*(table[method] for table in tables), strict=True)
            )
        )
        for method in tables[0]
    }
    show("outputs: mean", means)
    show(
        f"tools: {TOOL_SET}",
        await tools(Path(data) / "tools", embedder, options.right, options.most),
    )


if __name__ == "__main__":
    asyncio.run(main())
