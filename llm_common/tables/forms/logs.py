"""Lines of logs: entries with a time, of web servers, and pairs as `key=value`."""

import re
from dataclasses import replace
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS, MOST, SAMPLE_LINES, share_of
from llm_common.tables.table import MAX_ROWS, Table, table_of_records, table_of_rows
from llm_common.text.canonical import Json

_TIME: Final = (
    r"\[?(?P<time>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?)\]?"
)
_LEVELS: Final = r"TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE|PANIC"
_LOG_LINE: Final = re.compile(
    rf"{_TIME}[\s|:-]{{0,4}}(?:\[?(?P<level>(?i:{_LEVELS}))\]?)?[\s|:-]{{0,4}}"
    r"(?:\[?(?P<source>[\w./$-]{2,80}(?:\[\d+\])?)\]?(?::|\s[-|])\s+)?(?P<message>.*)"
)
_ACCESS_LINE: Final = re.compile(
    r"(?P<client>\S{1,80}) \S{1,80} (?P<user>\S{1,80}) \[(?P<time>[^\]]{10,40})\] "
    # Of a request that is none, such as the "-" of a timeout, the path is its text.
    r'"(?:(?P<method>[A-Z]{3,10}) (?P<path>\S{1,2000})[^"]{0,20}|(?P<text>[^"]{0,2000}))" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)(?:\s.*)?"
)
_MIN_ENTRIES: Final = 0.5  # share of all lines that are entries of an access log


def access_log(_: str, lines: list[str]) -> Table | None:
    """Return the table of the access log of a web server, or None."""
    if (
        share_of(
            lines[:SAMPLE_LINES],
            lambda line: _ACCESS_LINE.match(line[:MAX_LINE_CHARS]) is not None,
        )
        < MOST
    ):
        return None
    columns = ["client", "user", "time", "method", "path", "status", "bytes"]
    rows: list[list[Json]] = []
    others = 0
    for line in lines:
        match = _ACCESS_LINE.match(line)
        if match is None:
            rows.append([*[None] * len(columns), line])
            others += 1
            continue
        row: list[Json] = list(match.group(*columns))
        if match["text"] is not None:
            row[columns.index("path")] = match["text"]
        rows.append(row)
    if len(rows) - others < _MIN_ENTRIES * len(rows):
        return None
    if others:
        columns.append("line")
    return table_of_rows("", columns, rows)


def log(_: str, lines: list[str]) -> Table | None:
    """Return the table of a log whose entries begin with a time, or None."""
    # Lines of a stack trace belong to the entry before them, so fewer lines than most have a time.
    starts = share_of(
        lines[: 5 * SAMPLE_LINES], lambda line: _LOG_LINE.match(line[:MAX_LINE_CHARS]) is not None
    )
    if starts < 0.3 or _LOG_LINE.match(lines[0][:MAX_LINE_CHARS]) is None:  # noqa: PLR2004
        return None
    entries: list[list[str]] = []
    for line in lines:
        match = _LOG_LINE.match(line[:MAX_LINE_CHARS])
        if match:
            level = (match["level"] or "").upper()
            message = line[match.start("message") :]  # also what is too long to search
            entries.append([match["time"], level, match["source"] or "", message])
        else:
            entries[-1].append(line)
    rows = [[*entry[:3], "\n".join(entry[3:])] for entry in entries]
    table = table_of_rows("", ("time", "level", "source", "message"), rows)
    return replace(_without_empty_columns(table), is_log=True)


def _without_empty_columns(table: Table) -> Table:
    kept = [
        index for index in range(len(table.columns)) if any(row[index] != "" for row in table.rows)
    ]
    columns = tuple(table.columns[index] for index in kept)
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return Table(table.path, columns, columns, rows, table.total_rows, len(columns))


_PAIR: Final = re.compile(
    r'(?P<key>[A-Za-z_][\w.-]{0,60})=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S*))'
)
_MIN_PAIRS: Final = 3


def logfmt(_: str, lines: list[str]) -> Table | None:
    """Return the table of lines of `key=value` pairs, or None."""
    if (
        share_of(
            lines[:SAMPLE_LINES],
            lambda line: len(_PAIR.findall(line[:MAX_LINE_CHARS])) >= _MIN_PAIRS,
        )
        < MOST
    ):
        return None
    records: list[dict[str, Json]] = []
    for line in lines[:MAX_ROWS]:
        record: dict[str, Json] = {}
        for match in _PAIR.finditer(line):
            quoted = match["quoted"]
            record[match["key"]] = match["plain"] if quoted is None else quoted.replace('\\"', '"')
        records.append(record or {"line": line})
    return replace(table_of_records("", records), total_rows=len(lines))
