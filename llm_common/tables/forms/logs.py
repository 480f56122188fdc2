"""Lines of logs: a table of forms, each tried on a sample, and pairs as `key=value`."""

import re
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS, MOST, SAMPLE_LINES, share_of
from llm_common.tables.table import MAX_ROWS, Table, table_of_records, table_of_rows
from llm_common.text.canonical import Json

_LEVELS: Final = (
    r"(?:TRACE|VERBOSE|DEBUG\d?|INFO|NOTICE|WARN(?:ING)?|ERROR|CRIT(?:ICAL)?|ALERT|EMERG|FATAL"
    r"|SEVERE|PANIC|TRC|VRB|DBG|INF|WRN|ERR|FTL)(?![\w.])"
)
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
# The parts of a form, by their names in `_FORMS`: the column, and what it looks like.
_PARTS: Final = {
    "time": (
        "time",
        (
            rf"\d{{4}}[-/.]\d\d[-/.]\d\d[T _]\d\d:\d\d(?::\d\d(?:[.,:]\d{{1,9}})?)?"
            r"(?: ?(?:Z|UTC|GMT|[ECMP][SD]T|CES?T|[+-]\d\d:?\d\d))?"
            rf"|(?:[A-Z][a-z]{{2}} )?[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}(?: \d{{4}})?"
            rf"|\d\d?[ /-][A-Z][a-z]{{2}}[ /-]\d{{4}}[ :]{_CLOCK}(?: [+-]\d{{4}})?"
            rf"|\d\d[-/.]\d\d(?:[-/.]\d{{2,4}})? {_CLOCK}"
            r"|\d{8}-\d\d?:\d\d?:\d\d?:\d{1,3}|\d{6} \d{6}"
            rf"|{_CLOCK}"
        ),
    ),
    "level": ("level", rf"{_LEVELS}|(?i:{_LEVELS})(?=\s*[\]|:]|\s\s)"),
    "anycase": ("level", rf"(?i:{_LEVELS})"),
    "postgres": (
        "level",
        r"LOG|ERROR|FATAL|PANIC|WARNING|NOTICE|INFO|DEBUG\d?|DETAIL|HINT|STATEMENT|CONTEXT|QUERY",
    ),
    "mysql": ("level", r"(?i:System|Warning|Error|Note)"),
    "letter": ("level", r"[VDIWEFCT]"),
    "mark": ("level", r"[.*#-]"),
    "client": ("client", r"\S{1,80}"),
    "host": ("host", r"[\w.:-]{1,200}"),
    "process": ("process", r"[^\s:\[]{1,100}(?: [^\s:\[]{1,40})?"),
    "pid": ("pid", r"\d{1,10}"),
    "thread": ("thread", r"[^\[\]|]{1,400}?"),
    "source": ("source", r"[\w./$-]{2,80}(?::[\w.]{1,60}){0,2}"),
    "inside": ("source", r"[^\[\]|]{1,200}?"),
    "file": ("source", r"[^\s\]]{1,200}"),
    "tag": ("source", r"[^(:]{1,100}?"),
    "service": ("service", r"[\w.-]{1,100}"),
    "message": ("message", r".*"),
}
_GAP: Final = r"[\s|:,-]{0,4}"
_ENTRY: Final = r"(?:\[?<source>(?:\[<pid>\])?\]?(?::|\s[-|])\s+)?<message>"
_FORMS: Final = (
    # Of a request that is none, such as the "-" of a timeout, the path is its text.
    (
        r"<client> \S{1,80} (?P<user>\S{1,80}) \[(?P<time>[^\]]{10,40})\] "
        r'"(?:(?P<method>[A-Z]{3,10}) (?P<path>\S{1,2000})[^"]{0,20}|(?P<text>[^"]{0,2000}))" '
        r"(?P<status>\d{3}) (?P<bytes>\d+|-)(?:\s.*)?"
    ),
    # Apache's errors, Elasticsearch
    (
        r"\[<time>\] \[(?:(?P<module>\w{0,40}):)?<level>\]"
        r"(?: \[pid <pid>[^\]]{0,40}\])?(?: \[client <client>\])? <message>"
    ),
    r"\[<time>\]\s?\[<level>\s*\]\s?\[<inside>\s*\] <message>",
    # Kubernetes, and programs in Go and C++ with glog
    r"<letter>(?P<time>\d{4} \d\d:\d\d:\d\d\.\d{1,9})\s+<pid> <file>\] <message>",
    # Android
    r"<time>\s+<pid>\s+(?P<thread>\d{1,10})\s+<letter>\s+<tag>\s*: <message>",
    r"<letter>/<tag>\s*\(\s*<pid>\): <message>",
    # databases
    r"<time> \[<pid>\](?: (?P<user>\S{1,80}))? <postgres>:\s+<message>",
    (
        r"<time> (?P<thread>\d{1,10}) \[<mysql>\] (?:\[(?P<code>[\w-]{1,20})\] )?(?:\[<inside>\] )?"
        r"<message>"
    ),
    r"<time> <letter> (?P<source>[A-Z]{1,20}|-)\s+\[<thread>\] <message>",
    r"<pid>:[MSCX] <time> <mark> <message>",
    # Spring Boot, Ruby, Celery
    (
        r"<time>\s+<level> <pid> --- (?:\[[^\]]{0,80}\] )?\[\s*<thread>\] "
        r"(?P<source>\S{1,200})\s*: <message>"
    ),
    r"[DIWEFA], \[<time> #<pid>\]\s+<level> -- (?P<source>[^:]{0,100}?): <message>",
    r"\[<time>: <level>/(?P<process>[^\]\s]{1,80})\] <message>",
    # syslog, also as journalctl writes it
    (
        r"(?:<\d{1,3}>)?(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) <host>  ?"
        r"<process>(?:\[<pid>\])?(?: \([^()]{1,200}\))?: ?<message>"
    ),
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\S{2,20}) <host> <process>\[<pid>\]: ?<message>",
    r"<\d{1,3}>1 <time> <host> (?P<process>\S{1,48}) (?:<pid>|\S{1,128}) \S{1,32} <message>",
    r"\[\s{0,7}(?P<time>\d{1,7}\.\d{6})\] <message>",
    # containers
    rf"<service>\s*\| <time>{_GAP}(?:\[?<level>\]?)?{_GAP}<message>",
    # Hadoop, with and without dashes in the time
    r"<time> <pid> <level> <source>: <message>",
    rf"<time>{_GAP}<level>\s+\[<thread>\] <source>: <message>",
    r"<time>\|(?P<source>[^|]{1,100})\|<pid>\|<message>",
    # Python, and levels in front of the time
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):<source>:<message>",
    rf"\[?<level>\]?:?\s+\[?<time>\]?{_GAP}{_ENTRY}",
    rf"\[?(?P<level>{_LEVELS})(?:\]:?|:| -)\s+<message>",
    r"\[<time>\s+<level>\s+(?P<source>[\w:.-]{1,200})\] <message>",
    r"\[<time>\] \[<pid>\] \[<level>\] <message>",
    # a time, and what is easily told behind it
    rf"\[?<time>\]?{_GAP}(?:\[<thread>\]{_GAP})?[\[(]?<anycase>\s*[\])]?{_GAP}{_ENTRY}",
    r"\[?<time>\]?\s?[-|]?\s*\[?<source>\]?\s*[-|]?\s*\[?<level>\]?\s*[-|:]?\s*<message>",
    rf"\[?<time>\]?{_GAP}(?:\[?<level>\]?)?{_GAP}{_ENTRY}",
)
_LEVEL_OF: Final = {
    "V": "VERBOSE",
    "T": "TRACE",
    "D": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "FATAL",
    "C": "CRITICAL",
    # Redis
    ".": "DEBUG",
    "-": "VERBOSE",
    "*": "NOTICE",
    "#": "WARNING",
}
_NAME: Final = re.compile(r"(?<!\?P)<(\w+)>")
# What every entry has somewhere, so that the forms need not be tried on other texts.
_HINT: Final = re.compile(rf"\d:\d|\d{{6}}|{_LEVELS}|\w/.{{0,100}}\(")
_MIN_STARTS: Final = 0.3  # share of lines that begin an entry: those of a stack trace begin none
_MIN_ENTRIES: Final = 0.5  # share of all lines, where an entry is one line


