"""What a question asks of a table: columns, conditions, orders, and the rows that meet them."""

import time
from typing import Any

import pytest

from llm_common.tables.columns import Column
from llm_common.tables.question.table_question import TableQuestion, read_question
from llm_common.tables.table import table_of_records
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


Records = list[dict[str, Json]]

LINTS_BY_LEVEL: list[tuple[str, str, str | None, list[Json], str | None]] = [
    ("debug", "call", None, [], "2013-04-01"),
    ("info", "log", "params", [{"rule": "no-undef"}], None),
]
LINTS: Records = [
    {
        "level": level,
        "kind": kind,
        "class": "User",
        "user_input": user_input,
        "has_structured_logging": kind == "log",
        "messages": messages,
        "column": 2,
        "created_at": created_at,
        "year": 2013,
        "who": "Ann",
    }
    for level, kind, user_input, messages, created_at in LINTS_BY_LEVEL
]


def reading(question: str, records: Any = None) -> TableQuestion:
    """Return what a question asks of these records, or of the shoes."""
    table = TABLE if records is None else table_of_records("", records)
    columns = [Column(table, index) for index in range(len(table.columns))]
    return read_question(question, table, columns)


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
    read = reading(question)
    assert sorted(SHOES[row][0] for row in read.rows[: read.total]) == ids


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


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("Who is the oldest?", "Ann"),
        ("Who is the youngest?", "Cid"),
        ("Who had the slowest speed?", "Ann"),
        ("Who was slowest by duration?", "Bob"),
        ("Who had the fastest duration?", "Cid"),
        ("Who has the best rank?", "Bob"),
        ("Who has the worst rank?", "Cid"),
        ("Who has the highest rank?", "Bob"),
        ("Who is the heaviest?", "Cid"),
        ("Who earned the most money?", "Ann"),
        ("Sort by temp min descending", "Cid"),
        ("Sort by money ascending", "Bob"),
        ("Who has the lowest t value?", "Cid"),
        ("Who has the highest share with a degree?", "Bob"),
    ],
)
def test_an_order_says_which_end_of_its_column_is_meant(question: str, best: str) -> None:
    fields = (
        *("#", "name", "age", "latency", "duration", "speed", "rank", "weight", "money"),
        *("temp_max", "temp_min", "old_value", "t_value", "share_in_cities", "share_with_a_degree"),
    )
    rows = [
        (1, "Bob", 40, 3, 90.5, 12, 1, 70, 5, 9, 2, 1, 8, 3, 9),
        (2, "Cid", 25, 4, 60.5, 30, 3, 88, 7, 7, 4, 5, 2, 9, 3),
        (3, "Ann", 61, 5, 75.0, 9, 2, 61, 9, 8, 1, 3, 6, 2, 1),
    ]
    records = [dict(zip(fields, row, strict=True)) for row in rows]
    assert records[reading(question, records).rows[0]]["name"] == best


def test_the_columns_that_a_question_names_come_first() -> None:
    names = [TABLE.columns[index] for index in reading("price and title of S-100").columns]
    assert set(names[:2]) == {"price", "title"}
    assert reading("how is the weather?").columns == ()


def test_without_a_row_for_all_conditions_the_nearest_come_first() -> None:
    read = reading("Women shoes in blue on sale with a rating above 2")
    assert read.total == 0
    assert {SHOES[row][0] for row in read.rows[:2]} == {"S-300", "S-500"}


def rows_of(field: str, *cells: Json) -> Records:
    return [{field: cell} for cell in cells]


