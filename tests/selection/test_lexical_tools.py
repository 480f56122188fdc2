"""Tests `LexicalToolSelector`."""

import time
from typing import Any, Literal
from unittest.mock import MagicMock

import pytest

from llm_common.agents import (
    LexicalToolSelector,
    PlannedTask,
    SelectsTools,
    SubTask,
    ToolSelection,
    ToolSelectionConfig,
)
from llm_common.tools import Tool, ToolRegistry
from tests.selection.doubles import FixedRegistry


def read_file(path: str) -> str:
    """Reads one file of the project."""
    return path


def search_files(query: str, limit: int = 10) -> str:
    """Finds the lines that contain words."""
    return f"{query}{limit}"


def get_weather(city: str, unit: Literal["metric", "imperial"] = "metric") -> str:
    """Forecasts the weather of a city."""
    return f"{city}{unit}"


REGISTRY = ToolRegistry([read_file, search_files, get_weather])


def task(description: str, *sub_tasks: str) -> PlannedTask:
    parts = [SubTask(id=number, description=text) for number, text in enumerate(sub_tasks)]
    return PlannedTask(id=1, description=description, sub_tasks=parts)


async def select(planned: PlannedTask, registry: Any = REGISTRY, **options: Any) -> ToolSelection:
    selector: SelectsTools = LexicalToolSelector(ToolSelectionConfig(max_calls=2))
    return await selector.select_detailed(task=planned, tool_registry=registry, **options)


AA = ("read_file", {"path": "aa.py"})
ULM = ("get_weather", {"city": "Ulm"})
IN_IMPERIAL = "What will the weather be, city: Ulm, in imperial units?"
SEVERAL = "Read the file aa.py and show the weather for city: Ulm"


@pytest.mark.parametrize(
    ("planned", "options", "calls"),
    [
        pytest.param(
            task("Look around", "Read the file aa.py", IN_IMPERIAL),
            {},
            [AA, ("get_weather", {"city": "Ulm", "unit": "imperial"})],
            id="a tool for each sub-task",
        ),
        pytest.param(
            task("Search for 'retry logic'"),
            {},
            [("search_files", {"query": "retry logic"})],
            id="the task without sub-tasks",
        ),
        pytest.param(task("Do it"), {"query": "weather, city: Ulm"}, [ULM], id="then the query"),
        pytest.param(
            task("Read the file aa.py"), {"query": "weather, city: Ulm"}, [AA], id="the task first"
        ),
        pytest.param(
            task("Show the weather"), {"context": {"city": "Ulm"}}, [ULM], id="of the context"
        ),
        pytest.param(task(SEVERAL), {}, [], id="several requests are left to a model"),
        pytest.param(
            task(SEVERAL, "Read the file aa.py", "Show the weather for city: Ulm"),
            {},
            [AA, ULM],
            id="unless they are sub-tasks",
        ),
    ],
)
async def test_each_request_gets_its_tool_with_its_arguments_s2_14(
    planned: PlannedTask, options: dict[str, Any], calls: list[tuple[str, dict[str, Any]]]
) -> None:
    selection = await select(planned, **options)
    assert [(call.tool, call.args) for call in selection.calls] == calls


@pytest.mark.parametrize(
    ("text", "context", "reason", "path"),
    [
        ("Read a file", {}, "unfilled", "path"),
        ("Show the weather", {"city": 5}, "invalid_args", "city"),
    ],
)
async def test_a_call_without_fitting_arguments_is_not_made_s2_07(
    text: str, context: dict[str, Any], reason: str, path: str
) -> None:
    selection = await select(task(text), context=context)
    assert (selection.status, selection.calls) == ("invalid", ())
    [drop] = selection.dropped
    assert (drop.reason, drop.problems[0].path) == (reason, path)


@pytest.mark.parametrize("text", ["Write a poem about spring", "?!", "", "the lines"])
async def test_a_request_without_a_fitting_tool_gets_no_call(text: str) -> None:
    selection = await select(task(text))
    assert (selection.status, selection.calls, selection.dropped) == ("empty", (), ())


