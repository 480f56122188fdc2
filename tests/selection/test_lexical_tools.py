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


async def chosen(planned: PlannedTask, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.tool, call.args) for call in (await select(planned, **options)).calls]


async def test_each_sub_task_gets_its_tool_s2_14() -> None:
    planned = task(
        "Look around",
        "Read the file src/app.py",
        "What will the weather be, city: Ulm, in imperial units?",
    )
    assert await chosen(planned) == [
        ("read_file", {"path": "src/app.py"}),
        ("get_weather", {"city": "Ulm", "unit": "imperial"}),
    ]


async def test_without_sub_tasks_the_task_counts_and_then_the_query() -> None:
    assert await chosen(task("Search for 'retry logic'")) == [
        ("search_files", {"query": "retry logic"})
    ]
    assert await chosen(task("Do it"), query="weather, city: Ulm") == [
        ("get_weather", {"city": "Ulm"})
    ]
    assert await chosen(task("Read the file aa.py"), query="weather, city: Ulm") == [
        ("read_file", {"path": "aa.py"})
    ]


async def test_the_context_fills_arguments() -> None:
    assert await chosen(task("Show the weather"), context={"city": "Bonn"}) == [
        ("get_weather", {"city": "Bonn"})
    ]


async def test_a_tool_without_its_arguments_is_not_called() -> None:
    selection = await select(task("Read a file"))
    assert (selection.status, selection.calls) == ("invalid", ())
    (drop,) = selection.dropped
    assert (drop.tool, drop.reason, drop.problems[0].path) == ("read_file", "unfilled", "path")


async def test_arguments_are_checked_by_the_schema_s2_07() -> None:
    selection = await select(task("Show the weather"), context={"city": 5})
    assert selection.calls == ()
    assert selection.dropped[0].reason == "invalid_args"


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


async def test_several_requests_in_one_task_are_left_to_a_model() -> None:
    text = "Read the file aa.py and show the weather for city: Ulm"
    assert await chosen(task(text)) == []
    assert await chosen(task(text, "Read the file aa.py", "Show the weather for city: Ulm")) == [
        ("read_file", {"path": "aa.py"}),
        ("get_weather", {"city": "Ulm"}),
    ]


@pytest.mark.parametrize("blanks", [" ", " \n", "\t and"])
async def test_a_hostile_task_takes_no_time(blanks: str) -> None:
    started = time.process_time()
    assert (await select(task("What is it" + blanks * 20_000 + "now?"))).calls == ()
    assert time.process_time() - started < 1
