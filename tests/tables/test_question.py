"""What a question asks of a table: columns, conditions, orders, and the rows that meet them."""

import time

import pytest

from llm_common.tables.columns import Column
from llm_common.tables.question.table_question import TableQuestion, read_question
from llm_common.tables.table import Table, table_of_records
from llm_common.text.canonical import Json

SHOES = [
    ("S-100", "Trail One", "Men's, Unisex", "Gray/Black, Red", 4.5, "$89.95", True, "2026-03-05"),
    ("S-200", "Road Two", "Women's", "Black", 3.9, "$120.00", False, "2026-03-20"),
    ("S-300", "Court Three", "Men's", "White, Blue, Red", 4.9, "$49.50", True, "2025-11-02"),
    ("S-400", "Trail Four", "Children's", "Blue", 4.1, "$50.00", False, "2026-01-15"),
    ("S-500", "Road Five", "Women's, Unisex", "Core Black", 2.5, "$99.00", True, "2025-03-31"),
]
FIELDS = ("shoe_id", "title", "department", "color", "rating", "price", "on_sale", "released")
TABLE = table_of_records("", [dict(zip(FIELDS, shoe, strict=True)) for shoe in SHOES])


def reading(question: str, table: Table = TABLE) -> TableQuestion:
    columns = [Column(table, index) for index in range(len(table.columns))]
    return read_question(question, table, columns)


def met(question: str) -> list[str]:
    """Return the ids of the rows that meet every condition."""
    read = reading(question)
    return sorted(SHOES[row][0] for row in read.rows[: read.total])


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("What is the title of S-300?", ["S-300"]),
        ("Which shoes are for women?", ["S-200", "S-500"]),
        ("Which shoes are not for women?", ["S-100", "S-300", "S-400"]),
        ("Which colour shoes come in black?", ["S-100", "S-200", "S-500"]),
        ("Shoes in blue or red", ["S-100", "S-300", "S-400"]),
        ("Which have a rating of 4.5 and above?", ["S-100", "S-300"]),
        ("Which have a rating above 4.5?", ["S-300"]),
        ("Which have a rating of at most 3.9?", ["S-200", "S-500"]),
        ("Which have a rating below 3.9?", ["S-500"]),
        ("What costs a price between 50 and 99 dollars?", ["S-100", "S-400", "S-500"]),
        ("Price under $50", ["S-300"]),
        ("What is on sale?", ["S-100", "S-300", "S-500"]),
        ("What is not on sale?", ["S-200", "S-400"]),
        ("Which were released in March 2026?", ["S-100", "S-200"]),
        ("Which were released on 2026-03-20?", ["S-200"]),
        ("Which were released in 2025?", ["S-300", "S-500"]),
        ("Which come in 3 colours?", ["S-300"]),
        ("Men shoes on sale with a rating over 4.6", ["S-300"]),
        ("Men and women shoes in white", ["S-300"]),
    ],
)
def test_conditions_select_the_records(question: str, ids: list[str]) -> None:
    assert met(question) == ids


def test_conditions_say_what_they_compare() -> None:
    texts = [
        condition.text
        for condition in reading("Unisex shoes, not for women, over $90, on sale").conditions
    ]
    assert texts == [
        "department has Unisex and department has not Women's",
        "price > 90",
        "on_sale = yes",
    ]


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("Which shoe has the highest rating?", "S-300"),
        ("the lowest rated rating", "S-500"),
        ("the cheapest shoe", "S-300"),
        ("the most expensive one", "S-200"),
        ("the latest release, when released?", "S-200"),
        ("the cheapest shoe for women", "S-500"),
        ("the first one in the catalogue", "S-100"),
        ("the last one in the catalogue", "S-500"),
        ("the last one for men", "S-300"),
    ],
)
def test_an_order_puts_the_best_first(question: str, best: str) -> None:
    assert SHOES[reading(question).rows[0]][0] == best


def test_the_columns_that_a_question_names_come_first() -> None:
    names = [TABLE.columns[index] for index in reading("price and title of S-100").columns]
    assert set(names[:2]) == {"price", "title"}
    assert reading("how is the weather?").columns == ()


