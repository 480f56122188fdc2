"""What commands print in columns, sections and blocks is read without a wrong record."""

import re

import pytest

from llm_common.tables.finding import find_records
from tests.tables.reading import only_table, repeated

Row = tuple[str, ...]
UNNAMED = tuple(f"column_{number}" for number in range(1, 10))
MONTHS = ("Jan 19 10:02", "Feb  3  2024", "Mar 30 07:41")


def listing(folder: str, count: int) -> str:
    lines = [f"{folder}:", f"total {count}"]
    lines += [
        f"-rw-r--r-- 1 ann  {'wheel' if n % 2 else 'adm  '} {n * 997:>8} {MONTHS[n % 3]} {'my ' * (n % 2)}file{n}"
        for n in range(count)
    ]
    return "\n".join(lines)


COMMIT = """commit {0:040x}
Author: Ann <ann@example.com>
Date:   Mon Jan 3 10:00:00 2026

    Note {0}

    Fixes: the {0}th bug

"""
CHAIN = """Chain {} (1 references)
target     prot opt source               destination
ACCEPT     all  --  anywhere             anywhere             ctstate NEW
A_VERY_LONG_TARGET  all  --  anywhere             10.0.0.0/8
"""
SOCKETS = "Netid Recv-Q  Local Address:Port   Peer Address:Port\n" + "".join(
    f"tcp   {n:<6}  {'*' * (n % 2)}:{n:<18} 10.0.0.{n}:*\n" for n in range(9)
)
# Where a line has more words than there are names, a cell may stand under another name.
MORE_WORDS = "u_str 0       /run/some/journal/stdout 18181 * 18180\n"


