"""Tables in plain text: CSV, Markdown, HTML, JSON lines, logs, columns, `key: value` blocks.

Each form is recognized by its lines alone, in linear time. A text that fits no form has no table.
"""

from collections.abc import Callable
from typing import Final

from llm_common.tables.forms.aligned import aligned
from llm_common.tables.forms.blocks import blocks
from llm_common.tables.forms.delimited import delimited
from llm_common.tables.forms.fit import MAX_TEXT_CHARS, MIN_LINES
from llm_common.tables.forms.json_lines import json_line_table
from llm_common.tables.forms.logs import access_log, log, logfmt
from llm_common.tables.forms.marked_up import html_tables, markdown_tables
from llm_common.tables.table import Table


def tables_in_text(text: str) -> list[Table]:
    """Return the tables of a plain text, in the order of the text, or []."""
    if len(text) > MAX_TEXT_CHARS:
        return []
    # Marked-up tables can stand anywhere in a document. The other forms are the document.
    marked_up = [*markdown_tables(text), *html_tables(text)]
    if marked_up:
        return marked_up
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < MIN_LINES:
        return []
    for read in _FORMS:
        table = read(text, lines)
        if table is not None:
            return [table]
    return []


_FORMS: Final[tuple[Callable[[str, list[str]], Table | None], ...]] = (
    json_line_table,
    access_log,
    logfmt,
    log,
    delimited,
    aligned,
    blocks,
)
