import asyncio
import io
import json
import math
import threading
import types
import uuid
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from llm_common.errors import CorruptPointerError, UnserialisableError
from llm_common.text.canonical import (
    MAX_DEPTH,
    decode_json,
    encode_json,
    json_text,
    snapshot,
    stable_json,
    to_plain,
)
from tests.programs import printed

any_text = st.text(st.characters(exclude_categories=()), max_size=9)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mode(StrEnum):
    FAST = "fast"


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Quote:
    price: Decimal
    day: date


class Answer(BaseModel):
    when: datetime
    quotes: list[Quote]


class Text(str):
    __slots__ = ()


class Plain:
    def __init__(self) -> None:
        self.price = 5
        self._secret = "x"


class Commit:
    """A value whose text may look like an address."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class ToolOutput:
    def __init__(self) -> None:
        self.data = {"a": (1, 2)}
        self.source_urls = ["https://example.com"]

    def __repr__(self) -> str:
        return "ToolOutput(...)"


NOON = datetime(2025, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(NOON, "2025-01-02T12:00:00+00:00", id="S0-03-datetime"),
        pytest.param(date(2025, 1, 2), "2025-01-02", id="S0-03-date"),
        pytest.param(time(1, 2), "01:02:00", id="S0-03-time"),
        pytest.param(timedelta(minutes=1), 60.0, id="S0-03-timedelta"),
        pytest.param({"b", "a"}, ["a", "b"], id="S0-03-set"),
        pytest.param(frozenset({2, 10}), [10, 2], id="S0-03-frozenset-by-text"),
        pytest.param(Path("/a/b"), "/a/b", id="S0-03-path"),
        pytest.param(b"\xff\x00", {"base64": "/wA="}, id="S0-03-bytes"),
        pytest.param(bytearray(b"a"), {"base64": "YQ=="}, id="S0-03-bytearray"),
        pytest.param(Decimal("1.10"), "1.10", id="S0-03-decimal"),
        pytest.param(uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", id="S0-03-uuid"),
        pytest.param(Colour.RED, "red", id="S0-03-enum"),
        pytest.param([Level.HIGH, Mode.FAST], [3, "fast"], id="S0-03-int-and-text-enum"),
        pytest.param(
            Answer(when=NOON, quotes=[Quote(Decimal("2.5"), date(2025, 1, 2))]),
            {
                "when": "2025-01-02T12:00:00+00:00",
                "quotes": [{"price": "2.5", "day": "2025-01-02"}],
            },
            id="F-038-model-and-dataclass",
        ),
        pytest.param(
            ToolOutput(),
            {"data": {"a": [1, 2]}, "source_urls": ["https://example.com"]},
            id="F-038-tool-result",
        ),
        pytest.param(Plain(), {"price": 5}, id="public-attributes"),
        pytest.param(Commit("own text"), "own text", id="S0-13-last-resort"),
        *(
            pytest.param({"a": Commit(text)}, {"a": text}, id=f"S0-13-{text}")
            for text in (
                "0xdeadbeef12",
                "<Wallet 0x00c0ffee00>",
                "at 0x7f0011223344",
                "<Op at 0x401000>",
            )
        ),
        pytest.param({1: "a", "b": 2}, {"1": "a", "b": 2}, id="F-031"),
        pytest.param(
            {True: 1, None: 2, 1.5: 3, Mode.FAST: 4, NOON: 5},
            {"true": 1, "null": 2, "1.5": 3, "fast": 4, "2025-01-02T12:00:00+00:00": 5},
            id="F-031-keys-as-json-writes-them",
        ),
        pytest.param({(1, "x"): 2}, {'[1,"x"]': 2}, id="F-034"),
        pytest.param([math.nan, math.inf, -math.inf], [None, None, None], id="F-033"),
        pytest.param("a\ud800b", "a\ud800b", id="F-032"),
        pytest.param([10**400, -0.0], [10**400, -0.0], id="big-integer"),
        pytest.param(Point(1, 2), [1, 2], id="named-tuple"),
        pytest.param(deque([1]), [1], id="deque"),
        pytest.param(UserDict({"a": 1}), {"a": 1}, id="user-dict"),
        pytest.param(types.MappingProxyType({"a": 1}), {"a": 1}, id="mapping-proxy"),
        pytest.param([Text("t"), OrderedDict(a=1)], ["t", {"a": 1}], id="subclasses"),
        pytest.param({"lc": 1, "type": "secret"}, {"lc": 1, "type": "secret"}, id="F-042"),
        pytest.param({"__bytes_b64__": "YQ=="}, {"__bytes_b64__": "YQ=="}, id="F-043"),
    ],
)
def test_values_become_plain_data(value: object, plain: object) -> None:
    result = to_plain(value)
    assert result == plain
    assert json.loads(json.dumps(result)) == plain


def test_subclasses_become_plain_types() -> None:
    assert [type(item) for item in to_plain([Text("t"), Level.HIGH, True, 2.5])] == [  # type: ignore[union-attr]
        str,
        int,
        bool,
        float,
    ]


class RaisesText:
    def __str__(self) -> str:
        raise RuntimeError("my text holds a secret")


class RaisesRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def cycle() -> list[object]:
    loop: list[object] = []
    loop += [loop, loop]
    return loop


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(cycle, id="F-035"),
        pytest.param(RaisesText, id="F-036-str"),
        pytest.param(lambda: {"a": [RaisesRepr()]}, id="F-036-repr"),
        pytest.param(lambda: {RaisesText(): 1}, id="F-036-key"),
        pytest.param(lambda: io.StringIO("x"), id="F-037-file"),
        pytest.param(lambda: io.TextIOWrapper(io.BytesIO(b"x")), id="F-037-open-file"),
        pytest.param(lambda: io.BufferedReader(io.BytesIO(b"x")), id="F-037-open-binary-file"),
        pytest.param(threading.Lock, id="F-037-lock"),
        pytest.param(object, id="object-without-text"),
        pytest.param(lambda: to_plain, id="function"),
        pytest.param(lambda: deep(10_000), id="F-039"),
        pytest.param(lambda: deep(MAX_DEPTH), id="F-039-just"),
        pytest.param(lambda: [].append, id="method"),
        pytest.param(lambda: Commit(f"of {object()}"), id="S0-13-text-with-an-address"),
        pytest.param(lambda: {1: "a", "1": "b"}, id="colliding-keys"),
        pytest.param(lambda: {1: "a", "1": "a"}, id="colliding-keys-of-one-value"),
        pytest.param(lambda: {None: None, "null": None}, id="colliding-keys-of-nothing"),
    ],
)
def test_values_without_a_json_form_raise_s0_13(make: Callable[[], object]) -> None:
    for use in (to_plain, stable_json):
        with pytest.raises(UnserialisableError) as caught:
            use(make())
        assert "secret" not in str(caught.value)


def levels_of(value: Any) -> tuple[int, Any]:
    """Return the depth of the innermost value of nested lists and dicts, and that value."""
    levels = 0
    while value and isinstance(value, list | dict):
        value = value[0] if isinstance(value, list) else value["a"]
        levels += 1
    return levels, value


@pytest.mark.parametrize("leaf", [1, 1.5, 2**70, "\ud800", "1" * 30, 'a"\\'], ids=ascii)
@pytest.mark.parametrize(
    "nest", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,)], ids=["list", "dict", "tuple"]
)
def test_nesting_up_to_the_limit_is_written_and_read_s0_14(
    nest: Callable[[object], object], leaf: object
) -> None:
    for depth in (100, MAX_DEPTH):
        value = leaf
        for _ in range(depth):
            value = nest(value)
        data = encode_json(value).data
        assert levels_of(decode_json(data)) == (depth, leaf)
        assert stable_json(value) == stable_json(decode_json(data))
    with pytest.raises(UnserialisableError, match="250 levels"):
        encode_json(nest(value))


@pytest.mark.parametrize(
    "data", [b"[" * 990, b"[1,]" * 300, b"[" * 500 + b"1" * 20 + b"}" * 500, b'{"a":' * 995 + b"1"]
)
def test_deep_data_that_is_not_json_raises_s0_14(data: bytes) -> None:
    with pytest.raises(CorruptPointerError):
        decode_json(data)


def test_a_text_of_addresses_takes_linear_time_s0_13() -> None:
    text = "<" + " object at 0x1" * 10_000
    start = process_time()
    assert to_plain(Commit(text)) == text
    assert process_time() - start < 0.5


def test_generators_and_coroutines_are_refused_unconsumed_f_037() -> None:
    numbers = (number for number in (1, 2))

    async def work() -> None: ...

    coroutine = work()
    for value in (numbers, coroutine, iter([1]), map(str, [1])):
        with pytest.raises(UnserialisableError):
            to_plain({"a": value})
    coroutine.close()
    assert list(numbers) == [1, 2]


def test_integers_longer_than_python_writes_are_refused_f_044() -> None:
    assert to_plain(10**5000) == 10**5000
    for write in (stable_json, encode_json):
        with pytest.raises(UnserialisableError):
            write({"n": 10**5000})


def test_stable_json_distinguishes_nan_and_the_infinities_s0_03() -> None:
    texts = [stable_json({"x": number}) for number in (math.nan, math.inf, -math.inf, None, 0)]
    assert len(set(texts)) == 5
    assert stable_json(math.nan) == stable_json(float("nan"))


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (1, "1"), (None, "null"), ("é", "e\u0301")])
def test_different_data_has_different_text_s0_02(pair: tuple[object, object]) -> None:
    assert stable_json({"a": pair[0]}) != stable_json({"a": pair[1]})


def test_the_same_json_has_the_same_text_s0_02() -> None:
    assert stable_json({1: (1, 2), "b": {"y": 1, "x": 2}}) == stable_json(
        {"b": {"x": 2, "y": 1}, "1": [1, 2]}
    )


def test_a_lone_surrogate_is_written_as_its_escape_f_032() -> None:
    assert stable_json("a\ud800\\ud800é") == '"a\\ud800\\\\ud800é"'


@given(json_values)
def test_plain_data_is_unchanged(value: object) -> None:
    assert to_plain(value) == value
    assert json.loads(stable_json(value)) == value
    assert stable_json(value) == json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@given(json_values)
def test_a_snapshot_has_the_data_and_the_text_of_its_value(value: object) -> None:
    mixed = {"a": value, "b": [math.nan, {3, math.inf}, (1, NOON)], "c": {"d": -math.inf}}
    for original in (value, mixed):
        assert to_plain(snapshot(original)) == to_plain(original)
        assert stable_json(snapshot(original)) == stable_json(original)


def test_a_snapshot_shares_no_container_with_its_value() -> None:
    ids, inner = [1, 2], {"a": 1}
    value = {"rows": [0.5, ids], "inner": inner}
    copied = snapshot(value)
    ids.append(3)
    inner["a"] = 2
    assert copied == {"rows": [0.5, [1, 2]], "inner": {"a": 1}}
    flat = {"a": 1}
    assert snapshot(flat) == flat
    assert snapshot(flat) is not flat


@pytest.mark.parametrize("leaf", [[], [1], {}, {"a": 1}, [0.5], {"a": 0.5}])
def test_containers_of_scalars_count_as_levels_too(leaf: object) -> None:
    value = leaf
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert to_plain(value) == value
    with pytest.raises(UnserialisableError):
        to_plain([value])


@given(st.dictionaries(any_text, any_text | st.integers() | st.booleans() | st.none(), max_size=5))
def test_flat_arguments_have_the_same_text_within_a_list_s0_02(
    flat: dict[str, object],
) -> None:
    assert stable_json([flat, 0.5]) == f"[{stable_json(flat)},0.5]"


def test_every_character_is_written_as_the_standard_library_does_s0_02() -> None:
    texts = {chr(code): chr(code) for code in range(0x3000) if not 0xD800 <= code <= 0xDFFF}
    expected = json.dumps(texts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert stable_json(texts) == expected


SHOW = """
from datetime import date
from decimal import Decimal
from pathlib import Path
from llm_common.text.canonical import stable_json
args = {"s": {"b", "a", "zz", "q"}, "f": frozenset([("x", 1), ("y", 2)]), 3: date(2025, 1, 2), "d": Decimal("1.0"),
        "p": Path("a/b"), "b": b"x", "n": {frozenset({"k", "l"}): {1, 2, 3}}}