REQUESTS: Records = [
    {"path": f"/{n}", "status": (200, 404, 500)[n % 3], "ms": n} for n in range(90)
]
RAIN = rows_of("rain", "0", "0.0", "0.00", ".25", "0.5")
TIMES = rows_of("at", *["2015-11-06T17:43:00"] * 2, "2015-11-06T17:43:10.25")
TYPES: Records = [
    {"field": "type", "type": "text"},
    {"field": "size", "type": "text"},
    {"field": "id", "type": "key"},
]
OIL: Records = [
    {"Year": year, "Oil price (Yearbook (2016))": price}
    for year, price in ((2015, 40.5), (2016, 50.5), (2017, 60.5))
]
WINNER = "Who do you expect will win the first of the 2016 elections of this county?"
TEAMS: Records = [
    {"team": "TSV 1860", "day": "2020-01-05", "goals": 1860},
    {"team": "Blau 07", "day": "2020-01-06", "goals": 2},
]
YEARS: Records = [{"season": year, "weight": 1980} for year in range(1978, 1992, 3)]
POWER: Records = [{"car": "a", "power": 90}, {"car": "b", "power": None}, {"car": "c"}]
SONGS: Records = [{"song": "a", "official_song": flag} for flag in ("Yes", "No", "No", "Yes")]
PEOPLE: Records = [
    {"name": name, "city": city, "grade": grade}
    for name, city, grade in (
        ("Ann", "Bern", "A"),
        ("Bob", "berlin", "B"),
        ("Eve", "Oslo", "A"),
        ("Ian", "York", "I"),
    )
]
SEATS: Records = [{"Seat.W": width, "SeatLen": 9} for width in (3, 4)]
NAMES: Records = [{"name": name, "id": 1, "is": "the"} for name in ("a", "any")]

ORDERS: Records = [{"order_id": n, "order_date": f"{2010 + n}-05-01"} for n in range(8)]
COMMITS: Records = [
    {"author": "Ann", "commit_by": "Ann"},
    {"author": "Ann", "commit_by": "GitHub"},
    {"author": "Bob", "commit_by": "Ann"},
    {"author": "Bob", "commit_by": "Bob"},
]