@pytest.mark.parametrize(
    ("text", "columns", "total", "rows"),
    [
        pytest.param(
            listing(".", 9),
            UNNAMED[:9],
            9,
            {7: ("-rw-r--r--", "1", "ann", "wheel", "6979", "Feb", "3", "2024", "my file7")},
            id="names with blanks in a listing",
        ),
        pytest.param(
            "\n\n".join(
                [
                    listing("./a b", 8),
                    listing("./c", 1),
                    "These are all the folders here, and nothing else at all.",
                ]
            ),
            ("section", *UNNAMED[:9]),
            9,
            {
                0: ("./a b", "-rw-r--r--", "1", "ann", "adm", "0", "Jan", "19", "10:02", "file0"),
                8: ("./c", "-rw-r--r--", "1", "ann", "adm", "0", "Jan", "19", "10:02", "file0"),
            },
            id="listings of two folders and prose",
        ),
        pytest.param(
            "\n\n".join(
                [listing(".", 2).removeprefix(".:\n"), *(listing(name, 9) for name in "bcd")]
            ),
            ("section", *UNNAMED[:9]),
            29,
            {
                0: ("", "-rw-r--r--", "1", "ann", "adm", "0", "Jan", "19", "10:02", "file0"),
                9: ("b", "-rw-r--r--", "1", "ann", "wheel", "6979", "Feb", "3", "2024", "my file7"),
            },
            id="a first folder without a title",
        ),
        pytest.param(
            "/bin:\nls\ncat\nps\n\n/sbin:\nfsck\nmount\nswapon\n",
            ("section", "column_1"),
            6,
            {3: ("/sbin", "fsck"), 4: ("/sbin", "mount")},
            id="names under titles",
        ),
        pytest.param(
            SOCKETS,
            ("Netid", "Recv-Q", "Local Address:Port", "Peer Address:Port"),
            9,
            {3: ("tcp", "3", "*:3", "10.0.0.3:*")},
            id="names of two words",
        ),
        pytest.param(
            repeated("NAME_{0}=a:{0}=b c\n", 6) + "EMPTY=\n",
            ("key", "value"),
            7,
            {1: ("NAME_1", "a:1=b c"), 6: ("EMPTY", "")},
            id="variables",
        ),
        pytest.param(
            "".join(
                f"{'a file ' * (n % 2) + str(n) + ':':<12} text, {n} lines\n" for n in range(6)
            ),
            ("key", "value"),
            6,
            {1: ("a file 1", "text, 1 lines")},
            id="files and their kinds",
        ),
        pytest.param(
            "".join(
                f"box{n} (10.0.0.{n}) at e0:33:8e:{n:x} on en0{' ifscope' * (n % 2)}\n"
                for n in range(9)
            ),
            UNNAMED[:6],
            9,
            {1: ("box1", "(10.0.0.1)", "at", "e0:33:8e:1", "on", "en0 ifscope")},
            id="one sentence a line",
        ),
        pytest.param(
            "".join(
                f"{n:>5}  {' ' * (n % 3)}{('cat', 'head -n 1')[n % 2]} file{n} | less\n"
                for n in range(95, 120)
            ),
            UNNAMED[:2],
            25,
            {1: ("96", "cat file96 | less")},
            id="numbered lines",
        ),
        pytest.param(
            "# User: the database\n#\n"
            + repeated("user{0}:*:{0}:{0}:The User:/home/{0}:/bin/sh\n"),
            UNNAMED[:7],
            9,
            {0: ("user0", "*", "0", "0", "The User", "/home/0", "/bin/sh")},
            id="comments",
        ),
        pytest.param(
            "".join(
                f"ann      pts/{n}        Tue Jan  5 14:{n}   still logged in\n"
                for n in range(10, 20)
            )
            + "reboot   system boot  Tue Jan  5 14:28 - 14:35  (00:07)\n\nwtmp begins Tue Jan\n",
            UNNAMED[:2],
            11,
            {10: ("reboot", "system boot  Tue Jan  5 14:28 - 14:35  (00:07)")},
            id="logins",
        ),
        pytest.param(
            repeated("user{0}:x:{0}:{0}:A User, Room {0}:/home/u{0}:/bin/sh\n"),
            UNNAMED[:7],
            9,
            {3: ("user3", "x", "3", "3", "A User, Room 3", "/home/u3", "/bin/sh")},
            id="accounts",
        ),
        pytest.param(
            repeated(COMMIT, 30),
            ("commit", "Author", "Date", "Fixes", "text"),
            30,
            {
                2: (
                    "0000000000000000000000000000000000000002",
                    "Ann <ann@example.com>",
                    "Mon Jan 3 10:00:00 2026",
                    "the 2th bug",
                    "Note 2",
                )
            },
            id="commits",
        ),
        pytest.param(
            COMMIT.format(0) + repeated(COMMIT, 30).replace("Fixes: ", "Fixes "),
            ("commit", "Author", "Date", "text"),
            31,
            {
                0: (
                    "0000000000000000000000000000000000000000",
                    "Ann <ann@example.com>",
                    "Mon Jan 3 10:00:00 2026",
                    "Note 0\n\nFixes: the 0th bug",
                )
            },
            id="a rare word before a colon",
        ),
        pytest.param(
            repeated(
                "  File: /bin/x{0}\n  Size: {0}0 \tBlocks: 8   IO Block: 4096   regular file\nLinks: 1\n",
                6,
            ),
            ("File", "Size", "Blocks", "IO Block", "IO Block_2", "Links"),
            6,
            {5: ("/bin/x5", "50", "8", "4096", "regular file", "1")},
            id="pairs in one line",
        ),
        pytest.param(
            "  node   mounted   mounted over       date     name\n-------- --------- -------------- ------------ ----\n"
            + "".join(
                f"         /dev/{n:<4} {'/x' * (n % 3):14} Sep 06 11:4{n} x{n}\n" for n in range(4)
            ),
            ("node", "mounted", "mounted over", "date", "name"),
            4,
            {2: ("", "/dev/2", "/x/x", "Sep 06 11:42", "x2")},
            id="a rule of dashes",
        ),
        pytest.param(
            repeated("avg-cpu:  %user   %nice  %idle\n           0.1{0}    0.00  9{0}.70\n\n", 4),
            ("avg-cpu:", "%user", "%nice", "%idle"),
            4,
            {3: ("", "0.13", "0.00", "93.70")},
            id="a heading that comes again",
        ),
        pytest.param(
            "Proto Recv-Q  State       PID/Program name    \n"
            + repeated("udp   {0:<6}              11{0}/containerd-shim\n", 5)
            + "tcp   7       LISTEN      6492/sshd: ann\n",
            ("Proto", "Recv-Q", "State", "PID/Program name"),
            6,
            {
                4: ("udp", "4", "", "114/containerd-shim"),
                5: ("tcp", "7", "LISTEN", "6492/sshd: ann"),
            },
            id="a blank in the name of a program",
        ),
        pytest.param(
            "\n".join(map(CHAIN.format, ("INPUT", "OUTPUT", "FORWARD"))),
            ("section", "target", "prot", "opt", "source", "destination", "column_7"),
            6,
            {
                3: (
                    "Chain OUTPUT (1 references)",
                    "A_VERY_LONG_TARGET",
                    "all",
                    "--",
                    "anywhere",
                    "10.0.0.0/8",
                    "",
                )
            },
            id="one heading in several paragraphs",
        ),
        pytest.param(
            "cur    sec                 UTC\n"
            + repeated("  {0}     {0}2 2021-09-16 20:32:{0}0\n", 6),
            ("cur", "sec", "UTC"),
            6,
            {2: ("2", "22", "2021-09-16 20:32:20")},
            id="cells between several places",
        ),
    ],
)
def test_what_a_command_prints_is_read_as_a_table_t_17(
    text: str, columns: Row, total: int, rows: dict[int, Row]
) -> None:
    table = only_table(text)
    assert (table.columns, table.total_rows) == (columns, total)
    assert {index: table.rows[index] for index in rows} == rows


