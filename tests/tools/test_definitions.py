"""Tool definitions in the usual spellings, their problems, and which tools only read."""

from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.core import DefaultCounter
from llm_common.errors import ConfigError
from llm_common.tools import ToolDefinition
from llm_common.tools.definitions import (
    MAX_DEFINITION_TOKENS,
    check_definitions,
    has_writing_verb,
    only_reads,
    read_definition,
    read_definitions,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}}
READS = {"readOnlyHint": True}


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "t", "description": "d", "inputSchema": SCHEMA, "annotations": READS},
        {"name": "t", "description": "d", "input_schema": SCHEMA, "annotations": READS},
        {"name": "t", "description": "d", "parameters": SCHEMA, "annotations": READS},
        {
            "type": "function",
            "function": {"name": "t", "description": "d", "parameters": SCHEMA},
            "annotations": READS,
        },
    ],
    ids=["mcp", "anthropic", "responses", "chat"],
)
def test_every_usual_spelling_is_the_same_definition(entry: dict[str, Any]) -> None:
    assert read_definition(entry) == ToolDefinition("t", "d", SCHEMA, True)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "t"}, ToolDefinition("t", "", {}, None)),
        ({"name": "t", "description": 5}, ToolDefinition("t", "", {}, None)),
        ({"name": "t", "parameters": "none"}, ToolDefinition("t", "", {}, None)),
        (
            {"name": "t", "annotations": {"readOnlyHint": False}},
            ToolDefinition("t", "", {}, False),
        ),
        ({"name": "t", "annotations": {"readOnlyHint": "yes"}}, ToolDefinition("t", "", {}, None)),
        ({"name": "t", "annotations": []}, ToolDefinition("t", "", {}, None)),
        ({"name": " "}, None),
        ({"name": 5}, None),
        ({}, None),
        ({"function": "t"}, None),
        (["t"], None),
        ("t", None),
    ],
    ids=str,
)
def test_what_a_definition_lacks_is_empty_and_without_a_name_there_is_none(
    entry: object, expected: ToolDefinition | None
) -> None:
    assert read_definition(entry) == expected


@pytest.mark.parametrize("name", ["", " ", None])
def test_a_definition_without_a_name_gets_the_one_that_is_passed(name: object) -> None:
    assert read_definition({"name": name}, unnamed="#3") == ToolDefinition("#3", "", {}, None)
    assert read_definition({"name": "own"}, unnamed="#3") == ToolDefinition("own", "", {}, None)


@pytest.mark.parametrize(
    "document",
    [
        [{"name": "a"}, {"description": "second"}],
        {"tools": [{"name": "a"}, {"description": "second"}]},
        {"jsonrpc": "2.0", "result": {"tools": ({"name": "a"}, {"description": "second"})}},
    ],
    ids=["list", "object", "answer"],
)
def test_documents_are_read_in_their_order_with_names_by_position(document: object) -> None:
    assert read_definitions(document) == (
        ToolDefinition("a", "", {}, None),
        ToolDefinition("#2", "second", {}, None),
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('[{"name": "a"}]', "as json.loads makes it of a text"),
        (b"[]", "as json.loads makes it of a text"),
        ({"tools": {"name": "a"}}, 'an object with one under "tools"$'),
        ({"result": []}, 'an object with one under "tools"$'),
        (5, 'an object with one under "tools"$'),
        ([{"name": "a"}, "b"], "tool 2 is not a definition; make it an object with a name"),
    ],
    ids=str,
)
def test_another_document_is_refused_with_a_hint(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_definitions(document)
    assert caught.value.variable == "tools"


def problems_of(*tools: ToolDefinition) -> list[tuple[str, str, str]]:
    problems = check_definitions(tools, counter=DefaultCounter())
    return [(problem.tool, problem.severity, problem.message) for problem in problems]


def test_a_good_definition_has_no_problems() -> None:
    assert problems_of(ToolDefinition("get_weather", "Reports.", SCHEMA)) == []
    assert problems_of(ToolDefinition("ping", "Answers.", {})) == []


def test_errors_come_first_and_namesakes_count_once() -> None:
    undescribed = {
        "type": "object",
        "properties": {f"p{number}": {"type": "string"} for number in range(7)}
        | {"city": {"description": "A city."}},
    }
    same = ToolDefinition("same", "Does it.", SCHEMA)
    assert problems_of(
        ToolDefinition("silent", " ", SCHEMA),
        ToolDefinition("bare", "Does it.", undescribed),
        same,
        same,
        ToolDefinition("a b", "Does it.", {"type": "array"}),
        ToolDefinition("far", "", {"$ref": "https://example.com/schema"}),
    ) == [
        ("same", "error", "2 tools have this name; rename all but one"),
        ("a b", "error", "endpoints refuse the name; use 1 to 64 letters, digits, _ and -"),
        ("a b", "error", 'the schema does not describe an object; set its type to "object"'),
        (
            "far",
            "error",
            problems_of(ToolDefinition("far", "x", {"$ref": "https://example.com/schema"}))[0][2],
        ),
        (
            "silent",
            "warning",
            "the description is empty; models and searches choose by it, so add one",
        ),
        (
            "bare",
            "warning",
            "7 of 8 parameters have no description: p0, p1, p2, p3, p4",
        ),
    ]


def test_a_definition_of_just_the_most_tokens_is_not_long() -> None:
    def counter(tokens: int) -> Any:
        return SimpleNamespace(count=lambda _: tokens)

    tools = [ToolDefinition("get", "Gets.", {})]
    assert check_definitions(tools, counter=counter(MAX_DEFINITION_TOKENS)) == []
    [problem] = check_definitions(tools, counter=counter(MAX_DEFINITION_TOKENS + 1))
    assert (problem.severity, problem.message) == (
        "warning",
        f"the definition takes {MAX_DEFINITION_TOKENS + 1:,} tokens in every call; shorten it",
    )


def flags(**types: str) -> dict[str, Any]:
    return {"properties": {name: {"type": kind} for name, kind in types.items()}}


@pytest.mark.parametrize(
    ("name", "parameters", "reads"),
    [
        ("get_weather", {}, True),
        ("getWeather", {}, True),
        ("git_log", {}, True),
        ("log_event", {}, False),
        ("weather", {}, False),
        ("deletion", {}, False),
        ("send_report", {}, False),
        ("get_order", {}, True),
        ("order_list", {}, False),
        ("get_or_make", {}, False),
        ("check_in", {}, False),
        ("check_inventory", {}, True),
        ("get_file", flags(overwrite="boolean"), False),
        ("get_file", flags(save_to="string"), False),
        ("get_file", flags(start_date="string"), True),
        ("get_file", flags(start="boolean"), False),
        ("get_file", flags(follow="boolean"), False),
        ("get_file", flags(follow="string"), True),
    ],
)
def test_a_tool_only_reads_if_no_verb_says_otherwise(
    name: str, parameters: dict[str, Any], reads: bool
) -> None:
    assert only_reads(name, parameters) is reads


@pytest.mark.parametrize(
    ("name", "writes"),
    [("send_mail", True), ("mail_send", True), ("order_pizza", True), ("get_order", False)],
)
def test_a_noun_is_a_writing_verb_at_the_beginning_alone(name: str, writes: bool) -> None:
    assert has_writing_verb(name) is writes