@pytest.mark.parametrize(
    ("records", "question", "expected"),
    [
        pytest.param(
            None,
            "Unisex shoes, not for women, over $90, on sale",
            [
                ("department has Unisex and department has not Women's", 1),
                ("price > 90", 2),
                ("on_sale = yes", 3),
            ],
            id="what is compared",
        ),
        pytest.param(
            None, "Which have not exactly 4.5 as rating?", [("rating != 4.5", 4)], id="no number"
        ),
        pytest.param(
            None,
            "Which have a price between 5 and 10,000?",
            [("price between 5 and 10000", 5)],
            id="thousands",
        ),
        pytest.param(
            None,
            "Which have a price between 1k and 10k?",
            [("price between 1000 and 10000", 0)],
            id="kilos",
        ),
        pytest.param(
            RAIN, "How many have rain that is not 0.0?", [("rain is not 0", 2)], id="no zero"
        ),
        pytest.param(RAIN, "How many have rain of 0?", [("rain = 0", 3)], id="zeros"),
        pytest.param(
            rows_of("tags", "a, b", "", "c", None, "a, c"),
            "How many have exactly one tag?",
            [("tags has = 1 elements", 1)],
            id="lists without an element",
        ),
        pytest.param(RAIN, "How many have rain over .25?", [("rain > 0.25", 1)], id="over a point"),
        pytest.param(RAIN, "How many have rain of .25?", [("rain = 0.25", 1)], id="a point"),
        pytest.param(
            RAIN,
            "How many have rain over 0.24999999999999997?",
            [("rain > 0.24999999999999997", 2)],
            id="many digits",
        ),
        pytest.param(
            rows_of("rider", "Rider 0", "Lukáš Bauer"),
            "how did Lukas Bauer do?",
            [("rider = Lukáš Bauer", 1)],
            id="accents",
        ),
        # A column of many values is read in another way.
        pytest.param(
            rows_of("rider", *(f"Rider {n}" for n in range(70)), "Lukáš Bauer"),
            "how did Lukas Bauer do?",
            [("rider = Lukáš Bauer", 1)],
            id="accents among many",
        ),
        pytest.param(NAMES, "is the id of any name a number?", [], id="common words"),
        pytest.param(
            rows_of("paid", "YES", "NO", ""), "How many have paid NO?", [("paid = no", 1)], id="no"
        ),
        pytest.param(
            rows_of("paid", "YES", "NO", ""),
            "How many have paid YES?",
            [("paid = yes", 1)],
            id="yes",
        ),
        pytest.param(
            TYPES, "How many have type text?", [("type = text", 2)], id="a name before its value"
        ),
        pytest.param(
            TYPES, "How many have field type?", [("field = type", 1)], id="a name that is a value"
        ),
        pytest.param(
            OIL,
            "Which have less than 55 Oil price (Yearbook (2016))?",
            [('"Oil price (Yearbook (2016))" < 55', 2)],
            id="a year in a name",
        ),
        pytest.param(
            [{WINNER: who, "votes": 2016} for who in ("Ann", "Bob", "Ann")],
            f"How many have {WINNER} Ann?",
            [(f"{WINNER} = Ann", 2)],
            id="a year in a name of many words",
        ),
        pytest.param(
            LINTS,
            "How many have user input?",
            [],
            id="words of a whole name are no value of another",
        ),
        pytest.param(
            LINTS,
            "How many have structured logging?",
            [("has_structured_logging = yes", 1)],
            id="a flag of several words",
        ),
        pytest.param(
            LINTS,
            "How many have no messages?",
            [("messages is not present", 1)],
            id="an empty list beside lists of objects",
        ),
        pytest.param(LINTS, "Which are in the first 2 columns?", [], id="a number of places"),
        pytest.param(LINTS, "How many have two capitals?", [], id="a number in words"),
        pytest.param(
            LINTS, "How many were created?", [("created_at is present", 1)], id="what happened"
        ),
        pytest.param(LINTS, "How many will be created?", [], id="what did not happen yet"),
        pytest.param(
            TEAMS, "How many have team TSV 1860?", [("team = TSV 1860", 1)], id="a year in a value"
        ),
        pytest.param(
            rows_of("note", "The name.", "The size.", "The id."),
            "How many have note The name.?",
            [("note = The name.", 1)],
            id="the end of a sentence",
        ),
        pytest.param(
            rows_of("note", *(f"Part {n} is late." for n in range(300))),
            "Which has the note Part 7 is late.?",
            [("note = Part 7 is late.", 1)],
            id="the end of one sentence of many",
        ),
        pytest.param(
            YEARS,
            "How many are from the 1980s?",
            [("season from 1980 to 1989", 3)],
            id="a decade of numbers",
        ),
        pytest.param(
            rows_of("released", "1979-12-31", "1980-01-01", "1989-12-31", "1990-01-01"),
            "How many were released in the 1980's?",
            [("released from 1980 to 1989", 2)],
            id="a decade of days",
        ),
        pytest.param(
            rows_of("weight", 1979, 1980, 1981), "How many are from the 1980s?", [], id="no decade"
        ),
        *(
            pytest.param(POWER, question, [("power is not present", 2)], id=question)
            for question in (
                "How many cars lack a power?",
                "How many cars are missing power?",
                "How many cars have a missing power?",
                "How many cars have no power?",
            )
        ),
        *(
            pytest.param(None, question, [(condition, count)], id=question)
            for question, condition, count in (
                ("How many have a lower rating than 4.5?", "rating < 4.5", 3),
                ("How many have more rating than 4.5?", "rating > 4.5", 1),
                ("How many have a rating equal to or above 4.5?", "rating >= 4.5", 2),
                ("How many have a rating less than or equal to 4.5?", "rating <= 4.5", 4),
                ("How many have a rating > 4.5?", "rating > 4.5", 1),
                ("How many exceed 4.5 in rating?", "rating > 4.5", 1),
                ("How many are there besides S-100?", "shoe_id is not S-100", 4),
                ("How many are there apart from S-100?", "shoe_id is not S-100", 4),
            )
        ),
        pytest.param(
            ORDERS,
            "How many orders were placed between 2012 and 2014?",
            [("order_date from 2012 to 2014", 3)],
            id="the noun that is counted names no column",
        ),
        pytest.param(
            ORDERS,
            "How many order ids are between 2 and 4?",
            [("order_id between 2 and 4", 3)],
            id="a name behind how many",
        ),
        *(
            pytest.param(REQUESTS, question, [("status = 404", 30)], id=question)
            for question in ("How many requests returned 404?", "which failed with 404?")
        ),
        pytest.param(
            COMMITS,
            "How many commits did Ann make?",
            [("author or commit_by = Ann", 3)],
            id="a value of two columns",
        ),
        pytest.param(
            [{"gid": n, "group": f"g{n}"} for n in range(9)],
            "How many groups have exactly one member?",
            [],
            id="a number before a noun that no column has",
        ),
        pytest.param(
            [
                {"size": "Large" if n % 3 else "Small", "kind": "Bird - large" if n % 2 else "Gull"}
                for n in range(12)
            ],
            "How many are of large size or kind?",
            [("size = Large", 8)],
            id="a whole value before a part of one",
        ),
        pytest.param(
            rows_of("licenses", "MIT", "GPL  MIT", "GPL"),
            "How many licenses are MIT?",
            [("licenses has MIT", 2)],
            id="a value behind blanks",
        ),
        pytest.param(
            [{"type": "Small" if n % 2 else "Big", "EngineSize": n} for n in range(9)],
            "Of the Small ones, how many have an EngineSize below 4?",
            [("type = Small", 4), ("EngineSize < 4", 4)],
            id="a word beside a whole name",
        ),
        pytest.param(
            SEATS, "How many have a Seat.W over 3?", [("W > 3", 1)], id="a path as its name"
        ),
        pytest.param(
            SONGS,
            "How many songs are not official?",
            [("official_song is not yes", 2)],
            id="a negation within the words of a flag",
        ),
        pytest.param(
            PEOPLE,
            "How many people have a city that does not begin with 'b'?",
            [("city does not begin with b", 2)],
            id="letters at the beginning",
        ),
        pytest.param(
            PEOPLE,
            "How many people live in a city ending in the letter o?",
            [("city ends with o", 1)],
            id="a letter at the end",
        ),
        pytest.param(
            PEOPLE,
            "Which city contains the letters 'er'?",
            [("city contains er", 2)],
            id="letters within",
        ),
        pytest.param(
            PEOPLE,
            "Which city begins with a vowel?",
            [("city begins with a or e or i or o or u", 1)],
            id="a vowel",
        ),
        pytest.param(PEOPLE, "Who has grade A?", [("grade = A", 2)], id="a letter"),
        pytest.param(
            rows_of("team", "R & D", "r and d", "Sales"),
            "How many are in R and D?",
            [("team = R & D or r and d", 2)],
            id="an ampersand",
        ),
        pytest.param(
            rows_of("song", '"Help"', "Hello"),
            "Who wrote Help?",
            [(r'song = "\"Help\""', 1)],
            id="a value in quotes",
        ),
    ],
)
def test_a_question_states_conditions(
    records: Records | None, question: str, expected: list[tuple[str, int]]
) -> None:
    read = reading(question, records)
    assert [(condition.text, len(condition.rows)) for condition in read.conditions] == expected


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
    assert reading(f"How many were at {moment}?", TIMES).total == count


