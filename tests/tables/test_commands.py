"""What commands print in columns, sections and blocks is read without a wrong record."""

import pytest

from llm_common.tables.finding import find_records
from llm_common.tables.table import Table


def only_table(text: str) -> Table:
    [table] = find_records(text).tables
    return table


MONTHS = ("Jan 19 10:02", "Feb  3  2024", "Mar 30 07:41")


def listing(folder: str, count: int) -> str:
    lines = [f"{folder}:", f"total {count}"]
    lines += [
        f"-rw-r--r-- 1 ann  {'wheel' if n % 2 else 'adm  '} {n * 997:>8} {MONTHS[n % 3]} {'my ' * (n % 2)}file{n}"
        for n in range(count)
    ]
    return "\n".join(lines)


def test_names_with_blanks_are_the_last_column_of_a_listing_t_17() -> None:
    table = only_table(listing(".", 9))
    assert len(table.columns) == 9
    assert table.rows[7][4:] == ("6979", "Feb", "3", "2024", "my file7")
    assert (table.total_rows, table.other_lines) == (9, (".:", "total 9"))


def test_listings_of_folders_are_one_table_by_section_t_17() -> None:
    prose = "These are all the folders here, and nothing else at all."
    table = only_table("\n\n".join([listing("./a b", 8), listing("./c", 1), prose]))
    assert table.columns[:2] == ("section", "column_1")
    assert [row[0] for row in table.rows] == ["./a b"] * 8 + ["./c"]
    assert "total 8" in table.other_lines


def test_the_total_of_a_first_folder_is_no_section_t_17() -> None:
    first = listing(".", 2).removeprefix(".:\n")
    table = only_table("\n\n".join([first, *(listing(name, 9) for name in "bcd")]))
    assert [row[0] for row in table.rows[::9]] == ["", "b", "c", "d"]
    assert table.other_lines[0] == "total 2"


def test_names_under_titles_are_rows_t_17() -> None:
    table = only_table("/bin:\nls\ncat\nps\n\n/sbin:\nfsck\nmount\nswapon\n")
    assert table.rows[3:5] == (("/sbin", "fsck"), ("/sbin", "mount"))


def test_names_of_two_words_are_told_by_the_cells_below_t_17() -> None:
    lines = ["Netid Recv-Q  Local Address:Port   Peer Address:Port"]
    lines += [f"tcp   {n:<6}  {'*' * (n % 2)}:{n:<18} 10.0.0.{n}:*" for n in range(9)]
    table = only_table("\n".join(lines))
    assert table.columns == ("Netid", "Recv-Q", "Local Address:Port", "Peer Address:Port")
    assert table.rows[3] == ("tcp", "3", "*:3", "10.0.0.3:*")
    # Where a line has more words than there are names, a cell may stand under another name.
    lines.append("u_str 0       /run/some/journal/stdout 18181 * 18180")
    assert find_records("\n".join(lines)).tables == ()


def test_more_names_than_columns_of_words_are_no_table_t_17() -> None:
    lines = ["COMMAND    PID  TID USER   FD     TYPE NODE NAME"]
    lines += [
        f"sh{n:<6} {n:>5}      root {n:>4}u  {n % 2 or '':>6}  {n:>{n % 9 + 1}} /x"
        for n in range(20)
    ]
    for table in find_records("\n".join(lines)).tables:
        assert not any("PID TID" in column for column in table.columns)


def test_keys_and_their_values_are_a_table_t_17() -> None:
    variables = "".join(f"NAME_{n}=a:{n}=b c\n" for n in range(6)) + "EMPTY=\n"
    table = only_table(variables)
    assert (table.columns, table.is_log) == (("key", "value"), True)
    assert table.rows[1::5] == (("NAME_1", "a:1=b c"), ("EMPTY", ""))
    kinds = "".join(f"{'a file ' * (n % 2) + str(n) + ':':<12} text, {n} lines\n" for n in range(6))
    assert only_table(kinds).rows[1] == ("a file 1", "text, 1 lines")


@pytest.mark.parametrize(
    "line",
    ["Step {n}: do this and that", "a{n} fix: the bug", "x{n}==1.{n}"],
    ids=["of one length", "subjects", "versions"],
)
def test_other_lines_with_colons_are_no_keys_t_17(line: str) -> None:
    lines = [line.format(n=n) for n in range(9)]
    assert find_records("\n".join([*lines, "name: x"])).tables == ()


