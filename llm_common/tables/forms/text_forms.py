"""Tables in plain text: CSV, Markdown, HTML, logs, columns, `key: value` blocks.

Each form is recognized by its lines alone, in linear time. A text that fits no form has no table.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Final

from llm_common.tables.forms.aligned import aligned
from llm_common.tables.forms.blocks import blocks
from llm_common.tables.forms.delimited import delimited
from llm_common.tables.forms.fit import MAX_TEXT_CHARS, MIN_LINES
from llm_common.tables.forms.logs import fields_log, log, logfmt
from llm_common.tables.forms.marked_up import html_tables, ruled_tables
from llm_common.tables.table import Table

_MIN_SHARE: Final = 0.5
"""Share of the lines of a text that its tables have, if these do not fill it."""


def tables_in_text(text: str) -> list[Table]:
    """Return the tables of a plain text, in the order of the text, or []."""
    if len(text) > MAX_TEXT_CHARS:
        return []
    # Tables with rules or tags can stand anywhere in a document.
    marked_up = [*ruled_tables(text), *html_tables(text)]
    if marked_up:
        return marked_up
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < MIN_LINES:
        return []
    for read in _FORMS:
        table = read(text, lines)
        if table is not None:
            return [table]
    tables = _tables_of_paragraphs(text)
    if tables:
        return tables
    # Lines without names may be the keys and values of blocks.
    table = blocks(text, lines) or delimited(text, lines, has_names=False)
    return [] if table is None else [table]


_FORMS: Final[tuple[Callable[[str, list[str]], Table | None], ...]] = (
    fields_log,
    logfmt,
    log,
    delimited,
)


def _tables_of_paragraphs(text: str) -> list[Table]:
    """Return the tables that paragraphs are, if these are most of a text, or []."""
    paragraphs = _paragraphs(text)
    tables: list[Table] = []
    others: list[str] = []
    for number, lines in paragraphs:
        table = None
        if len(lines) >= MIN_LINES:
            # A text without blank lines was read as delimited before.
            table = delimited("\n".join(lines), lines) if len(paragraphs) > 1 else None
            table = table or aligned(lines)
        if table is None:
            others += lines
        else:
            others += table.other_lines
            tables.append(replace(table, path=f"line {number}", other_lines=()))
    total = sum(len(lines) for _, lines in paragraphs)
    if not tables or total - len(others) < _MIN_SHARE * total:
        return []
    if len(tables) == 1:
        tables[0] = replace(tables[0], path="")
    tables[0] = replace(tables[0], other_lines=tuple(others))
    return tables


def _paragraphs(text: str) -> list[tuple[int, list[str]]]:
    """Return the lines between blank ones, with the number of the first."""
    paragraphs: list[tuple[int, list[str]]] = []
    number = 1
    for has_text, group in groupby(text.split("\n"), key=lambda line: bool(line.strip())):
        lines = list(group)
        if has_text:
            paragraphs.append((number, lines))
        number += len(lines)
    return paragraphs
