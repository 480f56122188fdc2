"""Tables of pandas, polars and Arrow, saved whole."""

from datetime import date
from importlib import import_module
from typing import Any

import pytest

from llm_common.agents import InMemoryContextPointerStore
from llm_common.errors import UnserialisableError

# Imported by name, since not all of them have types.
np: Any = import_module("numpy")
pd: Any = import_module("pandas")
pl: Any = import_module("polars")
pa: Any = import_module("pyarrow")

pytestmark = pytest.mark.integrations

ROWS: list[dict[str, Any]] = [{"day": 1, "close": 1.5}, {"day": 2, "close": None}]


async def kept(value: object) -> Any:
    """Return what a store gives back of a value."""
    store = InMemoryContextPointerStore()
    return store.load_result(
        pointer=await store.save(query_id="q", tool_name="t", args={}, result=value)
    )


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"day": [1, 2], "close": [1.5, float("nan")]}),
        pd.DataFrame({"close": [1.5, None]}, index=pd.Index([1, 2], name="day")),
        pd.Series([1.5, None], index=pd.Index([1, 2], name="day"), name="close"),
        pl.DataFrame({"day": [1, 2], "close": [1.5, None]}),
        pa.table({"day": [1, 2], "close": [1.5, None]}),
        pa.RecordBatch.from_pydict({"day": [1, 2], "close": [1.5, None]}),
        np.array([(1, 1.5), (2, np.nan)], dtype=[("day", "i8"), ("close", "f8")]),
    ],
    ids=lambda table: f"{type(table).__module__.partition('.')[0]} {type(table).__name__}",
)
async def test_a_table_is_stored_as_records_s0_13(table: Any) -> None:
    assert await kept(table) == ROWS


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        (np.int64(5), 5),
        (np.array(["2024-01-02", "NaT"], dtype="datetime64[D]"), ["2024-01-02", None]),
        (np.array([90], dtype="timedelta64[s]"), [90.0]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (pd.Index([1, 2]), [1, 2]),
        (pd.NaT, None),
        (pd.Timestamp("2024-01-02"), "2024-01-02T00:00:00"),
        ({"when": pd.array([1, None], dtype="Int64")}, {"when": [1, None]}),
        (pl.Series([date(2024, 1, 2), None]), ["2024-01-02", None]),
        (pa.array([1, None]), [1, None]),
    ],
)
async def test_arrays_and_scalars_become_plain_data_s0_13(value: object, stored: object) -> None:
    assert await kept(value) == stored


async def test_every_row_of_a_large_table_is_kept_s0_13() -> None:
    table = pd.DataFrame({f"c{number}": np.arange(10_000) for number in range(32)})
    records = await kept(table)
    assert [record["c31"] for record in records] == list(range(10_000))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Two columns of a table have the same name"),
        (
            pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")),
            "The index of a DataFrame has the name of a column; rename one",
        ),
        (pl.LazyFrame({"a": [1]}), "a text that shows only its ends; pass its rows"),
    ],
)
async def test_a_table_that_cannot_be_kept_whole_is_refused_s0_13(
    table: object, message: str
) -> None:
    with pytest.raises(UnserialisableError, match=message):
        await kept(table)