def test_lines_of_one_sentence_have_its_cells_t_17() -> None:
    lines = [
        f"box{n} (10.0.0.{n}) at e0:33:8e:{n:x} on en0{' ifscope' * (n % 2)}" for n in range(9)
    ]
    assert only_table("\n".join(lines)).rows[1][:5] == (
        "box1",
        "(10.0.0.1)",
        "at",
        "e0:33:8e:1",
        "on",
    )


def test_numbered_lines_keep_their_blanks_in_one_cell_t_17() -> None:
    lines = [
        f"{n:>5}  {' ' * (n % 3)}{('cat', 'head -n 1')[n % 2]} file{n} | less"
        for n in range(95, 120)
    ]
    assert only_table("\n".join(lines)).rows[1] == ("96", "cat file96 | less")


def test_comments_are_no_records_t_17() -> None:
    lines = ["# User: the database", "#"]
    lines += [f"user{n}:*:{n}:{n}:The User:/home/{n}:/bin/sh" for n in range(9)]
    table = only_table("\n".join(lines))
    assert (table.total_rows, table.other_lines) == (9, tuple(lines[:2]))


def test_logins_have_their_name_beside_the_rest_t_17() -> None:
    lines = [f"ann      pts/{n}        Tue Jan  5 14:{n}   still logged in" for n in range(10, 20)]
    lines += ["reboot   system boot  Tue Jan  5 14:28 - 14:35  (00:07)", "", "wtmp begins Tue Jan"]
    table = only_table("\n".join(lines))
    assert table.rows[-1] == ("reboot", "system boot  Tue Jan  5 14:28 - 14:35  (00:07)")
    assert table.other_lines == ("wtmp begins Tue Jan",)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"host-{n % 7} {('served', 'dropped it', 'saw')[n % 3]} /{n}\n" for n in range(60)),
        "".join(f"e0:33:8e:67:38:{n:02}\n" for n in range(30)),
        "".join(f"box{n} (10.0.0.{n}) at e0:33:8e:67:38:{n:02} on en0\n" * 2 for n in range(9)),
        "".join(f"=== RUN   TestA{n}\n--- PASS: TestA{n} (0.00s)\n" for n in range(30)),
        "import os\nimport sys\nimport re\n\ndef f(x):\n    note: int = 3\n    return x\n",
    ],
    ids=["prose", "addresses", "addresses in lines", "results of tests", "program"],
)
def test_what_is_not_sure_to_be_columns_is_cut_nowhere_t_17(text: str) -> None:
    for table in find_records(text).tables:
        assert not any(cell in ("33", "8e", "host-1") for row in table.rows for cell in row)
    assert not any("PASS" in table.columns for table in find_records(text).tables)


def test_a_line_with_a_key_is_no_heading_t_17() -> None:
    answers = "".join(f"example.org.    172800  IN  NS  ns{n}.example.org.\n" for n in range(9))
    text = f";; AUTHORITY SECTION:\n{answers}\n;; Query time:  66 msec\n;; MSG SIZE  rcvd:  287\n"
    for table in find_records(text).tables:
        assert not any(":" in name for name in table.columns)


def test_words_of_a_cell_are_not_divided_t_17() -> None:
    lines = [f"ann      pts/{n}        10.0.0.{n} Fri Feb 2{n} 23:03   gone" for n in range(6)]
    lines.append("reboot   system boot  4.15.0-88 Fri Feb 28 23:03   still running")
    for table in find_records("\n".join(lines)).tables:
        assert "system" not in table.rows[-1]


def test_a_row_without_numbers_begins_no_table_t_17() -> None:
    lines = [f"file{n}:{' ' * 30}ASCII text" for n in range(9)]
    lines += ["file with spaces in the name: empty", f"git:{' ' * 32}directory"]
    tables = find_records("\n".join([*lines, *lines[:9]])).tables
    assert not any("section" in table.columns for table in tables)


def test_accounts_are_divided_by_colons_t_17() -> None:
    lines = [f"user{n}:x:{n}:{n}:A User, Room {n}:/home/u{n}:/bin/sh" for n in range(9)]
    table = only_table("\n".join(lines))
    assert table.rows[3] == ("user3", "x", "3", "3", "A User, Room 3", "/home/u3", "/bin/sh")


COMMIT = """commit {0:040x}
Author: Ann <ann@example.com>
Date:   Mon Jan {1} 10:00:00 2026

    Note {0}

    Fixes: the {0}th bug
"""


def test_commits_are_blocks_from_one_word_t_17() -> None:
    table = only_table("\n".join(COMMIT.format(n, n + 1) for n in range(30)))
    assert table.columns == ("commit", "Author", "Date", "Fixes", "text")
    assert table.rows[2][:3] == (f"{2:040x}", "Ann <ann@example.com>", "Mon Jan 3 10:00:00 2026")


