"""1,300 tools of 18 servers behind one gateway: tokens, constancy of the list, and two searches.

With the sets in the folder LLM_COMMON_EVAL_DATA, the tools are the 510 of livemcpbench and the
first 772 of bfcl in the order of the SHA-256 of their names, dealt to the servers in turn. Each
server has one more, which announces that its tools have changed.
Without the sets they are made up, and no search is measured.

The list is what a host receives: the definitions and the instructions. It is read over 50
restarts of the gateway's process and 50 changes while it runs. Before each of them, one server
adds, removes, renames or describes a tool, or reverses its list.

A request of livemcpbench has steps, and each step is searched alone, twice. The first search has
the text of the step. The second has this text and the name of the first tool of the first answer,
as a model that is not content would go on from there. No search knows the tools that are right.
The recall of a request is the share of its tools that an answer to any of its steps contains among
the first five, among the first ten, or at all.
"""

import asyncio
import hashlib
import json
import os
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks.bench_gateway import text_of
from benchmarks.quality_context import read
from benchmarks.quality_gateway import NAME
from llm_common.core import DefaultCounter

SERVERS, TOOLS = 18, 1_300
MAX_TOKENS, MIN_RECALL = 2_000, 0.80
MAX_WAITS = 600  # of a tenth of a second
SERVER = Path(__file__).with_name("scale_server.py")
ROOT = Path(__file__).resolve().parent.parent
VERBS = (
    "list",
    "get",
    "create",
    "update",
    "delete",
    "export",
    "approve",
    "search",
    "merge",
    "move",
)

Definition = dict[str, Any]
ToolFiles = list[Path]


@dataclass(frozen=True, slots=True)
class Recall:
    """The recall of one or two searches for each step.

    Attributes:
        first_5: Among the first five tools of an answer.
        first_10: Among the first ten.
        whole: In an answer.
    """

    first_5: float
    first_10: float
    whole: float


def made_up_tools() -> Iterator[Definition]:
    """Yield tools of a made-up trade."""
    for number in range(TOOLS):
        noun = f"record_{number // len(VERBS)}"
        verb = VERBS[number % len(VERBS)]
        schema = {"type": "object", "properties": {"id": {"type": "string", "description": "Id."}}}
        description = f"Will {verb} the {noun} of a customer, and report what was changed."
        yield {"name": f"{verb}_{noun}", "description": description, "inputSchema": schema}


