"""Tables of Markdown and HTML, which stand anywhere in a text."""

import html
import re
from collections.abc import Iterator
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS
from llm_common.tables.table import Table, table_of_rows

_RULE: Final = re.compile(r"[|+:=\u2500-\u257f-][\s|+:=\u2500-\u257f-]*")
_DASHES: Final = re.compile(r"[:=─━═-]+")
_BARS: Final = "|│┃║"
_BAR: Final = re.compile(rf"[{_BARS}]")
_FRAME: Final = re.compile(rf"^\s*+[{_BARS}]|[{_BARS}]\s*+$")


def ruled_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a text in Markdown, and those that database clients draw."""
    has_bars = any(map(text.__contains__, _BARS))  # ten times as fast as a search
    lines = text.split("\n") if has_bars else []
    number = 0
    while number < len(lines) - 1:
        header, rule = lines[number], lines[number + 1]
        is_framed = _BAR.match(header.strip()) is not None
        names = _cells(header, is_framed=is_framed) if _is_rule(rule) else []
        number += 1
        if len(names) < 2 - is_framed or len(_DASHES.findall(rule)) != len(names):
            continue
        start = number
        rows: list[list[str]] = []
        while number < len(lines) and (_BAR.search(lines[number]) or _is_rule(lines[number])):
            if _BAR.search(lines[number]) and lines[number] != rule:
                rows.append(_cells(lines[number], is_framed=is_framed))
            number += 1
        if rows:
            yield table_of_rows(f"line {start}", names, rows)


def _is_rule(line: str) -> bool:
    return len(line) <= MAX_LINE_CHARS and _RULE.fullmatch(line.strip()) is not None


def _cells(line: str, *, is_framed: bool) -> list[str]:
    inner = line.replace(r"\|", "\0")
    if is_framed:
        inner = _FRAME.sub("", inner)
    return [cell.strip().replace("\0", "|") for cell in _BAR.split(inner)]


# `\s*+` keeps what it took. Two plain `\s*` side by side divide a run of blanks in every way.
_HTML_PART: Final = re.compile(
    r"<\s*+(?P<close>/?)\s*+(?P<tag>table|tr|t[hd])\b[^<>]{0,2000}>", re.IGNORECASE
)
TAG: Final = re.compile(r"<[^<>]{0,2000}>")


def html_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a text in HTML."""
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
            cell = TAG.sub(" ", text[cell_start : match.start()])
            row.append(" ".join(html.unescape(cell).split()))
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
