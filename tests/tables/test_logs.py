"""Logs of many programs have their time, level and source in columns, and texts have none."""

import pytest

from tests.tables.reading import only_table

ENTRIES = {
    "apache": "[Sun Dec 04 04:47:44.1 2005] [core:error] [pid 12:tid 3] [client 1.2.3.4:8] gone",
    "elasticsearch": "[2024-03-10T12:00:00,123][WARN ][o.e.n.Node    ] [node-1] gone",
    "klog": "E0310 12:00:00.123456       1 server.go:12] gone",
    "logcat": "03-17 16:13:38.811  1702  2395 E WindowManager: gone",
    "logcat brief": "E/WindowManager( 1702): gone",
    "postgres": "2024-03-10 12:00:00.123 UTC [12] FATAL:  gone",
    "mysql": "2024-03-10T12:00:00.123456Z 0 [Warning] [MY-010116] [Server] gone",
    "mongodb": "2024-03-10T12:00:00.123+0000 E NETWORK  [listener] gone",
    "redis": "1:M 10 Mar 2024 12:00:00.123 # gone",
    "spring": "2024-03-10 12:00:00.123  WARN 12 --- [           main] c.e.App     : gone",
    "ruby": "E, [2024-03-10T12:00:00.123456 #12]  ERROR -- app: gone",
    "celery": "[2024-03-10 12:00:00,123: ERROR/MainProcess] gone",
    "gunicorn": "[2024-03-10 12:00:00 +0000] [7] [ERROR] gone",
    "nginx": "2024/03/10 10:00:00 [crit] 29#29: *1 gone",
    "hadoop": "081109 203615 148 WARN dfs.DataNode$PacketResponder: gone",
    "compose": "web-1  | 2024-03-10 12:00:00 ERROR gone",
    "python": "ERROR:app.mod:gone",
    "python with a time": "2024-03-10 12:00:00,123 - app.mod - ERROR - gone",
    "loguru": "2024-03-10 12:00:00.123 | ERROR    | app.mod:run:12 - gone",
    "rust": "[2024-03-10T12:00:00Z ERROR app::mod] gone",
    "level first": "ERROR 2024-03-10 12:00:00,123 gone",
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_the_level_of_an_entry_is_a_column_t_03(entry: str) -> None:
    table = only_table(f"{entry}\n  of its trace\n{entry}")
    level = table.column(table.columns.index("level"))
    assert level[0] in {"ERROR", "WARN", "WARNING", "FATAL", "CRIT"}
    assert [str(cell).rpartition("gone")[2] for cell in table.column(-1)] == [
        "\n  of its trace",
        "",
    ]
    assert table.is_log


@pytest.mark.parametrize(
    "entry",
    [
        "Jun 14 15:16:01 web-1 sshd[19939]: gone",
        "<34>Jun 14 15:16:01 web-1 sshd[19939]: gone",
        "2024-03-10T12:00:01+0100 web-1 sshd[19939]: gone",
        "<34>1 2003-10-11T22:14:15.003Z web-1 sshd 19939 ID47 gone",
    ],
)
def test_an_entry_of_syslog_has_host_and_process_t_03(entry: str) -> None:
    lines = ["-- Journal begins at Mon 2024-01-01.", *[entry] * 5]
    table = only_table("\n".join(lines))
    assert table.columns == ("time", "host", "process", "pid", "message")
    assert table.rows[-1][1:] == ("web-1", "sshd", "19939", "gone")
    assert (table.path, table.total_rows) == ("line 2", 5)


IIS = "#Software: IIS\n#Fields: date time cs-method sc-status\n" + "".join(
    f"2024-03-10 12:00:{second} GET 404\n" for second in range(10, 30)
)
ZEEK = "#fields\tts\tuid\tservice\n#types\ttime\tstring\tstring\n" + "1\tC 1\tdns\n" * 3


@pytest.mark.parametrize(
    ("text", "columns", "total", "first", "is_log"),
    [
        pytest.param(
            IIS,
            ("date", "time", "cs-method", "sc-status"),
            20,
            ("2024-03-10", "12:00:10", "GET", "404"),
            False,
            id="fields that a log names",
        ),
        pytest.param(
            f"{IIS}a line that has more words",
            ("time", "message"),
            20,
            ("2024-03-10 12:00:10", "GET 404"),
            True,
            id="a line of more fields",
        ),
        pytest.param(
            ZEEK, ("ts", "uid", "service"), 3, ("1", "C 1", "dns"), False, id="fields between tabs"
        ),
        pytest.param(
            "time,level,note\n" + "2024-03-10 12:00:00,INFO,up\n" * 5,
            ("time", "level", "note"),
            5,
            ("2024-03-10 12:00:00", "INFO", "up"),
            False,
            id="a heading of csv",
        ),
        pytest.param(
            "when | what\n" + "2024-03-10 12:00:00 | up\n" * 5,
            ("when", "what"),
            5,
            ("2024-03-10 12:00:00", "up"),
            False,
            id="a heading before bars",
        ),
        pytest.param(
            "[    0.123456] usb 1-1: new device\n" * 4,
            ("time", "message"),
            4,
            ("0.123456", "usb 1-1: new device"),
            True,
            id="a time in brackets",
        ),
    ],
)
def test_columns_of_a_log_are_those_that_it_names_t_03(
    text: str, columns: tuple[str, ...], total: int, first: tuple[str, ...], is_log: bool
) -> None:
    table = only_table(text)
    assert (table.columns, table.total_rows) == (columns, total)
    assert (table.rows[0], table.is_log) == (first, is_log)


@pytest.mark.parametrize(
    "other", ["2024-03-10 12:00:20 WARN <main> of a library", "WARN:of.a.library:late"]
)
def test_an_entry_of_another_form_is_in_no_message_t_03(other: str) -> None:
    entries = [f"2024-03-10 12:00:{second} ERROR [main] a.B: gone" for second in range(10, 30)]
    trace = "    at a.B(B.java:7)"
    table = only_table("\n".join([*entries[:9], other, trace, *entries[9:], trace]))
    assert {row[-1] for row in table.rows[:-1]} == {"gone"}
    assert table.rows[-1][-1] == f"gone\n{trace}"
    assert (table.total_rows, table.other_lines) == (20, (other, trace))