ENTRIES = rows_of("text", *(f"entry {n} about weather" for n in range(40)))
ENTRIES[17] = {"text": "the carrier refused the parcel"}
LATE = rows_of("text", *["nothing"] * 7, "a late parcel", "chocolate", "spät: Latein")
TITLES: Records = [{"id": n, "title": f" The {n}th Rain "} for n in range(3_000)]
CODES: Records = [
    {
        "code": f"20180310{n:02}" if n % 8 else f"1000x{n}",
        "place": "Jarm, Afghanistan" if n == 9 else f"Place {n}",
        "size": n,
    }
    for n in range(60)
]


@pytest.mark.parametrize(
    ("records", "question", "rows"),
    [
        pytest.param(ENTRIES, "why was my parcel refused?", (17,), id="other words"),
        pytest.param(LATE, "what is late", (7, 9), id="the beginning of a word"),
        pytest.param(
            rows_of("城市", "北京", "上海", "München"), "wie ist es in München?", (2,), id="scripts"
        ),
        pytest.param(TITLES, "Who wrote THE 2718TH RAIN?", (2718,), id="case and blanks"),
        pytest.param(TITLES, "Which id is 2718?", (2718,), id="one number of many"),
        # Its date is no beginning of a code.
        pytest.param(
            CODES,
            "Which size had the quake in Afghanistan of January 2018?",
            (9,),
            id="a number that begins others",
        ),
        pytest.param(
            [{"team_id": 10 + n, "team_seed": n % 14} for n in range(28)],
            "How many teams with team seed 2 or 13?",
            (2, 13, 16, 27),
            id="two numbers of one column",
        ),
        pytest.param(
            rows_of("answer", "\u2026", "too much \u2026", "x"),
            "How many answer \u2026 too much \u2026?",
            (0, 1),
            id="an ellipsis within",
        ),
    ],
)
def test_the_rows_of_a_question_come_first(
    records: Records, question: str, rows: tuple[int, ...]
) -> None:
    assert reading(question, records).rows == rows