def test_without_a_row_for_all_conditions_the_nearest_come_first() -> None:
    read = reading("Women shoes in blue on sale with a rating above 2")
    assert read.total == 0
    assert {SHOES[row][0] for row in read.rows[:2]} == {"S-300", "S-500"}


def test_other_words_of_the_question_order_the_rows() -> None:
    rows: list[dict[str, Json]] = [{"n": n, "text": f"entry {n} about weather"} for n in range(40)]
    rows[17]["text"] = "the carrier refused the parcel"
    read = reading("why was my parcel refused?", table_of_records("", rows))
    assert (read.conditions, read.rows) == ((), (17,))


def test_values_in_other_scripts_are_found() -> None:
    rows: list[dict[str, Json]] = [
        {"城市": "北京", "n": 1},
        {"城市": "上海", "n": 2},
        {"城市": "München", "n": 3},
    ]
    assert reading("wie ist es in München?", table_of_records("", rows)).rows == (2,)


@pytest.mark.parametrize("others", [1, 70])  # a column of few values is read in another way
def test_values_are_found_without_their_accents(others: int) -> None:
    rows: list[dict[str, Json]] = [{"rider": f"Rider {number}"} for number in range(others)]
    rows.append({"rider": "Lukáš Bauer"})
    read = reading("how did Lukas Bauer do?", table_of_records("", rows))
    assert [condition.text for condition in read.conditions] == ["rider = Lukáš Bauer"]


@pytest.mark.parametrize("question", ["How many requests returned 404?", "which failed with 404?"])
def test_a_verb_before_a_code_says_that_it_was_the_outcome(question: str) -> None:
    rows: list[dict[str, Json]] = [
        {"path": f"/{n}", "status": (200, 404, 500)[n % 3], "ms": n} for n in range(90)
    ]
    read = reading(question, table_of_records("requests", rows))
    assert [condition.text for condition in read.conditions] == ["status = 404"]
    assert (read.total, read.unread) == (30, ())


def test_no_number_is_claimed_for_a_value_that_stands_among_several_too() -> None:
    rows: list[dict[str, Json]] = [{"peak": f"P{n}", "land": "Italy"} for n in range(20)]
    assert reading("How many peaks are in Italy?", table_of_records("peaks", rows)).is_claimed
    rows.append({"peak": "P20", "land": "France/ Italy"})
    assert not reading("How many peaks are in Italy?", table_of_records("peaks", rows)).is_claimed


def test_a_question_names_no_value_by_accident() -> None:
    rows: list[dict[str, Json]] = [{"name": "any", "id": n, "is": "the"} for n in range(4)]
    rows[0]["name"] = "a"
    assert reading("is the id of any name a number?", table_of_records("", rows)).conditions == ()


def test_long_questions_and_cells_take_bounded_time() -> None:
    rows: list[dict[str, Json]] = [
        {"a": "word " * 2_000, "b": ", ".join(map(str, range(50)))} for _ in range(200)
    ]
    table = table_of_records("", rows)
    start = time.thread_time()
    reading(" ".join(map(str, range(200_000))), table)
    reading("(" * 100_000, table)
    reading("between " * 50_000, table)
    assert time.thread_time() - start < 10


def test_a_word_is_searched_from_its_beginning_in_every_text() -> None:
    rows: list[dict[str, Json]] = [{"no": n, "text": f"nothing of note {n}"} for n in range(30)]
    rows[7]["text"] = "a late parcel"
    rows[8]["text"] = "chocolate"
    rows[9]["text"] = "spät: Latein"
    assert reading("what is late", table_of_records("", rows)).rows == (7, 9)


def test_whole_values_are_found_among_many_and_despite_case_and_blanks() -> None:
    rows: list[dict[str, Json]] = [{"id": n, "title": f" The {n}th Rain "} for n in range(3_000)]
    table = table_of_records("", rows)
    assert reading("Who wrote THE 2718TH RAIN?", table).rows == (2718,)
    assert reading("Which id is 2718?", table).rows[0] == 2718


