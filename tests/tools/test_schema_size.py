"""Schemas and arguments that would take a validator minutes: refused, or checked quickly."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from typing_extensions import TypeAliasType

from llm_common.errors import ConfigError
from llm_common.tools import Tool, ToolRegistry
from llm_common.tools.validation import MAX_CHECKS, compile_schema, find_problems
from tests.tools.hostile_schemas import AMBIGUOUS, ANY_JSON, nested_alternatives, nested_objects

Json = TypeAliasType("Json", "str | float | list[Json]")


def store_json(value: Json) -> None:
    """Keeps a value."""


def deep(levels: int, value: object = 5) -> object:
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "schema", [nested_alternatives(20), nested_alternatives(14), nested_objects(24)]
)
def test_an_exponential_schema_makes_no_tool_f_156(schema: dict[str, Any]) -> None:
    started = time.thread_time()
    with pytest.raises(
        ConfigError,
        match=f"more than {MAX_CHECKS:,} of its subschemas may check one value; nest fewer",
    ):
        Tool(print, name="t", parameters=schema)
    assert time.thread_time() - started < 1


def test_a_chain_of_references_without_end_makes_no_tool() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        Tool(print, name="t", parameters=nested_alternatives(5_000))


@pytest.mark.parametrize("depth", [4, 11])
def test_one_wrong_argument_is_found_quickly_f_156(depth: int) -> None:
    schema = json.dumps(nested_alternatives(depth))
    assert find_problems(schema, {"x": "fits"}) == ()
    started = time.thread_time()
    (problem,) = find_problems(schema, {"x": 5})
    assert time.thread_time() - started < 1
    assert problem.path == "x"


def test_an_ambiguous_recursion_is_checked_quickly_f_156() -> None:
    schema = json.dumps(AMBIGUOUS)
    assert find_problems(schema, {"x": deep(60, "fits")}) == ()
    (problem,) = find_problems(schema, {"x": deep(60)})
    assert (problem.path, problem.rule) == ("x", "schema")


def test_many_wrong_values_are_found_quickly_and_named_by_parameter() -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "ids": {"type": "array", "items": {"type": "string"}},
                "n": {"type": "integer"},
            },
            "required": ["n", "m"],
        }
    )
    started = time.thread_time()
    problems = find_problems(schema, {"ids": list(range(200_000)), "n": "x"})
    assert time.thread_time() - started < 2
    assert [(problem.path, problem.rule) for problem in problems] == [
        ("", "required"),
        ("ids", "schema"),
        ("n", "type"),
    ]


def test_a_rule_that_no_parameter_breaks_alone_is_still_a_problem() -> None:
    schema = json.dumps(
        {"type": "object", "minProperties": 2, "properties": {"ids": {"type": "array"}}}
    )
    (problem,) = find_problems(schema, {"ids": list(range(5_000))})
    assert (problem.path, problem.rule) == ("", "schema")


def test_endless_nesting_does_not_end_the_process() -> None:
    code = (
        "import json; from llm_common.tools.validation import find_problems\n"
        f"schema, value = {json.dumps(AMBIGUOUS)!r}, 5\n"
        "for _ in range(20_000): value = [value]\n"
        "print(find_problems(schema, {'x': value})[0].rule)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "json")


async def test_recursive_types_make_a_tool_f_155() -> None:
    registry = ToolRegistry([store_json])
    registry.register(print, name="zod", parameters=ANY_JSON)
    assert await registry.execute("store_json", {"value": ["a", [1.5, ["b"]]]}) is None
    assert find_problems(json.dumps(ANY_JSON), {"x": deep(40, {"k": [None, True]})}) == ()
    assert find_problems(json.dumps(ANY_JSON), {}) == ()


@pytest.mark.parametrize(
    ("defined", "reference"),
    [
        ({"$id": "T0"}, "T0"),
        ({"$anchor": "item"}, "#item"),
        ({"$id": "http://box.example/schemas/t0"}, "http://box.example/schemas/t0"),
    ],
)
def test_references_by_name_are_followed_and_counted(
    defined: dict[str, str], reference: str
) -> None:
    target = {**nested_alternatives(3)["$defs"]["n3"], **defined}
    schema = {"type": "object", "properties": {"x": {"$ref": reference}}, "$defs": {"item": target}}
    compiled = compile_schema(json.dumps(schema))
    assert compiled.checks == 3
    assert find_problems(compiled.text, {"x": 5})