print(stable_json(args))
"""


def test_hash_seeds_do_not_matter_f_030_s0_03() -> None:
    first, second = (printed(SHOW, env={"PYTHONHASHSEED": seed}) for seed in "01")
    assert first == second
    assert first.startswith('{"3":"2025-01-02"')


def test_the_value_is_not_changed() -> None:
    value: dict[str, Any] = {"b": {3, 1}, "a": [{"z": (1,)}]}
    to_plain(value)
    stable_json(value)
    assert value == {"b": {3, 1}, "a": [{"z": (1,)}]}
    assert list(value) == ["b", "a"]


def test_cancellation_passes_through() -> None:
    class Cancels:
        def __str__(self) -> str:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        to_plain(Cancels())


def test_sets_within_sets_are_read_once() -> None:
    read: list[int] = []

    class Leaf:
        def __str__(self) -> str:
            read.append(1)
            return "leaf"

    value: object = Leaf()
    for _ in range(12):
        value = frozenset({value})
    assert json.loads(encode_json(value).data) == json.loads("[" * 12 + '"leaf"' + "]" * 12)
    assert len(read) < 12


def test_an_object_that_never_becomes_plain_is_refused_s0_13() -> None:
    class Endless:
        def __str__(self) -> str:
            return "endless"

        def __array__(self) -> None:
            raise NotImplementedError

        def tolist(self) -> "Endless":
            return Endless()

    with pytest.raises(UnserialisableError, match="deeper than 250 levels or contains itself"):
        to_plain({"a": Endless()})


def test_data_that_is_too_deep_to_be_written_is_refused() -> None:
    with pytest.raises(UnserialisableError, match="nested too deeply to be written; flatten it"):
        json_text(deep(100_000))


@pytest.mark.parametrize("number", [math.nan, -math.inf, 10**5_000], ids=["nan", "inf", "long"])
def test_a_number_without_a_json_form_is_named(number: float) -> None:
    with pytest.raises(UnserialisableError, match="is NaN, infinite or too long for JSON; pass it"):
        json_text([number])


def at_depth(frames: int, call: Callable[[], object]) -> object:
    """Call something with so many more frames on the stack."""
    return call() if not frames else at_depth(frames - 1, call)


@pytest.mark.parametrize("number", [2**70, 5], ids=["long-number", "short-number"])
def test_deep_data_is_read_like_other_data_on_a_deep_stack_too_s0_14(number: int) -> None:
    inner = {"b": [number, {"c": None}], "a": ["x", [], {}, [[True]]], "d": {"e": -1.5}}
    levels = 450
    text = '{"k":[' * levels + json.dumps(inner) + ',"last"]}' * levels
    read: Any = at_depth(500, lambda: decode_json(text.encode()))
    for _ in range(levels):
        [(key, [read, last])] = read.items()
        assert (key, last) == ("k", "last")
    assert (read, list(read)) == (inner, ["b", "a", "d"])
