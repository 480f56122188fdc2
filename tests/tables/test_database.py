"""A SELECT reads the records and nothing else, within time and memory, and errors say the way out."""

import random
import resource
import sqlite3
import time
from itertools import pairwise
from pathlib import Path

import pytest

from llm_common.errors import ToolArgumentsError
from llm_common.tables.finding import find_records
from llm_common.tables.sql.bounds import add_text_functions
from llm_common.tables.sql.database import MAX_RESULT_ROWS, NamedTable, RecordDatabase
from llm_common.tables.table import MAX_COLUMNS, MAX_ROWS
from llm_common.text.canonical import Json
from tests.tables.reading import database_of

ORDERS: list[Json] = [
    {"no": f"W{n:03}", "buyer": n % 7, "total": n * 1.5, "paid": n % 2 == 0, "tags": ["a", f"t{n}"]}
    for n in range(300)
]
BUYERS: list[Json] = [{"id": n, "name": f"Buyer {n}", "zip": f"0{n}123"} for n in range(7)]

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
LONG = "replace(hex('" + "a" * 9_000 + "'), '6', '666666666')"
LONG_ROWS = f"WITH RECURSIVE c(n, t) AS (SELECT 1, {LONG} UNION ALL SELECT n + 1, t || n FROM c LIMIT 90000) "
# A value of 900,000 characters, which fits a query that makes few of them.
MEGABYTE = (
    "WITH x AS MATERIALIZED (SELECT replace(replace(hex('"
    + "a" * 9_000
    + f"'), '6', '{'6' * 50}'), '1', '{'1' * 50}') AS t)"
)
REFUSED = [
    "ATTACH 'x.db' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH main",
    "PRAGMA user_version",
    "PRAGMA query_only = OFF",
    "PRAGMA hard_heap_limit = 1",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('orders')",
    "INSERT INTO orders (no) VALUES ('x')",
    "UPDATE orders SET no = 'x'",
    "DELETE FROM orders",
    "REPLACE INTO orders (no) VALUES ('x')",
    "DROP TABLE orders",
    "ALTER TABLE orders ADD COLUMN x",
    "CREATE TABLE x (y)",
    "CREATE TEMP TABLE x (y)",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "CREATE INDEX x ON orders (no)",
    "CREATE TRIGGER x AFTER INSERT ON orders BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE x USING fts5(y)",
    "VACUUM",
    "VACUUM INTO 'x.db'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "SAVEPOINT x",
    "EXPLAIN SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE orders",
    "SELECT load_extension('x')",
    "SELECT printf('%1000000000d', 1)",
    "SELECT format('%1000000000d', 1)",
    "SELECT zeroblob(1000000000)",
    "SELECT hex(randomblob(1000000000))",
    "SELECT random()",
    "SELECT sqlite_version()",
    "SELECT last_insert_rowid(), changes()",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('x', 'y')",
    "SELECT fts3_tokenizer('x')",
    "SELECT edit('x')",
    "WITH x AS (SELECT 1) DELETE FROM orders",
    "",
    " ;",
    "not SQL",
    "SELECT",
    "SELECT 'half",
    "SELECT \0",
    "SELECT \ud800",
    "SELECT ?",
    "SELECT :x",
    "SELECT " + "(" * 2_000 + "1" + ")" * 2_000,
    "SELECT " + "1," * 15_000 + "1",
    " UNION ALL ".join(["SELECT 1"] * 500),
    "SELECT max(" + ",".join("1" * 500) + ")",
    "SELECT 'a' LIKE '" + "%a" * 3_000 + "'",
    f"{MEGABYTE} SELECT " + ",".join(f"t || {n}" for n in range(590)) + " FROM x",
    f"{MEGABYTE} SELECT " + ",".join(["t"] * 590) + " FROM x",
    f"{MEGABYTE}, y AS (SELECT t a, t b, t c, t d, t e, t f FROM x) SELECT "
    + ",".join(["y.*"] * 90)
    + " FROM y",
    f"{MEGABYTE} SELECT " + ",".join(f"max(t || {n})" for n in range(590)) + " FROM x, orders",
]


