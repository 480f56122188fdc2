"""Tables of Markdown and HTML, which stand anywhere in a text."""

import html
import re
from collections.abc import Iterator
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS
from llm_common.tables.table import Table, table_of_rows

# Of a stripped line. The bounds keep a long line of blanks linear.
_MARKDOWN_RULE: Final = re.compile(r"\|?\s{0,9}:?-+:?\s{0,9}(?:\|\s{0,9}:?-+:?\s{0,9})*\|?")


def markdown_tables(text: str) -> Iterator[Table]:
    """Yield the tables of a text in Markdown."""
    if "|" not in text or "--" not in text:
        return
    lines = text.split("\n")
    number = 0
    while number < len(lines) - 1:
        header, rule = lines[number], lines[number + 1]
        is_table = "|" in header and "|" in rule and len(rule) <= MAX_LINE_CHARS
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


# `\s*+` keeps what it took. Two plain `\s*` side by side divide a run of blanks in every way.
_HTML_PART: Final = re.compile(
    r"<\s*+(?P<close>/?)\s*+(?P<tag>table|tr|t[hd])\b[^<>]{0,2000}>", re.IGNORECASE
)
_TAG: Final = re.compile(r"<[^<>]{0,2000}>")


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
