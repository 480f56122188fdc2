"""`ResultSketch`: the records of a result in few characters, for the question at hand."""

import re
from collections.abc import Sequence
from typing import Final

from llm_common.tables.finding import Records
from llm_common.tables.lines import Lines
from llm_common.tables.names import names_of_tables
from llm_common.tables.table import Table
from llm_common.tables.table_sketch import TableSketch
from llm_common.tables.values import cell_text
from llm_common.text.display import one_line

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_MAX_TABLES: Final = 5
_OTHERS_SHARE: Final = 0.25
_FIELDS_SHARE: Final = 0.1
_MAX_FIELD_CHARS: Final = 100
_SAMPLE_ROWS: Final = 200
_PUNCTUATION_CHARS: Final = 4  # quotes, colon and comma around a value in JSON


class ResultSketch:
    """The tables of a result, sketched for a question.

    Args:
        records: The records of the result. At least one table.
        name: The name of the result's first table in SQL.
        question: The question that the sketch should help to answer. "" for none.
        question_name: What the question is, such as "call" for the arguments of a call.
    """

    def __init__(
        self, records: Records, question: str, *, name: str, question_name: str = "question"
    ) -> None:
        self._fields = records.fields
        tables = records.tables[:_MAX_TABLES]
        sketches = []
        for table_name, table in zip(names_of_tables(name, tables), tables, strict=True):
            sketches.append(
                TableSketch(table, question, name=table_name, question_name=question_name)
            )
        # The table that the question is about comes first, or else the largest.
        sketches.sort(key=lambda sketch: -sketch.relevance)
        self._first, *self._others = sketches

    def text(self, max_chars: int) -> str:
        """Return the sketch in at most `max_chars` characters, in whole lines."""
        lines = Lines(max_chars)
        for sketch in self._others:
            lines.reserve(len(sketch.headline) + 1, at_most=int(max_chars * _OTHERS_SHARE))
        self._write_fields(lines)
        self._first.write(lines)
        lines.free()
        for sketch in self._others:
            sketch.write_names(lines)
        return lines.text

    def _write_fields(self, lines: Lines) -> None:
        """Write the values beside the records, such as a status or the cursor of a next page."""
        items = []
        for path, cell in self._fields:
            # A request's own id says nothing, and takes as many tokens as a row.
            if cell is not None and cell != "" and not _UUID.fullmatch(cell_text(cell)):
                items.append(f"{path}: {one_line(cell_text(cell), max_chars=_MAX_FIELD_CHARS)}")
        lines.add_list(
            "Beside the records:", items, len(items), max_chars=int(lines.left * _FIELDS_SHARE)
        )


def chars_in(tables: Sequence[Table]) -> int:
    """Estimate the characters that the records of tables take in their result."""
    total = 0.0
    for table in tables:
        if "[]" in table.path:  # these records stand within those of another table
            continue
        chars = 0
        sample = table.rows[:_SAMPLE_ROWS]
        for row in sample:
            for name, cell in zip(table.columns, row, strict=True):
                if cell is not None:
                    chars += len(cell_text(cell)) + len(name) + _PUNCTUATION_CHARS
        total += chars / max(len(sample), 1) * table.total_rows
    return int(total)
