"""Records are found wherever they stand in a result, in each form, within bounds."""

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.tables.finding import find_records
from llm_common.tables.table import MAX_COLUMNS, MAX_ROWS, Table
from llm_common.text.canonical import Json

ORDERS: Any = [{"id": 1, "state": "open"}, {"id": 2, "state": "paid"}, {"id": 3, "state": "open"}]
ROWS = ((1, "open"), (2, "paid"), (3, "open"))
PADDED = json.dumps(ORDERS) + " " * 200  # short texts are not parsed within other data

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=40,
)


def only_table(value: Any) -> Table:
    [table] = find_records(value).tables
    return table


@pytest.mark.parametrize(
    ("result", "path"),
    [
        (ORDERS, ""),
        ({"data": {"orders": ORDERS}, "ok": True}, "data.orders"),
        ({"pages": [{"n": 1}, ORDERS]}, "pages[1]"),
        ({"rows": [[1, "open"], [2, "paid"], [3, "open"]], "columns": ["id", "state"]}, "rows"),
        ({"schema": 1, "t": {"id": [1, 2, 3], "state": ["open", "paid", "open"]}}, "t"),
        ([["id", "state"], [1, "open"], [2, "paid"], [3, "open"]], ""),
        ({"content": [{"type": "text", "text": PADDED}]}, "content[0].text"),
        (json.dumps(ORDERS), ""),
        ("Found 3 orders:\n\n" + json.dumps(ORDERS), ""),
        ("\n".join(map(json.dumps, ORDERS)), ""),
    ],
    ids=[
        "list",
        "within objects",
        "within lists",
        "rows beside columns",
        "columns as lists",
        "rows with a header",
        "text of an MCP result",
        "JSON text",
        "JSON after a line",
        "JSON lines",
    ],
)
def test_records_are_found_wherever_they_stand(result: Any, path: str) -> None:
    table = only_table(result)
    assert (table.path, table.columns, table.rows) == (path, ("id", "state"), ROWS)
    assert (table.total_rows, table.total_columns) == (3, 2)


@pytest.mark.parametrize(
    ("text", "columns", "last"),
    [
        ('id,state\n1,open\n2,paid\n3,"open, late"\n', ("id", "state"), ("3", "open, late")),
        ("id\tstate\n1\topen\n2\tpaid\n3\topen\n", ("id", "state"), ("3", "open")),
        ("Export\n\nid;state\n1;open\n2;paid\n3;open\n", ("id", "state"), ("3", "open")),
        (
            "Orders\n\n| id | state |\n|:--|---|\n| 1 | open |\n| 2 | a \\| b |\n\nEnd\n",
            ("id", "state"),
            ("2", "a | b"),
        ),
        (
            "<table><tr><th>id<th>state</tr><tr><td>1<td>open &amp; <b>late</b></tr></table>",
            ("id", "state"),
            ("1", "open & late"),
        ),
        (
            "2026-01-02T03:04:05Z INFO web: up\n2026-01-02T03:04:07Z WARN web: slow\n" * 2,
            ("time", "level", "source", "message"),
            ("2026-01-02T03:04:07Z", "WARN", "web", "slow"),
        ),
        (
            'level=info msg="all \\"well\\"" ms=3\nlevel=warn msg=late ms=9\nlevel=info msg=x ms=1\n',
            ("level", "msg", "ms"),
            ("info", "x", "1"),
        ),
        (
            '1.2.3.4 - ann [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 23 "-" "curl"\n' * 3,
            ("client", "user", "time", "method", "path", "status", "bytes"),
            ("1.2.3.4", "ann", "10/Oct/2026:13:55:36 +0000", "GET", "/a", "200", "23"),
        ),
        (
            "NAME    READY   STATUS\nweb-1   1/1     Running now\ndb-1    0/1     Pending\n",
            ("NAME", "READY", "STATUS"),
            ("db-1", "0/1", "Pending"),
        ),
        (
            "### Ann\nid: 1\nstate: open\n\n### Bob\nid: 2\nstate: paid\n\n### Cid\nid: 3\nstate: x\n",
            ("heading", "id", "state"),
            ("Cid", "3", "x"),
        ),
    ],
    ids=[
        "csv",
        "tsv",
        "semicolons",
        "markdown",
        "html",
        "log",
        "logfmt",
        "access-log",
        "columns",
        "blocks",
    ],
)
def test_each_form_of_text_has_its_records(
    text: str, columns: tuple[str, ...], last: tuple[str, ...]
) -> None:
    table = only_table(text)
    assert table.columns == columns
    assert table.rows[-1] == last