PEAKS: Records = [{"peak": f"P{n}", "land": "Italy"} for n in range(20)]
SIZES: Records = [{"no": n, "size": n} for n in range(40)]
PLACES = rows_of("place", "Raleigh, Carolina", "Durham, Carolina", "Orlando, Florida")
HOMES: Records = [{"beds": n % 6, "baths": n % 4} for n in range(40)]
SOCKETS: Records = [
    {"proto": f"{'tcp' if n % 2 else 'udp'}", "kind": "socket" if n % 2 else "network"}
    for n in range(20)
]
FLAGS: Records = [{"kind": "no" if n % 2 else "some", "size": n} for n in range(20)]
TERMINALS = rows_of("tty", "?", "pts/0", "?")
GENRES: Records = [
    {"genre": "Thriller/Suspense" if n % 2 else "Drama", "lead": f"L{n // 2}", "year": 1990 + n}
    for n in range(20)
]
GENRES[0]["lead"] = "Comedian"
VISITS = rows_of("day", *(f"2013-0{month}-01" for month in range(1, 9)), "2014-01-06")
RATING = "How many shoes have a rating of 4.5?"


@pytest.mark.parametrize(
    ("records", "question", "is_claimed"),
    [
        pytest.param(PEAKS, "How many peaks are in Italy?", True, id="a value"),
        *(
            pytest.param(REQUESTS, question, True, id=f"a verb before a code: {question}")
            for question in ("How many requests returned 404?", "How many failed with 404?")
        ),
        pytest.param(
            [*PEAKS, {"peak": "P20", "land": "France/ Italy"}],
            "How many peaks are in Italy?",
            False,
            id="a value among several too",
        ),
        pytest.param(
            None, "How many have a price between 5 and 10k?", False, id="a range of two scales"
        ),
        pytest.param(
            None, "How many have a price between 5 and 1 thousand?", False, id="a scale in words"
        ),
        pytest.param(None, RATING, True, id="a rating"),
        pytest.param(None, f"{RATING} {'please ' * 400}", False, id="many words"),
        pytest.param(None, f"{RATING} {'x' * 4_100}", False, id="a long word"),
        # One value, or two.
        pytest.param(
            PLACES,
            "How many have a place that is not Raleigh, Carolina?",
            False,
            id="not a place of two parts",
        ),
        pytest.param(SIZES, "How many have a size of no more than 19?", True, id="a limit"),
        pytest.param(SIZES, "How many have no 19?", True, id="a name of two letters"),
        pytest.param(SIZES, "How many have no over 19?", False, id="no limit or a name"),
        pytest.param(SIZES, "How many have a lower size than 19?", True, id="what a sign names"),
        pytest.param(
            SIZES, "How many of a size have a lower weight than 19?", False, id="what none has"
        ),
        pytest.param(SIZES, "How many of the first 10 are there?", False, id="a place"),
        pytest.param(PEAKS, "How many peaks are far from Italy?", False, id="a turning word"),
        pytest.param(PEAKS, "How many land values are there but Italy?", False, id="values"),
        pytest.param(PEOPLE, "How many have a city starting with B?", True, id="letters"),
        pytest.param(PEOPLE, "How many people start with Bern?", False, id="no letters"),
        pytest.param(PEOPLE, "How many cities start with a discount?", False, id="an article"),
        pytest.param(
            [*PEOPLE, {"city": "Élan"}],
            "How many have a city starting with E?",
            False,
            id="an accent",
        ),
        pytest.param(
            [{"name": "Ann", "manager": "Bob"}, {"name": "Bob", "manager": "Eve"}],
            "How many have a manager whose name begins with 'B'?",
            False,
            id="letters of another column",
        ),
        pytest.param(PEOPLE, "How many have grade A?", True, id="a capital letter"),
        pytest.param(PEOPLE, "How many grades did I miss?", False, id="a pronoun"),
        pytest.param(
            rows_of("seen_in", *["Ep 1"] * 9, "Ep 2, Ep 1", "Ep 1, Ep 3"),
            "How many were seen in Ep 1?",
            False,
            id="a value in a list of few cells",
        ),
        pytest.param(
            None, "What is the total number of shoes with a rating of 4.5?", True, id="a total"
        ),
        *(
            pytest.param(records, question, is_claimed, id=question)
            for records, question, is_claimed in (
                (HOMES, "How many homes have 4 beds and 2 baths?", True),
                (HOMES, "How many homes have over 3 beds and over 2 baths?", True),
                (HOMES, "How many homes have over 3 beds and 2 baths?", False),
                (HOMES, "How many homes have over three beds and two baths?", False),
                (SOCKETS, "How many udp entries are there?", True),
                (SOCKETS, "How many udp sockets are there?", False),
                (SOCKETS, "How many tcp sockets are there?", True),
                (TERMINALS, "How many have no tty?", False),
                (GENRES, "How many films were made in 1999?", True),
                (GENRES, "How many thrillers were made in 1999?", False),
                (GENRES, "How many comedians were in them in 1999?", False),
                (GENRES, "Was there one at Cannes in 1999?", False),
                (FLAGS, "How many have no size over 3?", True),
                (FLAGS, "How many no have a size over 3?", False),
                (VISITS, "How many visits were in 2013?", True),
                (VISITS, "How many Mondays were in 2013?", False),
                (LINTS, "How many log lines are of the level debug?", False),
                (LINTS, "How many lines are of the kind log?", True),
                (LINTS, "In how many years did Ann hold more than 15 people?", False),
                (LINTS, "How many years are above 2010?", True),
            )
        ),
        pytest.param(
            None, "What is the total of shoes with a rating of 4.5?", False, id="no total number"
        ),
        pytest.param(
            rows_of("weight_g", 30, 900, 1_200), "How many weigh over 500 g?", True, id="a unit"
        ),
        pytest.param(
            rows_of("weight_g", 30, 900, 1_200), "How many weigh over 1 kg?", False, id="another"
        ),
        pytest.param(PEAKS, "How many times is Italy in this table?", True, id="times"),
        pytest.param(PEAKS, "How many times is Italy in this year?", False, id="this year"),
    ],
)
def test_a_number_is_claimed_only_for_a_question_with_one_reading(
    records: Records | None, question: str, is_claimed: bool
) -> None:
    assert reading(question, records).is_claimed is is_claimed