def doubled(levels: int, step: str, *, name: str = "c{}", base: str = "SELECT 1 AS y") -> str:
    """Return a query whose parts each use the part before several times."""
    names = [name.format(level) for level in range(levels + 1)]
    parts = [f"{names[0]} AS ({base})"]
    for inner, outer in pairwise(names):
        parts.append(f"{outer} AS ({step.replace('INNER', inner)})")
    return f"WITH {', '.join(parts)} SELECT max(y) FROM {names[-1]}"


def balanced(count: int) -> str:
    """Return a sum of `y` without deep brackets."""
    return "y" if count == 1 else f"({balanced(count // 2)} + {balanced(count - count // 2)})"


def nested(levels: int, expression: str) -> str:
    sql = "SELECT total AS y FROM orders"
    for _ in range(levels):
        sql = f"SELECT {expression} AS y FROM ({sql})"
    return sql


UNION = "SELECT * FROM INNER UNION ALL SELECT * FROM INNER"
# SQLite would take gigabytes to compile them, in a time that nothing can stop.
COPIED = [
    doubled(30, UNION),
    doubled(30, UNION, name='"c {}"'),
    doubled(30, UNION, name="[c{}]"),
    doubled(30, UNION, name="\N{PARTY POPPER}{}"),
    doubled(30, UNION, name="c${}"),
    doubled(30, "SELECT * FROM/*x*/INNER UNION ALL SELECT * FROM'INNER'"),
    doubled(30, "SELECT a.y FROM INNER a, INNER b"),
    doubled(30, "SELECT (SELECT y FROM INNER) + (SELECT y FROM INNER) AS y"),
    doubled(30, "SELECT y + y AS y FROM INNER", base="SELECT total AS y FROM orders"),
    doubled(30, 'SELECT y IS DISTINCT FROM y AS "from", "from" + y AS y FROM INNER').replace(
        "y AS y", "y + y AS y"
    ),
    # The first part is the last in the text.
    "WITH "
    + ", ".join(
        f"c{n}(y) AS NOT MATERIALIZED ({UNION.replace('INNER', f'c{n - 1}')})"
        for n in range(30, 0, -1)
    )
    + ", c0(y) AS (SELECT 1) SELECT max(y) FROM c30",
    nested(6, balanced(16)),
    nested(5, f"coalesce({', '.join(['y'] * 40)})"),
    nested(5, f"(VALUES ({balanced(64)}))"),
    nested(5, f"(SELECT {balanced(32)} FROM (SELECT {balanced(32)} AS y))"),
]
STOPPED = [
    ENDLESS + "SELECT count(*) FROM c",
    ENDLESS + "SELECT sum(x) FROM c",
    "SELECT count(*) FROM orders a, orders b, orders c, orders d",
    "SELECT a.no || b.no || c.no FROM orders a, orders b, orders c, orders d ORDER BY 1",
    f"WITH RECURSIVE c(t) AS (SELECT {LONG} UNION ALL SELECT t || t FROM c) SELECT max(t) FROM c",
    LONG_ROWS + "SELECT count(DISTINCT t) FROM c",
    LONG_ROWS + "SELECT t FROM c ORDER BY t",
    LONG_ROWS + "SELECT t FROM c",
    LONG_ROWS + "SELECT group_concat(t) FROM c",
    LONG_ROWS + "SELECT json_group_array(t) FROM c",
]


@pytest.fixture
def database() -> RecordDatabase:
    return database_of(orders=ORDERS, buyers=BUYERS)


@pytest.mark.parametrize("sql", [*REFUSED, *COPIED])
def test_everything_but_one_select_is_refused_t_04(
    database: RecordDatabase, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolArgumentsError, match=r"query_context returned nothing: .*orders\("):
        database.query(sql)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 200_000
    assert list(tmp_path.iterdir()) == []
    assert database.query("SELECT count(*), sum(total) FROM orders").rows == ((300, 67_275.0),)