def test_lines_of_a_stack_trace_belong_to_their_entry() -> None:
    log = "2026-01-02 03:04:05 ERROR db: down\nTraceback\n  x.py\n2026-01-02 03:04:06 INFO db: up\n"
    assert only_table(log).column(3) == ["down\nTraceback\n  x.py", "up"]


ACCESS = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 23'
TIMEOUT = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -'


def test_a_request_without_a_method_is_an_entry_t_03() -> None:
    table = only_table("\n".join([ACCESS] * 400 + [TIMEOUT] * 600))
    assert table.total_rows == 1_000
    assert table.rows[-1] == ("1.2.3.4", "-", "10/Oct/2000:13:55:36 -0700", None, "-", "408", "-")


def test_other_lines_of_an_access_log_are_kept_t_03() -> None:
    table = only_table("\n".join([ACCESS] * 400 + ["disk full"] * 30))
    assert table.total_rows == 430
    assert table.columns[-1] == "line"
    assert table.rows[0][-1] is None
    assert table.rows[-1] == (*[None] * 7, "disk full")
    assert find_records("\n".join([ACCESS] * 400 + ["disk full"] * 430)).tables == ()


def test_other_lines_of_json_lines_stand_beside_the_records_t_03() -> None:
    lines = [*map(json.dumps, ORDERS * 100), "disk full", "disk is full"]
    records = find_records("\n".join([*lines, "{}"]))
    assert records.tables[0].total_rows == 301
    assert records.fields == (("2 other lines", "disk full\ndisk is full"),)
    records = find_records({"text": "\n".join(lines[:-1])})
    assert records.tables[0].total_rows == 300
    assert records.fields == (("text 1 other line", "disk full"),)


def test_other_lines_of_logfmt_are_kept_t_03() -> None:
    table = only_table("level=info msg=up ms=1\n" * 60 + "disk full\n")
    assert table.columns == ("level", "msg", "ms")
    assert (table.total_rows, table.other_lines) == (60, ("disk full",))
    long = only_table("a=1 b=2 c=3\n" * (MAX_ROWS + 5))
    assert (len(long.rows), long.total_rows) == (MAX_ROWS, MAX_ROWS + 5)


@pytest.mark.parametrize(
    "note",
    [
        "... [truncated, 5000 more lines]",
        "[output truncated]",
        "…12 rows omitted",
        "(9 rows cut off)",
    ],
)
def test_a_note_of_a_cut_stands_beside_the_records_t_17(note: str) -> None:
    records = find_records("id,state\n" + "1,open\n" * 9 + f"\n{note}\n")
    assert records.tables[0].total_rows == 9
    assert records.fields == (("cut", note),)


@pytest.mark.parametrize("last", ["[12:00:00] table truncated", "9,truncated", "... and so on"])
def test_other_last_lines_are_no_note_of_a_cut_t_17(last: str) -> None:
    assert "cut" not in dict(find_records("id,state\n" + "1,open\n" * 30 + last).fields)


def test_long_lines_and_traces_of_a_log_are_whole_t_03() -> None:
    info = "2026-01-02 03:04:05 INFO db: up\n" * 200
    error = f"2026-01-02 03:04:05 ERROR db: {'x' * 20_000}end\n"
    trace = "".join(f"  frame {number}\n" for number in range(500))
    message = str(only_table(info + error + trace).rows[-1][3])
    assert "xend\n" in message
    assert message.endswith("  frame 499")
    pairs = only_table(f"a=1 b=2 c={'x' * 20_000} d=4\n" * 3)
    assert pairs.rows[0] == ("1", "2", "x" * 20_000, "4")