def test_rows_that_miss_one_condition_and_have_a_word_instead_are_near() -> None:
    rows: list[dict[str, Json]] = []
    for n in range(200):
        phase = "Take-off" if n == 90 else ("Climb", "Approach", "Landing")[n % 3]
        carrier = "FEDEX EXPRESS" if n == 90 else f"CARRIER {n}"
        model = ("B-727", "MD-80")[n % 2]
        rows.append({"carrier": carrier, "model": model, "phase": phase})
    read = reading("Which B-727 of FedEx hit a bird on its climb?", table_of_records("", rows))
    assert 90 not in read.rows
    assert read.near[0] == 90
    assert len(read.near) == 50


def test_a_question_of_blanks_takes_linear_time() -> None:
    start = time.process_time()
    for _ in range(5):
        reading("between 1" + " " * 3_900)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ("Which have not exactly 4.5 as rating?", ["rating != 4.5"]),
        ("Which have a price between 5 and 10,000?", ["price between 5 and 10000"]),
        ("Which have a price between 1k and 10k?", ["price between 1000 and 10000"]),
    ],
)
def test_numbers_are_compared_as_they_are_written(question: str, texts: list[str]) -> None:
    read = reading(question)
    assert [condition.text for condition in read.conditions] == texts
    expected = {"rating != 4.5": 4, "price between 5 and 10000": 5}
    assert read.total == expected.get(texts[0], 0)


@pytest.mark.parametrize("end", ["5 and 10k", "5 and 1 thousand"])
def test_a_range_of_two_scales_claims_no_number(end: str) -> None:
    assert not reading(f"How many have a price between {end}?").is_claimed


@pytest.mark.parametrize("filler", ["please " * 400, "x" * 4_100])
def test_a_question_that_is_read_in_part_claims_no_number(filler: str) -> None:
    assert reading("How many shoes have a rating of 4.5?").is_claimed
    assert not reading(f"How many shoes have a rating of 4.5? {filler}").is_claimed


def test_a_number_is_no_beginning_of_a_longer_one() -> None:
    rows: list[dict[str, Json]] = []
    for number in range(60):
        code = f"20180310{number:02}" if number % 8 else f"1000x{number}"
        rows.append({"code": code, "place": f"Place {number}", "size": number})
    rows[9]["place"] = "Jarm, Afghanistan"
    table = table_of_records("", rows)
    columns = [Column(table, index) for index in range(len(table.columns))]
    question = "Which size had the quake in Afghanistan of January 2018?"
    assert read_question(question, table, columns).rows == (9,)


def conditions(question: str, records: list[dict[str, Json]]) -> list[tuple[str, int]]:
    """Return the conditions of a question and how many records meet each."""
    read = reading(question, table_of_records("", records))
    return [(condition.text, len(condition.rows)) for condition in read.conditions]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many have rain that is not 0.0?", ("rain is not 0", 2)),
        ("How many have rain of 0?", ("rain = 0", 3)),
        ("How many have rain over .25?", ("rain > 0.25", 1)),
        ("How many have rain of .25?", ("rain = 0.25", 1)),
        ("How many have rain over 0.24999999999999997?", ("rain > 0.24999999999999997", 2)),
    ],
)
def test_numbers_are_compared_by_value_in_every_notation(
    question: str, expected: tuple[str, int]
) -> None:
    records: list[dict[str, Json]] = [{"rain": cell} for cell in ("0", "0.0", "0.00", ".25", "0.5")]
    assert conditions(question, records) == [expected]


@pytest.mark.parametrize(
    ("moment", "count"),
    [
        ("2015-11-06T17:43:00", 2),
        ("2015-11-06 17:43:00", 2),
        ("2015-11-06 17:43", 3),
        ("2015-11-06T17:43:10.25", 1),
    ],
)
def test_a_time_is_found_however_it_is_joined_to_its_day(moment: str, count: int) -> None:
    records: list[dict[str, Json]] = [
        {"at": f"2015-11-06T17:43:{second}"} for second in ("00", "00")
    ]
    records.append({"at": "2015-11-06T17:43:10.25"})
    [(_, rows)] = conditions(f"How many were at {moment}?", records)
    assert rows == count