# Each takes two seconds, so all but two of them are run with the slow campaigns.
@pytest.mark.parametrize(
    "sql",
    [
        *STOPPED[:1],
        *STOPPED[4:5],
        *(pytest.param(sql, marks=pytest.mark.torture) for sql in STOPPED),
    ],
)
def test_queries_without_end_are_stopped_t_04(database: RecordDatabase, sql: str) -> None:
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_s = time.thread_time()
    with pytest.raises(ToolArgumentsError, match=r"took|too big|too much"):
        database.query(sql)
    assert time.thread_time() - start_s < 2.5
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb
    assert grown_kb < 200_000
    assert database.query("SELECT 1").rows == ((1,),)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        (
            "SELECT name, count(*) FROM orders JOIN buyers ON buyer = id GROUP BY id LIMIT 2",
            (("Buyer 0", 43), ("Buyer 1", 43)),
        ),
        (
            "SELECT no FROM orders WHERE paid AND total > 440 ORDER BY 1",
            (("W294",), ("W296",), ("W298",)),
        ),
        ("SELECT no FROM orders WHERE no LIKE 'w29%' AND NOT paid LIMIT 1", (("W291",),)),
        ("SELECT value FROM orders, json_each(tags) WHERE no = 'W007'", (("a",), ("t7",))),
        ("SELECT tags ->> 1 FROM orders WHERE no = 'W007'", (("t7",),)),
        ("SELECT no, rank() OVER (ORDER BY total DESC) FROM orders LIMIT 1", (("W299", 1),)),
        ("SELECT julianday('2026-03-05') - julianday('2026-03-01')", ((4.0,),)),
        ("SELECT number('$1,234.50') + number('x')", ((None,),)),
        ("SELECT number('$1,234.50') + number('17% off')", ((1_251.5,),)),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t UNION SELECT 2;", ((1,), (2,))),
        ("SELECT x'6162', 1.5, NULL", (("6162", 1.5, None),)),
        (MEGABYTE + " SELECT length(t || t) FROM x LIMIT 0", ()),
        (MEGABYTE + " SELECT length(t), count(*) FROM x", ((900_000, 1),)),
        (ENDLESS + "SELECT x FROM c LIMIT 2", ((1,), (2,))),
        (doubled(10, UNION), ((1,),)),
        (doubled(60, "SELECT y + 1 AS y FROM INNER"), ((61,),)),
        ("SELECT 'ESCAPE' LIKE '%_x_%' ESCAPE 'x', '50 %' LIKE '50 !%' ESCAPE '!'", ((0, 1),)),
        (
            "SELECT instr(total, '.5'), trim(no, 'W0'), total LIKE '4%.5' FROM orders LIMIT 1 OFFSET 3",
            ((2, "3", 1),),
        ),
    ],
)
def test_selects_join_and_compute_t_04(
    database: RecordDatabase, sql: str, rows: tuple[tuple[object, ...], ...]
) -> None:
    assert database.query(sql).rows == rows


def test_a_mistake_is_answered_with_the_columns_of_its_tables_t_04(
    database: RecordDatabase,
) -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        database.query("SELECT totl FROM orders", other_names=["get_parts_3ac5f0"])
    assert caught.value.message == (
        "query_context returned nothing: no such column: totl. Tables: orders(no, buyer, total, "
        "paid, tags); buyers(id, name, zip); get_parts_3ac5f0"
    )


GAPS: list[Json] = [
    "id,price\na,9.50\nb,\nc,100.00\n",
    [{"id": "a", "price": 9.5}, {"id": "b", "price": ""}, {"id": "c", "price": 100}],
    [{"id": "a", "price": 9.5}, {"id": "b"}, {"id": "c", "price": 100}],
]
CODES = "price,version,zip,mixed\n9.50,1.9,01234,1\n10.25,1.10,94107,x\n100.00,2.0,00001,3\n"
SPANS: list[Json] = [{"id": 2**63 + n, "name": f"n{n}"} for n in range(-3, 3)]
NOTES: list[Json] = [{"id": "a", "note": ""}, {"id": "b", "note": "x"}, {"id": "", "note": ""}]
ODD: list[Json] = [
    {
        'a"b': 1,
        "select": "\ud800",
        "x; DROP TABLE t": 10**30,
        "nul\0": "a\0b",
        "Ä": -(2**63),
        "deep": {"a": {"b": float("1e300")}},
    }
] * 2