@cache
def _pattern(form: str) -> re.Pattern[str]:
    def part(name: re.Match[str]) -> str:
        column, looks = _PARTS[name[1]]
        return f"(?P<{column}>{looks})"

    return re.compile(_NAME.sub(part, form))


def log(_: str, lines: list[str]) -> Table | None:
    """Return the table of a log, or None.

    Lines between two entries, such as those of a stack trace, belong to the message of the first. A
    line that begins with a time or a level is an entry of another form, and belongs to none.
    """
    sample = [line[:MAX_LINE_CHARS] for line in lines[: 5 * SAMPLE_LINES]]
    if share_of(sample, lambda line: _HINT.search(line) is not None) < _MIN_STARTS:
        return None
    form = _form_of(sample)
    return None if form is None else _entries(form, lines)


def _form_of(sample: list[str]) -> re.Pattern[str] | None:
    """Return the first form that nearly as many lines have as that of the most lines, or None."""
    shares: dict[re.Pattern[str], float] = {}
    for pattern in map(_pattern, _FORMS):
        share = sum(pattern.match(line) is not None for line in sample) / len(sample)
        is_message = "message" in pattern.groupindex
        if share >= (_MIN_STARTS if is_message else MOST):
            shares[pattern] = share
    best = max(shares.values(), default=0.0)
    return next((pattern for pattern in shares if shares[pattern] >= MOST * best), None)


