"""The tool that the next step needs: is it in view after `Session.choose_tools`, at 4,000 tokens?

Two sets. `tool_dialogues.jsonl` has 100 dialogues of ours in eleven languages: a request, an answer
that asks back, in a third of them small talk, and a last line such as "yes, do it", which names no
tool. The tools are ten actions on six or thirty objects. `history/airline.tune.json` in
`LLM_COMMON_EVAL_DATA` has 100 recorded runs of an airline's desk. Each of their calls is one case,
with the desk's own 26 tools, and with these among those of other programs (bfcl).

The baseline ranks by the last message of the user alone and shows at most 20 tools.
"""

import asyncio
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig
from llm_common.tools import ToolDefinition, ToolIndex, read_definitions

HERE = Path(__file__).parent
DATA = os.environ.get("LLM_COMMON_EVAL_DATA")
MAX_TOKENS = 4_000
ACTIONS = [
    "create",
    "delete",
    "update",
    "list",
    "archive",
    "export",
    "import",
    "share",
    "rename",
    "approve",
]
OFFICE = ["invoice", "customer", "ticket", "order", "contract", "report"]
LARGE_OFFICE = [
    *OFFICE,
    *[
        "shipment",
        "subscription",
        "payment",
        "expense",
        "meeting",
        "address",
        "message",
        "contact",
        "document",
    ],
    *[
        "project",
        "employee",
        "refund",
        "schedule",
        "leave",
        "recipe",
        "supplier",
        "warehouse",
        "coupon",
    ],
    *["budget", "survey", "office", "vehicle", "course", "patient"],
]
Messages = list[dict[str, Any]]


def office_tools(things: Sequence[str]) -> list[ToolDefinition]:
    """Return ten tools for each kind of thing, which differ by two words."""
    fields = {"name": "string", "note": "string", "amount": "number", "currency": "string"}
    schema = {"type": "object", "properties": {key: {"type": fields[key]} for key in fields}}
    tools = []
    for thing in things:
        for action in ACTIONS:
            noun = thing
            if action == "list":
                noun += "es" if thing.endswith("ss") else "s"
            text = (
                f"{action.capitalize()} one {thing} in the accounting system of the company. Needs "
                "the name. The note is logged with it, and the amount is checked."
            )
            tools.append(ToolDefinition(f"{action}_{noun}", text, schema))
    return tools


def dialogue_cases(tools: Sequence[ToolDefinition]) -> Iterator[tuple[Messages, str, bool]]:
    """Yield the messages before each step, the tool that it needs, and whether a dialogue begins."""
    names = {tool.name for tool in tools}
    for line in (HERE / "tool_dialogues.jsonl").read_text(encoding="utf-8").splitlines():
        dialogue = json.loads(line)
        if dialogue["tool"] not in names:
            continue
        for number, message in enumerate(dialogue["messages"][1:], 2):
            if message["role"] == "user":
                yield dialogue["messages"][:number], dialogue["tool"], number == 3


def airline_cases(folder: Path) -> Iterator[tuple[Messages, str, bool]]:
    """Yield the messages before each recorded call, its tool, and whether a run begins."""
    runs = json.loads((folder / "history" / "airline.tune.json").read_text(encoding="utf-8"))
    for run in runs:
        is_first = True
        for number, message in enumerate(run["messages"]):
            for call in message.get("tool_calls") or ():
                yield run["messages"][:number], call["function"]["name"], is_first
                is_first = False


def tools_of(folder: Path, name: str) -> list[ToolDefinition]:
    """Return the tools of a set, one for each name."""
    lines = (folder / "tools" / f"{name}.tools.jsonl").read_text(encoding="utf-8").splitlines()
    by_name: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        row = json.loads(line)
        schema = row["parameters"] or {"type": "object", "properties": {}}
        by_name[row["name"]] = {**row, "parameters": schema}
    return list(read_definitions(list(by_name.values())))


def among_others(
    tools: Sequence[ToolDefinition], others: Sequence[ToolDefinition], count: int
) -> list[ToolDefinition]:
    """Return the tools, hidden among those of other programs."""
    names = {tool.name for tool in tools}
    shuffled = random.Random(0)
    strangers = [tool for tool in others if tool.name not in names]
    pool = [*tools, *shuffled.sample(strangers, count - len(tools))]
    shuffled.shuffle(pool)
    return pool


async def measure(
    name: str, tools: Sequence[ToolDefinition], cases: Iterator[tuple[Messages, str, bool]]
) -> None:
    """Print the share of steps whose tool is in view, and that of the baseline."""
    config = SessionConfig(max_tool_tokens=MAX_TOKENS)
    index = ToolIndex(tools)
    total = in_view = in_baseline = shown = 0
    session = Session(InMemoryContextPointerStore(), config=config)
    for messages, tool, is_first in cases:
        if is_first:
            session = Session(InMemoryContextPointerStore(), config=config)
        chosen = {row.name for row in await session.choose_tools(tools, messages=messages)}
        users = [message["content"] for message in messages if message["role"] == "user"]
        total += 1
        shown += len(chosen)
        in_view += tool in chosen
        in_baseline += tool in {row.name for row in index.rank(users[-1] if users else "", 20)}
    print(
        f"{name:28} {len(tools):4} tools, {total:3} steps: in view {in_view / total:.3f}, "
        f"by the last message {in_baseline / total:.3f}; {shown / total:.0f} tools shown"
    )


async def main() -> None:
    for things in (OFFICE, LARGE_OFFICE):
        tools = office_tools(things)
        await measure("dialogues", tools, dialogue_cases(tools))
    if DATA is None:
        print("set LLM_COMMON_EVAL_DATA to measure the recorded runs too")
        return
    folder = Path(DATA)
    desk = tools_of(folder, "taubench")
    await measure("airline desk", desk, airline_cases(folder))
    for count in (61, 300):
        pool = among_others(desk, tools_of(folder, "bfcl"), count)
        await measure("airline desk among others", pool, airline_cases(folder))


if __name__ == "__main__":
    asyncio.run(main())