@pytest.mark.parametrize(
    ("records", "sql", "rows"),
    [
        *((gaps, "SELECT id FROM t WHERE price > 50", (("c",),)) for gaps in GAPS),
        *((gaps, "SELECT id FROM t WHERE price IS NULL", (("b",),)) for gaps in GAPS),
        *((gaps, "SELECT id FROM t ORDER BY price DESC LIMIT 1", (("c",),)) for gaps in GAPS),
        *(
            (gaps, "SELECT max(price), avg(price), count(price) FROM t", ((100, 54.75, 2),))
            for gaps in GAPS
        ),
        (CODES, "SELECT price FROM t WHERE price > 10 ORDER BY price", ((10.25,), (100,))),
        (CODES, "SELECT version FROM t ORDER BY rowid", (("1.9",), ("1.10",), ("2.0",))),
        (CODES, "SELECT zip FROM t WHERE zip = '01234' OR zip = 94107", (("01234",), ("94107",))),
        (CODES, "SELECT mixed FROM t WHERE mixed = 'x'", (("x",),)),
        (SPANS, f"SELECT count(*) FROM t WHERE id = '{2**63 - 3}'", ((1,),)),
        (SPANS, f"SELECT count(*) FROM t WHERE id = '{2**63 + 2}'", ((1,),)),
        (SPANS, f"SELECT {-(2**63)}, '{2**70}'", ((-(2**63), str(2**70)),)),
        (NOTES, "SELECT count(*) FROM t WHERE note = ''", ((2,),)),
        (ODD, "SELECT * FROM t LIMIT 1", ((1, "\\ud800", str(10**30), "a\0b", -(2**63), 1e300),)),
        (ODD, 'SELECT "a""b", "select" FROM t LIMIT 1', ((1, "\\ud800"),)),
        ("a,b\nx,5\ny,2.5\n", "SELECT b / 2 FROM t", ((2.5,), (1.25,))),
        ("a,b\nx,5\ny,2\n", "SELECT b / 2 FROM t", ((2,), (1,))),
    ],
)
def test_cells_are_compared_by_their_kind_t_15(
    records: Json, sql: str, rows: tuple[tuple[object, ...], ...]
) -> None:
    assert database_of(t=records).query(sql).rows == rows


def test_an_integer_of_over_64_bits_is_compared_as_text() -> None:
    with pytest.raises(ToolArgumentsError, match="compare with '9223372036854775810'"):
        database_of(spans=SPANS).query("SELECT count(*) FROM spans WHERE id = 9223372036854775810")


@pytest.mark.parametrize(
    ("asked", "rows", "is_cut"),
    [(20_000, MAX_RESULT_ROWS, True), (MAX_RESULT_ROWS, MAX_RESULT_ROWS, False)],
)
def test_long_answers_are_cut_and_say_so(
    database: RecordDatabase, asked: int, rows: int, is_cut: bool
) -> None:
    found = database.query(ENDLESS + f"SELECT x FROM c LIMIT {asked}")
    assert (len(found.rows), found.is_cut) == (rows, is_cut)


def test_names_can_be_added_and_replaced(database: RecordDatabase) -> None:
    database.drop("buyers")
    database.add([NamedTable("buyers", find_records(BUYERS[:2]).tables[0])])
    assert database.query("SELECT count(*) FROM buyers").rows == ((2,),)
    assert set(database.names) == {"orders", "buyers"}


