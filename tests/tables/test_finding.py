"""Records are found wherever they stand in a result, in each form, within bounds."""

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.tables.finding import find_records
from llm_common.tables.table import MAX_COLUMNS, MAX_ROWS
from llm_common.text.canonical import Json
from tests.tables.reading import only_table, repeated

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
ITEMS: list[Json] = [{"id": number, "qty": number * 2} for number in range(30)]
RECORD = {"id": 1, "offer": {"price": {"usd": 5}}, "buyer": {"id": 9, "name": "Ann"}}
ORDER_LINES = "\n".join(map(json.dumps, ORDERS * 100)) + "\ndisk full"
INFO = "2026-01-02 03:04:05 INFO db: up\n"
TRACE = repeated("  frame {}\n", 500)
ACCESS = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 23\n'
TIMEOUT = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -\n'
PROCESSES = """USER         PID %CPU    VSZ   RSS COMMAND
root           1  0.0 168140 11356 /sbin/init
root           2  0.0      0     0 [kworker/2:0H]
ann         2007  1.5 1234567 234567 python app7.py
"""
MODULES = "Module        Size Used by\n" + "".join(
    f"mod{n:<9}{n:>6}  {('0', '1 sh,bash')[n % 2]}\n" for n in range(20)
)
# Its name is wider than the column of names.
PUSHED = "drm_panel_orientation   17180  1 drm\n"
DISKS = "".join(
    f"/dev/sd{n:x}1       {10 + n}G   {n}G   {9 - n % 9}G  {n * 6:2}% /mnt/disk{n}\n"
    for n in range(15)
)
SIZES = "NAME      SIZE UNIT\n" + repeated("file{0:<6}{0:>4} kB\n", 20)
UNITS = "UNIT      LOAD    SUB\n" + repeated("svc{:<6} loaded  up\n", 12)
FRUIT = "fruit,boxes,kg\nApple,10,4\nPear,20,6\nPlum,30,5\n"
TRADE = "Trade,2001,2002\nTimber,1,2\nIron,3,4\nFood,5,6\n"
PAGE = "id,name,qty\n--,----,---\n" + repeated("{0},n{0},{0}\n", 12)
FIELDS = "id;Id\nname;Name\nplace;Ort\nlink;Link\nzip;PLZ\n"


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
    ("result", "columns", "total", "rows"),
    [
        pytest.param(
            'id,state\n1,open\n2,paid\n3,"open, late"\n',
            ("id", "state"),
            3,
            {-1: ("3", "open, late")},
            id="csv",
        ),
        pytest.param(
            "id\tstate\n1\topen\n2\tpaid\n3\topen\n",
            ("id", "state"),
            3,
            {-1: ("3", "open")},
            id="tsv",
        ),
        pytest.param(
            "Export\n\nid;state\n1;open\n2;paid\n3;open\n",
            ("id", "state"),
            3,
            {-1: ("3", "open")},
            id="semicolons",
        ),
        pytest.param(
            "Orders\n\n| id | state |\n|:--|---|\n| 1 | open |\n| 2 | a \\| b |\n\nEnd\n",
            ("id", "state"),
            2,
            {-1: ("2", "a | b")},
            id="markdown",
        ),
        pytest.param(
            "<table><tr><th>id<th>state</tr><tr><td>1<td>open &amp; <b>late</b></tr></table>",
            ("id", "state"),
            1,
            {-1: ("1", "open & late")},
            id="html",
        ),
        pytest.param(
            "2026-01-02T03:04:05Z INFO web: up\n2026-01-02T03:04:07Z WARN web: slow\n" * 2,
            ("time", "level", "source", "message"),
            4,
            {-1: ("2026-01-02T03:04:07Z", "WARN", "web", "slow")},
            id="log",
        ),
        pytest.param(
            'level=info msg="all \\"well\\"" ms=3\nlevel=warn msg=late ms=9\nlevel=info msg=x ms=1\n',
            ("level", "msg", "ms"),
            3,
            {0: ("info", 'all "well"', "3"), -1: ("info", "x", "1")},
            id="logfmt",
        ),
        pytest.param(
            '1.2.3.4 - ann [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 23 "-" "curl"\n' * 3,
            ("client", "user", "time", "method", "path", "status", "bytes"),
            3,
            {-1: ("1.2.3.4", "ann", "10/Oct/2026:13:55:36 +0000", "GET", "/a", "200", "23")},
            id="access log",
        ),
        pytest.param(
            "NAME    READY   STATUS\nweb-1   1/1     Running now\ndb-1    0/1     Pending\n",
            ("NAME", "READY", "STATUS"),
            2,
            {0: ("web-1", "1/1", "Running now"), -1: ("db-1", "0/1", "Pending")},
            id="columns",
        ),
        pytest.param(
            "### Ann\nid: 1\nstate: open\n\n### Bob\nid: 2\nstate: paid\n\n### Cid\nid: 3\nstate: x\n",
            ("heading", "id", "state"),
            3,
            {-1: ("Cid", "3", "x")},
            id="blocks",
        ),
        pytest.param(
            "2026-01-02 03:04:05 ERROR db: down\nTraceback\n  x.py\n2026-01-02 03:04:06 INFO db: up\n",
            ("time", "level", "source", "message"),
            2,
            {
                0: ("2026-01-02 03:04:05", "ERROR", "db", "down\nTraceback\n  x.py"),
                1: ("2026-01-02 03:04:06", "INFO", "db", "up"),
            },
            id="stack trace",
        ),
        pytest.param(
            INFO * 200 + INFO.replace("up", "x" * 20_000) + TRACE,
            ("time", "level", "source", "message"),
            201,
            {-1: ("2026-01-02 03:04:05", "INFO", "db", f"{'x' * 20_000}\n{TRACE[:-1]}")},
            id="long stack trace",
        ),
        pytest.param(
            f"a=1 b=2 c={'x' * 20_000} d=4\n" * 3,
            ("a", "b", "c", "d"),
            3,
            {0: ("1", "2", "x" * 20_000, "4")},
            id="long logfmt",
        ),
        pytest.param(
            ACCESS * 400 + TIMEOUT * 600,
            ("client", "user", "time", "method", "path", "status", "bytes"),
            1000,
            {-1: ("1.2.3.4", "-", "10/Oct/2000:13:55:36 -0700", None, "-", "408", "-")},
            id="request without a method",
        ),
        pytest.param(
            ACCESS * 400 + "disk full\n" * 30,
            ("client", "user", "time", "method", "path", "status", "bytes", "line"),
            430,
            {
                0: ("1.2.3.4", "-", "10/Oct/2000:13:55:36 -0700", "GET", "/a", "200", "23", None),
                -1: (None, None, None, None, None, None, None, "disk full"),
            },
            id="other lines of an access log",
        ),
        pytest.param(
            {f"W{n}": {"state": "open", "n": n} for n in range(4)},
            ("key", "state", "n"),
            4,
            {3: ("W3", "open", 3)},
            id="members of an object",
        ),
        pytest.param(
            {f"W{n}": {"key": f"pk_{n % 2}", "v": n} for n in range(4)},
            ("key_2", "key", "v"),
            4,
            {3: ("W3", "pk_1", 3)},
            id="members with a key",
        ),
        pytest.param(
            {name: {"key": 1, "key_2": 2} for name in ("a", "b", "key")},
            ("key_3", "key", "key_2"),
            3,
            {2: ("key", 1, 2)},
            id="members with two keys",
        ),
        pytest.param(
            [RECORD, {**RECORD, "tags": ["a", "b"], "none": {}}],
            ("id", "usd", "buyer.id", "name", "tags", "none"),
            2,
            {0: (1, 5, 9, "Ann", None, None), 1: (1, 5, 9, "Ann", '["a","b"]', "{}")},
            id="nested objects",
        ),
        pytest.param(
            [{"Id": 1, "ID": 2, "a": {"b": 3}, "a.b": 4}] * 2,
            ("Id", "ID_2", "b", "b_2"),
            2,
            {0: (1, 2, 3, 4)},
            id="names in two cases",
        ),
        pytest.param(
            "a,A,b\n1,2,3\n4,5,6\n7,8,9\n",
            ("a", "A_2", "b"),
            3,
            {0: ("1", "2", "3")},
            id="names of csv in two cases",
        ),
        pytest.param(
            PROCESSES,
            ("USER", "PID", "%CPU", "VSZ", "RSS", "COMMAND"),
            3,
            {
                0: ("root", "1", "0.0", "168140", "11356", "/sbin/init"),
                2: ("ann", "2007", "1.5", "1234567", "234567", "python app7.py"),
            },
            id="processes",
        ),
        pytest.param(
            MODULES + PUSHED,
            ("Module", "Size", "Used by"),
            21,
            {-1: ("drm_panel_orientation", "17180", "1 drm")},
            id="a wide word that pushes its line on",
        ),
        pytest.param(
            "Filesystem      Size  Used Avail Use% Mounted on\n" + DISKS,
            ("Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"),
            15,
            {12: ("/dev/sdc1", "22G", "12G", "6G", "72%", "/mnt/disk12")},
            id="two words over one growing column",
        ),
        pytest.param(
            "Linux 3.10 (web)\n\n12:06:39 PM   UID   PID  Command\n"
            + "".join(f"12:06:39 PM  {n:>4}  {n:>4}  program{n}\n" for n in range(9)),
            ("column_1", "column_2", "UID", "PID", "Command"),
            9,
            {8: ("12:06:39", "PM", "8", "8", "program8")},
            id="words that begin all lines",
        ),
        pytest.param(
            "\n".join(
                map(
                    "Name      : {0}\nDepends   : sh: for scripts\n            bash: for more\nSize      : 3\n".format,
                    "abcd",
                )
            ),
            ("Name", "Depends", "Size"),
            4,
            {3: ("d", "sh: for scripts\nbash: for more", "3")},
            id="lines below a value",
        ),
        pytest.param(
            "PING fe80::1\n"
            + repeated("16 bytes from fe80::1, seq={0} hops=64, time=0.302 ms\n", 20),
            ("seq", "hops", "time", "text"),
            20,
            {7: ("7", "64", "0.302", "16 bytes from fe80::1, ms")},
            id="words between pairs",
        ),
        pytest.param(
            "COMMAND    PID  TID  USER DEVICE     NODE NAME\n"
            + "".join(
                f"cmd{n:<5} {n:>5}      root  253,0 {n * 7_919:>9} /usr/{n}\n" for n in range(60)
            ),
            ("COMMAND", "PID", "TID", "USER", "DEVICE", "NODE", "NAME"),
            60,
            {7: ("cmd7", "7", "", "root", "253,0", "55433", "/usr/7")},
            id="words between aligned columns",
        ),
        pytest.param(
            "Filesystem  Size  Used Mounted on\n/dev/sda1    10G    2G /\nnone          2G     0 /dev/shm\n",
            ("Filesystem", "Size", "Used", "Mounted on"),
            2,
            {0: ("/dev/sda1", "10G", "2G", "/")},
            id="a blank in a name",
        ),
        pytest.param(
            "         total   used\nMem:    386133  22820\nSwap:   209714      0\n",
            ("column_1", "total", "used"),
            2,
            {0: ("Mem:", "386133", "22820")},
            id="no first name",
        ),
        pytest.param(
            "name;price;code\nAnn;1,50;x\nBob;2,25;y\nCid;10,00;z\n",
            ("name", "price", "code"),
            3,
            {0: ("Ann", "1,50", "x")},
            id="decimal commas",
        ),
        pytest.param(
            "id,amount,amount\n1,2,3\n4,5,6\n",
            ("id", "amount", "amount_2"),
            2,
            {0: ("1", "2", "3")},
            id="names repeat",
        ),
        pytest.param(
            "state,sum,\nA,1,\nB,2,\n",
            ("state", "sum", "column_3"),
            2,
            {0: ("A", "1", "")},
            id="no last name",
        ),
        pytest.param(
            "dept,2021,2022\nA,5,7\nB,8,9\n",
            ("dept", "2021", "2022"),
            2,
            {0: ("A", "5", "7")},
            id="years",
        ),
        pytest.param(
            "team,0,1,2,3\nHawks,.5,.51,.515,.52\nNets,.4,.39,.41,.4\nHeat,.6,.61,.6,.62\n",
            ("team", "0", "1", "2", "3"),
            3,
            {0: ("Hawks", ".5", ".51", ".515", ".52")},
            id="minutes",
        ),
        pytest.param(
            "Forest (%),1990,2000,2005\nAngola,48.9,47.9,47.4\nChad,10.4,9.8,9.5\n",
            ("Forest (%)", "1990", "2000", "2005"),
            2,
            {0: ("Angola", "48.9", "47.9", "47.4")},
            id="years in other steps",
        ),
        pytest.param(
            "Deaths,2008\nAngola,7978\nChad,11\nPeru,2159\n",
            ("Deaths", "2008"),
            3,
            {0: ("Angola", "7978")},
            id="one year",
        ),
        pytest.param(
            'Day 1,Day 2,Why did you come?\n1,2,No reason\n3,4,Because\n5,6,"Well, why not?"\n',
            ("Day 1", "Day 2", "Why did you come?"),
            3,
            {0: ("1", "2", "No reason")},
            id="a question is a name",
        ),
        pytest.param(
            "Spain,2001,2011\nChad,1999,2007\nPeru,1993,2014\n",
            ("column_1", "column_2", "column_3"),
            3,
            {0: ("Spain", "2001", "2011")},
            id="no heading, two years in each record",
        ),
        pytest.param(
            "Totals by state,,\n,,\nstate,sum,n\nA,1,4\nB,2,5\n,,\n",
            ("state", "sum", "n"),
            2,
            {0: ("A", "1", "4")},
            id="spreadsheet",
        ),
        pytest.param(
            "web-1 | 3d up\ndb-1  | 12h up\nweb-1 | 1d off\n",
            ("column_1", "column_2"),
            3,
            {0: ("web-1", "3d up")},
            id="no heading",
        ),
        pytest.param(
            "8\t/usr/lib\n16\t/usr\n24\t/\n",
            ("column_1", "column_2"),
            3,
            {0: ("8", "/usr/lib")},
            id="no heading of numbers",
        ),
        pytest.param(
            "00a0f\tHEAD\n" + repeated("00a{0}f\trefs/heads/topic-{0}\n", 9),
            ("column_1", "column_2"),
            10,
            {0: ("00a0f", "HEAD")},
            id="a first digest that comes again",
        ),
        pytest.param(
            "Year,Growth,Change\n2001,N/A,-\n2002,1.5,3\n2003,2.5,4\n2004,2,6\n",
            ("Year", "Growth", "Change"),
            4,
            {0: ("2001", "N/A", "-")},
            id="a first record without numbers",
        ),
        pytest.param(
            "Name,Growth,Change\nA,none yet,none yet\nB,1,3\nC,2,4\nD,2,6\n",
            ("Name", "Growth", "Change"),
            4,
            {0: ("A", "none yet", "none yet")},
            id="a first record of words",
        ),
        pytest.param(
            f"{TRADE},,\nSource: a yearbook.,,\n",
            ("Trade", "2001", "2002"),
            3,
            {-1: ("Food", "5", "6")},
            id="a note behind a blank row",
        ),
        pytest.param(
            f"{TRADE},,\nWool,,\nPaper,7,8\n",
            ("Trade", "2001", "2002"),
            5,
            {-1: ("Paper", "7", "8")},
            id="a record behind a blank row",
        ),
        pytest.param(
            f"{TRADE},,\nPaper,7,8\nWool,,\n",
            ("Trade", "2001", "2002"),
            5,
            {-1: ("Wool", "", "")},
            id="a short record behind a blank row",
        ),
        pytest.param(
            f"name;label\n{FIELDS}",
            ("name", "label"),
            5,
            {0: ("id", "Id")},
            id="names that are keys",
        ),
        pytest.param(
            PAGE * 2,
            ("id", "name", "qty"),
            24,
            {12: ("0", "n0", "0")},
            id="repeated headings and rules",
        ),
        pytest.param(
            "id,name,note\n" + "1,a,x\n" * 20 + "2,b\n" + "3,c,y\n" * 9 + "4,d\n",
            ("id", "name", "note"),
            31,
            {-1: ("4", "d", None)},
            id="missing last cells",
        ),
        pytest.param(
            f"{FRUIT}Total,41,7\n",
            ("fruit", "boxes", "kg"),
            4,
            {-1: ("Total", "41", "7")},
            id="another last row that is called a total",
        ),
        pytest.param(
            " id |  name  \n----+--------\n  1 | Ann B. \n  2 | Cid    \n(2 rows)\n",
            ("id", "name"),
            2,
            {0: ("1", "Ann B.")},
            id="psql",
        ),
        pytest.param(
            " id | name | n \n----+------+---\n    | Ann  | 5\n  2 |      | 6\n  3 | -    |  \n(3 rows)\n",
            ("id", "name", "n"),
            3,
            {0: ("", "Ann", "5"), 1: ("2", "", "6"), 2: ("3", "-", "")},
            id="empty cells of psql",
        ),
        pytest.param(
            "| id | n |\n|----|---|\n| -  | - |\n|    | 1 |\n",
            ("id", "n"),
            2,
            {0: ("-", "-"), 1: ("", "1")},
            id="empty cells of markdown",
        ),
        pytest.param(
            "+----+-----+\n| id | n   |\n+----+-----+\n|  1 | Ann |\n|  2 | Bob |\n+----+-----+\n",
            ("id", "n"),
            2,
            {0: ("1", "Ann")},
            id="mysql",
        ),
        pytest.param(
            "┏━━━━┳━━━━━┓\n┃ id ┃ n   ┃\n┡━━━━╇━━━━━┩\n│ 1  │ Ann │\n│ 2  │ Bob │\n└────┴─────┘\n",
            ("id", "n"),
            2,
            {0: ("1", "Ann")},
            id="box drawing",
        ),
    ],
)
def test_the_form_that_fits_a_whole_result_is_read_t_03_t_17(
    result: Any, columns: tuple[str, ...], total: int, rows: dict[int, tuple[Json, ...]]
) -> None:
    table = only_table(result)
    assert (table.columns, table.total_rows) == (columns, total)
    assert {index: table.rows[index] for index in rows} == rows


