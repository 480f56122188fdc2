"""Tests that calls with one possible reading are converted with a note, and others are dropped."""

import json
from typing import Any

import pytest

from llm_common.agents import ToolSelection
from llm_common.selection.tool_calls import read_leniently
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.selection.doubles import search_web, select_tools

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "maximum": 9},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "metric": {"type": "boolean"},
        "scale": {"type": "number"},
        "either": {"type": ["integer", "string"]},
        "free": {},
        "note": {"type": ["string", "null"]},
        "place": {"$ref": "#/$defs/Place"},
        "marks": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "name": {"type": "string"}},
        }
    },
}


def get_weather(city: str, **options: Any) -> str:
    return f"{city} {options}"


REGISTRY = ToolRegistry([search_web])
REGISTRY.register(get_weather, parameters=SCHEMA)


async def select(*calls: object) -> ToolSelection:
    return await select_tools(ScriptedClient([json.dumps({"calls": calls})]), REGISTRY)


def weather(**args: Any) -> dict[str, Any]:
    return {"tool": "get_weather", "args": {"city": "Ulm", **args}}


@pytest.mark.parametrize(
    ("args", "converted", "note"),
    [
        ({"days": None}, {}, "days: null was read as left out"),
        ({"days": None, "note": None, "free": None}, {"note": None, "free": None},
            "days: null was read as left out"),
        ({"days": "5"}, {"days": 5}, "days: a text was read as a number"),
        ({"limit": "-5"}, {"limit": -5}, "limit: a text was read as a number"),
        ({"scale": "0.5"}, {"scale": 0.5}, "scale: a text was read as a number"),
        ({"scale": "2"}, {"scale": 2}, "scale: a text was read as a number"),
        ({"metric": "true"}, {"metric": True}, "metric: a text was read as a flag"),
        ({"place": {"lat": "48.4", "name": None}}, {"place": {"lat": 48.4}},
            "place.lat: a text was read as a number"),
        ({"marks": ["1", 2]}, {"marks": [1, 2]}, "marks.0: a text was read as a number"),
    ],
)  # fmt: skip
async def test_arguments_with_one_reading_are_converted_s2_07(
    args: Any, converted: Any, note: str
) -> None:
    selection = await select(weather(**args))
    assert selection.status == "ok"
    assert selection.calls[0].args == {"city": "Ulm", **converted}
    assert f"get_weather: {note}" in " ".join(selection.notes)
    assert not selection.dropped


@pytest.mark.parametrize(
    "args",
    [{"city": None}, {"city": 5}, {"days": "5.0"}, {"days": "05"}, {"days": "5 "}, {"days": "five"}, {
        "days":
        "1e1"},
     {"days": "99"}, {"days": 5.5}, {"days": True}, {"metric": "True"}, {"metric": "yes"}, {
         "metric": 1},
     {"metric": "1"}, {"scale": "nan"}, {"scale": "0x1"}, {"scale": "\u0665"}, {"days": "9" * 40}, {
         "marks":
         "1,2"},
     {"marks": "[1]"}, {"place": "{}"}, {"either": [1]}],
    ids=repr,
)  # fmt: skip
async def test_ambiguous_arguments_are_dropped_s2_07(args: dict[str, Any]) -> None:
    selection = await select(weather(**args))
    assert (selection.status, selection.calls, selection.notes) == ("invalid", (), ())
    assert selection.dropped[0].reason == "invalid_args"


async def test_a_text_stays_a_text_where_the_schema_admits_one() -> None:
    selection = await select(weather(either="5", note="true", free="7"))
    assert selection.calls[0].args == {"city": "Ulm", "either": "5", "note": "true", "free": "7"}
    assert selection.notes == ()


ARGS = {"query": "rain"}


@pytest.mark.parametrize(
    ("call", "note"),
    [
        ({"name": "search_web", "arguments": ARGS}, "name was read as tool"),
        ({"name": "search_web", "arguments": ARGS}, "arguments was read as args"),
        ({"tool": "search_web", "arguments": json.dumps(ARGS)}, "the arguments were a JSON text"),
        ({"tool": "functions.search_web", "args": ARGS}, "the name was written differently"),
        ({"tool": "tools/search-web", "args": ARGS}, "the name was written differently"),
        ({"tool": "Search.Web", "args": ARGS}, "the name was written differently"),
    ],
)
async def test_a_call_in_another_shape_is_read_with_a_note_s2_07(
    call: dict[str, Any], note: str
) -> None:
    selection = await select(call)
    assert [(call.tool, call.args) for call in selection.calls] == [("search_web", ARGS)]
    assert f"search_web: {note}" in selection.notes


@pytest.mark.parametrize(
    "name",
    [
        "functions.search",
        "web",
        "my.search_web",
        "functions.functions.search_web",
        "get_weather.search_web",
    ],
)
async def test_another_name_is_never_guessed_s2_07(name: str) -> None:
    selection = await select({"tool": name, "args": ARGS})
    assert [drop.reason for drop in selection.dropped] == ["unknown_tool"]
    assert "no offered tool has this name" in str(selection.dropped[0])


async def test_tool_and_args_win_over_name_and_arguments() -> None:
    selection = await select(
        {"tool": "search_web", "name": "get_weather", "args": ARGS, "arguments": {"city": "x"}}
    )
    assert [(call.tool, call.args) for call in selection.calls] == [("search_web", ARGS)]
    assert selection.notes == ()


def test_conversion_is_limited_in_depth() -> None:
    value: Any = "5"
    for _ in range(500):
        value = {"x": value}
    schema = {"properties": {"x": {"$ref": "#"}}, "type": "object"}
    assert read_leniently(value, schema) == (value, ())


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"n": {"type": "integer"}}},
        {"items": {"type": "integer"}},
        {"type": ["object", "array"], "items": {"type": "integer"}},
        {"type": "string", "properties": {"n": {"type": "integer"}}},
    ],
    ids=["object-without-type", "array-without-type", "two-types", "another-type"],
)
@pytest.mark.parametrize("value", [{"n": "5"}, ["5"]], ids=["object", "array"])
def test_a_container_of_an_open_type_is_not_converted(schema: dict[str, Any], value: Any) -> None:
    parameters = {"type": "object", "properties": {"x": schema}}
    assert read_leniently({"x": value}, parameters) == ({"x": value}, ())


def test_containers_of_one_type_are_converted_with_a_note_each() -> None:
    integer = {"type": "integer"}
    parameters = {
        "type": "object",
        "properties": {
            "x": {"type": ["object", "null"], "properties": {"n": integer}},
            "y": {"anyOf": [{"type": "array", "items": integer}, {"type": "null"}]},
        },
    }
    assert read_leniently({"x": {"n": "5"}, "y": ["6", "seven"]}, parameters) == (
        {"x": {"n": 5}, "y": [6, "seven"]},
        ("x.n: a text was read as a number", "y.0: a text was read as a number"),
    )