def by_random_texts(seed: int) -> tuple[str, list[object]]:
    """Return a call of a function for texts, with its arguments."""
    choice = random.Random(seed)

    def text(letters: str, most: int) -> str:
        return "".join(choice.choices(letters, k=choice.randrange(most)))

    numbers = [12, 12.5, 0.1, 100.0, 1e20, 1e-7, -3.25, None]
    cell = choice.choice([text("abA ä%_[]", 9), choice.choice(numbers)])
    calls: list[tuple[str, list[object]]] = [
        ("? LIKE ?", [cell, text("aAä%__%%", 8)]),
        ("? LIKE ? ESCAPE ?", [cell, text("aA%_!", 7) + "b", choice.choice("!aA%_")]),
        (
            "? GLOB ?",
            [
                cell,
                text("abA*?ä", 5)
                + choice.choice(["", "[a-c]", "[^b]*", "[]a]", "[!a]", "[^!]", "[a"]),
            ],
        ),
        ("instr(?, ?)", [cell, choice.choice([text("abä", 3), 2, None])]),
        ("replace(?, ?, ?)", [cell, text("abä", 2), text("xyä", 3)]),
        ("trim(?, ?)", [cell, text("abä 1", 3)]),
        ("ltrim(?, ?)", [cell, text("abä 1", 3)]),
        ("rtrim(?, ?)", [cell, text("abä 1", 3)]),
    ]
    call, values = choice.choice(calls)
    if call.startswith("replace") and not values[1]:  # gives back a number as one
        values[0] = text("ab", 5)
    return f"SELECT {call}", values


def test_texts_are_compared_as_sqlite_itself_does() -> None:
    own, sqlites = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    add_text_functions(own, lambda: False, max_chars=1_000)
    for seed in range(4_000):
        sql, values = by_random_texts(seed)
        expected = sqlites.execute(sql, values).fetchone()
        assert own.execute(sql, values).fetchone() == expected, (sql, values)
    for connection in (own, sqlites):
        connection.close()


LONG_CELLS: list[Json] = [{"id": n, "t": "a" * 300_000} for n in range(20)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(instr(t, substr(t, 1, 150000) || 'b')) FROM long",
        "SELECT sum(length(replace(t, substr(t, 1, 150000) || 'b', ''))) FROM long",
        "SELECT sum(length(rtrim(t, replace(t, 'a', 'b') || 'a'))) FROM long",
        "SELECT count(*) FROM long WHERE t LIKE '" + "%_a" * 300 + "b%'",
        "SELECT count(*) FROM long WHERE t GLOB '" + "*?a" * 300 + "b*'",
    ],
)
def test_long_texts_are_compared_in_time_that_grows_with_them_t_04(sql: str) -> None:
    database = database_of(long=LONG_CELLS)
    start_s = time.thread_time()
    assert len(database.query(sql).rows) == 1
    assert time.thread_time() - start_s < 4


IN_A_FUNCTION = "instr, replace, trim, LIKE or GLOB took too long, or have a pattern that is too"
DISTINCT = "WITH RECURSIVE n(i) AS (SELECT 200 UNION ALL SELECT i + 1 FROM n LIMIT 300)"


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT count(*) FROM long WHERE t LIKE '%" + "_a" * 400 + "b%'", IN_A_FUNCTION),
        (
            f"{DISTINCT} SELECT trim(t, (SELECT group_concat(char(i), '') FROM n)) FROM long",
            IN_A_FUNCTION,
        ),
        ("SELECT 'a' LIKE substr(t, 1, 1500) FROM long", "string or blob too big"),
        ("SELECT length(replace(t, 'a', t)) FROM long", "string or blob too big"),
        ("SELECT 'a' LIKE 'a' ESCAPE 'ab' FROM long", IN_A_FUNCTION),
    ],
)
def test_what_would_take_long_within_one_function_is_refused_t_04(sql: str, problem: str) -> None:
    database = database_of(long=LONG_CELLS)
    start_s = time.thread_time()
    with pytest.raises(ToolArgumentsError, match=problem):
        database.query(sql)
    assert time.thread_time() - start_s < 12
    assert database.query("SELECT count(*) FROM long WHERE t GLOB '*a*a'").rows == ((20,),)


PRICES = 'item,price,price_text\na,"$1,200.50",x\nb,N/A,y\nc,$7.00,z\n'


