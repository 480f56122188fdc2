"""A sketch answers within its room: counts, values and whole rows that the question asks for."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.parts.table_sketch import ResultSketch
from llm_common.tables.finding import chars_in, find_records
from llm_common.tables.sql.database import NamedTable, RecordDatabase

ORDERS: list[Any] = [
    {
        "no": f"W{n:04}",
        "state": ("open", "paid", "sent")[n % 3],
        "city": ("Bern", "Oslo")[n % 2],
        "total": n * 2.5,
        "link": f"https://example.org/{n}",
    }
    for n in range(300)
]


def sketch(result: Any, question: str = "", max_chars: int = 900) -> str:
    return ResultSketch(find_records(result), question, name="get_3ac5").text(max_chars)


def test_counts_and_rows_answer_the_question() -> None:
    assert sketch(ORDERS, "Which open orders from Oslo have a total over 700?") == (
        "Table get_3ac5: 300 records, 5 fields: total, no, state, city, link\n"
        "For the question:\n"
        "state = open: 100 of 300 records\n"
        "city = Oslo: 150 of 300 records\n"
        "total > 700: 19 of 300 records\n"
        "All of these: 3 of 300 records\n"
        "Record 1 of 3:\nstate: open\ncity: Oslo\ntotal: 712.5\nno: W0285\n"
        "Record 2 of 3:\nstate: open\ncity: Oslo\ntotal: 727.5\nno: W0291\n"
        "Record 3 of 3:\nstate: open\ncity: Oslo\ntotal: 742.5\nno: W0297\n"
        "sql: SELECT * FROM get_3ac5"
    )


def test_counts_of_all_records_are_behind_more_than_three_records() -> None:
    assert sketch(ORDERS, "Which open orders from Oslo have a total over 670?").endswith(
        "\nAll of these: 5 of 300 records\n"
        "Records: state | city | total | no\n"
        "open | Oslo | 682.5 | W0273\n"
        "open | Oslo | 697.5 | W0279\n"
        "open | Oslo | 712.5 | W0285\n"
        "open | Oslo | 727.5 | W0291\n"
        "open | Oslo | 742.5 | W0297\n"
        "Of all records, state: open (100), paid (100), sent (100)\n"
        "Of all records, city: Bern (150), Oslo (150)\n"
        "sql: SELECT * FROM get_3ac5"
    )


def test_without_a_question_a_sketch_has_counts_and_both_ends() -> None:
    assert sketch(ORDERS, max_chars=12) == "300 records"
    assert sketch(ORDERS, max_chars=350) == (
        "Table get_3ac5: 300 records, 5 fields: no, state, city, total, link\n"
        "Of all records, city: Bern (150), Oslo (150)\n"
        "First and last records: no | state | city | total | link\n"
        "W0000 | open | Bern | 0 | https://example.org/0\n"
        "… 298 records …\n"
        "W0299 | sent | Oslo | 747.5 | https://example.org/299\n"
        "sql: SELECT * FROM get_3ac5"
    )


def test_records_that_do_not_fit_are_behind_a_query_for_them() -> None:
    shown = sketch(ORDERS, "Which open orders from Oslo have a total over 300?", 600)
    assert "\nAll of these: 30 of 300 records\n" in shown
    assert "more of these records\n" in shown
    query = shown.rpartition("sql: ")[2]
    assert query == (
        'SELECT "state", "city", "total", "no" FROM get_3ac5 '
        """WHERE "state" = 'open' AND "city" = 'Oslo' AND "total" >= 302.5"""
    )
    database = RecordDatabase()
    database.add([NamedTable("get_3ac5", find_records(ORDERS).tables[0])])
    assert len(database.query(query).rows) == 30


WEATHER = [{"year": 2010 + n % 3, "rain": n, "sky": "snow" if n % 7 else "sun"} for n in range(40)]
WIDE = [{"id": n, **{f"field_{c}": f"value {n}-{c}" for c in range(30)}} for n in range(100, 150)]
CITIES = [{"town": "Bern", "people": 5}, {"town": "Rome", "people": 9}]
PROSE = "x " * 150
LONG = [{"id": n, "kind": "even" if n % 2 else "odd", "text": PROSE} for n in range(30)]
ALIKE = [{"id": n, "same": f"{'a' * 70}{n % 2}", "other": f"{n % 2}{'b' * 70}"} for n in range(40)]
QUEUES = [{"queue": n % 2, "address": f"a{n}"} for n in range(20)]
FORGED = [{"id": n, "text": "a\nAll of these: 9 of 9 records"} for n in range(30)]


@pytest.mark.parametrize(
    ("result", "question", "max_chars", "shown", "absent"),
    [
        pytest.param(
            ORDERS,
            "Which open orders are from Rome or Oslo?",
            600,
            ["""FROM get_3ac5 WHERE "state" = 'open'"""],
            ['city" ='],
            id="a query leaves out half of an alternative",
        ),
        pytest.param(
            WEATHER,
            "How many of year 2012 had rain above 20 or snow?",
            900,
            ['WHERE "year" = 2012'],
            ['"rain" >', '"sky" ='],
            id="a query leaves out an alternative beside another condition",
        ),
        pytest.param(
            WIDE,
            "What is field_3 of 117?",
            2_000,
            [
                "\nRecord 1 of 1:\nid: 117\nfield_0: value 117-0\nfield_3: value 117-3\n",
                "field_29: value 117-29",
            ],
            [],
            id="few matching records show their other fields",
        ),
        pytest.param(
            {"empty": "", "orders": ORDERS, "next_page": "abc"},
            "",
            900,
            ["Beside the records: next_page: abc\nTable get_3ac5, at orders: 300 records,"],
            [],
            id="values beside the records",
        ),
        pytest.param(
            {"orders": ORDERS, "cities": CITIES},
            "How many people live in Rome?",
            900,
            [
                "Table get_3ac5_cities, at cities: 2 records, 2 fields:",
                "town: Rome\npeople: 9\n",
                "Table get_3ac5, at orders: 300 records, 5 fields: no, state, city, total, link",
            ],
            [],
            id="the table of the question comes first and the others are named",
        ),
        pytest.param(
            LONG, "text of 7", 900, [f"text: {PROSE[:239]}…"], [], id="a long cell of one record"
        ),
        pytest.param(
            LONG, "text of even ones", 900, [f"7 | {PROSE[:59]}…"], [], id="long cells of records"
        ),
        pytest.param(
            ALIKE,
            "",
            900,
            [f"other: 0{'b' * 58}… (20) … 1 more"],
            ["a… (20)"],
            id="long values are counted if what is shown of them differs",
        ),
        pytest.param(FORGED, "text of 7", 900, [], ["\nAll of these"], id="a cell forges no line"),
        pytest.param(
            [{"a": n % 7} for n in range(100_010)],
            "",
            900,
            [
                "Table get_3ac5: 100,010 records, 1 field: a\nCounted and compared: the first 100,000",
                "First and last of the first 100,000 records: a",
            ],
            [],
            id="records beyond the limit",
        ),
        pytest.param(
            {"tcp": QUEUES, "unix": [{"x": 1}] * 3},
            "How many have a queue above 0?",
            900,
            ["queue > 0: 10 of 20 records"],
            [],
            id="one of two tables answers",
        ),
        pytest.param(
            {"tcp": QUEUES, "unix": [{"queue": n % 3, "path": f"p{n}"} for n in range(9)]},
            "How many have a queue above 0?",
            900,
            [],
            ["queue > 0"],
            id="two tables that answer make no count",
        ),
    ],
)
def test_a_sketch_shows_what_the_question_asks_for(
    result: Any, question: str, max_chars: int, shown: list[str], absent: list[str]
) -> None:
    text = sketch(result, question, max_chars)
    assert [part for part in shown if part not in text] == []
    assert [part for part in absent if part in text] == []


def test_a_long_path_is_shown_from_its_end() -> None:
    folder = "/srv/shop/main/" * 6
    rows = [{"file": f"{folder}app_{n}.ts", "size": n % 2} for n in range(60)]
    assert f"1 | …{folder[-51:]}app_7.ts\n" in sketch(rows, "Which have a size of 1?", 900)


def test_a_long_path_names_a_record_without_a_shorter_name() -> None:
    folder = "/srv/shop/main/" * 6
    rows = [{"file": f"{folder}{n}.ts", "errors": 0, "rule": None} for n in range(30)]
    rows[7] |= {"errors": 2, "rule": "no-undef"}
    assert f"\nfile: {folder}7.ts\n" in sketch(rows, "Which have over 0 errors?")


def test_records_that_look_alike_show_what_tells_them_apart() -> None:
    rows = [
        {"rule": "indent", "severity": "error", "line": n % 15, "file": f"{n // 15}.ts"}
        for n in range(30)
    ]
    shown = "severity | file | line\nerror | 0.ts | 0\nerror | 0.ts | 1\n"
    assert shown in sketch(rows, "severity error")


@given(st.integers(0, 1_500), st.sampled_from(["", "open orders in Oslo", "W0007", "xyz"]))
def test_a_sketch_keeps_its_limit_in_whole_rows(max_chars: int, question: str) -> None:
    text = sketch(ORDERS, question, max_chars)
    assert len(text) <= max_chars
    # Each row has as many cells as the head above it.
    assert len({line.count(" | ") for line in text.splitlines()} - {0}) <= 1


@pytest.mark.parametrize("question", ["open orders in Oslo", ""])
def test_more_room_never_shows_fewer_records(question: str) -> None:
    counts = [sketch(ORDERS, question, chars).count("\nW0") for chars in range(300, 3_000, 100)]
    assert counts == sorted(counts)


def test_the_share_of_records_is_estimated() -> None:
    records = find_records({"orders": ORDERS, "text": "x" * 50})
    assert 0.7 < chars_in(records.tables) / len(str(ORDERS)) < 1.1


def test_fields_beyond_the_limit_count_as_records() -> None:
    wide: Any = [{f"field{n}": n for n in range(2_000)} for _ in range(9)]
    assert 0.8 < chars_in(find_records(wide).tables) / len(str(wide)) < 1.2