@pytest.mark.parametrize(
    "lines",
    [
        ['"","x"', *(f'"{number}",{number * 7}' for number in range(1, 9))],
        [
            "",
            '"","kept","sold"',
            *(f'"{number}","{"YN"[number % 2]}","N"' for number in range(1, 9)),
        ],
        [",2019,2021,2024", *(f"{number},{number * 3},4,5" for number in range(1, 9))],
        [["", "x"], *([str(number), number * 7] for number in range(1, 9))],
    ],
)
def test_a_column_of_row_names_has_no_name_t_03(lines: list[Any]) -> None:
    is_text = isinstance(lines[0], str)
    table = only_table("\n".join(lines) if is_text else lines)
    assert table.columns[1] in {"x", "kept", "2019"}
    assert [row[0] for row in table.rows] == [str(number) for number in range(1, 9)]


def test_columns_have_the_paths_of_nested_objects() -> None:
    table = only_table([RECORD] * 2)
    assert table.paths == ("id", "offer.price.usd", "buyer.id", "buyer.name")


@pytest.mark.parametrize(
    ("result", "total", "fields"),
    [
        pytest.param(
            ORDER_LINES + "\ndisk is full\n{}",
            301,
            (("2 other lines", "disk full\ndisk is full"),),
            id="lines among JSON lines",
        ),
        pytest.param(
            {"text": ORDER_LINES},
            300,
            (("text 1 other line", "disk full"),),
            id="a line behind JSON lines of a field",
        ),
        pytest.param(
            "level=info msg=up ms=1\n" * 60 + "disk full\n",
            60,
            (("1 other line", "disk full"),),
            id="a line among pairs",
        ),
        pytest.param(
            "id,state\n" + "1,open\n" * 9 + "\n... [truncated, 5000 more lines]\n",
            9,
            (("cut", "... [truncated, 5000 more lines]"),),
            id="a cut with a count",
        ),
        pytest.param(
            "id,state\n" + "1,open\n" * 9 + "\n[output truncated]\n",
            9,
            (("cut", "[output truncated]"),),
            id="a cut output",
        ),
        pytest.param(
            "id,state\n" + "1,open\n" * 9 + "\n…12 rows omitted\n",
            9,
            (("cut", "…12 rows omitted"),),
            id="omitted rows",
        ),
        pytest.param(
            "id,state\n" + "1,open\n" * 9 + "\n(9 rows cut off)\n",
            9,
            (("cut", "(9 rows cut off)"),),
            id="rows cut off",
        ),
        pytest.param(
            "id,state\n" + "1,open\n" * 9 + "... [truncated, 500 more lines]",
            9,
            (("cut", "... [truncated, 500 more lines]"),),
            id="a cut behind the last record",
        ),
        pytest.param(
            SIZES + "total 20", 20, (("1 other line", "total 20"),), id="a line that is not aligned"
        ),
        pytest.param(
            MODULES.replace("mod2             2  0", "mod x            2  1 a") + PUSHED,
            20,
            (("1 other line", "drm_panel_orientation   17180  1 drm"),),
            id="a line that may have words of one cell",
        ),
        pytest.param(
            f"{UNITS}\nLOAD = Whether it was loaded.\n\n12 units listed.\n",
            12,
            (("2 other lines", "LOAD = Whether it was loaded.\n12 units listed."),),
            id="a legend and a footer",
        ),
        pytest.param(
            f"{FRUIT}Total,60,15\n",
            3,
            (("1 other line", "Total | 60 | 15"),),
            id="a last row with the sum of the others",
        ),
        pytest.param(
            {"status": "OK", "data": {"orders": ORDERS, "total": 330}, "next": "abc"},
            3,
            (("status", "OK"), ("data.total", 330), ("next", "abc")),
            id="values of objects",
        ),
        pytest.param([*ITEMS, None, None], 30, (("missing records", 2),), id="missing records"),
    ],
)
def test_what_is_no_record_stands_beside_the_records_t_03_t_17(
    result: Any, total: int, fields: tuple[tuple[str, Json], ...]
) -> None:
    records = find_records(result)
    assert records.tables[0].total_rows == total
    assert records.fields == fields


