"""A condition in SQL selects the rows that it was made for, and no other row."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from llm_common.tables.columns import Column, condition_of
from llm_common.tables.sql.database import NamedTable, RecordDatabase
from llm_common.tables.table import Table, table_of_rows
from llm_common.text.canonical import Json

DAYS = [f"2026-0{month}-1{day}" for month in range(1, 7) for day in range(5)]


def table(cells: Sequence[Json]) -> Table:
    return table_of_rows("", ["row", "my cell"], enumerate(cells))


def selected(cells: Sequence[Json], condition: str) -> set[Json]:
    database = RecordDatabase()
    database.add([NamedTable("t", table(cells))])
    rows = database.query(f'SELECT "row" FROM t WHERE {condition}').rows
    return {row[0] for row in rows}


@pytest.mark.parametrize(
    ("cells", "rows", "condition"),
    [
        (["open", "paid", "open"], {0, 2}, "\"my cell\" = 'open'"),
        (["O'Neil", "x", "y"], {0}, "\"my cell\" = 'O''Neil'"),
        (["a", "b", "c", "d"], {0, 3}, "\"my cell\" IN ('a', 'd')"),
        (list(range(9)), {4, 5, 6, 7, 8}, '"my cell" >= 4'),
        (list(range(9)), {0, 1, 2, 3}, '"my cell" <= 3'),
        (list(range(9)), {2, 3, 4, 5}, '"my cell" >= 2 AND "my cell" <= 5'),
        ([n / 4 for n in range(9)], {4, 5, 6, 7, 8}, '"my cell" >= 1.0'),
        (DAYS, set(range(20, 30)), "\"my cell\" >= '2026-05-10'"),
        ([True, False, True], {0, 2}, '"my cell" = 1'),
        ([5, 10.5, 5, 0.5], {0, 2}, '"my cell" = 5'),  # JSON writes 5 and 10.5 in one column
        ([None, *range(9)], {0}, '"my cell" IS NULL'),
        ([None, *range(9)], set(range(1, 10)), '"my cell" IS NOT NULL'),
        ([1, 2, None], {0, 2}, '("my cell" = 1 OR "my cell" IS NULL)'),
        ([*"abcdefghi", None], set(range(1, 9)), "\"my cell\" <> 'a'"),
        (
            [*"abcdefghi", None],
            set(range(2, 10)),
            "(\"my cell\" NOT IN ('a', 'b') OR \"my cell\" IS NULL)",
        ),
    ],
)
def test_a_condition_states_values_or_bounds(
    cells: list[Json], rows: set[int], condition: str
) -> None:
    assert condition_of(Column(table(cells), 1), rows) == condition
    assert selected(cells, condition) == rows


@pytest.mark.parametrize(
    ("cells", "rows"),
    [
        (["open", "paid", "open"], {0}),  # another row has the same value
        ([f"remark {n}" for n in range(9)], {1, 2, 3, 4}),
        (list(range(9)), {0, 2, 4, 6}),
        (["x" * 50, "y"], {0}),
        (["a\nb", "y"], {0}),
        ([2**70, 5], {0}),
        ([1, "1", True, "x"], {0}),
        (["a"], set[int]()),
    ],
)
def test_rows_that_no_short_condition_selects_have_none(cells: list[Json], rows: set[int]) -> None:
    assert condition_of(Column(table(cells), 1), rows) == ""


WORDS = ["a red door", "Red", "a", "reddish", "blue", "green", "x" * 50 + "red", "white"]


@pytest.mark.parametrize(
    ("cells", "rows", "patterns", "condition"),
    [
        (WORDS, {0, 1, 3, 6}, ["%red%"], "(\"my cell\" LIKE '%red%')"),
        (WORDS, {0, 1, 3}, ["%red%"], "\"my cell\" IN ('Red', 'a red door', 'reddish')"),
        (
            [*WORDS, None],
            {2, 4, 5, 7, 8},
            ["%red%"],
            '(NOT ("my cell" LIKE \'%red%\') OR "my cell" IS NULL)',
        ),
        (WORDS, {0, 1, 3, 7}, ["%red%"], ""),  # another cell has it too
        (
            WORDS,
            {0, 1, 2, 3},
            ["a%", "R%"],
            "(\"my cell\" LIKE 'a%' OR \"my cell\" LIKE 'R%')",
        ),
        (["a_b", "acb", "a", *"cdefg"], {0, 1, 2, 3}, ["%a_b%"], ""),
        (["5%", "5", *"cdefgh"], {0, 1, 2, 3}, ["%5%%"], ""),
        (["É1", "é2", *(f"É{n}" for n in range(9)), *"wxyz"], {0, *range(2, 11)}, ["É%"], None),
        (["red\0", "red", *"abcdefgh"], {0, 1, 2, 3}, ["%red%"], ""),
    ],
)
def test_a_pattern_selects_cells_that_are_many_or_long(
    cells: list[Json], rows: set[int], patterns: list[str], condition: str | None
) -> None:
    made = condition_of(Column(table(cells), 1), rows, patterns)
    assert condition is None or made == condition
    if made:
        assert selected(cells, made) == rows


CELLS = st.one_of(
    st.lists(st.integers(-9, 9) | st.none(), min_size=2, max_size=30),
    st.lists(
        st.floats(-9, 9, allow_subnormal=False) | st.integers(-9, 9) | st.none(),
        min_size=2,
        max_size=30,
    ),
    st.lists(st.sampled_from([*DAYS, "", "n/a"]), min_size=2, max_size=30),
    st.lists(st.sampled_from(["1,200", "7 km", "8", "$5", "", "yes", "no"]), min_size=2),
    st.lists(st.text(max_size=4) | st.integers(-(2**70), 2**70), min_size=2, max_size=9),
    st.lists(st.booleans() | st.none(), min_size=2, max_size=9),
)


@given(cells=CELLS, data=st.data())
def test_sqlite_selects_the_rows_of_a_condition(cells: list[Json], data: st.DataObject) -> None:
    column = Column(table(cells), 1)
    first = data.draw(st.integers(0, len(cells) - 1))
    value = column.values[first]
    rows = {row for row, other in enumerate(column.values) if other == value}
    if isinstance(value, float | int) and column.is_numeric:
        numbers = [number if isinstance(number, float | int) else None for number in column.values]
        rows = {row for row, number in enumerate(numbers) if number is not None and number >= value}
    if data.draw(st.booleans(), "all others"):
        rows = set(range(len(cells))) - rows
    condition = condition_of(column, rows)
    if condition:
        assert selected(cells, condition) == rows


SMALL = 5.477921667182974e-307


# SQLite rounds the last bit of some numbers otherwise than Python.
@pytest.mark.parametrize(
    ("cells", "rows"),
    [
        ([0.0, SMALL], {0, 1}),
        ([-1.0, *(SMALL * n for n in range(1, 10))], set(range(1, 10))),
    ],
)
def test_a_number_that_sqlite_would_round_is_in_no_condition(
    cells: list[Json], rows: set[int]
) -> None:
    condition = condition_of(Column(table(cells), 1), rows)
    if condition:
        assert selected(cells, condition) == rows