async def test_repeats_are_dropped_and_calls_capped_s2_05() -> None:
    parts = ["Read file aa.py", "Read the file aa.py", "Read file bb.py", "Read file cc.py"]
    selection = await select(task("t", *parts))
    assert [call.args["path"] for call in selection.calls] == ["aa.py", "bb.py"]
    assert [drop.reason for drop in selection.dropped] == ["repeat", "over_limit"]


async def test_a_selection_reports_the_ranking() -> None:
    selection = await select(task("Search for 'retry logic'"))
    assert (selection.status, selection.used, selection.attempts) == ("ok", "lexical", ())
    assert (selection.tools_total, selection.tools_shown, selection.failed) == (3, 3, False)
    assert selection.usage.total_tokens == 0


async def test_the_same_input_gives_the_same_calls_in_any_order_of_registration() -> None:
    backwards = ToolRegistry([get_weather, search_files, read_file])
    planned = task("t", "Read the file aa.py", "Search for words")
    assert await select(planned, backwards) == await select(planned)


async def test_json_text_of_a_third_party_registry_is_read() -> None:
    selection = await select(
        task("Read the file aa.py"), FixedRegistry(REGISTRY.get_tools_schema())
    )
    assert [call.tool for call in selection.calls] == ["read_file"]


@pytest.mark.parametrize(
    ("registry", "status"),
    [
        (FixedRegistry("Tools..."), "error"),
        (FixedRegistry(5), "error"),
        (FixedRegistry([open]), "error"),
        (FixedRegistry([iter("x")]), "error"),
        (MagicMock(get_tools_schema=MagicMock(side_effect=ValueError)), "error"),
        (ToolRegistry(), "no_candidates"),
        (FixedRegistry("[]"), "no_candidates"),
    ],
)
async def test_an_unreadable_registry_gives_no_calls_s2_09(registry: Any, status: str) -> None:
    selection = await select(task("Read the file aa.py"), registry)
    assert (selection.status, selection.calls) == (status, ())
    selector = LexicalToolSelector(ToolSelectionConfig())
    assert await selector.select_tool_calls(task=task("x"), tool_registry=registry) == []


def test_the_configuration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "3")
    assert LexicalToolSelector().config.max_calls == 3


def delete_file(path: str) -> str:
    """Deletes one file of the project."""
    return path


async def test_a_tool_that_may_write_is_called_only_when_allowed() -> None:
    planned, registry = task("Delete the file aa.py"), ToolRegistry([delete_file])
    selection = await select(planned, registry)
    assert ([drop.reason for drop in selection.dropped], selection.calls) == (["writes"], ())
    allowed = LexicalToolSelector(ToolSelectionConfig(), allow_writes=True)
    selection = await allowed.select_detailed(task=planned, tool_registry=registry)
    assert [call.tool for call in selection.calls] == ["delete_file"]


async def test_a_read_only_mark_wins_over_the_name() -> None:
    planned = task("Delete the file aa.py")
    marked = {
        "name": "delete_file",
        "description": "Deletes a file.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": Tool(delete_file).parameters,
    }
    for registry in (ToolRegistry([Tool(delete_file, read_only=True)]), FixedRegistry([marked])):
        assert [call.tool for call in (await select(planned, registry)).calls] == ["delete_file"]
    unsafe = ToolRegistry([Tool(read_file, read_only=False)])
    assert (await select(task("Read the file aa.py"), unsafe)).calls == ()


async def test_a_tie_calls_neither_tool() -> None:
    twins = ToolRegistry([Tool(read_file, name=f"read_file_{letter}") for letter in "ab"])
    selection = await select(task("Read the file aa.py"), twins)
    assert ([drop.reason for drop in selection.dropped], selection.calls) == (["tie"], ())


@pytest.mark.parametrize("blanks", [" ", " \n", "\t and"])
async def test_a_hostile_task_takes_no_time(blanks: str) -> None:
    started = time.process_time()
    assert (await select(task("What is it" + blanks * 20_000 + "now?"))).calls == ()
    assert time.process_time() - started < 1
