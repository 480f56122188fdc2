"""Bad input: bounded time, no exception but the typed one, and no wrong claim."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llm_common.errors import ToolArgumentsError
from llm_common.parts.table_sketch import ResultSketch
from llm_common.tables.finding import find_records
from llm_common.tables.table import MAX_CELLS, MAX_COLUMNS
from llm_common.text.canonical import Json
from tests.tables.reading import database_of, only_table

ORDERS = [{"id": n, "state": ("open", "paid")[n % 2], "total": n * 1.5} for n in range(300)]


def sketch(result: Any, question: str = "") -> str:
    text = ResultSketch(find_records(result), question, name="t").text(1_200)
    assert len(text) <= 1_200
    text.encode()  # no lone surrogate
    return text


def query_in(text: str) -> str:
    """Return the query that a sketch shows."""
    [line] = [line for line in text.splitlines() if line.startswith("sql: ")]
    return line.removeprefix("sql: ")


def query(result: Any, sql: str) -> tuple[tuple[object, ...], ...]:
    return database_of(t=result).query(sql).rows


def cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("indent", [None, 1])
def test_half_a_json_document_is_no_table(indent: int | None) -> None:
    text = json.dumps({"data": ORDERS}, indent=indent)
    assert find_records(text[: len(text) // 2]).tables == ()
    assert find_records(json.dumps(ORDERS, indent=indent)[:-2]).tables == ()


def test_json_lines_without_their_end_keep_their_whole_records() -> None:
    text = "\n".join(map(json.dumps, ORDERS))
    half = text[: text.index('"id": 250') + 12]
    assert "250 records" in sketch(half)
    assert query(half, "SELECT count(*), max(id) FROM t") == ((250, 249),)


def test_two_thousand_columns_are_counted_and_the_first_can_be_asked() -> None:
    records = [{f"c{n}": n * row for n in range(2_000)} for row in range(50)]
    headline = sketch(records, "the highest c7").splitlines()[0]
    assert "50 records, 2,000 fields: c7, c0, c1" in headline
    assert "more" in headline
    assert query(records, f"SELECT max(c{MAX_COLUMNS - 1}) FROM t") == ((499 * 49,),)
    with pytest.raises(ToolArgumentsError, match="no such column: c1999"):
        query(records, "SELECT c1999 FROM t")


def test_ten_million_cells_are_read_in_part_and_say_so() -> None:
    row: Json = {f"c{n}": n for n in range(100)}
    rows: Json = [row] * 100_000
    assert cpu_s(lambda: find_records(rows)) < 2
    assert only_table(rows).cells <= MAX_CELLS + 100
    assert cpu_s(lambda: sketch(rows, "c7 over 3")) < 8
    read = len(only_table(rows).rows)
    assert f"Counted and compared: the first {read:,} records." in sketch(rows)
    assert "100,000 records" in sketch(rows)
    assert query(rows, "SELECT count(*) FROM t") == ((read,),)


def test_ten_million_cells_of_csv_are_refused_at_once() -> None:
    text = ",".join(f"c{n}" for n in range(100)) + "\n" + ("1," * 99 + "22\n") * 100_000
    assert cpu_s(lambda: find_records(text)) < 1
    assert find_records(text).tables == ()


SQL_NAMES = ["select", "x'); DROP TABLE t;--", 'a"b', "", "from t", "*", "rowid", "t"]
VALUES: list[Any] = [1, "two", None, True, {"a": 1}, [3, 4], 2.5, "3"]
NAMED: Json = [dict.fromkeys(SQL_NAMES, n) for n in range(300)]
NULS: Json = [{"n": n, "text": "x\0y" if n else "\udfff"} for n in range(30)]
CASES: Json = [{"Id": n, "ID": n + 1, "id": n + 2} for n in range(30)]
MIXED: Json = [{"n": n, "v": VALUES[n % 8]} for n in range(80)]
LONG: Json = [{"n": 10**400 + n, "f": 1e308, "k": n} for n in range(30)]


@pytest.mark.parametrize(
    ("records", "question", "shown"),
    [
        pytest.param(
            NAMED, "", "300 records, 8 fields: select, x'); DROP TABLE t;--", id="names of SQL"
        ),
        pytest.param(NULS, "n 7", r'"x\u0000y"', id="NUL"),
        pytest.param(NULS, "n 0 \ud800", "\\udfff", id="lone surrogates"),
        pytest.param(
            CASES,
            "which ID is 9",
            "Record 1:\nId: 7\nID_2: 8\nid_3: 9\nRecord 2:\n",
            id="names that differ in case",
        ),
        pytest.param(
            MIXED,
            "",
            "\nOf all records, v: 3 (20), 1 (10), two (10), true (10), 4 (10), 2.5 (10)\n",
            id="mixed types",
        ),
        pytest.param(LONG, "k 7 over 1e400", "30 records, 3 fields", id="long numbers"),
    ],
)
def test_a_sketch_shows_odd_values_and_names(records: Json, question: str, shown: str) -> None:
    assert shown in sketch(records, question)


def test_the_query_of_a_sketch_quotes_the_names_of_columns_t_03() -> None:
    rows = query(NAMED, query_in(sketch(NAMED, "rowid over 150")))
    assert (len(rows), rows[0]) == (149, (151, 151))


def test_a_name_that_three_columns_have_counts_no_records() -> None:
    assert "of 30 records" not in sketch(CASES, "which ID is 9")


@pytest.mark.parametrize(
    ("records", "sql", "row"),
    [
        (NAMED, 'SELECT "select", "a""b", "x\'); DROP TABLE t;--" FROM t WHERE "*" = 3', (3, 3, 3)),
        (NAMED, 'SELECT "column_4", "rowid" FROM t WHERE "from t" = 7', (7, 7)),
        (NULS, "SELECT count(*) FROM t WHERE text = 'x' || char(0) || 'y'", (29,)),
        (CASES, "SELECT Id, ID_2, id_3 FROM t WHERE Id = 7", (7, 8, 9)),
        (MIXED, "SELECT count(*) FROM t WHERE v IS NULL", (20,)),
        (MIXED, "SELECT count(*) FROM t WHERE typeof(v) = 'text'", (30,)),
        (LONG, "SELECT n FROM t WHERE k = 7", (str(10**400 + 7),)),
    ],
)
def test_a_query_reads_odd_values_and_names(
    records: Json, sql: str, row: tuple[object, ...]
) -> None:
    assert query(records, sql) == (row,)


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", "a\tb", "a\u2028b", "a\u202eb", "a\x1b[31mb", "a\ud800b", "  a b  "]
)
def test_odd_names_are_asked_by_the_name_that_a_sketch_shows(name: str) -> None:
    records = [{name: n, "other": "x"} for n in range(30)]
    headline = sketch(records).splitlines()[0]
    shown = headline.partition("fields: ")[2].partition(", other")[0]
    assert query(records, f'SELECT max("{shown}") FROM t') == ((29,),)
    assert query(records, query_in(sketch(records)))[7][-1] == "x"


@pytest.mark.parametrize(
    "written", ["{:,}.50", "${:,}.50", "{:,}.50 EUR", "USD {:,}.50", "{:,}.50%"]
)
def test_numbers_as_text_compare_as_numbers(written: str) -> None:
    records = [{"no": f"W{n}", "price": written.format(n * 1_000)} for n in range(40)]
    assert "price > 37000: 3 of 40 records" in sketch(records, "price over 37,000")
    assert query(records, "SELECT count(*), max(number(price)) FROM t") == ((40, 39000.5),)


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n" + "1," * 2_000_000,
        "|" + " " * 2_000_000 + "\n|--|\n",
        "<table" * 300_000,
        "a=b " * 500_000,
        "k: v\n" * 150_000,
        "[" * 500_000,
        '{"a":' * 500_000,
        "2026-01-02 03:04:05 INFO x: " * 60_000,
        '"' * 1_000_000,
        "x" * 3_000_000,
        "<table>\n<" + " " * 120_000,
        "alpha beta\ngamma\n" + (" " * 9_000 + ":\n") * 20,
        "# \n" + ("#" + " " * 9_000 + "\n") * 20,
    ],
    ids=[
        *("csv", "blanks", "html", "pairs", "keys", "lists", "objects", "log", "quotes"),
        *("letters", "blank tag", "blank keys", "blank headings"),
    ],
)
def test_long_odd_texts_take_linear_time(text: str) -> None:
    assert cpu_s(lambda: find_records(text)) < 4


TSV = ["id\tname\tnote", *(f"{n}\tn{n}\tok" for n in range(3_000))]


@pytest.mark.parametrize("stray", [[1_000], [1_000, 1_001], [100, 1_500, 2_999], range(100, 3_000)])
@pytest.mark.parametrize("copies", [1, 10], ids=["short", "over 131,072 characters"])
def test_stray_quotes_join_no_rows_t_03(stray: Sequence[int], copies: int) -> None:
    lines = list(TSV)
    for number in stray:
        lines[number] = f'{number - 1}\t"Heroes\tok'
    table = only_table("\n".join(lines + TSV[1:] * (copies - 1)))
    assert table.total_rows == 3_000 * copies
    for number in stray:
        assert table.rows[number - 1] == (str(number - 1), '"Heroes', "ok")


CSV = ["id,name,note", *(f"{n},n{n},ok" for n in range(3_000))]
LETTERS = ["id,text,note", *(f'{n},"Dear {n},\nit rained, and\nrained",ok' for n in range(300))]


@pytest.mark.parametrize(
    ("lines", "changes", "row"),
    [
        pytest.param(
            TSV,
            {1_000: '999\t"Heroes\tok', 2_000: '1999\tpipe 12"\tok'},
            ("1999", 'pipe 12"', "ok"),
            id="a quote that closes no cell",
        ),
        pytest.param(
            LETTERS,
            {100: '99,"Heroes,ok'},
            ("100", "Dear 100,\nit rained, and\nrained", "ok"),
            id="cells of several lines",
        ),
        # The csv module refuses these rows.
        pytest.param(
            CSV,
            {101: f'100,n100,"{"x" * 140_000}"'},
            ("100", "n100", f'"{"x" * 140_000}"'),
            id="a long cell",
        ),
        pytest.param(
            CSV,
            {101: '100,n100,"a,' + "x, " * 50_000},
            ("100", "n100", '"a,' + "x, " * 50_000),
            id="a long cell without an end",
        ),
        pytest.param(CSV, {101: "100,n100,a\rb"}, ("100", "n100", "a\rb"), id="a carriage return"),
    ],
)
def test_a_row_with_an_odd_cell_ends_no_table_t_03(
    lines: list[str], changes: dict[int, str], row: tuple[str, ...]
) -> None:
    changed = [changes.get(number, line) for number, line in enumerate(lines)]
    table = only_table("\n".join(changed))
    assert table.total_rows == len(lines) - 1
    assert table.rows[int(row[0])] == row
    assert table.rows[-1][-1] == "ok"


def test_a_long_cell_of_several_lines_is_no_table_t_03() -> None:
    lines = [*CSV[:101], '100,n100,"' + "a line\n" * 40_000 + '"', *CSV[102:]]
    assert find_records("\n".join(lines)).tables == ()


@pytest.mark.parametrize("line", ['x,a","', '1,"b,c', '"a" ,b,c', '1,"b,c\n1,b"",c'])
def test_rows_of_stray_quotes_take_linear_time(line: str) -> None:
    text = "id,name,note\n" + "x,y,z\n" * 40 + f"{line}\n" * 40_000
    assert cpu_s(lambda: find_records(text)) < 4
