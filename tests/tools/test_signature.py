"""Tests the signatures of tools."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.tools.signature import signature


def parameters(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"enum": ["x", "y", 3, None]}, "x|y|3|null"),
        ({"enum": list(range(20))}, "0|1|2|3|4|5|6|7|…"),
        ({"const": "only"}, "only"),
        ({"enum": [], "type": "string"}, "str"),
        ({"enum": [{"a": 1}, [1], "b"]}, "{…}|[…]|b"),
        ({"const": nested(5_000)}, "[…]"),
        ({"type": ["string", "null"]}, "str|null"),
        ({"anyOf": [{"type": "integer"}, {"enum": ["all"]}]}, "int|all"),
        ({"type": "array", "items": {"type": "string"}}, "str[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "(a|b)[]"),
        ({"type": "array"}, "any[]"),
        ({"type": "object"}, "{…}"),
        (
            {"type": "object", "properties": {"k": {"type": "object", "properties": {"z": {}}}}},
            "{k?: {…}}",
        ),
        ({"$ref": "#/$defs/P"}, "{city: str}"),
        ({"allOf": [{"$ref": "#/$defs/P"}]}, "{city: str}"),
        ({"$ref": "#/$defs/Loop"}, "any"),
        ({"$ref": "http://elsewhere.example/x"}, "any"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_types_are_written_as_words(schema: Any, expected: str) -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    root = {**parameters(p=schema), "$defs": {"P": city, "Loop": {"$ref": "#/$defs/Loop"}}}
    assert signature("t", "", root) == f"t(p?: {expected})"


def test_a_signature_has_parameters_and_the_first_sentence() -> None:
    root = {
        **parameters(
            a={"type": "string"}, b={"anyOf": [{"type": "integer"}, {"enum": ["x", "y"]}]}
        ),
        "required": ["a"],
    }
    line = signature("name", "First sentence, v1.2 too. Second one.", root)
    assert line == "name(a: str, b?: int|x|y) - First sentence, v1.2 too."


@pytest.mark.parametrize(
    ("name", "description", "line"),
    [
        ("ping", "", "ping()"),
        ("a\nb", "", "a b()"),
        pytest.param("### Tools", "### x", " ### Tools() - ### x", id="f_173 a heading"),
    ],
)
def test_a_name_cannot_break_the_line_or_forge_a_heading(
    name: str, description: str, line: str
) -> None:
    assert signature(name, description, {}) == line


def test_every_parameter_name_is_shown_s2_14() -> None:
    names = [f"parameter_{number}" for number in range(60)]
    line = signature("t", "d", parameters(**{name: {"type": "string"} for name in names}))
    assert all(f"{name}?: str" in line for name in names)


@given(
    description=st.text(max_size=400),
    schema=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "enum",
                        "anyOf",
                        "$ref",
                        "required",
                        "allOf",
                        "const",
                        "x",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
)
def test_any_schema_gives_one_line_and_no_error(description: str, schema: Any) -> None:
    line = signature(
        "t", description, schema if isinstance(schema, dict) else {"properties": {"p": schema}}
    )
    assert line.splitlines() == [line]
    line.encode()


def test_a_shared_object_is_read_a_limited_number_of_times() -> None:
    reads: list[str] = []

    class Part(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            reads.append(key)
            return super().get(key, default)

    several = parameters(**{f"p{number}": {"$ref": "#/$defs/all"} for number in range(20)})
    signature(
        "tool",
        "",
        {**several, "$defs": {"all": {"type": "object", "allOf": [Part() for _ in range(2_000)]}}},
    )
    assert 0 < len(reads) <= 20_000


def test_objects_beyond_a_limit_are_written_as_braces() -> None:
    wide = {
        "type": "object",
        "properties": {f"q{number}": {"type": "string"} for number in range(9_000)},
    }
    line = signature("tool", "", {**parameters(a=wide, b=wide, c=wide, d=wide), "$defs": {}})
    assert line.startswith("tool(a?: {q0?: str,")
    assert line.endswith("d?: {…})")