@pytest.mark.parametrize("last", ["[12:00:00] table truncated", "9,truncated", "... and so on"])
def test_other_last_lines_are_no_note_of_a_cut_t_17(last: str) -> None:
    assert "cut" not in dict(find_records("id,state\n" + "1,open\n" * 30 + last).fields)


@pytest.mark.parametrize(
    ("result", "tables"),
    [
        pytest.param(
            {"orders": [{"no": f"W{n}", "items": [{"sku": n}, {"sku": -n}]} for n in (1, 2)]},
            [
                ("orders", ("no", "items"), 2, ("W2", '[{"sku":2},{"sku":-2}]')),
                ("orders[].items", ("no", "sku"), 4, ("W2", -2)),
            ],
            id="records within records",
        ),
        pytest.param(
            {"a": ORDERS, "b": ORDERS * 4, "c": ORDERS * 2},
            [
                (path, ("id", "state"), n, (3, "open"))
                for path, n in {"b": 12, "c": 6, "a": 3}.items()
            ],
            id="the largest first",
        ),
        pytest.param(
            "name,qty\na,1\nb,2\nc,3\n\ncity,pop,area\nx,10,1\ny,20,2\nz,30,3\n",
            [
                ("line 6", ("city", "pop", "area"), 3, ("z", "30", "3")),
                ("line 1", ("name", "qty"), 3, ("c", "3")),
            ],
            id="two tables in one text",
        ),
    ],
)
def test_each_table_of_a_result_has_a_path_t_17(
    result: Any, tables: list[tuple[str, tuple[str, ...], int, tuple[Json, ...]]]
) -> None:
    found = find_records(result).tables
    assert [
        (table.path, table.columns, table.total_rows, table.rows[-1]) for table in found
    ] == tables


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


