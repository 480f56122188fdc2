"""Tests that slow and unreadable catalogues end in a status, and block no other selection."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import pytest

from llm_common._threads import MAX_WORK_THREADS, in_thread
from llm_common.agents import (
    ContextRelevanceSelector,
    LexicalToolSelector,
    PlannedTask,
    SubTask,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.selection.catalogue import read_catalogue
from llm_common.testing import ScriptedClient
from llm_common.tools.signature import signature
from tests.selection.choosers import CHOOSERS, SOUND_CHOICE
from tests.selection.doubles import TASK, FixedRegistry, candidate, select_tools
from tests.selection.odd_replies import SOUND
from tests.tools.hostile_schemas import AMBIGUOUS, ANY_JSON, nested_alternatives, nested_objects

CALL = json.dumps({"calls": [{"tool": "tool_00", "args": {"x": "a"}}]})
POINTER = candidate()


def tools(parameters: dict[str, Any], count: int = 25) -> FixedRegistry:
    return FixedRegistry(
        [{"name": f"tool_{number:02}", "parameters": parameters} for number in range(count)]
    )


@pytest.mark.parametrize(
    "parameters",
    [ANY_JSON, AMBIGUOUS, nested_alternatives(20), nested_alternatives(200), nested_objects(24)],
    ids=["f_155 zod", "f_155 recursive", "f_156 a_8", "f_156 deep", "f_156 objects"],
)
async def test_a_tool_with_a_hostile_schema_can_be_chosen(parameters: dict[str, Any]) -> None:
    started = time.monotonic()
    selection = await select_tools(ScriptedClient([CALL]), tools(parameters))
    assert (selection.status, selection.tools_shown) == ("ok", 25)
    lexical = await LexicalToolSelector(ToolSelectionConfig()).select_detailed(
        task=TASK, tool_registry=tools(parameters)
    )
    assert lexical.status == "empty"
    assert time.monotonic() - started < 5


def test_recursive_and_wide_types_are_shortened_f_155() -> None:
    assert signature("t", "", AMBIGUOUS) == "t(x?: (any[]|str)[]|str)"
    assert signature("t", "", nested_alternatives(20)) == "t(x?: any)"
    many = {"anyOf": [{"const": number} for number in range(20)]}
    assert signature("t", "", {"properties": {"x": many}}) == "t(x?: 0|1|2|3|4|5|6|7|…)"
    wide = {
        f"p{number}": {"type": "array", "items": {"anyOf": [{"type": "string"}, ANY_JSON]}}
        for number in range(900)
    }
    line = signature("t", "", {"properties": wide})
    assert "p0?: (str|{x?: any})[]" in line
    assert "p899?: any[]" in line


@pytest.mark.parametrize("nest", [lambda inner: {"items": inner}, lambda inner: {"anyOf": [inner]}])
@pytest.mark.parametrize("make", [lambda schema: schema, json.dumps], ids=["list", "text"])
async def test_an_unreadable_catalogue_is_a_status(nest: Any, make: Any) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(900):
        schema = nest(schema)
    try:
        offered = make([{"name": "t", "parameters": schema}])
    except RecursionError:
        offered = "[" * 100_000
    for selector in (
        ToolSelector(ScriptedClient([], default='{"calls": []}')),
        LexicalToolSelector(),
    ):
        selection = await selector.select_detailed(task=TASK, tool_registry=FixedRegistry(offered))
        assert selection.status in {"error", "empty"}
        assert selection.problem or not selection.failed


async def test_a_slow_catalogue_does_not_block_another(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, end = (
        await read_catalogue(tools(ANY_JSON, count=2)),
        Event(),
    )  # not cached by another test
    quick = await read_catalogue(tools(AMBIGUOUS, count=2))
    kind = type(slow)
    compute = vars(kind)["signatures"].func
    monkeypatch.setattr(
        vars(kind)["signatures"],
        "func",
        lambda owner: (owner is not slow or end.wait(20)) and compute(owner),
    )
    waits = asyncio.create_task(in_thread(lambda: slow.signatures))
    assert await asyncio.wait_for(in_thread(lambda: quick.signatures), timeout=10)
    assert not waits.done()
    end.set()
    assert await waits


Select = Callable[[], Awaitable[Any]]
CONFIG = ToolSelectionConfig(timeout_s=0.2)
SELECTIONS: dict[str, Select] = {
    "tools": lambda: ToolSelector(ScriptedClient([]), CONFIG).select_detailed(
        task=TASK, tool_registry=tools(ANY_JSON)
    ),
    "lexical tools": lambda: LexicalToolSelector(CONFIG).select_detailed(
        task=TASK, tool_registry=tools(ANY_JSON)
    ),
    "pointers": lambda: ContextRelevanceSelector(ScriptedClient([]), timeout_s=0.2).select_detailed(
        query="rain", pointers=[POINTER]
    ),
    "pointers, not closed": lambda: ContextRelevanceSelector(
        ScriptedClient([]), timeout_s=0.2, fail_closed=False
    ).select_detailed(query="rain", pointers=[POINTER]),
}


@pytest.mark.parametrize("kind", SELECTIONS)
async def test_waiting_for_a_thread_ends_at_the_deadline_f_161(kind: str) -> None:
    end = Event()
    blocked = [asyncio.create_task(in_thread(end.wait, 30)) for _ in range(MAX_WORK_THREADS)]
    await asyncio.sleep(0)
    try:
        selection = await asyncio.wait_for(SELECTIONS[kind](), timeout=10)
    finally:
        end.set()
        await asyncio.gather(*blocked)
    assert selection.status == "timeout"
    assert "deadline" in selection.problem


@pytest.mark.parametrize("kind", CHOOSERS)
async def test_hung_threads_of_the_application_block_no_selection_f_161(kind: str) -> None:
    end = Event()
    loop = asyncio.get_running_loop()
    blocked = [loop.run_in_executor(None, end.wait, 30) for _ in range(40)]
    try:
        outcome = await CHOOSERS[kind](ScriptedClient([SOUND]))
    finally:
        end.set()
        await asyncio.gather(*blocked)
    assert (outcome.chosen, outcome.status) == (SOUND_CHOICE[kind], "ok")


async def test_the_shortlist_ranks_each_sub_task_s2_14() -> None:
    offered = [
        {"name": name, "description": f"{name.replace('_', ' ')} for users", "parameters": {}}
        for name in (*(f"weather_{number}" for number in range(30)), "send_invoice")
    ]
    client = ScriptedClient(['{"calls": []}'])
    part = SubTask(id=1, description="send the invoice")
    task = PlannedTask(id=1, description="weather", sub_tasks=[part])
    config = ToolSelectionConfig(max_catalogue_tokens=120, shortlist_tools=3)
    await select_tools(client, FixedRegistry(offered), config, task=task)
    user = str(client.calls[0].messages[1].content)
    assert '"name":"send_invoice"' in user.partition("Task:")[0]
