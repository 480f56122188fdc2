"""What `llm-common gateway` adds to a call, what it holds after 10,000 calls, and the tokens of 500 tools behind it.

A server on stdin and stdout is called bare and through the gateway in turns, each process of its
own, by the official client. Of the 10,000 calls one in a hundred has a result of 100 KB, which the
gateway stores; its resident memory is read after the first hundred and after the last. The 500
tools are those of livemcpbench in the folder that LLM_COMMON_EVAL_DATA names, else made-up ones;
their tokens are those of what a host lists, the gateway's own included.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_server
from mcp.server import Server

from benchmarks.quality_context import read
from llm_common.core import DefaultCounter

LIMIT_MS, LIMIT_P95_MS, LIMIT_MB = 3.0, 10.0, 20.0
LARGE_EVERY, AT_ONCE = 100, 8
SCHEMA = {"type": "object", "properties": {"chars": {"type": "integer"}}}


def tools_in(path: str) -> list[types.Tool]:
    """Return the tools of a file as a server describes them."""
    return [
        types.Tool(
            name=row["name"],
            description=row["description"],
            input_schema=row["parameters"] or SCHEMA,
        )
        for row in read(Path(path))
    ]


async def serve(path: str) -> None:
    """Run a server with the tools of a file, or with two built-in ones."""
    own = [
        types.Tool(name=name, description="Tells.", input_schema=SCHEMA)
        for name in ("get_text", "get_parent")
    ]
    tools = tools_in(path) if path else own

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        chars = (params.arguments or {}).get("chars", 20)
        text = str(os.getppid()) if params.name == "get_parent" else "word " * (chars // 5)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Server[Any] = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def command(path: str) -> list[str]:
    return [str(Path(__file__).resolve()), "--serve", path]


@asynccontextmanager
async def bare(path: str = "") -> AsyncIterator[Client]:
    """Connect a host to the server directly."""
    async with Client(_process(command(path)), raise_exceptions=True) as host:
        yield host


@asynccontextmanager
async def through_gateway(path: str = "", *options: str) -> AsyncIterator[Client]:
    """Connect a host to a gateway in front of the server."""
    with TemporaryDirectory() as folder:
        config = Path(folder, "mcp.json")
        entry = {"command": sys.executable, "args": command(path), "env": {"PYTHONPATH": _root()}}
        config.write_text(json.dumps({"mcpServers": {"bench": entry}}), encoding="utf-8")  # noqa: ASYNC240
        start = [
            "-c",
            "from llm_common.apps.cli import main; main()",
            "gateway",
            "-c",
            str(config),
            "--folder",
            folder,
            "--list-wait",
            "60",
        ]
        async with Client(_process([*start, *options]), raise_exceptions=True) as host:
            yield host


def _process(arguments: list[str]) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=arguments, env={"PYTHONPATH": _root()}
    )


def _root() -> str:
    return str(Path(__file__).resolve().parent.parent)


def text_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


async def call_ms(host: Client) -> float:
    started = time.perf_counter()
    await host.call_tool("get_text", {})
    return 1_000 * (time.perf_counter() - started)


async def measure_overhead(rounds: int) -> tuple[float, float]:
    """Print the time of a small call, and return what the gateway adds at p50 and at p95."""
    async with bare() as alone, through_gateway() as gateway:
        await gateway.list_tools()
        for _ in range(50):
            await call_ms(alone), await call_ms(gateway)
        pairs = [(await call_ms(alone), await call_ms(gateway)) for _ in range(rounds)]
    medians: list[float] = []
    slowest: list[float] = []
    for name, times in zip(("bare", "through the gateway"), zip(*pairs, strict=True), strict=True):
        medians.append(statistics.median(times))
        slowest.append(statistics.quantiles(times, n=20)[-1])
        print(f"a small call, {name}: p50 {medians[-1]:.2f} ms, p95 {slowest[-1]:.2f} ms")
    added, added_p95 = medians[1] - medians[0], slowest[1] - slowest[0]
    print(f"added: {added:.2f} ms (p50), {added_p95:.2f} ms (p95)")
    return added, added_p95


def resident_mb(pid: int) -> float:
    line = next(
        row
        for row in Path(f"/proc/{pid}/status").read_text().splitlines()
        if row.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1_024


async def measure_memory(calls: int) -> float:
    """Print the gateway's memory, and return its growth."""
    async with through_gateway() as host:
        pid = int(text_of(await host.call_tool("get_parent", {})))

        async def some(first: int) -> None:
            for number in range(first, calls, AT_ONCE):
                await host.call_tool("get_text", {"chars": 20 if number % LARGE_EVERY else 100_000})

        await asyncio.gather(*(some(calls - AT_ONCE * 13 + number) for number in range(AT_ONCE)))
        before = resident_mb(pid)
        await asyncio.gather(*(some(number) for number in range(AT_ONCE)))
        after = resident_mb(pid)
    print(f"memory after {calls:,} calls: {before:.1f} MB at first, {after:.1f} MB at last")
    return after - before


async def measure_definitions(path: str) -> None:
    count = DefaultCounter().count
    for mode in ("all", "search", "auto"):
        async with through_gateway(path, "--tools", mode) as host:
            tools = (await host.list_tools()).tools
        shown = [
            tool.model_dump_json(include={"name", "description", "input_schema"}, by_alias=True)
            for tool in tools
        ]
        print(f"--tools {mode}: {len(tools)} tools listed, {sum(map(count, shown)):,} tokens")


@asynccontextmanager
async def five_hundred() -> AsyncIterator[str]:
    """Write a file of tools."""
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if data:
        yield str(Path(data, "tools", "livemcpbench.tools.jsonl"))
        return
    with TemporaryDirectory() as folder:
        path = Path(folder, "tools.jsonl")
        schema = {
            "type": "object",
            "properties": {"id": {"type": "string", "description": "Which one."}},
        }
        rows = [
            {
                "name": f"get_thing_{n}",
                "description": f"Gives thing {n} of its kind.",
                "parameters": schema,
            }
            for n in range(500)
        ]
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")  # noqa: ASYNC240
        yield str(path)


async def measure(rounds: int, calls: int) -> list[str]:
    added_ms, added_p95_ms = await measure_overhead(rounds)
    grown_mb = await measure_memory(calls)
    async with five_hundred() as path:
        await measure_definitions(path)
    return [
        *([f"{added_ms:.1f} ms are added to a call"] if added_ms > LIMIT_MS else []),
        *([f"{added_p95_ms:.1f} ms are added at p95"] if added_p95_ms > LIMIT_P95_MS else []),
        *([f"memory grew by {grown_mb:.0f} MB"] if grown_mb > LIMIT_MB else []),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
    elif problems := asyncio.run(measure(options.rounds, options.calls)):
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    main()
