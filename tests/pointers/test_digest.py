import json
import time
from collections import deque
from enum import Enum

import pytest
from hypothesis import given, strategies as st

from llm_common.pointers.pointer import MAX_DESCRIPTION_CHARS, describe_result

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=9), inner, max_size=6)
    ),
    max_leaves=40,
)


class Colour(Enum):
    RED = "red wine"


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        (
            {
                "company": "Apple Inc.",
                "rows": [{"year": 2024, "margin": 0.4617}],
                "note": "fiscal\nyear",
            },
            (
                "object of 3: company rows note, 4 bytes; year 2024, margin 0.4617; "
                "Apple Inc. fiscal year"
            ),
        ),
        (
            {"b": "first", "a": [{"z": "second"}, "third"], "c": "fourth"},
            "object of 3: b a c, 4 bytes; first second third fourth",
        ),
        ([10**5_000, "after", 7], "list of 3, 4 bytes; 7; after"),
        ({"text": "use token=CANARY-9f3a7c51"}, "object of 1: text, 4 bytes; use token=[redacted]"),
        (None, "nothing, 4 bytes"),
        ([], "list of 0, 4 bytes"),
        ("two words", "text of 9 characters, 4 bytes; two words"),
        (5, "value, 4 bytes; 5"),
        ('{"seats": 3, "to": "Ulm"}', "object of 2: seats to, 4 bytes; seats 3; Ulm"),
        ("[not json", "text of 9 characters, 4 bytes; [not json"),
        ([{"a": 1}, {"a": 2}], "list of 2 objects: a, 4 bytes; a 1, a 2"),
        (({"c": Colour.RED},), "list of 1 objects: c, 4 bytes; red wine"),
        ([{"a": 1}, 2], "list of 2, 4 bytes; a 1, 2"),
        (
            {"lat": 52.5200081, "n": 1234567.5},
            "object of 2: lat n, 4 bytes; lat 52.5200081, n 1234567.5",
        ),
        (
            [deque(["one", 2]), range(2), b"bytes", {3}, "two"],
            "list of 5, 4 bytes; 2, 0, 1; one two",
        ),
    ],
)
def test_contains_shape_numbers_and_first_words_in_their_order_s0_08(
    value: object, digest: str
) -> None:
    assert describe_result(value, size_bytes=4) == digest


def test_holds_about_the_first_500_characters_of_text_s0_08() -> None:
    words = " ".join(f"word{number}" for number in range(500))
    digest = describe_result({"text": words}, size_bytes=1)
    assert words[:560] in digest


def test_everything_under_a_secret_name_is_left_out_s0_08() -> None:
    digest = describe_result({"credentials": {"user": "bob", "pin": 12}, "rows": 3}, size_bytes=9)
    assert "rows 3" in digest
    assert "bob" not in digest
    assert "12" not in digest


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": "CANARY-9f3a7c51"},
        {"inner": {"password": ["CANARY-9f3a7c51"]}},
        {"name": "API_KEY", "value": "CANARY-9f3a7c51"},
        [["password", "CANARY-9f3a7c51"]],
        ["login", "--password", "CANARY-9f3a7c51"],
        {"password": {"old": "CANARY-9f3a7c51"}},
        {"body": json.dumps({"rows": [{"name": "API_KEY", "value": "CANARY-9f3a7c51"}]})},
        {"body": json.dumps({"inner": json.dumps(["password", "CANARY-9f3a7c51"])})},
        {"body": json.dumps([["password", "CANARY-9f3a7c51"], *["after"] * 2_000])},
        json.dumps({"body": json.dumps({"password": "CANARY-9f3a7c51"})}),
    ],
    ids=[
        "name",
        "list of a name",
        "named value",
        "pair",
        "command",
        "object",
        "row in a text",
        "text in a text",
        "long text",
        "text of a text",
    ],
)
def test_a_secret_is_recognized_by_its_name_or_position_s0_08(value: object) -> None:
    digest = describe_result(["before", value, {"after": 7}], size_bytes=9)
    assert "CANARY" not in digest
    assert "before" in digest
    assert "9f3a7c51" not in describe_result(value, size_bytes=9)


@given(json_values)
def test_is_one_bounded_line_s0_08(value: object) -> None:
    digest = describe_result(value, size_bytes=1)
    assert len(digest) <= MAX_DESCRIPTION_CHARS
    assert len(digest.splitlines()) == 1
    assert digest == describe_result(value, size_bytes=1)
    digest.encode("utf-8")


def test_reads_only_the_head_of_a_large_result_s0_08() -> None:
    value = {
        "rows": [{"text": "x" * 1000}] * 1_000_000,
        "more": {str(number): number for number in range(100_000)},
    }
    start = time.thread_time()
    describe_result(value, size_bytes=1)
    assert time.thread_time() - start < 0.05