FILMS: Records = [
    {"film": film, "rating": rating, "studio": studio, "day": day}
    for film, rating, studio, day in (
        ("A", "PG", "Nord", "2020-01-02"),
        ("B", "G", "Ost", "2021-01-03"),
        ("C", "R", "Nord", "2021-02-04"),
        ("D", "PG", "Nord", "2021-02-04"),
    )
]


@pytest.mark.parametrize(
    ("question", "certain"),
    [
        ("How many R films are from Nord?", ["studio = Nord"]),
        ("How many G or PG films are from Nord?", ["studio = Nord"]),
        ("How many films from Sud or Nord are rated PG?", ["rating = PG"]),
        ("How many films from Nord or Sud are rated PG?", []),
        ("How many films are from Nord or have a PG rating?", ["studio = Nord or rating = PG"]),
        ("How many films other than modern ones are from Nord?", []),
        ("How many films of January are from Nord?", ["studio = Nord"]),
        ("How many films of January 2021 are from Nord?", ["day in 2021-01", "studio = Nord"]),
    ],
)
def test_a_condition_is_certain_if_only_its_rows_can_be_meant(
    question: str, certain: list[str]
) -> None:
    read = reading(question, FILMS)
    assert [each.text for each in read.conditions if each.is_certain] == certain