def test_a_flag_that_is_no_leaves_out_records_without_it() -> None:
    records: list[dict[str, Json]] = [{"paid": "YES"}, {"paid": "NO"}, {"paid": ""}]
    assert conditions("How many have paid NO?", records) == [("paid = no", 1)]
    assert conditions("How many have paid YES?", records) == [("paid = yes", 1)]


def test_a_word_that_names_the_column_of_a_value_is_no_value() -> None:
    records: list[dict[str, Json]] = [
        {"field": "type", "type": "text"},
        {"field": "size", "type": "text"},
        {"field": "id", "type": "key"},
    ]
    assert conditions("How many have type text?", records) == [("type = text", 2)]
    assert conditions("How many have field type?", records) == [("field = type", 1)]


def test_the_year_in_the_name_of_a_column_is_no_date() -> None:
    records: list[dict[str, Json]] = [
        {"Year": year, "Oil price (Yearbook (2016))": price}
        for year, price in ((2015, 40.5), (2016, 50.5), (2017, 60.5))
    ]
    question = "Which have less than 55 Oil price (Yearbook (2016))?"
    assert conditions(question, records) == [('"Oil price (Yearbook (2016))" < 55', 2)]


def test_the_year_in_a_name_of_many_words_is_no_value() -> None:
    name = "Who do you expect will win the first of the 2016 elections of this county?"
    records: list[dict[str, Json]] = [{name: who, "votes": 2016} for who in ("Ann", "Bob", "Ann")]
    assert conditions(f"How many have {name} Ann?", records) == [(f"{name} = Ann", 2)]


def test_the_number_in_a_name_is_no_date_and_no_amount() -> None:
    records: list[dict[str, Json]] = [
        {"team": "TSV 1860", "day": "2020-01-05", "goals": 1860},
        {"team": "Blau 07", "day": "2020-01-06", "goals": 2},
    ]
    assert conditions("How many have team TSV 1860?", records) == [("team = TSV 1860", 1)]


def test_a_sentence_is_found_with_the_mark_at_its_end() -> None:
    records: list[dict[str, Json]] = [
        {"note": note} for note in ("The name.", "The size.", "The id.")
    ]
    assert conditions("How many have note The name.?", records) == [("note = The name.", 1)]
    many: list[dict[str, Json]] = [{"note": f"Part {n} is late."} for n in range(300)]
    found = conditions("Which has the note Part 7 is late.?", many)
    assert found == [("note = Part 7 is late.", 1)]


def test_a_percentage_with_a_decimal_comma_is_one_value() -> None:
    records: list[dict[str, Json]] = [
        {"share": cell} for cell in ("352.094", "0,29%", "0,93%", "0,29%")
    ]
    assert "0" not in (Column(table_of_records("", records), 0).value_counts or {})


def test_not_a_place_of_two_parts_may_be_one_value_or_two() -> None:
    records: list[dict[str, Json]] = [
        {"place": place} for place in ("Raleigh, Carolina", "Durham, Carolina", "Orlando, Florida")
    ]
    read = reading(
        "How many have a place that is not Raleigh, Carolina?", table_of_records("", records)
    )
    assert not read.is_claimed


def test_a_question_with_an_ellipsis_within_is_read() -> None:
    records: list[dict[str, Json]] = [
        {"answer": "\u2026"},
        {"answer": "too much \u2026"},
        {"answer": "x"},
    ]
    read = reading("How many answer \u2026 too much \u2026?", table_of_records("", records))
    assert read.total == 2


def test_no_that_names_a_column_is_claimed_as_no_limit() -> None:
    table = table_of_records("rows", [{"no": n, "size": n} for n in range(40)])
    assert reading("How many have a size of no more than 19?", table).is_claimed
    assert reading("How many have no 19?", table).is_claimed
    assert not reading("How many have no over 19?", table).is_claimed
