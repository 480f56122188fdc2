"""Tool search: whether the tools that a request needs are among the first five."""

import asyncio
import hashlib
import importlib
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from typing import Any, Final

from benchmarks.public.bm25 import BM25, words
from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Row, Section, Share, Table, share_of
from benchmarks.quality_tools import figures
from llm_common.ranking.embeddings import Embedder, installed_vectors
from llm_common.tools import ToolDefinition, ToolIndex

__all__ = ["ToolSet", "bfcl_tools", "livemcpbench_tools", "tools"]

FIRST: Final = 5
JSON_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
BFCL_FILES: Final = (
    "multiple",
    "live_multiple",
    "simple_python",
    "live_simple",
    "parallel",
    "live_parallel",
    "parallel_multiple",
    "live_parallel_multiple",
)


@dataclass(frozen=True)
class Request:
    """A request with the tools that it needs.

    Attributes:
        id: Its name, whose hash tells the half.
        text: The request.
        gold: The names of the tools.
        steps: The annotators' plan, if there is one.
    """

    id: str
    text: str
    gold: frozenset[str]
    steps: tuple[str, ...] = ()

    @property
    def is_unseen(self) -> bool:
        """Whether the request is in the half that was held back from tuning."""
        return hashlib.sha256(self.id.encode()).hexdigest()[0] >= "8"


@dataclass(frozen=True)
class ToolSet:
    """A registry of tools, and requests."""

    name: str
    tools: tuple[ToolDefinition, ...]
    requests: tuple[Request, ...]


# --- the sets


def bfcl_tools(inputs: Inputs) -> ToolSet:
    """Return all single-turn functions of BFCL as one registry."""
    definitions: dict[str, ToolDefinition] = {}
    requests = []
    for file in BFCL_FILES:
        answers = {
            row["id"]: row["ground_truth"] for row in inputs.json_lines(f"bfcl_{file}_answers")
        }
        for row in inputs.json_lines(f"bfcl_{file}"):
            for function in row["function"]:
                definition = ToolDefinition(
                    function["name"],
                    function["description"] or "",
                    _json_schema(function["parameters"]) or {},
                )
                definitions.setdefault(definition.name, definition)
            gold = frozenset(name for call in answers[row["id"]] for name in call)
            text = "\n".join(
                message["content"] for message in row["question"][0] if message["role"] == "user"
            )
            requests.append(Request(f"bfcl/{row['id']}", text, gold))
    return ToolSet("BFCL v4, single turn", tuple(definitions.values()), tuple(requests))


def _json_schema(value: Any) -> Any:
    """Return a schema of BFCL, which has the types of Python, with those of JSON Schema."""
    if isinstance(value, list):
        return [_json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _json_schema(item) for key, item in value.items()}
    if isinstance(schema.get("type"), str):
        schema["type"] = JSON_TYPES.get(schema["type"], schema["type"])
    return schema


def livemcpbench_tools(inputs: Inputs) -> ToolSet:
    """Return the tools of LiveMCPBench's servers, and its tasks with the annotators' tools."""
    definitions: dict[str, ToolDefinition] = {}
    for row in inputs.json("livemcpbench_tools"):
        for server in row["tools"].values():
            for tool in server["tools"]:
                definition = ToolDefinition(
                    tool["name"], tool["description"] or "", tool["inputSchema"] or {}
                )
                definitions.setdefault(definition.name, definition)
    requests = []
    for task in inputs.json("livemcpbench_tasks"):
        plan = task["Annotator Metadata"]
        gold = frozenset(_numbered(plan["Tools"])) & definitions.keys()
        if gold:
            id_ = f"livemcpbench/{task['task_id']}"
            steps = tuple(_numbered(plan["Steps"]))
            requests.append(Request(id_, task["Question"], frozenset(gold), steps))
    return ToolSet("LiveMCPBench", tuple(definitions.values()), tuple(requests))


def _numbered(text: str) -> Iterator[str]:
    """Yield the items of a numbered list, one a line."""
    for line in text.splitlines():
        item = re.sub(r"^\s*\d+[.)]\s*", "", line).strip()
        if item:
            yield item


# --- rankings

# Ranks tools by one text, and returns the names, best first.
RankText = Callable[[str], Sequence[str]]
Rank = Callable[[Request, bool], Sequence[str]]


def _by_index(tools: Sequence[ToolDefinition], embedder: Embedder | None) -> Rank:
    index = ToolIndex(tools, embedder)

    def rank(request: Request, with_steps: bool) -> list[str]:
        steps = request.steps if with_steps else ()
        return [tool.name for tool in index.rank(request.text, FIRST, steps)]

    return rank


