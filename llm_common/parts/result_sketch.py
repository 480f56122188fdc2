"""`ResultSketch`: the records of a result in few characters, for the question at hand."""

import re
from functools import cached_property
from typing import Final

from llm_common.parts.fill import Lines
from llm_common.parts.table_sketch import TableSketch
from llm_common.tables.finding import Records
from llm_common.tables.values import IN_LABEL, IN_LIST, cell_text, shown_cell
from llm_common.text.display import one_line

# About 400 tokens, as in previews. Whole records take the room beyond it.
_SKETCH_CHARS: Final = 1_600
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_MAX_TABLES: Final = 5
_OTHERS_SHARE: Final = 0.25
_QUERY_SHARE: Final = 0.15
_FIELDS_SHARE: Final = 0.1
_MAX_FIELD_CHARS: Final = 100
_LONG_FIELDS_SHARE: Final = 0.25


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
        self._total_rows = sum(table.total_rows for table in records.tables)
        self._are_more_tables = len(records.tables) > _MAX_TABLES
        tables = records.tables[:_MAX_TABLES]
        sketches = []
        for table_name, table in zip(records.names(name), tables, strict=False):
            sketches.append(
                TableSketch(table, question, name=table_name, question_name=question_name)
            )
        # The table that the question is about comes first, or else the largest.
        sketches.sort(key=lambda sketch: -sketch.relevance)
        self._first, *self._others = sketches

    @property
    def is_answer(self) -> bool:
        """Whether all that the question asks is read, so that the sketch answers it."""
        return self._first.is_answer

    @property
    def has_matches(self) -> bool:
        """Whether the question names records."""
        return any(sketch.has_matches for sketch in (self._first, *self._others))

    def text(self, max_chars: int) -> str:
        """Return the sketch in at most `max_chars` characters, in whole lines."""
        lines = Lines(max_chars)
        if self._write(lines, keeps_query=True) or not self._first.has_matches:
            return lines.text
        # Records that answer need no query, if they fit in its place.
        without_query = Lines(max_chars)
        return without_query.text if self._write(without_query, keeps_query=False) else lines.text

    def _write(self, lines: Lines, *, keeps_query: bool) -> bool:
        """Write the sketch, and return whether it has all records that the question names."""
        max_chars = lines.left
        for sketch in self._others:
            lines.reserve(len(sketch.headline) + 1, at_most=int(max_chars * _OTHERS_SHARE))
        if keeps_query:
            most = int(max_chars * (_OTHERS_SHARE + _QUERY_SHARE))
            lines.reserve(len(self._first.query_for_matches) + 1, at_most=most)
        self._write_fields(lines)
        has_all = self._first.write(lines)
        lines.free()
        for sketch in self._others:
            sketch.write_names(lines)
        query = self._first.query if has_all else self._first.query_for_matches
        if query:
            lines.add(query)
        if not lines.text:
            lines.add(f"{self._total_rows:,} records")
        return has_all

    def text_with_records(self, max_chars: int) -> str:
        """Return the sketch, and whole records in the characters that it leaves.

        If all records fit, they stand in place of the sketch. More room never shows fewer records.
        """
        sketch = self._long_sketch
        if max_chars <= len(sketch):
            return self.text(max_chars)
        complete = self._complete(max_chars)
        if complete:
            return complete
        lines = Lines(max_chars - len(sketch) - 1)
        self._write_long_fields(lines)
        for table_sketch in (self._first, *self._others):
            table_sketch.write_records(lines)
        return "\n".join(filter(None, [sketch, lines.text]))

    @cached_property
    def _long_sketch(self) -> str:
        return self.text(_SKETCH_CHARS)

    def _complete(self, max_chars: int) -> str:
        """Return all records with all of their fields, or "" if they do not fit."""
        if self._are_more_tables:
            return ""
        lines = Lines(max_chars)
        self._write_fields(lines)
        self._write_long_fields(lines)
        for sketch in (self._first, *self._others):
            sketch.write_answers(lines)
            if not sketch.write_records(lines):
                return ""
        return lines.text

    def _write_fields(self, lines: Lines) -> None:
        """Write the values beside the records, such as a status or the cursor of a next page."""
        items = []
        for path, cell in self._fields:
            # A request's own id says nothing, and takes as many tokens as a row.
            if cell is not None and cell != "" and not _UUID.fullmatch(cell_text(cell)):
                name = shown_cell(path, IN_LABEL, max_chars=_MAX_FIELD_CHARS)
                items.append(f"{name}: {shown_cell(cell, IN_LIST, max_chars=_MAX_FIELD_CHARS)}")
        lines.add_list(
            "Beside the records:", items, len(items), max_chars=int(lines.left * _FIELDS_SHARE)
        )

    def _write_long_fields(self, lines: Lines) -> None:
        """Write the texts beside the records that the sketch clips."""
        left = int(lines.left * _LONG_FIELDS_SHARE)
        for path, cell in self._fields:
            text = cell_text(cell)
            if len(text) > _MAX_FIELD_CHARS < left:
                before = lines.left
                lines.add(one_line(f"{path}: {text}", max_chars=left - 1))
                left -= before - lines.left
