"""What a selection costs beyond the model: CPU time of the process, tokens of the prompt, how much of it can be cached.

The model is a scripted one that answers at once, so what is measured is ours: reading the registry,
ranking, writing the prompt, reading and checking the reply. Every selection has another task. The
peer, in the same loop, writes the prompt that one would write oneself: `json.dumps` of every
schema, whole, and the task. CPU times hardly feel other programs; the limit on pointers is held
against the least time, since neighbours can only add to it.

With LLM_COMMON_EVAL_DATA the tools are those of LiveMCPBench in `tools/` of that folder, else
made-up ones.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from llm_common.agents import (
    ContextPointer,
    ContextRelevanceSelector,
    PlannedTask,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.core import ExactCounter
from llm_common.errors import ConfigError
from llm_common.selection.catalogue import read_catalogue
from llm_common.selection.relevance import build_relevance_prompt
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry

LIMITS_MS = {50: 2.0, 200: 5.0, 10_000: 15.0}
SHORTLIST_LIMIT_MS, PROMPT_LIMIT_BYTES, MOST_SHOWN = 100.0, 64 * 1024, 200
TOKENS_LIMIT, PREFIX_LIMIT = 45.0, 0.9
WORDS = (
    "file",
    "weather",
    "stock",
    "search",
    "image",
    "chart",
    "email",
    "note",
    "calendar",
    "music",
    "video",
    "map",
)


def definitions(count: int) -> list[dict[str, Any]]:
    """Return a number of tools with different names."""
    data = os.environ.get("LLM_COMMON_EVAL_DATA")
    if data:
        lines = (Path(data) / "tools" / "livemcpbench.tools.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
    else:
        rows = [made_up(number) for number in range(500)]
    tools = []
    for number, row in enumerate(islice(cycle(rows), count)):
        name = row["name"] if number < len(rows) else f"{row['name'][:50]}_{number}"
        parameters = row["parameters"] or {"type": "object"}
        tools.append(
            {"name": name, "description": row["description"] or "", "parameters": parameters}
        )
    return tools


def made_up(number: int) -> dict[str, Any]:
    source = random.Random(number)
    names = source.sample(WORDS, 4)
    properties = {
        name: {"type": "string", "description": f"The {name} that is meant."} for name in names[1:]
    }
    return {
        "name": f"{names[0]}_{number}",
        "description": f"Finds the {names[0]} by {names[1]} and {names[2]}. Slow for long lists.",
        "parameters": {"type": "object", "properties": properties, "required": names[1:2]},
    }


class ListRegistry:
    """An application's own registry, which rebuilds its list on each call."""

    def __init__(self, tools: list[dict[str, Any]]) -> None:
        self._tools = tools

    def get_tools_schema(self) -> list[dict[str, Any]]:
        return [dict(tool) for tool in self._tools]


def nothing(**_: Any) -> None:
    return None


def own_registry(tools: list[dict[str, Any]]) -> ToolRegistry:
    registry = ToolRegistry()
    for number, tool in enumerate(tools):
        name = "".join(
            char if char.isascii() and (char.isalnum() or char in "_.-") else "_"
            for char in tool["name"]
        )
        for parameters in (tool["parameters"], {"type": "object"}):
            with suppress(ConfigError):  # some published schemas are none
                about = tool["description"]
                registry.register(
                    nothing, name=f"{name[:50]}_{number}", description=about, parameters=parameters
                )
                break
    return registry


def task(number: int) -> PlannedTask:
    source = random.Random(number)
    return PlannedTask(
        id=number,
        description=f"Find the {source.choice(WORDS)} for the {source.choice(WORDS)} {number}",
    )


def naive_prompt(tools: list[dict[str, Any]], number: int) -> str:
    return f"Choose tools as JSON.\n{json.dumps(tools)}\n\nTask: {task(number).description}"


async def milliseconds(runs: int, *measured: Callable[[int], Any]) -> list[list[float]]:
    """Return the CPU times of each in turn, after two warm-up rounds."""
    times: list[list[float]] = [[] for _ in measured]
    for number in range(-2, runs):
        for found, run in zip(times, measured, strict=True):
            started = time.process_time()
            result = run(number)
            if asyncio.iscoroutine(result):
                await result
            if number >= 0:
                found.append(1_000 * (time.process_time() - started))
    return times


async def report_overhead(runs: int) -> list[str]:
    problems = []
    selector = ToolSelector(ScriptedClient([], default='{"calls": []}'), ToolSelectionConfig())
    print(
        f"{'CPU ms a selection (p50)':34}{'ToolRegistry':>14}{'a list':>10}{'json.dumps':>12}{'first':>10}"
    )
    for count, limit_ms in LIMITS_MS.items():
        tools = definitions(count)
        own, other = own_registry(tools), ListRegistry(tools)
        started = time.process_time()
        selection = await selector.select_detailed(task=task(-3), tool_registry=own)
        first_ms = 1_000 * (time.process_time() - started)
        ours, lists, peer = await milliseconds(
            runs,
            lambda number, own=own: selector.select_detailed(task=task(number), tool_registry=own),  # type: ignore[misc]
            lambda number, other=other: selector.select_detailed(
                task=task(number), tool_registry=other
            ),  # type: ignore[misc]
            lambda number, tools=tools: naive_prompt(tools, number),  # type: ignore[misc]
        )
        kind = "catalogue" if selection.tools_shown == count else "shortlist"
        p50 = [statistics.median(times) for times in (ours, lists, peer)]
        print(
            f"{f'{count:6,} tools, {kind}':34}{p50[0]:14.2f}{p50[1]:10.2f}{p50[2]:12.2f}{first_ms:10.1f}"
        )
        if p50[0] > limit_ms:
            problems.append(f"{count} tools: {p50[0]:.1f} ms, over {limit_ms}")
    return problems


