"""Bad input: bounded time, no exception but the typed one, and no wrong claim."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from llm_common.errors import ToolArgumentsError
from llm_common.parts.table_sketch import ResultSketch
from llm_common.tables.finding import Records, find_records
from llm_common.tables.sql.database import NamedTable, QueryRows, RecordDatabase
from llm_common.tables.table import MAX_CELLS, MAX_COLUMNS
from llm_common.text.canonical import Json

ORDERS = [{"id": n, "state": ("open", "paid")[n % 2], "total": n * 1.5} for n in range(300)]


def sketch(records: Records, question: str = "", max_chars: int = 1_200) -> str:
    text = ResultSketch(records, question, name="t").text(max_chars)
    assert len(text) <= max_chars
    text.encode()  # no lone surrogate
    return text


def query_in(text: str) -> str:
    """Return the query that a sketch shows."""
    [line] = [line for line in text.splitlines() if line.startswith("sql: ")]
    return line.removeprefix("sql: ")


def query(records: Records, sql: str) -> QueryRows:
    database = RecordDatabase()
    database.add([NamedTable("t", records.tables[0])])
    return database.query(sql)


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
    records = find_records(text[: text.index('"id": 250') + 12])
    assert records.tables[0].total_rows == 250
    assert "250 records" in sketch(records)
    assert query(records, "SELECT max(id) FROM t").rows == ((249,),)


def test_two_thousand_columns_are_counted_and_the_first_can_be_asked() -> None:
    records = find_records([{f"c{n}": n * row for n in range(2_000)} for row in range(50)])
    text = sketch(records, "the highest c7")
    assert "50 records, 2,000 fields: c7, c0, c1" in text
    assert "more" in text.splitlines()[0]
    assert query(records, f"SELECT max(c{MAX_COLUMNS - 1}) FROM t").rows == ((499 * 49,),)
    with pytest.raises(ToolArgumentsError, match="no such column: c1999"):
        query(records, "SELECT c1999 FROM t")


def test_ten_million_cells_are_read_in_part_and_say_so() -> None:
    row: Json = {f"c{n}": n for n in range(100)}
    rows: Json = [row] * 100_000
    seconds = cpu_s(lambda: find_records(rows))
    records = find_records(rows)
    assert seconds < 2
    assert records.tables[0].cells <= MAX_CELLS + 100
    assert cpu_s(lambda: sketch(records, "c7 over 3")) < 6
    read = len(records.tables[0].rows)
    assert f"Counted and compared: the first {read:,} records." in sketch(records)
    assert "100,000 records" in sketch(records)
    assert query(records, "SELECT count(*) FROM t").rows == ((read,),)


def test_ten_million_cells_of_csv_are_refused_at_once() -> None:
    text = ",".join(f"c{n}" for n in range(100)) + "\n" + ("1," * 99 + "22\n") * 100_000
    assert cpu_s(lambda: find_records(text)) < 1
    assert find_records(text).tables == ()


def test_names_that_are_sql_are_names() -> None:
    names = ["select", "x'); DROP TABLE t;--", 'a"b', "", "from t", "*", "rowid", "t"]
    records = find_records([dict.fromkeys(names, n) for n in range(300)])
    assert "300 records, 8 fields: select, x'); DROP TABLE t;--" in sketch(records)
    assert query(records, query_in(sketch(records))).rows[7] == (7, 7)
    rows = query(records, 'SELECT "select", "a""b", "x\'); DROP TABLE t;--" FROM t WHERE "*" = 3')
    assert rows.rows == ((3, 3, 3),)
    assert query(records, 'SELECT "column_4", "rowid" FROM t WHERE "from t" = 7').rows == ((7, 7),)


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", "a\tb", "a\u2028b", "a\u202eb", "a\x1b[31mb", "a\ud800b", "  a b  "]
)
def test_odd_names_are_asked_by_the_name_that_a_sketch_shows(name: str) -> None:
    records = find_records([{name: n, "other": "x"} for n in range(30)])
    headline = sketch(records).splitlines()[0]
    shown = headline.partition("fields: ")[2].partition(", other")[0]
    assert query(records, f'SELECT max("{shown}") FROM t').rows == ((29,),)
    assert query(records, query_in(sketch(records))).rows[7][-1] == "x"


def test_nul_and_lone_surrogates_are_values() -> None:
    records = find_records([{"n": n, "text": "x\0y" if n else "\udfff"} for n in range(30)])
    assert r'"x\u0000y"' in sketch(records, "n 7")
    assert "\\udfff" in sketch(records, "n 0 \ud800")
    assert query(records, "SELECT count(*) FROM t WHERE text = 'x' || char(0) || 'y'").rows == (
        (29,),
    )


def test_names_that_differ_in_case_are_columns_each() -> None:
    records = find_records([{"Id": n, "ID": n + 1, "id": n + 2} for n in range(30)])
    assert query(records, "SELECT Id, ID_2, id_3 FROM t WHERE Id = 7").rows == ((7, 8, 9),)
    text = sketch(records, "which ID is 9")
    assert "of 30 records" not in text  # the question leaves open which of the three is meant
    assert "Record 1:\nId: 7\nID_2: 8\nid_3: 9\nRecord 2:\n" in text


@pytest.mark.parametrize(
    "written", ["{:,}.50", "${:,}.50", "{:,}.50 EUR", "USD {:,}.50", "{:,}.50%"]
)
def test_numbers_as_text_compare_as_numbers(written: str) -> None:
    records = find_records([{"no": f"W{n}", "price": written.format(n * 1_000)} for n in range(40)])
    text = sketch(records, "price over 37,000")
    assert "price > 37000: 3 of 40 records" in text
    assert query(records, "SELECT count(*), max(number(price)) FROM t").rows == ((40, 39000.5),)


def test_mixed_types_are_counted_apart() -> None:
    values: list[Any] = [1, "two", None, True, {"a": 1}, [3, 4], 2.5, "3"]
    records = find_records([{"n": n, "v": values[n % 8]} for n in range(80)])
    facet = next(line for line in sketch(records).splitlines() if ", v: " in line)
    assert facet == "Of all records, v: 3 (20), 1 (10), two (10), true (10), 4 (10), 2.5 (10)"
    assert query(records, "SELECT count(*) FROM t WHERE v IS NULL").rows == ((20,),)
    assert query(records, "SELECT count(*) FROM t WHERE typeof(v) = 'text'").rows == ((30,),)


def test_numbers_beyond_every_type_are_kept() -> None:
    records = find_records([{"n": 10**400 + n, "f": 1e308, "k": n} for n in range(30)])
    assert "30 records, 3 fields" in sketch(records, "k 7 over 1e400")
    assert query(records, "SELECT n FROM t WHERE k = 7").rows == ((str(10**400 + 7),),)


@pytest.mark.parametrize(
    "text",
    [
        "a,b,c\n" + "1," * 2_000_000,
        "|" + " " * 2_000_000 + "\n|--|\n",
        "<table" * 300_000,
        "a=b " * 500_000,
        "k: v\n" * 300_000,
        "[" * 500_000,
        '{"a":' * 500_000,
        "2026-01-02 03:04:05 INFO x: " * 60_000,
        '"' * 1_000_000,
        "x" * 3_000_000,
        "<table>\n<" + " " * 30_000,
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
    text = "\n".join(lines + TSV[1:] * (copies - 1))
    [table] = find_records(text).tables
    assert table.total_rows == 3_000 * copies
    for number in stray:
        assert table.rows[number - 1] == (str(number - 1), '"Heroes', "ok")


def test_a_stray_quote_ends_at_a_quote_that_closes_no_cell_t_03() -> None:
    lines = list(TSV)
    lines[1_000] = '999\t"Heroes\tok'
    lines[2_000] = '1999\tpipe 12"\tok'
    [table] = find_records("\n".join(lines)).tables
    assert table.total_rows == 3_000
    assert table.rows[1_999] == ("1999", 'pipe 12"', "ok")


def test_cells_of_several_lines_are_kept_beside_a_stray_quote_t_03() -> None:
    lines = ["id,text,note", *(f'{n},"Dear {n},\nit rained, and\nrained",ok' for n in range(300))]
    lines[100] = '99,"Heroes,ok'
    [table] = find_records("\n".join(lines)).tables
    assert table.total_rows == 300
    assert table.rows[100] == ("100", "Dear 100,\nit rained, and\nrained", "ok")


@pytest.mark.parametrize("cell", ['"' + "x" * 140_000 + '"', '"a,' + "x, " * 50_000, "a\rb"])
def test_a_row_that_the_csv_module_refuses_ends_no_table_t_03(cell: str) -> None:
    lines = ["id,name,note", *(f"{n},n{n},ok" for n in range(3_000))]
    lines[101] = f"100,n100,{cell}"
    [table] = find_records("\n".join(lines)).tables
    assert table.total_rows == 3_000
    assert table.rows[100] == ("100", "n100", cell)
    assert table.rows[2_999] == ("2999", "n2999", "ok")


def test_a_long_cell_of_several_lines_is_no_table_t_03() -> None:
    lines = ["id,name,note", *(f"{n},n{n},ok" for n in range(3_000))]
    lines[101] = '100,n100,"' + "a line\n" * 40_000 + '"'
    assert find_records("\n".join(lines)).tables == ()


@pytest.mark.parametrize("line", ['x,a","', '1,"b,c', '"a" ,b,c', '1,"b,c\n1,b"",c'])
def test_rows_of_stray_quotes_take_linear_time(line: str) -> None:
    text = "id,name,note\n" + "x,y,z\n" * 40 + f"{line}\n" * 40_000
    assert cpu_s(lambda: find_records(text)) < 4