def test_a_rare_word_before_a_colon_is_text_t_17() -> None:
    commits = [COMMIT.format(n, n + 1) for n in range(30)]
    plain = [commit.replace("Fixes: ", "Fixes ") for commit in commits]
    table = only_table("\n".join([commits[0], *plain[1:]]))
    assert table.columns == ("commit", "Author", "Date", "text")
    assert table.rows[0][3] == "Note 0\n\nFixes: the 0th bug"


def test_pairs_in_one_line_are_fields_t_17() -> None:
    block = (
        "  File: /bin/x{0}\n  Size: {0}0 \tBlocks: 8   IO Block: 4096   regular file\nLinks: 1\n"
    )
    table = only_table("".join(map(block.format, range(1, 6))))
    assert table.columns == ("File", "Size", "Blocks", "IO Block", "IO Block_2", "Links")
    assert table.rows[4] == ("/bin/x5", "50", "8", "4096", "regular file", "1")


def test_a_rule_of_dashes_tells_where_columns_are_t_17() -> None:
    lines = ["  node   mounted   mounted over       date     name"]
    lines.append("-------- --------- -------------- ------------ ----")
    lines += [f"{'':9}/dev/{n:<4} {'/x' * (n % 3):14} Sep 06 11:4{n} x{n}" for n in range(4)]
    table = only_table("\n".join(lines))
    assert table.columns == ("node", "mounted", "mounted over", "date", "name")
    assert table.rows[2] == ("", "/dev/2", "/x/x", "Sep 06 11:42", "x2")


def test_a_title_before_names_is_one_where_the_heading_comes_again_t_17() -> None:
    usage = "avg-cpu:  %user   %nice  %idle\n           0.1{0}    0.00  9{0}.70\n"
    text = "\n".join(map(usage.format, range(4)))
    table = only_table(text)
    assert table.columns[1:] == ("%user", "%nice", "%idle")
    assert table.rows[3][1:] == ("0.13", "0.00", "93.70")
    archive = "Archive:  logs\n" + "".join(f"{n or '':<10}x{n}\n" for n in range(12))
    assert not any("Archive:" in table.columns for table in find_records(archive).tables)


def test_a_program_with_a_blank_in_its_name_is_one_cell_t_17() -> None:
    lines = ["Proto Recv-Q  State       PID/Program name    "]
    lines += [f"udp   {n:<6}{'':14}11{n}/containerd-shim" for n in range(5)]
    lines.append("tcp   7       LISTEN      6492/sshd: ann")
    assert only_table("\n".join(lines)).rows[4:] == (
        ("udp", "4", "", "114/containerd-shim"),
        ("tcp", "7", "LISTEN", "6492/sshd: ann"),
    )


CHAIN = """Chain {} (1 references)
target     prot opt source               destination
ACCEPT     all  --  anywhere             anywhere             ctstate NEW
A_VERY_LONG_TARGET  all  --  anywhere             10.0.0.0/8
"""


def test_rows_under_one_heading_in_several_paragraphs_are_one_table_t_17() -> None:
    table = only_table("\n".join(map(CHAIN.format, ("INPUT", "OUTPUT", "FORWARD"))))
    assert table.columns[:3] == ("section", "target", "prot")
    assert table.rows[3] == (
        *("Chain OUTPUT (1 references)", "A_VERY_LONG_TARGET", "all", "--", "anywhere"),
        *("10.0.0.0/8", ""),
    )


def test_a_title_and_a_heading_begin_another_table_t_17() -> None:
    text = "Active connections\nProto Recv-Q  Address\n"
    text += "".join(f"tcp   {n:<6}  10.0.0.{n}:80\n" for n in range(4))
    text += "Active domain sockets\nProto RefCnt  Type       Path\n"
    text += "".join(f"unix  {n:<6}  STREAM     /run/{n}\n" for n in range(5))
    first, second = find_records(text).tables
    assert (first.columns, first.total_rows) == (("Proto", "RefCnt", "Type", "Path"), 5)
    assert (second.columns, second.total_rows) == (("Proto", "Recv-Q", "Address"), 4)


def test_a_cell_stands_beside_its_name_where_several_places_are_free_t_17() -> None:
    lines = ["cur    sec                 UTC"]
    lines += [f"  {n}     {n}2 2021-09-16 20:32:{n}0" for n in range(1, 6)]
    assert only_table("\n".join(lines)).rows[2] == ("3", "32", "2021-09-16 20:32:30")
