import json
import math
import uuid
from dataclasses import dataclass
from datetime import date
from enum import Enum

import pytest
from hypothesis import given, strategies as st

from llm_common.errors import CorruptPointerError, ResultTooLargeError
from llm_common.text.canonical import decode_json, encode_json, json_text, to_plain

any_text = st.text(st.characters(codec=None, categories=None))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=15,
)


class Colour(Enum):
    RED = "red"
    ODD = math.nan


@dataclass
class Row:
    day: date


def strict(data: bytes) -> object:
    def refuse(name: str) -> None:
        pytest.fail(f"{name} is not JSON")

    return json.loads(data, parse_constant=refuse)


@given(json_values)
def test_values_are_read_back_as_the_standard_library_reads_them_s0_14(value: object) -> None:
    data = encode_json(value).data
    assert decode_json(data) == strict(data) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        "\u2028\u2029 Zürich 東京 😀",
        2**63,
        2**64,
        -(10**60),
        [1e300, -0.0, 5e-324],
        "\ud83d\ude00",
        {"\ud800": "\udfff"},
        "x" * 10_000_000,
    ],
    ids=["none", "text", "2**63", "2**64", "big", "floats", "two-halves", "F-032", "ten-megabytes"],
)
def test_awkward_json_values_survive_s0_14(value: object) -> None:
    read = decode_json(encode_json(value).data)
    assert read == json.loads(json.dumps(value))
    assert type(read) is type(json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    "value",
    [
        [math.nan, math.inf],
        {"a": math.nan, "b": date(2025, 1, 2)},
        {"c": Colour.RED, "odd": Colour.ODD, "u": uuid.UUID(int=5)},
        {1: (1, 2), "r": Row(date(2025, 1, 2))},
        {"b": b"x", "n": 2**70},
    ],
)
def test_both_encoders_write_the_same_data_f_033(value: object) -> None:
    data = encode_json(value).data
    assert strict(data) == strict(json_text(to_plain(value)).encode())


def test_too_large_is_refused_before_and_after_encoding_f_040() -> None:
    assert encode_json("x" * 98, max_bytes=100).data == b'"' + b"x" * 98 + b'"'
    for value in ("x" * 99, {"a": ["x" * 101]}, list(range(60)), b"x" * 90):
        with pytest.raises(ResultTooLargeError, match="100 bytes"):
            encode_json(value, max_bytes=100)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"1" * 5000, b"[" * 100_000, b'{"a":1}x', b"{'a':1}"],
    ids=["empty", "cut", "binary", "bom", "F-044", "deep", "trailing", "quotes"],
)
def test_data_that_is_not_json_raises(data: bytes) -> None:
    with pytest.raises(CorruptPointerError):
        decode_json(data)


def test_nan_and_infinities_of_older_files_become_none_f_033() -> None:
    assert decode_json(b'[NaN, Infinity, -Infinity, "NaN"]') == [None, None, None, "NaN"]


NUMBERS = st.one_of(
    st.integers(),
    st.integers(2**63 - 3, 2**64 + 3),
    st.integers(-(2**64) - 3, -(2**63) + 3),
    st.integers(10**17, 10**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1).map(lambda share: share / 1e4),
)


@given(
    st.lists(
        st.one_of(
            NUMBERS,
            st.text(),
            NUMBERS.map(str),
            st.dictionaries(NUMBERS.map(str), NUMBERS, max_size=2),
        )
    )
)
def test_the_fast_reader_reads_what_the_standard_library_reads_s0_14(value: list[object]) -> None:
    text = json.dumps(value)
    assert repr(decode_json(text.encode())) == repr(json.loads(text))
    spaced = json.dumps(value, indent=1, ensure_ascii=False)
    assert repr(decode_json(spaced.encode("utf-8", "surrogatepass"))) == repr(json.loads(spaced))


@pytest.mark.parametrize("offset", range(24))
def test_a_long_integer_is_found_wherever_it_stands_s0_14(offset: int) -> None:
    for text in ("18446744073709551616", "-9223372036854775809", "1" * 19, "9" * 4_000):
        data = " " * offset + "[0.0123456789012345678, " + text + ", 5.5]"
        assert decode_json(data.encode()) == json.loads(data)


@pytest.mark.parametrize(
    "text",
    [
        "-0",
        "-0.0",
        "1e400",
        "0.1e-400",
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '{"a": 1, "a": 2}',
        "1E5",
        "[1.0, 1]",
    ],
)
def test_both_readers_agree_at_the_edges_s0_14(text: str) -> None:
    assert repr(decode_json(text.encode())) == repr(json.loads(text))