def test_values_stand_beside_their_texts_t_15() -> None:
    database = database_of(t=PRICES)
    found = database.query("SELECT * FROM t ORDER BY price DESC LIMIT 1")
    assert found.columns == ("item", "price", "price_text", "price_text_2")
    assert found.rows == (("a", 1_200.5, "x", "$1,200.50"),)
    assert database.query("SELECT price_text_2 FROM t WHERE price IS NULL").rows == (("N/A",),)


def test_a_table_as_wide_as_sqlite_allows_is_loaded() -> None:
    record: dict[str, Json] = {f"c{n}": f"{n} %" for n in range(500)}
    [row, _] = database_of(t=[record, record]).query("SELECT * FROM t").rows
    assert (len(row), row[499], row[500]) == (600, 499, "0 %")


CSV = "id,name,qty\n" + "1,a,2\n" * 20
WEIGHTS: list[Json] = [{"id": n, "weight": f"{n},234"} for n in range(1, 30)]
BY_LETTERS = "weight is text, compared by letters. number(weight) reads numbers in it."
ANDROID = "\n".join(
    f"03-17 16:13:{n:02}.811  1702  2395 {'DIE'[n % 3]} Tag: message {n}" for n in range(40)
)
NEVER_E = "level is never 'E' in t: SELECT DISTINCT level lists its values."


@pytest.mark.parametrize(
    ("records", "sql", "notes"),
    [
        (
            PRICES,
            "SELECT item FROM t ORDER BY price",
            ["price has $ values, price_text_2 the texts."],
        ),
        (PRICES, "SELECT price FROM t", []),
        (WEIGHTS, "SELECT max(Weight) FROM t", [BY_LETTERS]),
        (WEIGHTS, "SELECT weight, id FROM t", []),
        (WEIGHTS, "SELECT id FROM t WHERE id > 5", []),
        (CSV, "SELECT count(*) FROM t", []),
        (
            f"{CSV}total 40\n",
            "SELECT count(*) FROM t",
            ["t lacks 1 other line of its text."],
        ),
        (
            f"Sold in May\n\n{CSV}\ntotal 40\n",
            "SELECT count(*) FROM t",
            ["t lacks 2 other lines of its text."],
        ),
        (
            [{"id": number} for number in range(MAX_ROWS + 2)],
            "SELECT count(*) FROM t",
            ["t has the first 100,000 of 100,002 records."],
        ),
        (
            [{f"c{column}": row for column in range(MAX_COLUMNS + 3)} for row in range(3)],
            "SELECT * FROM t",
            ["t has the first 500 of 503 fields."],
        ),
        (ANDROID, "SELECT count(*) FROM t WHERE level = 'E'", [NEVER_E]),
        (ANDROID, "SELECT count(*) FROM t WHERE upper(level) = 'E'", [NEVER_E]),
        (ANDROID, "SELECT count(*) FROM t x WHERE x.\"level\"=='E' AND pid = 1702", [NEVER_E]),
        (ANDROID, "SELECT count(*) FROM t WHERE 'x' = 'x' AND level='E'", [NEVER_E]),
        (ANDROID, "SELECT count(*) FROM t WHERE level = 'ERROR'", []),
        (ANDROID, "SELECT count(*) FROM t WHERE lower(level) = 'error'", []),
        (ANDROID, "SELECT count(*) FROM t WHERE level != 'E'", []),
        (ANDROID, "SELECT count(*) FROM t WHERE substr(level, 1, 1) = 'E'", []),
    ],
)
def test_notes_say_what_a_query_may_have_got_wrong_t_15_t_17(
    records: Json, sql: str, notes: list[str]
) -> None:
    assert [*database_of(t=records).query(sql).notes] == notes


@pytest.mark.parametrize("flags", [(True, False), ("yes", "no")])
def test_a_comparison_of_a_flag_says_what_it_is_t_15(flags: tuple[Json, Json]) -> None:
    database = database_of(t=[{"id": n, "active": flags[n % 2]} for n in range(30)])
    found = database.query("SELECT count(*) FROM t WHERE active = 'yes'")
    assert found.rows == ((0,),)
    assert found.notes[0].startswith("active is 1 or 0.")
    assert database.query("SELECT count(*) FROM t WHERE active").rows == ((15,),)
