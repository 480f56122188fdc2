"""Arrays of numpy, and objects that look like tables. Real tables: `tests/integrations`."""

from types import SimpleNamespace

import numpy as np
import pytest

from llm_common.agents import InMemoryContextPointerStore
from llm_common.errors import UnserialisableError


async def kept(value: object) -> object:
    """Return what a store gives back of a value."""
    store = InMemoryContextPointerStore()
    return store.load_result(
        pointer=await store.save(query_id="q", tool_name="t", args={}, result=value)
    )


@pytest.mark.parametrize(
    ("array", "stored"),
    [
        (np.arange(5_000), list(range(5_000))),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.array([1.5, np.nan]), [1.5, None]),
        (np.int64(5), 5),
        (np.bool_(True), True),
        (np.array(["2024-01-02", "NaT"], dtype="datetime64[D]"), ["2024-01-02", None]),
        (np.array([90], dtype="timedelta64[s]"), [90.0]),
        (np.array([("x", 1)], dtype=[("name", "U3"), ("n", "i4")]), [{"name": "x", "n": 1}]),
        ({"prices": np.array([1, 2])}, {"prices": [1, 2]}),
    ],
)
async def test_every_element_of_an_array_is_kept_s0_13(array: object, stored: object) -> None:
    assert await kept(array) == stored


class Printed:
    """A table that can only print its ends."""

    shape = (10_000, 2)

    def __str__(self) -> str:
        return "0 1 ... 9998 9999"


async def test_a_table_that_only_prints_its_ends_is_refused_s0_13() -> None:
    with pytest.raises(UnserialisableError, match="Printed would be stored as a text"):
        await kept(Printed())


@pytest.mark.parametrize(
    "method", ["__array__", "__dataframe__", "__arrow_c_stream__", "collect_schema", "toPandas"]
)
async def test_a_table_is_known_by_any_of_its_methods_s0_13(method: str) -> None:
    methods = {method: lambda _: None, "__str__": lambda _: "0 1 ... 9998 9999"}
    with pytest.raises(UnserialisableError, match="Lazy would be stored as a text"):
        await kept(type("Lazy", (), methods)())


async def test_dates_of_numpy_keep_their_nanoseconds_s0_13() -> None:
    moment = "2024-01-02T03:04:05.000000006"
    assert await kept(np.array([moment], dtype="datetime64[ns]")) == [moment]


async def test_an_object_with_a_shape_in_words_is_no_table_s0_13() -> None:
    assert await kept(SimpleNamespace(shape="round")) == "namespace(shape='round')"