@pytest.mark.parametrize(
    "text",
    [
        "Dear Ann,\nas you know, we met, and spoke.\nIt rained, and rained.\nYours,\nBob\n",
        "import os\n\nclass A:\n    x: int = 1\n    y: str = ''\n\n\ndef f(a, b):\n    return a\n",
        "Apples, pears\nWe bought, and we ate, them\nNothing else\nGood, old, times, here\n",
        "# Title\n\nSome prose.\n\n## Part\n\nMore prose, with a comma.\n",
        "one line",
        "",
        '{"id": 1, "state": "op',
    ],
    ids=["letter", "program", "prose", "document", "line", "nothing", "half-json"],
)
def test_other_texts_have_no_records(text: str) -> None:
    assert find_records(text).tables == ()


def test_members_of_one_form_are_records_with_their_keys() -> None:
    table = only_table({f"W{n}": {"state": "open", "n": n} for n in range(4)})
    assert table.columns == ("key", "state", "n")
    assert table.rows[3] == ("W3", "open", 3)
    settings: Any = {"server": {"port": 1}, "log": {"level": "x"}, "user": {"name": "a"}}
    assert find_records(settings).tables == ()


def test_keys_of_members_that_have_a_key_are_kept_t_03() -> None:
    table = only_table({f"W{n}": {"key": f"pk_{n % 2}", "v": n} for n in range(4)})
    assert table.columns == ("key_2", "key", "v")
    assert table.rows[3] == ("W3", "pk_1", 3)
    table = only_table({name: {"key": 1, "key_2": 2} for name in ("a", "b", "key")})
    assert table.rows[2] == ("key", 1, 2)


def test_nested_objects_become_columns_with_the_shortest_names() -> None:
    record = {"id": 1, "offer": {"price": {"usd": 5}}, "buyer": {"id": 9, "name": "Ann"}}
    table = only_table([record, {**record, "tags": ["a", "b"], "none": {}}])
    assert table.columns == ("id", "usd", "buyer.id", "name", "tags", "none")
    assert table.paths == ("id", "offer.price.usd", "buyer.id", "buyer.name", "tags", "none")
    assert table.rows == ((1, 5, 9, "Ann", None, None), (1, 5, 9, "Ann", '["a","b"]', "{}"))


def test_names_that_differ_in_case_get_numbers() -> None:
    assert only_table([{"Id": 1, "ID": 2, "a": {"b": 3}, "a.b": 4}] * 2).rows[0] == (1, 2, 3, 4)
    assert only_table([{"Id": 1, "ID": 2}] * 2).columns == ("Id", "ID_2")
    assert only_table("a,A,b\n1,2,3\n4,5,6\n7,8,9\n").columns == ("a", "A_2", "b")


def test_records_within_records_are_a_table_too() -> None:
    orders: Any = [{"no": f"W{n}", "items": [{"sku": n, "count": 2}] * n} for n in range(1, 4)]
    table, items = find_records({"orders": orders}).tables
    assert table.columns == ("no", "items")
    assert (items.path, items.columns) == ("orders[].items", ("no", "sku", "count"))
    assert items.rows[-1] == ("W3", 3, 2)
    assert len(items.rows) == 6


def test_values_beside_the_records_are_kept() -> None:
    result: Any = {"status": "OK", "data": {"orders": ORDERS, "total": 330}, "next": "abc"}
    assert find_records(result).fields == (("status", "OK"), ("data.total", 330), ("next", "abc"))


def test_what_stands_beside_rows_and_their_names_is_kept_t_03() -> None:
    result: Any = {
        "columns": [{"name": "id"}, {"name": "state"}],
        "rows": [[1, "open"], [2, "paid"]],
        "next_cursor": "abc-9",
        "errors": [{"shard": 1}, {"shard": 3}, {"shard": 4}],
        "page": {"total": 48_000},
    }
    records = find_records({"data": result})
    assert [table.path for table in records.tables] == ["data.rows", "data.errors"]
    assert records.fields == (("data.next_cursor", "abc-9"), ("data.page.total", 48_000))


def test_rows_beside_something_else_are_no_rows_t_03() -> None:
    rows: Any = [[1, "open"]] * 60
    result: Any = {"columns": ["id", "state"], "rows": [*rows, {"error": "disk full"}]}
    assert find_records(result).tables == ()  # a table of the others would lack the error


