"""`llm-common tools` with files of definitions."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apps.cli.running import run, run_json

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where."}},
    "required": ["city"],
}
WEATHER = {
    "name": "get_weather",
    "description": "Forecasts the weather of a city.",
    "inputSchema": CITY,
}
SHAPES: dict[str, object] = {
    "a list of MCP": [WEATHER],
    "an MCP answer": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [WEATHER]}},
    "chat completions": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": WEATHER["description"],
                "parameters": CITY,
            },
        }
    ],
    "an object of tools": {"tools": [{**WEATHER, "input_schema": CITY}]},
}


def file(folder: Path, document: object) -> Path:
    path = folder / "tools.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_definitions_is_read_alike(tmp_path: Path, shape: str) -> None:
    document = run_json("tools list", file(tmp_path, SHAPES[shape]))
    assert [entry["signature"] for entry in document["tools"]] == [
        "get_weather(city: str) - Forecasts the weather of a city."
    ]
    assert document["tokens"] == document["tools"][0]["tokens"] > 20


def many() -> list[dict[str, Any]]:
    return [
        WEATHER,
        *(
            {"name": f"tool_{n}", "description": f"Sells stock number {n}.", "inputSchema": CITY}
            for n in range(5)
        ),
    ]


def test_tools_are_listed_page_by_page(tmp_path: Path) -> None:
    path = file(tmp_path, many())
    document = run_json("tools list", path, "--limit", "2", "--offset", "1")
    assert ([entry["name"] for entry in document["tools"]], document["total"]) == (
        ["tool_0", "tool_1"],
        6,
    )
    result = run("tools", "list", path, "--limit", "2")
    assert len(result.stdout.splitlines()) == 2
    assert "6 tools" in result.stderr
    assert "Use --offset 2 for more." in result.stderr


def test_tools_are_ranked_for_a_request(tmp_path: Path) -> None:
    path = file(tmp_path, many())
    document = run_json("tools rank", path, "what is the weather in this city", "-n", "1")
    assert [entry["name"] for entry in document["tools"]] == ["get_weather"]
    assert "get_weather\t" in run("tools", "rank", path, "weather forecast").stdout
    assert run_json("tools rank", path, "xylophone", code=3)["tools"] == []


def test_check_tells_errors_from_warnings(tmp_path: Path) -> None:
    wrong: list[object] = [
        WEATHER,
        {"name": "get weather!\x1b[2J", "description": "x", "inputSchema": CITY},
        {"name": "twice", "description": "x", "inputSchema": CITY},
        {"name": "twice", "description": "y", "inputSchema": CITY},
        {"name": "text", "description": "x", "inputSchema": {"type": "string"}},
        {
            "name": "away",
            "description": "x",
            "inputSchema": {"type": "object", "$ref": "https://example.com/s.json"},
        },
        {
            "name": "bare",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
        {"description": "nameless"},
        {"name": "long", "description": "word " * 3_000},
    ]
    document = run_json("tools check", file(tmp_path, wrong), code=1)
    problems = {(entry["tool"], entry["severity"]) for entry in document["problems"]}
    assert problems == {
        ("get weather!\x1b[2J", "error"),
        ("twice", "error"),
        ("text", "error"),
        ("away", "error"),
        ("#8", "error"),
        ("bare", "warning"),
        ("long", "warning"),
    }
    assert document["errors"] == 5
    output = run("tools", "check", file(tmp_path, wrong), code=1).stdout
    assert "\x1b" not in output
    assert "1 of 1 parameters have no description: a" in output


def test_warnings_alone_end_with_0(tmp_path: Path) -> None:
    document = run_json("tools check", file(tmp_path, [{"name": "bare"}]))
    assert (document["errors"], [entry["severity"] for entry in document["problems"]]) == (
        0,
        ["warning"],
    )


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"tools"', "{}", '{"tools": 3}', '{"result": 4}', "[[]]", "[" * 100_000]
)
def test_a_file_without_tools_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(text, encoding="utf-8")
    assert "tool" in run("tools", "list", path, code=2).stderr


def test_an_empty_list_ends_with_3(tmp_path: Path) -> None:
    assert run("tools", "list", file(tmp_path, []), code=3).stderr == "There are no tools.\n"