def published_tools(folder: Path) -> Iterator[Definition]:
    """Yield the tools of livemcpbench, then those of bfcl."""
    by_name: dict[str, Definition] = {}
    for row in read(folder / "livemcpbench.tools.jsonl"):
        by_name[row["name"]] = row
    others = sorted(read(folder / "bfcl.tools.jsonl"), key=lambda row: _digest(row["name"]))
    for row in others:
        by_name.setdefault(row["name"], row)
    for name, row in by_name.items():
        schema = row["parameters"] or {}
        yield {
            "name": name,
            "description": row["description"] or "",
            "inputSchema": {"type": "object", **schema},
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_servers(folder: Path, tools: Iterator[Definition]) -> ToolFiles:
    """Write a file of tools for each server, and the gateway's configuration."""
    shares: list[list[Definition]] = []
    for number in range(SERVERS):
        # Takes no arguments, so that it can be called.
        announce = {"name": f"announce_{number}", "description": "Announces a change of tools."}
        shares.append([{**announce, "inputSchema": {"type": "object"}}])
    for number, tool in enumerate(islice(tools, TOOLS - SERVERS)):
        shares[number % SERVERS].append(tool)
    files: ToolFiles = []
    servers: dict[str, Any] = {}
    for number, share in enumerate(shares):
        files.append(folder / f"server-{number}.json")
        files[-1].write_text(json.dumps(share), encoding="utf-8")
        arguments = ["-S", str(SERVER), str(files[-1])]
        servers[f"server-{number}"] = {"command": sys.executable, "args": arguments}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return files


@asynccontextmanager
async def host_of_gateway(folder: Path) -> AsyncIterator[Client]:
    """Start a gateway in a process of its own, and connect a host to it."""
    with TemporaryDirectory() as kept:
        arguments = ["-c", "from llm_common.apps.cli import main; main()", "gateway"]
        arguments += ["-c", str(folder / "mcp.json"), "--folder", kept, "--list-wait", "120"]
        process = StdioServerParameters(
            command=sys.executable, args=arguments, env={"PYTHONPATH": str(ROOT)}
        )
        async with Client(process, raise_exceptions=True) as host:
            yield host


async def list_text(host: Client) -> str:
    """Return all that a host puts into its prompts before any call."""
    listed = (await host.list_tools()).model_dump_json(by_alias=True)
    return f"{host.instructions}\n{listed}"


def change(files: ToolFiles, number: int) -> None:
    """Change the tools of one server."""
    file = files[number % SERVERS]
    tools: list[Definition] = json.loads(file.read_text(encoding="utf-8"))
    match number % 5:
        case 0:
            tools.append({**tools[-1], "name": f"added_{number}"})
        case 1:
            tools.pop()
        case 2:
            tools[-1]["name"] = f"renamed_{number}"
        case 3:
            tools[-1]["description"] = f"Describes itself as number {number}."
        case _:
            tools[1:] = reversed(tools[1:])  # the first one announces changes
    file.write_text(json.dumps(tools), encoding="utf-8")


async def lists_over_restarts(folder: Path, files: ToolFiles, rounds: int) -> set[str]:
    """Return the different lists of gateways that are started one after the other."""
    lists: set[str] = set()
    for number in range(rounds):
        change(files, number)
        async with host_of_gateway(folder) as host:
            lists.add(await list_text(host))
    return lists


async def lists_over_changes(folder: Path, files: ToolFiles, rounds: int) -> set[str]:
    """Return the different lists of one gateway, whose servers change their tools."""
    lists: set[str] = set()
    async with host_of_gateway(folder) as host:
        lists.add(await list_text(host))
        # Further numbers, so that no added tool has the name of an earlier one.
        for number in range(5 * rounds, 6 * rounds):
            change(files, number)
            # After a call, the server announces the change, and the gateway lists it again.
            await host.call_tool("call_tool", {"name": f"announce_{number % SERVERS}"})
            if number % 5 == 0:
                await wait_for(host, f"added_{number}")
            lists.add(await list_text(host))
    return lists


async def wait_for(host: Client, name: str) -> None:
    """Wait until the gateway has a tool that a server has added."""
    for _ in range(MAX_WAITS):
        if name in await search(host, name):
            return
        await asyncio.sleep(0.1)
    sys.exit(f"the gateway never learned of {name}")


async def search(host: Client, query: str) -> list[str]:
    """Return the tools of an answer, best first."""
    return NAME.findall(text_of(await host.call_tool("search_tools", {"query": query})))


async def search_steps(host: Client, queries: Sequence[dict[str, Any]]) -> dict[str, Recall]:
    """Return the recall of one search and of two for each step."""
    once: list[tuple[float, ...]] = []
    twice: list[tuple[float, ...]] = []
    for row in queries:
        first_answers: list[list[str]] = []
        second_answers: list[list[str]] = []
        for step in row["steps"]:
            first_answers.append(await search(host, step))
            further = f"{step} {' '.join(first_answers[-1][:1])}"
            second_answers.append(await search(host, further))
        gold = set(row["gold"])
        once.append(shares_of(gold, first_answers))
        twice.append(shares_of(gold, first_answers + second_answers))
    return {
        "one search": Recall(*map(statistics.fmean, zip(*once, strict=True))),
        "two searches": Recall(*map(statistics.fmean, zip(*twice, strict=True))),
    }


def shares_of(gold: set[str], answers: Sequence[Sequence[str]]) -> tuple[float, ...]:
    """Return the share of the tools among the first five, the first ten and all of an answer."""
    shares: list[float] = []
    for limit in (5, 10, None):
        names = {name for answer in answers for name in answer[:limit]}
        shares.append(len(gold & names) / len(gold))
    return tuple(shares)


async def measure_gateway(rounds: int) -> list[str]:
    """Print what a host sees of 1,300 tools, and return the exceeded limits."""
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    tools = published_tools(Path(data) / "tools") if data else made_up_tools()
    problems: list[str] = []
    with TemporaryDirectory() as place:
        folder = Path(place)
        files = write_servers(folder, tools)
        if data:
            path = Path(data) / "tools" / "livemcpbench.queries.jsonl"
            queries = [row for row in read(path) if row["gold"] and row.get("steps")]
            async with host_of_gateway(folder) as host:
                recalls = await search_steps(host, queries)
            print(f"\n| {len(queries)} requests by step | first 5 | first 10 | whole answer |")
            print("|---|---|---|---|")
            for name, recall in recalls.items():
                cells = f"{recall.first_5:.3f} | {recall.first_10:.3f} | {recall.whole:.3f}"
                print(f"| {name} | {cells} |")
            if recalls["two searches"].first_10 < MIN_RECALL:
                problems.append("two searches miss too many tools")
        lists = await lists_over_restarts(folder, files, rounds)
        lists |= await lists_over_changes(folder, files, rounds)
    tokens = max(map(DefaultCounter().count, lists))
    print(
        f"\n{TOOLS:,} tools of {SERVERS} servers: the list has {tokens:,} tokens, and "
        f"{len(lists)} text over {rounds} restarts and {rounds} changes"
    )
    if tokens > MAX_TOKENS:
        problems.append(f"the list has {tokens:,} tokens")
    if len(lists) > 1:
        problems.append(f"the list had {len(lists)} texts")
    return problems


def run_gateway(rounds: int) -> list[str]:
    """Measure the gateway, and return the exceeded limits."""
    return asyncio.run(measure_gateway(rounds))
