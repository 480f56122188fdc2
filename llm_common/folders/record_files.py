"""Read CSV, TSV, JSON and JSON lines files as numbered records, those of the question first."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import PurePosixPath
from typing import Final

from llm_common.folders.candidates import FolderQuestion
from llm_common.ranking.question_words import QuestionWords
from llm_common.tables.columns import Column
from llm_common.tables.finding import are_mostly_records, find_records
from llm_common.tables.question.table_question import read_question
from llm_common.tables.table import Table
from llm_common.tables.values import IN_LABEL, IN_LIST, Cell, row_text, shown_cell
from llm_common.text.display import one_line

_SUFFIXES: Final = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
# About 1,000 tokens. A smaller file is packed like any other, and mostly whole.
_MIN_FILE_CHARS: Final = 4_000
_INDENT: Final = re.compile(r"\n\s+")
_MAX_ASKED: Final = 200  # records of a table that are packed one by one
_GROUP_CHARS: Final = 1_100  # as `_MAX_CHARS` of `passages`
_MAX_CELL_CHARS: Final = 2_000
_MAX_FIELD_CHARS: Final = 200
# Values beside the records. A file with more is a document with tables in it.
_MAX_FIELDS: Final = 100
_MAX_FIELDS_IN_HEADING: Final = 20

Span = tuple[int, int]
"""The index of the first character, and the index after the last."""


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records that are packed together: their span in the text, and that of their heading.

    Values beside the records have no heading.
    """

    span: Span
    heading: Span | None


@dataclass(frozen=True, slots=True)
class RecordText:
    """The records of a file, one per line, below a heading with the names of the fields.

    Attributes:
        text: The text. Each record begins with its number in the file.
        groups: The groups of records in the order of packing: those that the question names,
            values beside the records, and then the others in the order of the file.
        total: Number of records in the file.
        is_complete: Whether the text has every value. A mark `…` stands for what is cut.
    """

    text: str
    groups: tuple[RecordGroup, ...]
    total: int
    is_complete: bool


def record_text(path: str, content: str, question: FolderQuestion) -> RecordText | None:
    """Return a file as records, or None if it is packed as text.

    These are small files, files of other kinds, and those of which records would hold only a part.

    Args:
        path: The path, whose suffix decides.
        content: The text of the file.
        question: The question that the records should help to answer.
    """
    if PurePosixPath(path).suffix.lower() not in _SUFFIXES or len(content) < _MIN_FILE_CHARS:
        return None
    records = find_records(content, max_fields=_MAX_FIELDS)
    # Records within records stand in the cells of these too.
    tables = [table for table in records.tables if "[]" not in table.path]
    if not records.is_complete:
        return None
    if not are_mostly_records(tables, len(_INDENT.sub("", content))):
        return None
    layout = _Layout(records.fields)
    for table in tables:
        layout.add(table, question.of_tables)
    return layout.result(sum(table.total_rows for table in tables))


class _Layout:
    """The text of several tables, and the order of their records."""

    def __init__(self, fields: Iterable[tuple[str, Cell]]) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._is_complete = True
        self._asked: list[RecordGroup] = []
        self._others: list[RecordGroup] = []
        lines = []
        for name, cell in fields:
            self._note_length([cell], _MAX_FIELD_CHARS)
            value = shown_cell(cell, IN_LIST, max_chars=_MAX_FIELD_CHARS)
            lines.append(f"{shown_cell(name, IN_LABEL, max_chars=_MAX_FIELD_CHARS)}: {value}\n")
        self._beside = "".join(lines[:_MAX_FIELDS_IN_HEADING])
        further = [self._append(line) for line in lines[_MAX_FIELDS_IN_HEADING:]]
        for span in _grouped(further, set()):
            self._others.append(RecordGroup(span, None))

    def add(self, table: Table, question: QuestionWords) -> None:
        """Add a table. The first one has values beside the records in its heading."""
        heading = self._append(self._beside + _heading(table))
        self._beside = ""
        self._is_complete &= table.is_complete
        columns = [Column(table, index) for index in range(len(table.columns))]
        mixed = [column.is_mixed for column in columns]
        rows = []
        for index, row in enumerate(table.rows):
            cells = row + table.extra_cells.get(index, ())
            self._note_length(cells, _MAX_CELL_CHARS)
            # Cells beyond the columns are texts, since only files of texts have them.
            line = row_text(cells, max_chars=_MAX_CELL_CHARS, mixed=chain(mixed, repeat(False)))
            rows.append(self._append(f"{index + 1}: {line}\n"))
        asked = read_question(question, table, columns).rows[:_MAX_ASKED]
        for index in asked:
            self._asked.append(RecordGroup(rows[index], heading))
        for span in _grouped(rows, set(asked)):
            self._others.append(RecordGroup(span, heading))

    def result(self, total: int) -> RecordText:
        """Return the text."""
        groups = (*self._asked, *self._others)
        return RecordText("".join(self._parts), groups, total, self._is_complete)

    def _note_length(self, cells: Iterable[Cell], max_chars: int) -> None:
        """Note whether a cell is cut."""
        if any(isinstance(cell, str) and len(cell) > max_chars for cell in cells):
            self._is_complete = False

    def _append(self, part: str) -> Span:
        start = self._length
        self._parts.append(part)
        self._length += len(part)
        return start, self._length


def _heading(table: Table) -> str:
    names = row_text(table.columns, max_chars=_MAX_FIELD_CHARS)
    more = table.total_columns - len(table.columns)
    if more > 0:
        names += f" … {more:,} more fields"
    place = one_line(table.path, max_chars=_MAX_FIELD_CHARS)
    return f"{place or 'record'}: {names}\n"


def _grouped(rows: Sequence[Span], without: set[int]) -> list[Span]:
    """Return the spans of the other rows, in groups of neighbours of about equal length."""
    groups: list[Span] = []
    for index, (start, end) in enumerate(rows):
        if index in without:
            continue
        is_neighbour = bool(groups) and groups[-1][1] == start
        if is_neighbour and end - groups[-1][0] <= _GROUP_CHARS:
            groups[-1] = groups[-1][0], end
        else:
            groups.append((start, end))
    return groups
