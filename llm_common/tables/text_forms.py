"""Tables in plain text: CSV, Markdown, HTML, JSON lines, logs, columns, `key: value` blocks.

Each form is recognized by its lines alone, in linear time. A text that fits no form has no table.
"""

import csv
import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from typing import Final

import orjson

from llm_common.tables.table import MAX_ROWS, Table, table_of_records, table_of_rows
from llm_common.text.canonical import Json

_MAX_TEXT_CHARS: Final = 20_000_000
_MIN_LINES: Final = 3  # a header and two records
_SAMPLE_LINES: Final = 40
_MOST: Final = 0.9  # share of the lines that have to fit a form
_MAX_LINE_CHARS: Final = 10_000  # a longer line holds a document and no record


def tables_in_text(text: str) -> list[Table]:
    """Return the tables of a plain text, in the order of the text, or []."""
    if len(text) > _MAX_TEXT_CHARS:
        return []
    # Marked-up tables can stand anywhere in a document. The other forms are the document.
    marked_up = [*_markdown_tables(text), *_html_tables(text)]
    if marked_up:
        return marked_up
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < _MIN_LINES:
        return []
    for read in _FORMS:
        table = read(text, lines)
        if table is not None:
            return [table]
    return []


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The lines of a text with one JSON object per line.

    Attributes:
        objects: The objects.
        others: The lines that are something else, such as a cut last one.
    """

    objects: list[dict[str, Json]]
    others: list[str]


def json_lines(text: str) -> JsonLines | None:
    """Return the objects of a text with one JSON object per line, or None.

    At most a tenth of the lines may be something else.
    """
    lines = text.split("\n") if len(text) <= _MAX_TEXT_CHARS else []
    lines = [line for line in lines if line.strip()]
    if len(lines) < 2 or not lines[0].lstrip().startswith("{"):  # noqa: PLR2004
        return None
    if _share(lines[:_SAMPLE_LINES], lambda line: _object_in(line) is not None) < _MOST:
        return None
    objects: list[dict[str, Json]] = []
    others: list[str] = []
    for line in lines:
        value = _object_in(line)
        if value is not None:
            objects.append(value)
        else:
            others.append(line)
    return JsonLines(objects, others) if len(objects) >= _MOST * len(lines) else None


def _object_in(line: str) -> dict[str, Json] | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _share(lines: Sequence[str], fits: Callable[[str], bool]) -> float:
    """Return the share of lines that fit."""
    return sum(map(fits, lines)) / len(lines) if lines else 0.0


# --- Markdown

# Of a stripped line. The bounds keep a long line of blanks linear.
_MARKDOWN_RULE: Final = re.compile(r"\|?\s{0,9}:?-+:?\s{0,9}(?:\|\s{0,9}:?-+:?\s{0,9})*\|?")


def _markdown_tables(text: str) -> Iterator[Table]:
    if "|" not in text or "--" not in text:
        return
    lines = text.split("\n")
    number = 0
    while number < len(lines) - 1:
        header, rule = lines[number], lines[number + 1]
        is_table = "|" in header and "|" in rule and len(rule) <= _MAX_LINE_CHARS
        if not is_table or _MARKDOWN_RULE.fullmatch(rule.strip()) is None:
            number += 1
            continue
        end = number + 2
        while end < len(lines) and "|" in lines[end]:
            end += 1
        rows = map(_markdown_cells, lines[number + 2 : end])
        if end > number + 2:
            yield table_of_rows(f"line {number + 1}", _markdown_cells(header), rows)
        number = end


def _markdown_cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|").replace(r"\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


# --- HTML

# `\s*+` keeps what it took. Two plain `\s*` side by side divide a run of blanks in every way.
_HTML_PART: Final = re.compile(
    r"<\s*+(?P<close>/?)\s*+(?P<tag>table|tr|t[hd])\b[^<>]{0,2000}>", re.IGNORECASE
)
_TAG: Final = re.compile(r"<[^<>]{0,2000}>")


def _html_tables(text: str) -> Iterator[Table]:
    if "<table" not in text and "<TABLE" not in text:
        return
    count = 0
    rows: list[list[str]] = []
    for row in _html_rows(text):
        if row is not None:
            rows.append(row)
            continue
        if len(rows) > 1:
            count += 1
            yield table_of_rows(f"table {count}", rows[0], rows[1:])
        rows = []


def _html_rows(text: str) -> Iterator[list[str] | None]:
    """Yield the cells of each row, and None at the borders of tables and at the end."""
    row: list[str] = []
    cell_start: int | None = None
    for match in _HTML_PART.finditer(text):
        # A cell ends with its tag, with the next cell or with its row: closing tags are optional.
        if cell_start is not None:
            row.append(_html_text(text[cell_start : match.start()]))
            cell_start = None
        tag = match["tag"].lower()
        if tag in ("td", "th"):
            cell_start = None if match["close"] else match.end()
            continue
        if row:
            yield row
            row = []
        if tag == "table":
            yield None
    if row:  # the text ends within a table
        yield row
    yield None


def _html_text(cell: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", cell)).split())


# --- CSV and its kin

DELIMITERS: Final = ("\t", ",", ";", "|")
_MAX_PREFACE: Final = 5  # lines before the header
_MAX_NAME_CHARS: Final = 60
_HEAD_ROWS: Final = 20
_MIN_JOINED_LINES: Final = 12
_MAX_REREAD: Final = 4  # times the length of a text
_csv_reader: Final = partial(csv.reader, skipinitialspace=True)


def _delimited(text: str, lines: list[str]) -> Table | None:
    for delimiter in DELIMITERS:
        for preface in range(min(_MAX_PREFACE, len(lines) - _MIN_LINES) + 1):
            sample = "\n".join(lines[preface : preface + _SAMPLE_LINES])
            head = _first_rows(sample, delimiter)
            if not _is_delimited(head):
                continue
            body = text
            if preface:
                body = "\n".join(lines[preface:])
            rows = _DelimitedLines(body, delimiter, width=len(head[0])).rows()
            try:
                header = next(rows, [])
                return table_of_rows("", header, rows)
            except csv.Error:
                return None
    return None


def _first_rows(sample: str, delimiter: str) -> list[list[str]]:
    rows = []
    with suppress(csv.Error):  # the rows before it decide
        for row in islice(_csv_reader(io.StringIO(sample), delimiter=delimiter), _HEAD_ROWS):
            if row:
                rows.append(row)
    return rows


def _is_delimited(rows: list[list[str]]) -> bool:
    """Return whether the first rows look like a header and records of its width."""
    if len(rows) < _MIN_LINES or len(rows[0]) < 2:  # noqa: PLR2004
        return False
    header = [name.strip() for name in rows[0]]
    # Names are short and no sentences. Prose with commas fails here.
    names_fit = all(0 < len(name) <= _MAX_NAME_CHARS for name in header)
    is_sentence = header[-1].endswith((".", "!", "?"))
    if not names_fit or is_sentence or len(set(header)) < len(header):
        return False
    if any(re.fullmatch(r"[-+]?\d[\d.,]*", name) for name in header):
        return False
    same_width = [row for row in rows[1:] if len(row) == len(header)]
    return len(same_width) >= _MOST * len(rows[1:])


class _DelimitedLines:
    """The lines of a delimited text.

    A cell in quotes may hold several lines. A quote that only begins a text, as in `"Heroes`, would
    make one cell of all rows up to the next quote. Such a row is its first line alone.

    Args:
        text: The text, from its header on.
        delimiter: What separates cells.
        width: Number of cells in the header.
    """

    def __init__(self, text: str, delimiter: str, *, width: int) -> None:
        self._lines = io.StringIO(text).readlines()
        self._delimiter = delimiter
        self._width = width
        self._chars_left = _MAX_REREAD * len(text)

    def rows(self) -> Iterator[list[str]]:
        """Yield the rows.

        Raises:
            csv.Error: If a cell of several lines has over 131,072 characters, or stray quotes
                are too many to read around them.
        """
        begin = 0
        while begin < len(self._lines):
            start = begin
            # Begins in the midst without a copy of the lines.
            lines = map(self._lines.__getitem__, range(start, len(self._lines)))
            reader = _csv_reader(lines, delimiter=self._delimiter)
            try:
                for row in reader:
                    end = start + reader.line_num
                    if end - begin > 1 and self._are_rows(begin, end):
                        break
                    if row:
                        yield row
                    begin = end
                else:
                    return
            except csv.Error:  # a cell is too long, or has a carriage return
                end = start + reader.line_num
                if end - begin > 1 and not self._are_rows(begin, end):
                    raise
            # The last cell takes what exceeds the header, so that nothing is lost.
            yield self._lines[begin].rstrip("\n").split(self._delimiter, self._width - 1)
            begin += 1

    def _are_rows(self, begin: int, end: int) -> bool:
        """Return whether the lines that a quote makes one row are several."""
        lines = self._lines[begin:end]
        if len(lines) > _MIN_JOINED_LINES and _share(lines[1:-1], self._is_row) >= _MOST:
            are_rows = True
        else:
            # So few lines may look like rows by chance, unless their quotes are wrong too.
            are_rows = _share(lines[1:], self._is_row) >= _MOST and not self._is_balanced(lines)
        if are_rows:
            # They are read again, so that many such quotes would take quadratic time.
            self._chars_left -= sum(map(len, lines))
            if self._chars_left < 0:
                raise csv.Error("too many stray quotes")
        return are_rows

    def _is_row(self, line: str) -> bool:
        delimiters = line.count(self._delimiter)
        if delimiters < self._width or '"' not in line:
            return delimiters == self._width - 1
        with suppress(csv.Error):
            return len(next(_csv_reader([line], delimiter=self._delimiter))) == self._width
        return False

    def _is_balanced(self, lines: list[str]) -> bool:
        """Return whether each quote that begins a cell has one that ends it."""
        with suppress(csv.Error):
            next(_csv_reader(lines, delimiter=self._delimiter, strict=True))
            return True
        return False


# --- Logs

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


def _access_log(_: str, lines: list[str]) -> Table | None:
    if (
        _share(
            lines[:_SAMPLE_LINES],
            lambda line: _ACCESS_LINE.match(line[:_MAX_LINE_CHARS]) is not None,
        )
        < _MOST
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


def _log(_: str, lines: list[str]) -> Table | None:
    # Lines of a stack trace belong to the entry before them, so fewer lines than most have a time.
    starts = _share(
        lines[: 5 * _SAMPLE_LINES], lambda line: _LOG_LINE.match(line[:_MAX_LINE_CHARS]) is not None
    )
    if starts < 0.3 or _LOG_LINE.match(lines[0][:_MAX_LINE_CHARS]) is None:  # noqa: PLR2004
        return None
    entries: list[list[str]] = []
    for line in lines:
        match = _LOG_LINE.match(line[:_MAX_LINE_CHARS])
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


# --- logfmt

_PAIR: Final = re.compile(
    r'(?P<key>[A-Za-z_][\w.-]{0,60})=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S*))'
)
_MIN_PAIRS: Final = 3


def _logfmt(_: str, lines: list[str]) -> Table | None:
    if (
        _share(
            lines[:_SAMPLE_LINES],
            lambda line: len(_PAIR.findall(line[:_MAX_LINE_CHARS])) >= _MIN_PAIRS,
        )
        < _MOST
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


# --- columns aligned by spaces, as `ps`, `docker ps` and `kubectl get` print them

_WORD: Final = re.compile(r"\S+")
_WORDS: Final = re.compile(r"\S+(?: \S+)*")


def _aligned(_: str, lines: list[str]) -> Table | None:
    # A blank stands between the names of two columns, or within the name of one.
    for form, read in ((_WORD, _cells_in_order), (_WORDS, _cells_by_start)):
        header = list(form.finditer(lines[0][:_MAX_LINE_CHARS]))
        names = [match[0] for match in header]
        if len(header) < 3 or names != list(map(str.upper, names)):  # noqa: PLR2004
            return None
        records: list[list[Json]] = []
        others = 0
        for line in lines[1:]:
            cells = read(line, header)
            others += not cells
            records.append([*cells, None] if cells else [*[None] * len(names), line])
        if len(records) - others >= _MOST * len(records):
            if others:
                names.append("line")
            return table_of_rows("", names, [record[: len(names)] for record in records])
    return None


def _cells_in_order(line: str, header: Sequence[re.Match[str]]) -> list[str]:
    """Return as many words as there are names, if each is under its name at least in part.

    Numbers are aligned to the right, and a wide one pushes the others on.
    """
    cells = line.split(maxsplit=len(header) - 1)
    end = 0
    for name, cell in zip(header, cells, strict=False):
        start = line.index(cell, end)
        end = start + len(cell)
        if start >= name.end() or end <= name.start():
            return []
    return cells if len(cells) == len(header) else []


def _cells_by_start(line: str, header: Sequence[re.Match[str]]) -> list[str]:
    """Return what stands from each name to the next, if no word runs from one to the other."""
    starts = [name.start() for name in header]
    if not all(line[start - 1 : start].isspace() or len(line) < start for start in starts[1:]):
        return []
    ends = [*starts[1:], len(line)]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


# --- blocks of `key: value` lines

_KEY_LINE: Final = re.compile(
    r"\s*+[-*]?\s*+\**(?P<key>[^\s:*][^:*\n]{0,50})\**\s*+:\**\s++(?P<value>\S.*)"
)
_HEADING: Final = re.compile(r"#{1,6}\s++(?P<text>.*\S)")
_RULE: Final = re.compile(r"[-=*_]{3,}\s*")


def _blocks(text: str, _: list[str]) -> Table | None:
    records: list[dict[str, Json]] = []
    plain_lines = 0
    for is_gap, lines in groupby(text.split("\n"), key=_is_gap):
        if is_gap:
            continue
        record: dict[str, Json] = {}
        for line in lines:
            match = _KEY_LINE.match(line[:_MAX_LINE_CHARS])
            heading = _HEADING.match(line[:_MAX_LINE_CHARS])
            if heading:
                if len(record) > 1:  # a heading begins the next record
                    records.append(record)
                    record = {}
                record["heading"] = heading["text"]
            elif match:
                record[match["key"].strip()] = match["value"].strip()
            else:
                plain_lines += 1
        if len(record) > 1:
            records.append(record)
    values = sum(map(len, records))
    names = {name for record in records for name in record}
    # The same keys come again in records, and differ in a document.
    is_regular = len(records) >= _MIN_LINES and len(names) <= 2.5 * values / len(records)
    if not is_regular or plain_lines > values / 4:
        return None
    return table_of_records("", records)


def _is_gap(line: str) -> bool:
    return not line.strip() or _RULE.fullmatch(line.strip()) is not None


def _json_line_table(text: str, _: list[str]) -> Table | None:
    lines = json_lines(text)
    return None if lines is None else table_of_records("", lines.objects)


_FORMS: Final[tuple[Callable[[str, list[str]], Table | None], ...]] = (
    _json_line_table,
    _access_log,
    _logfmt,
    _log,
    _delimited,
    _aligned,
    _blocks,
)