def test_records_that_share_most_fields_are_one_table_t_17() -> None:
    shared = {f"field_{n}": n for n in range(20)}
    records = [{**shared, **{f"own_{n}_{m}": m for m in range(9)}} for n in range(10)]
    assert only_table(records).total_rows == 10


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(
            "Dear Ann,\nas you know, we met, and spoke.\nIt rained, and rained.\nYours,\nBob\n",
            id="letter",
        ),
        pytest.param(
            "import os\n\nclass A:\n    x: int = 1\n    y: str = ''\n\n\ndef f(a, b):\n    return a\n",
            id="program",
        ),
        pytest.param(
            "Apples, pears\nWe bought, and we ate, them\nNothing else\nGood, old, times, here\n",
            id="prose",
        ),
        pytest.param(
            "# Title\n\nSome prose.\n\n## Part\n\nMore prose, with a comma.\n", id="document"
        ),
        pytest.param("one line", id="line"),
        pytest.param("", id="nothing"),
        pytest.param('{"id": 1, "state": "op', id="half of JSON"),
        pytest.param("[" * 50_000, id="brackets"),
        pytest.param('{"a":1}' + "x" * 600, id="letters behind an object"),
        pytest.param('{"a": 1} {"b"', id="half of a second object"),
        pytest.param("[1, 2] and so on", id="words behind a list"),
        pytest.param(
            "commit 096fffdb7980\nAuthor: Ann <a@example.com>\nDate:   Wed Apr 20\n", id="commit"
        ),
        pytest.param(
            "# comment line\n127.0.0.1   localhost host\n::1         localhost host6\n", id="hosts"
        ),
        pytest.param(
            "disk   44 2021-09-16 20:32:28\nsda     1 2021-09-16 20:32:28\n", id="no heading"
        ),
        pytest.param(
            "London, England\nParis, France and so on\nRome\nOslo, Norway, Europe\n", id="list"
        ),
        pytest.param(ACCESS * 400 + "disk full\n" * 430, id="more other lines than entries"),
        pytest.param(
            {"server": {"port": 1}, "log": {"level": "x"}, "user": {"name": "a"}}, id="settings"
        ),
        pytest.param(
            {"nav": [{"Start": "a.md"}, {"Tutorial": "b.md"}, {"Recipes": "c.md"}]},
            id="objects that share no field",
        ),
        pytest.param('x,y\nx,y\n,","', id="two lines and a stray quote"),
        # A table of the others would lack the error.
        pytest.param(
            {"columns": ["id", "state"], "rows": [*[[1, "open"]] * 60, {"error": "disk full"}]},
            id="rows beside something else",
        ),
    ],
)
def test_other_results_have_no_records_t_03_t_17(result: Any) -> None:
    assert find_records(result).tables == ()


def test_columns_over_the_limit_are_counted() -> None:
    wide = only_table([{f"c{n}": n for n in range(2_000)}] * 2)
    assert (len(wide.columns), wide.total_columns) == (MAX_COLUMNS, 2_000)


@pytest.mark.parametrize(
    "result",
    [
        pytest.param([{"a": 1}] * (MAX_ROWS + 5), id="records"),
        pytest.param("a,b\n" + "1,2\n" * (MAX_ROWS + 5), id="csv"),
        pytest.param("a=1 b=2 c=3\n" * (MAX_ROWS + 5), id="logfmt"),
    ],
)
def test_rows_over_the_limit_are_counted(result: Any) -> None:
    table = only_table(result)
    assert (len(table.rows), table.total_rows) == (MAX_ROWS, MAX_ROWS + 5)


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


def test_many_objects_one_after_another_take_linear_time() -> None:
    text = "\n".join(json.dumps({"id": n, "name": f"n{n}"}, indent=1) for n in range(60_000))
    start_s = time.process_time()
    [table] = find_records(text).tables
    assert table.total_rows == 60_000
    assert time.process_time() - start_s < 20
