import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.errors import ConfigError
from llm_common.tools.validation import compile_schema, find_problems

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "sort": {"enum": ["new", "top"]},
            "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "filter": {"$ref": "#/$defs/Filter"},
            "tags": {"type": "array", "items": {"type": "string", "minLength": 2}},
        },
        "required": ["count"],
        "$defs": {
            "Filter": {
                "type": "object",
                "properties": {"size": {"type": "number"}},
                "required": ["size"],
            }
        },
    }
)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CLOSED = '{"properties":{"a":{}},"additionalProperties":false}'


@pytest.mark.parametrize(
    ("schema", "args", "path", "rule"),
    [
        (SCHEMA, {}, "", "required"),
        (SCHEMA, {"count": "3"}, "count", "type"),
        (SCHEMA, {"count": 1.5}, "count", "type"),
        (SCHEMA, {"count": True}, "count", "type"),
        (SCHEMA, {"count": 0}, "count", "minimum"),
        (SCHEMA, {"count": 1, "sort": "old"}, "sort", "enum"),
        (SCHEMA, {"count": 1, "when": 5}, "when", "anyOf"),
        (SCHEMA, {"count": 1, "filter": {}}, "filter", "required"),
        (SCHEMA, {"count": 1, "filter": {"size": "x"}}, "filter.size", "type"),
        (SCHEMA, {"count": 1, "tags": ["ab", "a"]}, "tags.1", "minLength"),
        (SCHEMA, {"count": 1, "tags": deep(5_000)}, "tags", "schema"),
        (SCHEMA, {"count": object()}, "", "json"),
        (SCHEMA, {"count": "\ud800"}, "", "json"),
        (CLOSED, {"b": 1}, "", "additionalProperties"),
    ],
)
def test_a_broken_rule_is_named_with_its_place_s2_07(
    schema: str, args: dict[str, Any], path: str, rule: str
) -> None:
    (problem,) = find_problems(schema, args)
    assert (problem.path, problem.rule) == (path, rule)
    assert problem.message


@pytest.mark.parametrize(
    "args",
    [
        {"count": 1},
        {"count": 10**40, "sort": "top", "when": None, "filter": {"size": 0.5}, "tags": []},
        {"count": 3.0, "unknown": "allowed where the schema does not forbid it"},
        {"count": 1, "__proto__": {"x": 1}, "__class__": "os.system"},
    ],
)
def test_arguments_that_fit_have_no_problems_f_106(args: dict[str, Any]) -> None:
    assert find_problems(SCHEMA, args) == ()


secrets = st.recursive(
    st.just("SECRET"),
    lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.just("k"), inner, min_size=1),
)


@given(
    args=st.dictionaries(
        st.sampled_from(["count", "sort", "when", "filter", "tags", "other"]), secrets
    )
)
def test_values_never_stand_in_a_message(args: dict[str, Any]) -> None:
    strict = json.dumps(
        json.loads(SCHEMA) | {"additionalProperties": False, "not": {"required": ["other"]}}
    )
    for problem in find_problems(strict, args):
        assert "SECRET" not in str(problem)


def test_problems_are_bounded() -> None:
    schema = '{"additionalProperties":{"type":"integer"}}'
    assert len(find_problems(schema, {f"key{number}": "x" for number in range(10_000)})) == 20


def test_a_listening_server_sees_no_request() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        port = server.getsockname()[1]
        with pytest.raises(ConfigError):
            compile_schema(json.dumps({"$ref": f"http://127.0.0.1:{port}/s.json"}))
        with pytest.raises(TimeoutError):
            server.accept()


def test_equal_schemas_share_one_validator() -> None:
    assert compile_schema('{"type":"object"}') is compile_schema('{"type":"object"}')


SECRET = "sk-proj-Ab3dE6gH9jK2mN5pQ8sT1vW4yZ7aB0cD3eF6gH9j"


@pytest.mark.parametrize(
    "args", [{SECRET: 1, "count": 1}, {"count": 1, "filter": {"size": 1, SECRET: {}}}]
)
def test_a_problem_repeats_no_secret_of_a_name(args: dict[str, Any]) -> None:
    schema = json.loads(SCHEMA) | {"additionalProperties": False}
    schema["$defs"]["Filter"]["additionalProperties"] = {"type": "string"}
    problems = " ".join(map(str, find_problems(json.dumps(schema), args)))
    assert "[redacted]" in problems
    assert SECRET not in problems


@pytest.mark.parametrize(
    "schema", [{"$ref": f"https://h.example/?key={SECRET}"}, {"$schema": f"https://h/{SECRET}"}]
)
def test_the_error_of_a_schema_repeats_no_secret(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_schema(json.dumps(schema))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/none", "#none", "other.json", "#/$defs/list/2", "file:///etc/hostname"],
)
def test_a_reference_that_leads_nowhere_is_named(reference: str) -> None:
    schema = {"properties": {"a": {"$ref": reference}}, "$defs": {"list": [{}, {}]}}
    with pytest.raises(ConfigError, match="leads nowhere; write a reference as #/") as caught:
        compile_schema(json.dumps(schema))
    assert f"usable JSON Schema: {reference} leads" in caught.value.message