@pytest.mark.parametrize(
    ("question", "is_claimed"),
    [
        ("How many members are older than 60?", True),
        ("How many senators are older than 60?", False),  # there are other members
    ],
)
def test_a_noun_that_is_akin_to_a_value_may_restrict(question: str, is_claimed: bool) -> None:
    chambers = ("senate", "house", "house", "senate")
    members: Records = [{"chamber": each, "age": 50 + 9 * n} for n, each in enumerate(chambers)]
    assert reading(question, members).is_claimed is is_claimed


def test_a_question_of_blanks_takes_linear_time() -> None:
    start = time.process_time()
    for _ in range(5):
        reading("between 1" + " " * 3_900)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(" ".join(map(str, range(200_000))), id="numbers"),
        pytest.param("(" * 100_000, id="brackets"),
        pytest.param("between " * 50_000, id="ranges"),
        pytest.param("between 1" + " " * 3_900, id="blanks"),
    ],
)
def test_a_question_takes_bounded_time(question: str) -> None:
    rows: Records = [
        {"a": "word " * 2_000, "b": ", ".join(map(str, range(50)))} for _ in range(200)
    ]
    start = time.thread_time()
    reading(question, rows)
    assert time.thread_time() - start < 4


def test_a_percentage_with_a_decimal_comma_is_one_value() -> None:
    records = rows_of("share", "352.094", "0,29%", "0,93%", "0,29%")
    assert "0" not in (Column(table_of_records("", records), 0).value_counts or {})


LONG = "Wonder Steel / Crystal White / Legend Ink of the sea"
COLORS = [
    "White, Blue",
    "Red, Blue",
    f"White, {LONG}",
    ", ".join(["White", *(f"c{n}" for n in range(900))]),
]


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("How many shoes come in white?", {0, 2, 3}),
        ("How many come in 2 colors?", {0, 1, 2}),
        ("How many shoes come in legend ink of the sea?", {2}),
    ],
)
def test_long_and_many_elements_of_a_list_are_compared_too(question: str, rows: set[int]) -> None:
    read = reading(question, [{"no": f"S{n}", "color": color} for n, color in enumerate(COLORS)])
    assert {*read.rows[: read.total]} == rows


def test_a_sentence_in_brackets_is_one_value() -> None:
    notes = ["[late, and wet", "[late, and dry", "early"]
    read = reading("How many have the note early?", [{"note": note} for note in notes])
    column = Column(table_of_records("", [{"note": note} for note in notes]), 0)
    assert column.elements(notes[0]) == (notes[0],)
    assert read.total == 1


def test_a_letter_stands_for_the_level_of_log_lines() -> None:
    table = table_of_records("", [{"level": level} for level in ("INFO", "ERROR", "INFO")])
    read = read_question("How many I lines are there?", table, [Column(table, 0)], nouns="line")
    assert [(condition.text, len(condition.rows)) for condition in read.conditions] == [
        ("level = INFO", 2)
    ]
    assert read.is_claimed
    other = read_question("How many lines did I write?", table, [Column(table, 0)], nouns="line")
    assert (other.conditions, other.is_claimed) == ((), False)
