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


class Frame(Printed):
    """A table with the methods of a pandas DataFrame that a store calls."""

    def __init__(
        self, columns: list[str], rows: list[list[object]], index: object, *, clashes: bool = False
    ) -> None:
        self.columns = columns
        self.index = index
        self.iloc = None
        self._rows = rows
        self._clashes = clashes

    def reset_index(self) -> "Frame":
        if self._clashes:
            raise ValueError("cannot insert id, already exists")
        rows = [["label", *row] for row in self._rows]
        return Frame(["index", *self.columns], rows, RangeIndex())

    def to_dict(self, orient: str) -> list[dict[str, object]]:
        assert orient == "records"
        return [dict(zip(self.columns, row, strict=True)) for row in self._rows]


class Series(Printed):
    """A column with the methods of a pandas Series that a store calls."""

    def __init__(self, values: list[object], index: object) -> None:
        self.index = index
        self.iloc = None
        self._values = values

    def tolist(self) -> list[object]:
        return self._values

    def reset_index(self) -> Frame:
        return Frame(["index", "value"], [["label", value] for value in self._values], RangeIndex())


class RangeIndex:
    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.start = start
        self.step = step


class Index:
    start = 0
    step = 1


@pytest.mark.parametrize(
    ("index", "is_kept"),
    [(RangeIndex(), False), (RangeIndex(1), True), (RangeIndex(0, 2), True), (Index(), True)],
    ids=["default", "from-1", "step-2", "labels"],
)
async def test_the_index_of_a_table_is_kept_unless_it_counts_the_rows_s0_13(
    index: object, is_kept: bool
) -> None:
    label = {"index": "label"} if is_kept else {}
    assert await kept(Frame(["a", "b"], [[1, 2], [3, 4]], index)) == [
        {**label, "a": 1, "b": 2},
        {**label, "a": 3, "b": 4},
    ]
    labelled = [{"index": "label", "value": 5}, {"index": "label", "value": 6}]
    assert await kept(Series([5, 6], index)) == (labelled if is_kept else [5, 6])


async def test_a_table_whose_names_clash_is_refused_s0_13() -> None:
    with pytest.raises(UnserialisableError, match="Two columns of a table have the same name"):
        await kept(Frame(["a", "a"], [[1, 2]], RangeIndex()))
    with pytest.raises(UnserialisableError, match="index of a DataFrame has the name of a column"):
        await kept(Frame(["id"], [[1]], Index(), clashes=True))
