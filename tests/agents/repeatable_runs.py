"""Runs that print everything they hand to a model, for tests that compare two processes.

    python -m tests.agents.repeatable_runs FOLDER DAYS SLOWEST KIND...

A KIND is `one_by_one` or `at_once` for the calls of a turn in a loop over a `Session`, or `executor`.
Each has a store in a folder of its name. DAYS moves the clock of the store. SLOWEST is the call of each turn that ends last.
"""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from llm_common.agents import (
    AgenticExecutor,
    FileContextPointerStore,
    OffloadPolicy,
    RunLimits,
    Session,
    SessionConfig,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import LLMMessage
from llm_common.history import FoldPolicy
from llm_common.testing import ScriptedClient

QUESTION = "Which parts have no stock? Never order from Acme."
CALLS_OF_A_TURN = 3
TURNS = 4
CONFIG = SessionConfig(fold=FoldPolicy(max_tokens=2_500), max_tool_tokens=1_500)
# Far more than a save takes, so that a slow call is saved after the others.
SLOW_S = 0.3


def store_of(folder: Path, days: int) -> FileContextPointerStore:
    """Return a store whose clock is some days ahead."""
    ahead = timedelta(days=days)
    return FileContextPointerStore(
        folder, clock=lambda: datetime.now(UTC) + ahead, ttl_s=10 * 86_400
    )


def parts_of(page: int) -> list[dict[str, Any]]:
    """Return a page of parts, which takes some 3,000 tokens. The order of a set is not fixed."""
    rows = []
    for number in range(page * 150, (page + 1) * 150):
        tags = {f"tag {number % 7}", f"tag {number % 5}", "part"}
        rows.append({"id": number, "stock": number * 7 % 13, "tags": tags, "text": "x" * 40})
    return rows


def tools_of(slowest: int) -> ToolRegistry:
    """Return one tool that is used, and many that are not."""
    tools = ToolRegistry()

    @tools.tool(read_only=True)
    async def list_parts(page: int) -> list[dict[str, Any]]:
        """Lists the parts in stock."""
        await asyncio.sleep(SLOW_S if page % CALLS_OF_A_TURN == slowest else 0)
        return parts_of(page)

    def convert(amount: float) -> str:
        """Converts an amount of one unit into another one."""
        return "1"

    for number in range(40):
        tools.tool(name=f"convert_unit_{number}", read_only=True)(convert)
    return tools


def pages_of(turn: int) -> range:
    return range(turn * CALLS_OF_A_TURN, (turn + 1) * CALLS_OF_A_TURN)


async def run_loop(store: FileContextPointerStore, slowest: int, *, at_once: bool) -> list[Any]:
    """Return the tools and messages of every model call, and what tools of the session answer."""
    session = Session(store, session_id="user:42/chat", config=CONFIG)
    tools = tools_of(slowest)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    given: list[Any] = []

    async def output_of(call: Any) -> str:
        args = json.loads(call["function"]["arguments"])
        result = await tools.execute("list_parts", args)
        return str(await session.offload(result, tool="list_parts", args=args, messages=messages))

    for turn in range(TURNS):
        calls = []
        for page in pages_of(turn):
            function = {"name": "list_parts", "arguments": json.dumps({"page": page})}
            calls.append({"id": f"call-{page}", "type": "function", "function": function})
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        if at_once:
            outputs = await asyncio.gather(*map(output_of, calls))
        else:
            outputs = [await output_of(call) for call in calls]
        for call, output in zip(calls, outputs, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        shown = await session.choose_tools([*tools, *session.tools()], messages=messages)
        given.append([[tool.name for tool in shown], await session.fold(messages)])

    if not at_once:  # what is stored is listed in the order of the saves
        given.append(session.overview())
        given.append([match.line for match in await session.search("part without stock")])
        tables = [table.name for table in await session.tables() if "stock" in table.columns]
        table = next(name for name in tables if name.startswith("list_parts"))
        given.append(await session.query(f"SELECT sum(stock), max(tags) FROM {table}"))
        given.append(await session.query("SELECT * FROM tables"))
        given.append((await session.pack("parts without stock", max_tokens=2_000)).render())
    return given


async def run_executor(store: FileContextPointerStore, slowest: int) -> list[Any]:
    """Return every prompt of a run, and its answer."""
    prompts: list[str] = []

    def reply(messages: Sequence[LLMMessage]) -> str:
        prompt = "\n".join(str(message.content) for message in messages)
        prompts.append(prompt)
        steps = re.findall(r"Read the pages of step (\d)", prompt)
        if not steps:
            return "No part is out of stock."
        pages = pages_of(int(steps[-1]))
        calls = [{"tool": "list_parts", "args": {"page": page}} for page in pages]
        return json.dumps({"calls": calls})

    executor = AgenticExecutor(
        ScriptedClient([], default=reply),
        tools_of(slowest),
        ToolContextManager(pointer_store=store),
        offload=OffloadPolicy(),
        limits=RunLimits(max_parallel=1),
    )
    plan = [f"Read the pages of step {turn}" for turn in range(TURNS)]
    answer = await executor.run(QUESTION, plan=plan, session="user:42/run", resume=True)
    return [*prompts, answer.text]


async def run(kind: str, folder: Path, days: int, slowest: int) -> list[Any]:
    store = store_of(folder, days)
    if kind == "executor":
        return await run_executor(store, slowest)
    return await run_loop(store, slowest, at_once=kind == "at_once")


if __name__ == "__main__":
    folder, days, slowest, *kinds = sys.argv[1:]
    given = {
        kind: asyncio.run(run(kind, Path(folder) / kind, int(days), int(slowest))) for kind in kinds
    }
    # Plain JSON: what a durable engine records needs no pickling.
    sys.stdout.write(json.dumps(given))
