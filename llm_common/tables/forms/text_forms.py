"""Tables in plain text: CSV, Markdown, HTML, logs, columns, `key: value` blocks.

Each form is recognized by its lines alone, in linear time. A text that fits no form has no table.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from llm_common.tables.columns import Column
from llm_common.tables.forms.aligned import aligned
from llm_common.tables.forms.blocks import blocks, key_values
from llm_common.tables.forms.delimited import delimited
from llm_common.tables.forms.fit import MAX_TEXT_CHARS, MIN_LINES, has_gaps
from llm_common.tables.forms.logs import fields_log, log, logfmt
from llm_common.tables.forms.marked_up import html_tables, ruled_tables
from llm_common.tables.forms.word_columns import word_columns, word_sections
from llm_common.tables.table import Table
from llm_common.tables.values import number_of, row_text

_DIGIT: Final = re.compile(r"\d")
_MAX_PREFACE: Final = 3
_MAX_CELL_CHARS: Final = 60
# Also says so in French, Spanish, Italian and German.
_TOTAL: Final = re.compile(
    r"(?:grand |all )?(?:total|sum\b|suma\b|somme\b|gesamt|summe\b|insgesamt)", re.IGNORECASE
)
_ROUNDING: Final = 1e-3  # of the summands
_MIN_SHARE: Final = 0.5
"""Share of the lines of a text that its tables have, if these do not fill it."""
_TITLE_LINES: Final = 2  # a title and a heading


def tables_in_text(text: str) -> list[Table]:
    """Return the tables of a plain text, in the order of the text, or []."""
    return list(map(_without_total, _tables_in(text)))


def _without_total(table: Table) -> Table:
    """Return a table without a last row that has the sum of the others, as `Total | 60`."""
    label = next(filter(None, table.rows[-1]), None)
    if not isinstance(label, str) or not _TOTAL.match(label) or len(table.rows) < table.total_rows:
        return table
    for index in range(len(table.columns)):
        column = Column(table, index)
        if not column.is_numeric:
            continue
        *numbers, total = [number_of(value) for value in column.values]
        if total and math.isclose(total, math.fsum(filter(None, numbers)), rel_tol=_ROUNDING):
            line = row_text(table.rows[-1], max_chars=_MAX_CELL_CHARS)
            return replace(
                table,
                rows=table.rows[:-1],
                total_rows=len(numbers),
                other_lines=(*table.other_lines, line),
            )
    return table


def _tables_in(text: str) -> list[Table]:
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
    # Lines without names may be the keys and values of blocks.
    table = blocks(text, lines) or key_values(lines) or _without_comments(lines)
    return _tables_of_paragraphs(text) if table is None else [table]


_FORMS: Final[tuple[Callable[[str, list[str]], Table | None], ...]] = (
    fields_log,
    logfmt,
    log,
    delimited,
)


def _without_comments(lines: list[str]) -> Table | None:
    """Return the table of delimited lines without names, as those of `/etc/passwd`, or None."""
    comments = [line for line in lines if line.startswith("#")]
    records = [line for line in lines if not line.startswith("#")]
    table = delimited("\n".join(records), records, has_names=False)
    return replace(table, other_lines=(*comments, *table.other_lines)) if table else None


def _tables_of_paragraphs(text: str) -> list[Table]:
    """Return the tables that paragraphs are, if these are most of a text, or []."""
    paragraphs = _paragraphs(text.expandtabs())
    if len(paragraphs) > 1:
        table = word_sections(list(paragraphs.values()))
        if table is not None:
            return [table]
    total = sum(map(len, paragraphs.values()))
    tables: list[Table] = []
    others: list[str] = []
    for number, group in _groups(paragraphs).items():
        table = _table_of(group, total)
        if table is None:
            others += chain.from_iterable(group)
        else:
            others += table.other_lines
            tables.append(replace(table, path=f"line {number}", other_lines=()))
    if not tables or total - len(others) < _MIN_SHARE * total:
        return []
    if len(tables) == 1 and not tables[0].is_log:
        tables[0] = replace(tables[0], path="")
    tables[0] = replace(tables[0], other_lines=tuple(others))
    return tables


def _table_of(group: list[list[str]], total: int) -> Table | None:
    """Return the table of a paragraph, or of several with one heading, or None.

    Args:
        group: The paragraphs.
        total: Number of lines in the text.
    """
    if sum(map(len, group)) < MIN_LINES:
        return None
    if len(group) > 1:
        return aligned(group)
    [lines] = group
    table = None
    if len(lines) < total:  # the whole was read as delimited before
        table = delimited("\n".join(lines), lines)
    table = table or aligned(group)
    if table is None and len(lines) >= _MIN_SHARE * total:
        table = word_columns(lines)
    return table


def _groups(paragraphs: dict[int, list[str]]) -> dict[int, list[list[str]]]:
    """Return the paragraphs that have the same line near the beginning, such as a heading."""
    counts: Counter[str] = Counter()
    for lines in paragraphs.values():
        counts.update({*lines[:_MAX_PREFACE]})
    groups: dict[int, list[list[str]]] = {}
    firsts: dict[str, int] = {}
    for number, lines in paragraphs.items():
        shared = [line for line in lines[:_MAX_PREFACE] if counts[line] > 1]
        first = firsts.setdefault(shared[0], number) if shared else number
        groups.setdefault(first, []).append(lines)
    return groups


def _paragraphs(text: str) -> dict[int, list[str]]:
    """Return the lines between blank ones, by the number of the first.

    A title and a heading begin another one, as in `netstat`.
    """
    lines = text.split("\n")
    paragraphs: dict[int, list[str]] = {}
    paragraph: list[str] = []
    is_new, has_title = True, False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            is_new = True
            continue
        # Only where the paragraph has such a beginning itself.
        if is_new or (has_title and _begins_table(lines[number - 2 : number + 1])):
            paragraph = paragraphs[number] = []
            is_new = has_title = False
        paragraph.append(line)
        if len(paragraph) == _TITLE_LINES:
            has_title = _are_title_and_heading(paragraph)
    return paragraphs


def _begins_table(lines: Sequence[str]) -> bool:
    """Return whether a title and a heading without numbers follow a line of a table."""
    if len(lines) < MIN_LINES or any(map(_DIGIT.search, lines[1:])):
        return False
    is_row = has_gaps(lines[0]) or _DIGIT.search(lines[0]) is not None
    return is_row and _are_title_and_heading(lines[1:])


def _are_title_and_heading(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and not has_gaps(lines[0]) and has_gaps(lines[1])