def test_the_largest_table_comes_first() -> None:
    tables = find_records({"a": ORDERS, "b": ORDERS * 4, "c": ORDERS * 2}).tables
    assert [table.path for table in tables] == ["b", "c", "a"]


def test_sizes_are_bounded_and_counted() -> None:
    wide = only_table([{f"c{n}": n for n in range(2_000)}] * 2)
    assert (len(wide.columns), wide.total_columns) == (MAX_COLUMNS, 2_000)
    long = only_table([{"a": 1}] * (MAX_ROWS + 5))
    assert (len(long.rows), long.total_rows) == (MAX_ROWS, MAX_ROWS + 5)
    csv = only_table("a,b\n" + "1,2\n" * (MAX_ROWS + 5))
    assert (len(csv.rows), csv.total_rows) == (MAX_ROWS, MAX_ROWS + 5)


@pytest.mark.parametrize("seed", range(3))
def test_hostile_texts_raise_nothing(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = '{}[]",:|-<>=\n\t \\\x00\ud800aA0;\u202e'
    for _ in range(60):
        text = "".join(chance.choices(alphabet, k=chance.randint(0, 400)))
        for table in find_records(text).tables:
            assert all(len(row) == len(table.columns) for row in table.rows)


@given(JSON_VALUES)
def test_every_table_is_regular(value: Any) -> None:
    for table in find_records(value).tables:
        assert len(table.columns) == len(table.paths) == len({*map(str.lower, table.columns)})
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert len(table.rows) <= table.total_rows


def test_no_column_of_a_command_is_cut_within_a_word() -> None:
    processes = "USER         PID %CPU    VSZ   RSS COMMAND\n" + "".join(
        f"{user:8} {pid:7} {cpu:4} {size:6} {memory:5} {command}\n"
        for user, pid, cpu, size, memory, command in (
            ("root", 1, 0.0, 168_140, 11_356, "/sbin/init"),
            ("root", 2, 0.0, 0, 0, "[kworker/2:0H]"),
            ("ann", 2_007, 1.5, 1_234_567, 234_567, "python app7.py"),
        )
    )
    [table] = find_records(processes).tables
    assert table.columns == ("USER", "PID", "%CPU", "VSZ", "RSS", "COMMAND")
    assert table.rows[0] == ("root", "1", "0.0", "168140", "11356", "/sbin/init")
    assert table.rows[2] == ("ann", "2007", "1.5", "1234567", "234567", "python app7.py")


def test_a_line_that_is_not_aligned_stays_beside_the_records() -> None:
    lines = ["NAME      SIZE UNIT"] + [f"file{number:<6}{number:>4} kB" for number in range(20)]
    records = find_records("\n".join([*lines, "total 20"]))
    [table] = records.tables
    assert table.columns == ("NAME", "SIZE", "UNIT")
    assert table.rows[7] == ("file7", "7", "kB")
    assert table.total_rows == 20
    assert records.fields == (("1 other line", "total 20"),)


def test_a_line_that_a_wide_word_pushes_on_is_a_record_t_17() -> None:
    lines = ["Module        Size Used by"]
    lines += [f"mod{n:<9}{n:>6}  {('0', '1 sh,bash')[n % 2]}" for n in range(20)]
    table = only_table("\n".join([*lines, "drm_panel_orientation   17180  1 drm"]))
    assert table.rows[-1] == ("drm_panel_orientation", "17180", "1 drm")
    # A cell of two words, so that the words of the pushed line may be those of one cell.
    lines[3] = "mod x            2  1 a"
    assert only_table("\n".join([*lines, "drm_panel_orientation   17180  1 drm"])).other_lines


def test_two_words_over_one_column_of_growing_width_are_its_name_t_17() -> None:
    lines = ["Filesystem      Size  Used Avail Use% Mounted on"]
    lines += [
        f"/dev/sd{n:x}1       {10 + n}G   {n}G   {9 - n % 9}G  {n * 6:2}% /mnt/disk{n}"
        for n in range(15)
    ]
    table = only_table("\n".join(lines))
    assert table.columns[-2:] == ("Use%", "Mounted on")
    assert (table.total_rows, table.rows[12][-1]) == (15, "/mnt/disk12")


def test_words_that_begin_all_lines_are_no_names_t_17() -> None:
    lines = ["Linux 3.10 (web)", "", "12:06:39 PM   UID   PID  Command"]
    lines += [f"12:06:39 PM  {n:>4}  {n:>4}  program{n}" for n in range(9)]
    table = only_table("\n".join(lines))
    assert table.columns == ("column_1", "column_2", "UID", "PID", "Command")
    assert table.rows[8] == ("12:06:39", "PM", "8", "8", "program8")


def test_lines_below_a_value_belong_to_it_t_17() -> None:
    block = (
        "Name      : {0}\nDepends   : sh: for scripts\n            bash: for more\nSize      : 3\n"
    )
    table = only_table("\n".join(map(block.format, "abcd")))
    assert table.columns == ("Name", "Depends", "Size")
    assert table.rows[3] == ("d", "sh: for scripts\nbash: for more", "3")


def test_words_between_pairs_are_kept_t_17() -> None:
    line = "16 bytes from fe80::1, seq={0} hops=64, time=0.302 ms\n"
    table = only_table("PING fe80::1\n" + "".join(map(line.format, range(20))))
    assert table.columns == ("seq", "hops", "time", "text")
    assert table.rows[7] == ("7", "64", "0.302", "16 bytes from fe80::1, ms")
    assert table.other_lines == ("PING fe80::1",)


def test_records_that_share_most_fields_are_one_table_t_17() -> None:
    shared = {f"field_{n}": n for n in range(20)}
    records = [{**shared, **{f"own_{n}_{m}": m for m in range(9)}} for n in range(10)]
    assert only_table(records).total_rows == 10


ITEMS: list[Json] = [{"id": number, "qty": number * 2} for number in range(30)]


@pytest.mark.parametrize(
    "result",
    [
        "Found these:\n```json\n" + json.dumps(ITEMS, indent=1) + "\n```\nDone.",
        json.dumps(ITEMS) + "\n\nThe query took 12 ms.",
        "\n".join(json.dumps(item, indent=2) for item in ITEMS),
        '<result page="1">\n' + json.dumps(ITEMS) + "\n</result>",
        [{"type": "text", "text": json.dumps(ITEMS)}, {"type": "text", "text": "Page 1 of 3"}],
        [*ITEMS[:9], None, *ITEMS[9:]],
        "".join(
            f"{n:6}\t{n},{n * 2}\n".replace("     0\t0,0", "     0\tid,qty") for n in range(31)
        ),
    ],
    ids=["fence", "line behind", "objects", "tags", "text blocks", "null", "line numbers"],
)
def test_records_are_found_in_what_a_tool_wraps_around_them_t_17(result: Json) -> None:
    [table, *_] = find_records(result).tables
    assert table.columns == ("id", "qty")
    assert table.total_rows == 30


def test_a_null_among_records_is_told() -> None:
    records = find_records([*ITEMS, None, None])
    assert ("missing records", 2) in records.fields


@pytest.mark.parametrize(
    "text", ["[" * 50_000, '{"a":1}' + "x" * 600, '{"a": 1} {"b"', "[1, 2] and so on"]
)
def test_what_is_no_json_stays_a_text(text: str) -> None:
    assert find_records(text).tables == ()


def test_many_objects_one_after_another_take_linear_time() -> None:
    text = "\n".join(json.dumps({"id": n, "name": f"n{n}"}, indent=1) for n in range(60_000))
    start_s = time.process_time()
    [table] = find_records(text).tables
    assert table.total_rows == 60_000
    assert time.process_time() - start_s < 20


PEOPLE = [("Ann", "1,50", "x"), ("Bob", "2,25", "y"), ("Cid", "10,00", "z")]


@pytest.mark.parametrize(
    ("text", "columns", "first", "total"),
    [
        (
            "name;price;code\n" + "".join(";".join(row) + "\n" for row in PEOPLE),
            ("name", "price", "code"),
            ("Ann", "1,50", "x"),
            3,
        ),
        ("id,amount,amount\n1,2,3\n4,5,6\n", ("id", "amount", "amount_2"), ("1", "2", "3"), 2),
        ("state,sum,\nA,1,\nB,2,\n", ("state", "sum", "column_3"), ("A", "1", ""), 2),
        ("dept,2021,2022\nA,5,7\nB,8,9\n", ("dept", "2021", "2022"), ("A", "5", "7"), 2),
        (
            "Totals by state,,\n,,\nstate,sum,n\nA,1,4\nB,2,5\n,,\n",
            ("state", "sum", "n"),
            ("A", "1", "4"),
            2,
        ),
        (
            "web-1 | 3d up\ndb-1  | 12h up\nweb-1 | 1d off\n",
            ("column_1", "column_2"),
            ("web-1", "3d up"),
            3,
        ),
        ("8\t/usr/lib\n16\t/usr\n24\t/\n", ("column_1", "column_2"), ("8", "/usr/lib"), 3),
        (
            " id |  name  \n----+--------\n  1 | Ann B. \n  2 | Cid    \n(2 rows)\n",
            ("id", "name"),
            ("1", "Ann B."),
            2,
        ),
        (
            "+----+-----+\n| id | n   |\n+----+-----+\n|  1 | Ann |\n|  2 | Bob |\n+----+-----+\n",
            ("id", "n"),
            ("1", "Ann"),
            2,
        ),
        (
            "┏━━━━┳━━━━━┓\n┃ id ┃ n   ┃\n┡━━━━╇━━━━━┩\n│ 1  │ Ann │\n│ 2  │ Bob │\n└────┴─────┘\n",
            ("id", "n"),
            ("1", "Ann"),
            2,
        ),
        (
            "Filesystem  Size  Used Mounted on\n/dev/sda1    10G    2G /\nnone          2G     0 /dev/shm\n",
            ("Filesystem", "Size", "Used", "Mounted on"),
            ("/dev/sda1", "10G", "2G", "/"),
            2,
        ),
        (
            "         total   used\nMem:    386133  22820\nSwap:   209714      0\n",
            ("column_1", "total", "used"),
            ("Mem:", "386133", "22820"),
            2,
        ),
    ],
    ids=[
        "decimal commas",
        "names repeat",
        "no last name",
        "years",
        "spreadsheet",
        "no heading",
        "no heading of numbers",
        "psql",
        "mysql",
        "box drawing",
        "blank in a name",
        "no first name",
    ],
)
def test_the_form_that_fits_all_lines_is_read_t_17(
    text: str, columns: tuple[str, ...], first: tuple[str, ...], total: int
) -> None:
    table = only_table(text)
    assert table.columns == columns
    assert table.rows[0] == first
    assert table.total_rows == total


def test_words_between_aligned_columns_are_no_csv_t_17() -> None:
    lines = ["COMMAND    PID  TID  USER DEVICE     NODE NAME"]
    for number in range(60):
        lines.append(
            f"cmd{number:<5} {number:>5}      root  253,0 {number * 7_919:>9} /usr/{number}"
        )
    table = only_table("\n".join(lines))
    assert table.columns == ("COMMAND", "PID", "TID", "USER", "DEVICE", "NODE", "NAME")
    assert table.rows[7] == ("cmd7", "7", "", "root", "253,0", "55433", "/usr/7")


def test_two_tables_in_one_text_are_two_tables_t_17() -> None:
    text = "name,qty\na,1\nb,2\nc,3\n\ncity,pop,area\nx,10,1\ny,20,2\nz,30,3\n"
    tables = find_records(text).tables
    assert [(table.path, table.columns) for table in tables] == [
        ("line 6", ("city", "pop", "area")),
        ("line 1", ("name", "qty")),
    ]


def test_legends_footers_and_notes_stand_beside_the_records_t_17() -> None:
    units = "UNIT      LOAD    SUB\n" + "".join(f"svc{n:<6} loaded  up\n" for n in range(12))
    records = find_records(f"{units}\nLOAD = Whether it was loaded.\n\n12 units listed.\n")
    assert records.tables[0].total_rows == 12
    assert records.fields == (("2 other lines", "LOAD = Whether it was loaded.\n12 units listed."),)
    csv = "id,name,qty\n" + "".join(f"{n},n{n},{n}\n" for n in range(30))
    records = find_records(csv + "... [truncated, 500 more lines]")
    assert records.tables[0].total_rows == 30
    assert records.fields == (("cut", "... [truncated, 500 more lines]"),)


def test_a_last_row_with_the_sum_of_the_others_is_no_record_t_17() -> None:
    fruit = "fruit,boxes,kg\nApple,10,4\nPear,20,6\nPlum,30,5\n"
    records = find_records(f"{fruit}Total,60,15\n")
    assert records.tables[0].total_rows == 3
    assert records.fields == (("1 other line", "Total | 60 | 15"),)
    # Something else may be called so.
    assert only_table(f"{fruit}Total,41,7\n").total_rows == 4


def test_a_second_row_of_names_or_units_is_no_record_t_17() -> None:
    table = only_table("Region;Area;Rain\n;km\u00b2;mm\nNorth;40;700\nSouth;50;650\nEast;25;900\n")
    assert table.columns == ("Region", "Area km\u00b2", "Rain mm")
    assert table.total_rows == 3


def test_a_first_record_without_numbers_is_a_record_t_17() -> None:
    table = only_table("Year,Growth,Change\n2001,N/A,-\n2002,1.5,3\n2003,2.5,4\n2004,2,6\n")
    assert table.total_rows == 4
    table = only_table("Name,Growth,Change\nA,none yet,none yet\nB,1,3\nC,2,4\nD,2,6\n")
    assert table.total_rows == 4


def test_a_line_behind_a_blank_row_is_a_note_at_the_end_only_t_17() -> None:
    head = "Trade,2001,2002\nTimber,1,2\nIron,3,4\nFood,5,6\n"
    assert only_table(f"{head},,\nSource: a yearbook.,,\n").total_rows == 3
    assert only_table(f"{head},,\nWool,,\nPaper,7,8\n").total_rows == 5
    assert only_table(f"{head},,\nPaper,7,8\nWool,,\n").total_rows == 5


def test_names_of_columns_are_told_from_keys_that_are_the_same_word() -> None:
    fields = "id;Id\nname;Name\nplace;Ort\nlink;Link\nzip;PLZ\n"
    assert only_table(f"name;label\n{fields}").columns == ("name", "label")


def test_repeated_headings_and_rules_are_no_records_t_17() -> None:
    page = "id,name,qty\n--,----,---\n" + "".join(f"{n},n{n},{n}\n" for n in range(12))
    assert only_table(page * 2).total_rows == 24


def test_records_that_lack_their_last_cells_stay_records_t_17() -> None:
    table = only_table("id,name,note\n" + "1,a,x\n" * 20 + "2,b\n" + "3,c,y\n" * 9 + "4,d\n")
    assert table.total_rows == 31
    assert table.rows[-1] == ("4", "d", None)


@pytest.mark.parametrize(
    "text",
    [
        "commit 096fffdb7980\nAuthor: Ann <a@example.com>\nDate:   Wed Apr 20\n",
        "# comment line\n127.0.0.1   localhost host\n::1         localhost host6\n",
        "disk   44 2021-09-16 20:32:28\nsda     1 2021-09-16 20:32:28\n",
        "London, England\nParis, France and so on\nRome\nOslo, Norway, Europe\n",
    ],
    ids=["commit", "hosts", "no heading", "list"],
)
def test_lines_that_two_readings_fit_stay_lines_t_17(text: str) -> None:
    assert find_records(text).tables == ()


def test_empty_cells_of_drawn_tables_stay_in_their_columns_t_17() -> None:
    psql = " id | name | n \n----+------+---\n    | Ann  | 5\n  2 |      | 6\n  3 | -    |  \n(3 rows)\n"
    assert only_table(psql).rows == (("", "Ann", "5"), ("2", "", "6"), ("3", "-", ""))
    markdown = "| id | n |\n|----|---|\n| -  | - |\n|    | 1 |\n"
    assert only_table(markdown).rows == (("-", "-"), ("", "1"))


def test_objects_that_share_no_field_are_no_records() -> None:
    pages: list[Json] = [
        {"Start": "index.md"},
        {"Tutorial": "tutorial.md"},
        {"Recipes": "recipes.md"},
    ]
    assert find_records({"site": "docs", "nav": pages}).tables == ()
