"""Data without records: its values, each in a line with its path."""

import json
from typing import Any

from hypothesis import given, strategies as st

from llm_common.parts.result_parts import ResultParts
from llm_common.pointers.reading import value_at

REPOSITORY: dict[str, Any] = {
    "id": 1296269,
    "name": "hello",
    "license": {"key": "mit", "name": "MIT License"},
    "limits": {"a/b": {"~timeout": 30}, "none": None, "tags": []},
    "pages": {f"page_{number}": {"url": f"https://x.example/{number}"} for number in range(2)},
    "readme": "word " * 90,
}


def shown(data: Any, question: str = "", max_chars: int = 900) -> list[str]:
    return ResultParts(json.dumps(data), data, question).excerpt(max_chars).text.split("\n")


def test_values_have_paths_that_read_them_s0_51() -> None:
    head, *lines = shown(REPOSITORY)
    assert head == "10 values, each in a line with its path. Some of them:"
    values = {}
    for line in lines:
        path, value = line.split(": ", 1)
        values[path] = value
    assert values["/limits/a~1b/~0timeout"] == "30"
    assert (values["/limits/none"], values["/limits/tags"]) == ("null", "[]")
    for path in ("/id", "/license/name", "/pages/page_1/url"):
        assert values[path] == str(value_at(REPOSITORY, path))
    assert len(values["/readme"]) < 300


def test_values_that_the_question_names_come_first_s0_51() -> None:
    lines = shown(REPOSITORY, "Which license does it have?", 200)
    assert lines[1] == '2 lines contain "license"'
    assert {"/license/key: mit", "/license/name: MIT License"} <= set(lines)


def test_a_name_with_line_ends_is_in_one_line_s0_51() -> None:
    data = {"a\n2: b": {str(number): number / 2 for number in range(90)}, "c": {"d": "e"}}
    assert shown(data)[0] == "91 values, each in a line with its path. Some of them:"


def test_values_that_are_too_many_to_be_read_are_not_counted_s0_51() -> None:
    data = {f"k{number}": {f"m{number}": [number, [0.5]]} for number in range(50_001)}
    text = "\n".join(shown(data, "k7"))
    assert " values, each in a line" not in text
    assert "lines contain" not in text


@given(
    st.recursive(
        st.integers() | st.text(st.characters(codec="utf-8"), max_size=9) | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=20,
    ),
    st.integers(80, 400),
)
def test_an_excerpt_of_any_data_fits_s0_51(data: Any, max_chars: int) -> None:
    excerpt = ResultParts(json.dumps(data), data, "").excerpt(max_chars)
    assert len(excerpt.text) <= max_chars
