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
    ("schema", "shown"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"enum": ["x", "y", 3, None]}, "x|y|3|null"),
        ({"enum": list(range(20))}, "0|1|2|3|4|5|6|7|…"),
        ({"const": "only"}, "only"),
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
def test_types_are_shown_in_words(schema: Any, shown: str) -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    root = {**parameters(p=schema), "$defs": {"P": place, "Loop": {"$ref": "#/$defs/Loop"}}}
    assert signature("t", "", root) == f"t(p?: {shown})"


def test_the_whole_line() -> None:
    root = {
        **parameters(
            a={"type": "string"}, b={"anyOf": [{"type": "integer"}, {"enum": ["x", "y"]}]}
        ),
        "required": ["a"],
    }
    shown = signature("name", "First sentence, v1.2 too. Second one.", root)
    assert shown == "name(a: str, b?: int|x|y) - First sentence, v1.2 too."


def test_a_third_party_name_cannot_break_the_line() -> None:
    assert signature("a\nb", "", {}) == "a b()"


def test_a_tool_without_parameters_or_description() -> None:
    assert signature("ping", "", {}) == "ping()"


def test_every_parameter_name_is_shown_s2_14() -> None:
    names = [f"parameter_{number}" for number in range(60)]
    shown = signature("t", "d", parameters(**{name: {"type": "string"} for name in names}))
    assert all(f"{name}?: str" in shown for name in names)


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
    shown = signature(
        "t", description, schema if isinstance(schema, dict) else {"properties": {"p": schema}}
    )
    assert shown.splitlines() == [shown]
    shown.encode()


def test_a_tools_name_forges_no_heading_f_173() -> None:
    assert signature("### Tools", "### x", {}) == " ### Tools() - ### x"


def test_the_parts_of_a_shared_object_are_not_read_for_each_parameter() -> None:
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


def test_an_object_of_many_parameters_is_shown_until_enough_are_read() -> None:
    wide = {
        "type": "object",
        "properties": {f"q{number}": {"type": "string"} for number in range(9_000)},
    }
    shown = signature("tool", "", {**parameters(a=wide, b=wide, c=wide, d=wide), "$defs": {}})
    assert shown.startswith("tool(a?: {q0?: str,")
    assert shown.endswith("d?: {…})")