def common_bytes(one: str, other: str) -> int:
    """Return the number of bytes of the longest common prefix."""
    pairs = zip(one.encode(), other.encode(), strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), len(one))


async def report_prompts() -> list[str]:
    problems = []
    print(f"\n{'prompt':34}{'tools':>8}{'bytes':>10}{'common':>10}{'prefixes':>10}")
    for count in (50, 200):
        tools = definitions(count)
        systems, shared = set(), []
        for number in range(50):
            shuffled = [dict(sorted(tool.items(), reverse=bool(number % 2))) for tool in tools]
            random.Random(number).shuffle(shuffled)
            client = ScriptedClient([], default='{"calls": []}')
            selector = ToolSelector(client, ToolSelectionConfig())
            await selector.select_detailed(task=task(number), tool_registry=ListRegistry(shuffled))
            await selector.select_detailed(
                task=task(number + 1), tool_registry=ListRegistry(shuffled)
            )
            prompts = [
                "\n".join(str(message.content) for message in call.messages)
                for call in client.calls
            ]
            systems.add(client.calls[0].messages[0].content)
            shared.append(common_bytes(*prompts) / max(len(text.encode()) for text in prompts))
        print(
            f"{'one registry, shuffled 50 times':34}{count:8}{len(prompts[0]):10,}{min(shared):10.1%}{len(systems):10}"
        )
        if len(systems) != 1 or min(shared) < PREFIX_LIMIT:
            problems.append(
                f"{count} tools: {len(systems)} prefixes, {min(shared):.1%} of the prompt in common"
            )
    try:
        counter = ExactCounter()
    except ConfigError as exc:
        print(f"tokens a tool: not counted, {exc}")
        return problems
    tools = definitions(510)
    catalogue = await read_catalogue(ListRegistry(tools))
    each = counter.count(catalogue.signatures) / len(tools)
    print(
        f"\ntokens a tool as a signature {each:.1f}, as JSON "
        f"{counter.count(catalogue.text) / len(tools):.1f} (o200k)"
    )
    return problems if each <= TOKENS_LIMIT else [*problems, f"{each:.1f} tokens a tool"]


async def report_pointers(runs: int) -> list[str]:
    pool = [
        ContextPointer(
            pointer_id=f"{number:012x}",
            query_id="q",
            tool_name="search",
            args={
                "query": task(number).description,
                "page": number,
                "user": f"user {number % 300}",
            },
            digest=f"list of 20: title, url, {task(number + 1).description}, user {number % 70} "
            * 4,
            created_at=f"{number:06}",
            summary=f"search query={task(number).description} {'x' * (number % 200)}",
            result_path="x",
        )
        for number in range(10_000)
    ]
    selector = ContextRelevanceSelector(
        ScriptedClient([], default='{"pointer_ids": []}'), max_selected=6
    )
    prompt, shown = build_relevance_prompt(
        task(1).description, pool, max_selected=6, include_digest=False
    )
    size = sum(len(str(message.content).encode()) for message in prompt.messages())
    shortlist, whole, peer = await milliseconds(
        runs,
        lambda number: build_relevance_prompt(
            task(number).description, pool, max_selected=6, include_digest=False
        ),
        lambda number: selector.select_detailed(query=task(number).description, pointers=pool),
        lambda _: json.dumps([{"id": each.pointer_id, "summary": each.summary} for each in pool]),
    )
    least = min(shortlist)
    print(
        f"10,000 pointers: shortlist and prompt {statistics.median(shortlist):.1f} ms (least "
        f"{least:.1f}),"
    )
    print(
        f"  whole selection {statistics.median(whole):.1f} ms, json.dumps of all "
        f"{statistics.median(peer):.1f} ms;"
    )
    print(f"  {len(shown)} shown in {size:,} bytes\n")
    held = least < SHORTLIST_LIMIT_MS and size < PROMPT_LIMIT_BYTES and len(shown) <= MOST_SHOWN
    return [] if held else ["10,000 pointers: over a limit of L13"]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30, help="selections of each kind (default 30)")
    runs = parser.parse_args().runs
    # Pointers first: the garbage collector walks whatever was made before, again and again.
    problems = (
        await report_pointers(max(runs // 2, 3))
        + await report_overhead(runs)
        + await report_prompts()
    )
    if problems:
        sys.exit("; ".join(problems))


if __name__ == "__main__":
    asyncio.run(main())
