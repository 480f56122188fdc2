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


def test_contains_shape_numbers_and_first_words_s0_08() -> None:
    result = {
        "company": "Apple Inc.",
        "rows": [{"year": 2024, "margin": 0.4617}],
        "note": "fiscal\nyear",
    }
    assert describe_result(result, size_bytes=1234) == (
        "object of 3: company rows note, 1,234 bytes; year 2024, margin 0.4617; Apple Inc. "
        "fiscal year"
    )


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        (None, "nothing, 4 bytes"),
        ([], "list of 0, 4 bytes"),
        ("two words", "text of 9 characters, 4 bytes; two words"),
        (5, "value, 4 bytes; 5"),
        ('{"seats": 3, "to": "Ulm"}', "object of 2: seats to, 4 bytes; seats 3; Ulm"),
        ("[not json", "text of 9 characters, 4 bytes; [not json"),
        ([{"a": 1}, {"a": 2}], "list of 2 objects: a, 4 bytes; a 1, a 2"),
        (({"c": Colour.RED},), "list of 1 objects: c, 4 bytes; red wine"),
        (
            [deque(["one", 2]), range(2), b"bytes", {3}, "two"],
            "list of 5, 4 bytes; 2, 0, 1; one two",
        ),
    ],
)
def test_names_every_kind_of_result_s0_08(value: object, digest: str) -> None:
    assert describe_result(value, size_bytes=4) == digest


def test_holds_about_the_first_500_characters_of_text_s0_08() -> None:
    words = " ".join(f"word{number}" for number in range(500))
    digest = describe_result({"text": words}, size_bytes=1)
    assert words[:560] in digest


def test_the_order_of_the_document_is_kept_s0_08() -> None:
    digest = describe_result(
        {"b": "first", "a": [{"z": "second"}, "third"], "c": "fourth"}, size_bytes=1
    )
    assert digest.endswith("; first second third fourth")


def test_secrets_are_left_out_s0_08() -> None:
    value = {
        "api_key": "CANARY",
        "inner": {"password": ["CANARY"]},
        "text": "use token=CANARY-9f3a7c51 now",
    }
    digest = describe_result(value, size_bytes=1)
    assert "CANARY" not in digest
    assert "use token=[redacted] now" in digest


def test_everything_under_a_secret_name_is_left_out_s0_08() -> None:
    digest = describe_result({"credentials": {"user": "bob", "pin": 12}, "rows": 3}, size_bytes=9)
    assert "rows 3" in digest
    assert "bob" not in digest
    assert "12" not in digest


@pytest.mark.parametrize(
    "value",
    [
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
def test_a_secret_is_recognized_by_its_position_s0_08(value: object) -> None:
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


def test_an_integer_too_long_for_python_is_skipped() -> None:
    assert describe_result([10**5_000, "after", 7], size_bytes=9) == "list of 3, 9 bytes; 7; after"


ORDERS = [
    {
        "no": f"W{n:04}",
        "state": ("open", "paid", "sent")[n % 3],
        "by": {"city": ("Bern", "Oslo")[n % 2]},
    }
    for n in range(330)
]


def test_records_are_described_by_number_place_fields_and_shared_values_s0_08() -> None:
    result = {"meta": {"page": 1}, "data": {"orders": ORDERS}, "status": "ok"}
    assert describe_result(result, size_bytes=9_000).startswith(
        "330 records at data.orders: no state by, 9,000 bytes; city Bern Oslo, state open paid sent;"
    )
    assert describe_result(ORDERS, size_bytes=9_000).startswith(
        "list of 330 objects: no state by, 9,000 bytes; city Bern Oslo, state open paid sent;"
    )
    assert describe_result(json.dumps(result), size_bytes=9_000).startswith("330 records at data")


def test_values_of_late_records_are_described_s0_08() -> None:
    late = [{"n": n, "kind": "early" if n < 900 else "late"} for n in range(1_000)]
    assert "kind early late" in describe_result(late, size_bytes=1)


def test_values_that_all_differ_or_are_long_are_not_shared_values_s0_08() -> None:
    rows = [{"name": f"name {n}", "text": "prose " * (8 + n % 2), "one": "same"} for n in range(50)]
    digest = describe_result(rows, size_bytes=1)
    assert digest.startswith("list of 50 objects: name text one, 1 bytes; name 0 prose")


@pytest.mark.parametrize(
    "secrets",
    [
        {"api_key": "CANARY-9f3a7c51", "state": "open"},
        {"name": "API_KEY", "value": "CANARY-9f3a7c51", "state": "open"},
        {"credentials": {"user": "CANARY-9f3a7c51"}, "state": "open"},
        {"note": "token=CANARY-9f3a7c51", "state": "open"},
    ],
)
def test_shared_values_hold_no_secret_s0_08(secrets: dict[str, object]) -> None:
    rows = [secrets if n % 2 else {"state": "paid", "api_key": "other"} for n in range(40)]
    digest = describe_result({"rows": rows}, size_bytes=1)
    assert "CANARY" not in digest
    assert "state paid open" in digest


def test_many_records_are_described_by_a_sample_s0_08() -> None:
    value = {"rows": [{str(field): "x" for field in range(2_000)}] * 1_000_000}
    start = time.thread_time()
    digest = describe_result(value, size_bytes=1)
    assert time.thread_time() - start < 0.05
    assert digest.startswith("1,000,000 records at rows: 0 1 2")
    assert len(digest) <= MAX_DESCRIPTION_CHARS