def _in_turns(rank_text: RankText) -> Rank:
    """Return a ranking that takes the results of the request and of its steps in turns."""

    def rank(request: Request, with_steps: bool) -> list[str]:
        texts = (request.text, *request.steps) if with_steps else (request.text,)
        rankings = [rank_text(text)[:FIRST] for text in texts]
        names = [name for place in zip_longest(*rankings) for name in place if name]
        return [*dict.fromkeys(names)][:FIRST]

    return rank


def _by_bm25(tools: Sequence[ToolDefinition]) -> RankText:
    # The words of names are split, which helps BM25 most.
    index = BM25.of_texts(
        f"{tool.name} {re.sub(r'[_./-]', ' ', tool.name)} {tool.description} "
        f"{' '.join(tool.parameters.get('properties') or {})}"
        for tool in tools
    )
    return lambda text: [tools[place].name for place in index.ranked(words(text))]


def _by_vectors(tools: Sequence[ToolDefinition], embedder: Embedder) -> RankText:
    texts = [f"{tool.name}: {tool.description}" for tool in tools]

    def rank(text: str) -> list[str]:
        similarities = embedder.similarities(text, texts)
        order = sorted(range(len(tools)), key=lambda place: -similarities[place])
        return [tools[place].name for place in order[:FIRST]]

    return rank


def _by_fastmcp(tools: Sequence[ToolDefinition]) -> RankText:
    """Return the ranking of the class that a FastMCP server searches with.

    A call of its `search_tools` would render the schemas too, so its method is called.
    """
    transforms = importlib.import_module("fastmcp.server.transforms.search")
    base = importlib.import_module("fastmcp.tools.base")
    transform = transforms.BM25SearchTransform(max_results=FIRST)
    catalog = [
        base.Tool(name=tool.name, description=tool.description, parameters=dict(tool.parameters))
        for tool in tools
    ]

    def rank(text: str) -> list[str]:
        found: list[Any] = asyncio.run(transform._search(catalog, text))  # noqa: SLF001
        return [str(tool.name) for tool in found]

    return rank


def _rankings(tools: Sequence[ToolDefinition]) -> dict[str, Rank]:
    rankings = {"llm-common, words": _by_index(tools, None)}
    vectors = installed_vectors()
    if vectors:
        rankings["llm-common, words and static vectors"] = _by_index(tools, vectors)
        rankings["static vectors alone"] = _in_turns(_by_vectors(tools, vectors))
    rankings["BM25 over names, descriptions and parameters"] = _in_turns(_by_bm25(tools))
    try:
        label = f"fastmcp {version('fastmcp')}, BM25SearchTransform"
    except PackageNotFoundError:
        return rankings
    rankings[label] = _in_turns(_by_fastmcp(tools))
    return rankings


def tools(inputs: Inputs, limit: int | None) -> Section:
    """Measure the recall of tool search."""
    tables = [
        _table(tool_set, limit) for tool_set in (livemcpbench_tools(inputs), bfcl_tools(inputs))
    ]
    return Section("Tool search: the needed tools among the first five", ABOUT, tuple(tables))


def _table(tool_set: ToolSet, limit: int | None) -> Table:
    requests = tool_set.requests[:limit]
    kinds = {"Recall@5": False}
    if any(request.steps for request in requests):
        kinds["Recall@5 by step"] = True
    rows = []
    for label, rank in _rankings(tool_set.tools).items():
        cells = tuple(_recall(requests, rank, with_steps) for with_steps in kinds.values())
        rows.append(Row(label, cells, "ours" if label.startswith("llm-common") else "baseline"))
    needed = statistics.fmean(len(request.gold) for request in requests)
    title = (
        f"{tool_set.name}: {len(tool_set.tools):,} tools, {len(requests):,} requests that need "
        f"{needed:.1f} tools"
    )
    return Table(title, tuple(kinds), tuple(rows))


def _recall(requests: Sequence[Request], rank: Rank, with_steps: bool) -> Share:
    values = []
    for request in requests:
        recall, *_ = figures({*request.gold}, [*rank(request, with_steps)])
        values.append((recall, request.is_unseen))
    return share_of(values)


ABOUT: Final = """\
Each request of LiveMCPBench is searched for in the tools of all its servers, and each single-turn
question of BFCL in the functions of all questions. Recall@5 is the share of the needed tools among
the first five. "by step" adds the steps of the annotators' plan, which the rows other than ours
search one by one and take in turns. Tools of one name count once. No model chooses or calls a tool,
and a request that needs more than five tools cannot reach 1.

Requests whose SHA-256 of `bfcl/ID` or `livemcpbench/ID` begins with a hexadecimal digit below 8
were tuned on. In parentheses are the others. We know of no other figures for these two registries."""