@pytest.mark.parametrize(
    ("text", "others"),
    [
        pytest.param(listing(".", 9), (".:", "total 9"), id="title and total of a listing"),
        pytest.param(
            listing(".", 9).removeprefix(".:\n"), ("total 9",), id="total of a first folder"
        ),
        pytest.param(
            "# User: the database\n#\n"
            + repeated("user{0}:*:{0}:{0}:The User:/home/{0}:/bin/sh\n"),
            ("# User: the database", "#"),
            id="comments",
        ),
    ],
)
def test_other_lines_stand_beside_the_records_t_17(text: str, others: Row) -> None:
    assert only_table(text).other_lines == others


def test_keys_and_their_values_are_in_the_order_of_a_log_t_17() -> None:
    assert only_table(repeated("NAME_{0}=a:{0}=b c\n")).is_log


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(repeated("Step {}: do this and that\n") + "name: x", id="of one length"),
        pytest.param(repeated("a{} fix: the bug\n") + "name: x", id="subjects"),
        pytest.param(repeated("x{0}==1.{0}\n") + "name: x", id="versions"),
        pytest.param(SOCKETS + MORE_WORDS, id="more words than names"),
    ],
)
def test_lines_that_may_be_no_records_stay_lines_t_17(text: str) -> None:
    assert find_records(text).tables == ()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param(
            "COMMAND    PID  TID USER   FD     TYPE NODE NAME\n"
            + "".join(
                f"sh{n:<6} {n:>5}      root {n:>4}u  {n % 2 or '':>6}  {n:>{n % 9 + 1}} /x\n"
                for n in range(20)
            ),
            "PID TID",
            id="more names than columns of words",
        ),
        pytest.param(
            ";; AUTHORITY SECTION:\n"
            + repeated("example.org.    172800  IN  NS  ns{}.example.org.\n")
            + "\n;; Query time:  66 msec\n;; MSG SIZE  rcvd:  287\n",
            ":",
            id="a line with a key",
        ),
        pytest.param(
            "file with spaces in the name: empty\ngit:                                directory\n".join(
                [repeated("file{}:                              ASCII text\n")] * 2
            ),
            "^section$",
            id="a row without numbers",
        ),
        pytest.param(
            "Archive:  logs\n" + "".join(f"{n or '':<10}x{n}\n" for n in range(12)),
            "Archive:",
            id="a title",
        ),
        pytest.param(
            repeated("=== RUN   TestA{0}\n--- PASS: TestA{0} (0.00s)\n", 30),
            "PASS",
            id="results of tests",
        ),
        pytest.param(
            f"{'.' * 40}                [100%]\n"
            + "".join(f"{n}.07s call     tests/test_app.py::test_number_{n}\n" for n in range(9)),
            "100%",
            id="the dots of a test run",
        ),
    ],
)
def test_words_of_other_lines_name_no_column_t_17(text: str, wrong: str) -> None:
    for table in find_records(text).tables:
        assert not [name for name in table.columns if re.search(wrong, name)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param(
            "".join(
                f"host-{n % 7} {('served', 'dropped it', 'saw')[n % 3]} /{n}\n" for n in range(60)
            ),
            {"host-1"},
            id="prose",
        ),
        pytest.param(repeated("e0:33:8e:67:38:{:02}\n", 30), {"33", "8e"}, id="addresses"),
        pytest.param(
            repeated("box{0} (10.0.0.{0}) at e0:33:8e:67:38:{0:02} on en0\n"),
            {"33", "8e"},
            id="addresses in lines",
        ),
        pytest.param(
            repeated("ann      pts/{0}        10.0.0.{0} Fri Feb 2{0} 23:03   gone\n", 6)
            + "reboot   system boot  4.15.0-88 Fri Feb 28 23:03   still running\n",
            {"system"},
            id="words of a cell",
        ),
    ],
)
def test_what_is_not_sure_to_be_columns_is_cut_nowhere_t_17(text: str, wrong: set[str]) -> None:
    for table in find_records(text).tables:
        assert not [row for row in table.rows if wrong & {*row}]


def test_a_title_and_a_heading_begin_another_table_t_17() -> None:
    text = "Active connections\nProto Recv-Q  Address\n"
    text += repeated("tcp   {0:<6}  10.0.0.{0}:80\n", 4)
    text += "Active domain sockets\nProto RefCnt  Type       Path\n"
    text += repeated("unix  {0:<6}  STREAM     /run/{0}\n", 5)
    first, second = find_records(text).tables
    assert (first.columns, first.total_rows) == (("Proto", "RefCnt", "Type", "Path"), 5)
    assert (second.columns, second.total_rows) == (("Proto", "Recv-Q", "Address"), 4)