def _entries(pattern: re.Pattern[str], lines: list[str]) -> Table | None:
    """Return the entries of a log. Where an entry has no message, other lines stand alone."""
    columns = [column for column in pattern.groupindex if column != "text"]
    has_message = "message" in columns
    preface = len([*takewhile(_is_preface, lines)]) if has_message else 0
    first = "".join(lines[preface : preface + 1])[:MAX_LINE_CHARS]
    if has_message and not pattern.match(first):
        return None
    begins = _pattern(r"\W?(?:<time>|<level>)")
    rows: list[list[Json]] = []
    others = 0
    traces: list[list[str]] = []
    unread: list[str] = []
    for line in lines[preface:]:
        match = pattern.match(line[:MAX_LINE_CHARS])
        if match is not None:
            rows.append(_cells(match, line, columns))
            behind: list[str] = []
            traces.append(behind)
        elif not has_message:
            others += 1
            rows.append([*[None] * len(columns), line])
        else:
            if begins.match(line):
                behind = unread
            behind.append(line)
    if len(rows) - others < _MIN_ENTRIES * (len(rows) + len(unread)):
        return None
    # Of entries without a message there are more rows, and no traces.
    for row, trace in zip(rows, traces, strict=False):
        if trace:
            row[-1] = "\n".join([str(row[-1]), *trace])
    if others:
        columns.append("line")
    table = _without_empty_columns(table_of_rows("", columns, rows))
    # What stands before the entries is in none of them.
    path = f"line {preface + 1}" if preface else ""
    return replace(table, path=path, other_lines=tuple(unread), misses_records=bool(unread))


def _is_preface(line: str) -> bool:
    """Return whether a line before the first entry begins as those of journalctl and adb."""
    return line.startswith(("--", "#"))


def _cells(match: re.Match[str], line: str, columns: list[str]) -> list[Json]:
    cells: dict[str, str | None] = match.groupdict()
    level = cells.get("level")
    if level is not None:
        cells["level"] = _LEVEL_OF.get(level, level.upper())
    if "message" in cells:
        cells["message"] = line[match.start("message") :]  # also what is too long to search
    if cells.get("text") is not None:
        cells["path"] = cells["text"]
    return list(map(cells.__getitem__, columns))


def _without_empty_columns(table: Table) -> Table:
    kept = [index for index in range(len(table.columns)) if any(map(bool, table.column(index)))]
    columns = tuple(table.columns[index] for index in kept)
    rows = []
    for row in table.rows:
        rows.append(tuple(row[index] for index in kept))
    return replace(
        table,
        columns=columns,
        paths=columns,
        rows=tuple(rows),
        total_columns=len(columns),
        is_log="message" in columns,
    )


def fields_log(_: str, lines: list[str]) -> Table | None:
    """Return the table of a log that names its fields, such as those of IIS and Zeek, or None."""
    heads = [line for line in lines[:SAMPLE_LINES] if line.lower().startswith("#fields")]
    if not heads:
        return None
    separator = "\t" if "\t" in heads[0] else None
    rows = [heads[0].split(separator)[1:]]
    rows += [line.split(separator) for line in lines if not line.startswith("#")]
    are_rows = all(len(row) == len(rows[0]) for row in rows)
    return table_of_rows("", rows[0], rows[1:]) if are_rows and len(rows) > 1 else None


_PAIR: Final = re.compile(
    r'(?P<key>[A-Za-z_][\w.-]{0,60})=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S*?)(?=[,;]?(?:\s|$)))[,;]?'
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
    others: list[str] = []
    for line in lines[:MAX_ROWS]:
        record: dict[str, Json] = {}
        for match in _PAIR.finditer(line):
            quoted = match["quoted"]
            record[match["key"]] = match["plain"] if quoted is None else quoted.replace('\\"', '"')
        if not record:
            others.append(line)
            continue
        between = " ".join(_PAIR.sub(" ", line).split())
        if any(map(str.isalnum, between)):
            record["text"] = between
        records.append(record)
    table = table_of_records("", records)
    return replace(table, total_rows=len(lines) - len(others), other_lines=tuple(others))
