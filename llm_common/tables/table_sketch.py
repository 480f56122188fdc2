"""`TableSketch`: one table in few lines: what answers the question, then counts, then rows.

1. How many records there are, and their fields with ranges.
2. Each condition that the question sets, with the number of records that meet it.
3. The values that the asked columns have in these records, and the records, in whole rows.
4. How often each value of the asked columns occurs, and then of the others.
5. Without matching records: errors, or the first and last records.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from llm_common.tables.columns import Column
from llm_common.tables.lines import Lines
from llm_common.tables.question import TableQuestion, read_question
from llm_common.tables.table import Table
from llm_common.tables.values import (
    IN_LABEL,
    IN_LIST,
    Cell,
    cell_text,
    format_number,
    number_of,
    row_text,
    shown_cell,
)
from llm_common.text.display import one_line

_MAX_CELL_CHARS: Final = 60
_MAX_LONG_CELL_CHARS: Final = 240  # of few records
# Of whole records. A longer cell would leave no room for the other fields of its record.
_MAX_WHOLE_CELL_CHARS: Final = 2_000
_MAX_VALUE_CHARS: Final = 80
_MAX_CONDITION_CHARS: Final = 120
_MAX_CONDITIONS: Final = 6
_MAX_ASKED_COLUMNS: Final = 4
_MAX_SHOWN_COLUMNS: Final = 7
_MAX_ROW_CHARS: Final = 160
_FULL_ROW_CHARS: Final = 100
_FEW_ROWS: Final = 12  # so few matching records are shown with more than the asked columns
_WHOLE_RECORDS: Final = 3  # so few are shown with all of their fields
_MAX_ROWS: Final = 500  # rendered for a sketch
_SAMPLE_ROWS: Final = 50
_KEY_COLUMNS: Final = 8  # the first columns, among which is the record's own id
_MAX_FACET_VALUES: Final = 400
_MAX_FACET_CHARS: Final = 40
_MAX_DENSE_VALUES: Final = 30
_MIN_FACET_CHARS: Final = 30
_MAX_ERRORS: Final = 20

# Shares of the characters that are left.
_FIELDS_SHARE: Final = 0.25
_VALUES_SHARE: Final = 0.3
_ASKED_FACETS_SHARE: Final = 0.5
_FACETS_SHARE_BEFORE_ROWS: Final = 0.35
_WHOLE_SHARE: Final = 0.7

_OUTCOME_NAMES: Final = frozenset({"level", "severity", "status", "state", "result"})
_ERRORS: Final = frozenset({"error", "critical", "fatal", "severe", "panic", "failed", "failure"})


class TableSketch:
    """One table, sketched for a question.

    Args:
        table: The table.
        question: The question. "" for none.
        name: The name of the table in SQL.
        question_name: What the question is, such as "call" for the arguments of a call.
    """

    def __init__(self, table: Table, question: str, *, name: str, question_name: str) -> None:
        self._table = table
        self._sql_name = name
        self._question_name = question_name
        self._columns = [Column(table, index) for index in range(len(table.columns))]
        self._question: TableQuestion | None = None
        if question.strip():
            nouns = f"{name} {table.path}"
            self._question = read_question(question, table, self._columns, nouns=nouns)

    @cached_property
    def relevance(self) -> float:
        """How much of the question the table answers. 0 without a question."""
        if self._question is None:
            return 0.0
        rows = len(self._table.rows)
        telling = [each for each in self._question.conditions if 0 < len(each.rows) < rows]
        return 2.0 * len(telling) + 0.5 * min(len(self._question.columns), _MAX_ASKED_COLUMNS)

    @property
    def has_matches(self) -> bool:
        """Whether the question names records."""
        return self._question is not None and bool(self._question.rows)

    @cached_property
    def headline(self) -> str:
        """Number of records and fields, and where they stand."""
        table = self._table
        path = one_line(table.path, max_chars=_MAX_VALUE_CHARS)
        where = f", at {path}" if path else ""
        records = _counted(table.total_rows, "record")
        fields = _counted(table.total_columns, "field")
        return f"Table {self._sql_name}{where}: {records}, {fields}"

    def write(self, lines: Lines) -> None:
        """Write the sketch."""
        self._write_fields(lines)
        if self._table.total_rows > len(self._table.rows):
            lines.add(f"Counted and compared: the first {len(self._table.rows):,} records.")
        asked_facets: set[int] = set()
        rows = 0
        question = self._question
        if question is not None:
            self._write_conditions(lines, question)
            self._write_values_of_matches(lines, question)
            rows = self._write_matches(lines, question)
            facets = self._asked_facets(question)
            asked_facets = self._write_facets(lines, facets, _ASKED_FACETS_SHARE)
            if 0 < question.total <= _WHOLE_RECORDS:
                self._write_other_fields(lines, question)
        others = [index for index in self._dense_facets if index not in asked_facets]
        self._write_facets(lines, others, 1.0 if rows else _FACETS_SHARE_BEFORE_ROWS)
        if not rows:
            self._write_ends(lines)

    def write_names(self, lines: Lines) -> None:
        """Write the headline and the names of the fields in one line."""
        names = map(_name, self._table.columns)
        total = self._table.total_columns
        lines.add_list(f"{self.headline}:", names, total, max_chars=lines.left)

    def write_answers(self, lines: Lines) -> None:
        """Write the fields, and how many records meet each condition of the question."""
        self._write_fields(lines)
        if self._question is not None:
            self._write_conditions(lines, self._question)

    def write_records(self, lines: Lines) -> bool:
        """Write records with all of their fields: those asked for, then the others in order.

        Returns:
            Whether all records fit.
        """
        table = self._table
        asked: Sequence[int] = ()
        if self._question is not None:
            asked = (*self._question.rows, *self._question.near)
        order = dict.fromkeys((*asked, *range(len(table.rows))))
        columns = range(len(table.columns))
        rows: list[str] = []
        chars = 0
        for row in order:
            rows.append(self._row(row, columns, _MAX_WHOLE_CELL_CHARS))
            chars += len(rows[-1]) + 1
            if chars > lines.left:
                break
        head = f"Whole records of {self._sql_name}: {self._row_names(columns)}"
        return lines.add_rows(head, rows, table.total_rows, noun="records") == table.total_rows

    # --- fields

    def _write_fields(self, lines: Lines) -> None:
        asked = self._question.columns if self._question else ()
        others = [index for index in range(len(self._columns)) if index not in asked]
        described = (self._described(index) for index in (*asked, *others))
        limit = int(lines.left * _FIELDS_SHARE)
        total = self._table.total_columns
        if not lines.add_list(f"{self.headline}:", described, total, max_chars=limit):
            lines.add(self.headline)

    def _described(self, index: int) -> str:
        """Return the name of a column, with the range of its numbers or dates."""
        column = self._columns[index]
        span = self._ranges.get(index)
        if span is None:
            return _name(column.name)
        return f"{_name(column.name)} ({span})"

    @cached_property
    def _ranges(self) -> dict[int, str]:
        ranges = {}
        # A range over a part of the records would be a wrong claim.
        if self._table.total_rows > len(self._table.rows):
            return {}
        for column in self._columns:
            if not column.is_numeric or column.is_id:
                continue
            numbers = [number_of(cell) for cell in column.counts]
            known = [number for number in numbers if number is not None]
            if len(known) == len(numbers) and min(known) < max(known):
                low, high = format_number(min(known)), format_number(max(known))
                ranges[column.index] = f"{low} to {high}"
        return ranges

    # --- what answers the question

    def _write_conditions(self, lines: Lines, question: TableQuestion) -> None:
        total = len(self._table.rows)
        if question.conditions or question.rows:
            lines.add(f"For the {self._question_name}:")
        if question.unread or question.order is not None:
            return  # what the question means is open, or some of these records
        for condition in question.conditions[:_MAX_CONDITIONS]:
            text = one_line(condition.text, max_chars=_MAX_CONDITION_CHARS)
            lines.add(f"{text}: {len(condition.rows):,} of {total:,} records")
        if len(question.conditions) > 1:
            lines.add(f"All of these: {question.total:,} of {total:,} records")

    def _write_values_of_matches(self, lines: Lines, question: TableQuestion) -> None:
        """Write which values the asked columns have in the matching records."""
        compared = {index for condition in question.conditions for index in condition.columns}
        limit = int(lines.left * _VALUES_SHARE)
        for index in question.columns[:_MAX_ASKED_COLUMNS] if question.total > 1 else ():
            if index in compared or index == self._key_column:
                continue
            cells = Counter(self._table.rows[row][index] for row in question.rows)
            values: Counter[str] = Counter()
            for cell, count in cells.items():
                for value in self._columns[index].elements(cell):
                    values[value] += count
            # Values that all differ stand in the rows below.
            is_telling = 0 < len(values) != question.total and "" not in values
            if not is_telling or max(map(len, values)) > _MAX_VALUE_CHARS:
                continue
            ordered = values.most_common()
            items = [_with_count(value, count) for value, count in ordered[:_MAX_FACET_VALUES]]
            label = f"Of these, {_name(self._columns[index].name)}:"
            lines.add_list(label, items, len(ordered), max_chars=limit)

    def _write_matches(self, lines: Lines, question: TableQuestion) -> int:
        """Write the records that the question asks for, and return their number."""
        is_near = bool(question.conditions) and not question.total
        label = "Nearest records:" if is_near else "Records:"
        return self._write_rows(lines, label, self._match_columns(question), question.rows)

    def _match_columns(self, question: TableQuestion) -> list[int]:
        """Return the columns of the matching records: the key, those asked for, then others."""
        rows = question.rows
        columns: list[int] = []
        for index in question.columns:
            # A column that is empty here, or holds objects, takes room and says nothing.
            if len(columns) < _MAX_ASKED_COLUMNS and any(
                map(_is_readable, self._cells(index, rows))
            ):
                columns.append(index)
        for condition in question.conditions:
            for index in condition.columns[:2]:
                # A value that is the same in all of these records stands in the condition.
                if index not in columns and len(self._cells(index, rows)) > 1:
                    columns.append(index)
        if question.order is not None and question.order.column not in columns:
            columns.append(question.order.column)
        if self._key_column is not None and self._key_column not in columns:
            columns.insert(0, self._key_column)
        columns = columns[:_MAX_SHOWN_COLUMNS]
        if len(rows) <= _FEW_ROWS or len(columns) <= 1:
            columns += self._others_beside(columns)
        return columns

    def _others_beside(self, columns: Sequence[int]) -> list[int]:
        """Return the other readable columns that fit a row."""
        others = []
        width = sum(self._widths[index] for index in columns)
        for index in self._readable_columns:
            if index not in columns and width + self._widths[index] <= _FULL_ROW_CHARS:
                others.append(index)
                width += self._widths[index]
        return others

    def _cells(self, column: int, rows: Sequence[int]) -> set[Cell]:
        return {self._table.rows[row][column] for row in rows[:_SAMPLE_ROWS]}

    def _write_other_fields(self, lines: Lines, question: TableQuestion) -> None:
        """Write the fields of few matching records that their rows do not show."""
        shown = self._match_columns(question)
        limit = int(lines.left * _WHOLE_SHARE) // len(question.rows)
        for row in question.rows:
            cells = self._table.rows[row]
            members = []
            for column in self._columns:
                if column.index not in shown and _is_short(cells[column.index]):
                    members.append(f"{_name(column.name)}: {_value(cells[column.index])}")
            label = "Other fields:"
            if self._key_column is not None:
                label = f"Other fields of {_value(cells[self._key_column])}:"
            lines.add_list(label, members, len(members), max_chars=limit)

    # --- counts of values

    def _asked_facets(self, question: TableQuestion) -> list[int]:
        columns = list(question.columns)
        for condition in question.conditions:
            columns += [index for index in condition.columns if index not in columns]
        return [index for index in columns if self._facet(index)]

    @cached_property
    def _dense_facets(self) -> list[int]:
        """Indexes of the columns with few values, those with the fewest first."""
        sizes = []
        for index in range(len(self._columns)):
            distinct = len(self._facet(index))
            if 1 < distinct <= _MAX_DENSE_VALUES:
                sizes.append((distinct, index))
        return [index for _, index in sorted(sizes)]

    def _facet(self, index: int) -> Counter[str]:
        """Return how often each value of a column occurs, or nothing if that says little."""
        values = self._columns[index].value_counts
        if not values or len(values) > _MAX_FACET_VALUES or len(values) == values.total():
            return Counter()
        return values if max(map(len, values)) <= _MAX_FACET_CHARS else Counter()

    def _write_facets(self, lines: Lines, columns: Sequence[int], share: float) -> set[int]:
        """Write the counts of columns as far as they fit, and return these columns."""
        written = set()
        limit = int(lines.left * share)
        for index in columns:
            if limit < _MIN_FACET_CHARS:
                break
            values = self._facet(index).most_common()
            items = (f"{_value(value)} ({count:,})" for value, count in values)
            before = lines.left
            label = f"{_name(self._columns[index].name)}:"
            if lines.add_list(label, items, len(values), max_chars=limit):
                written.add(index)
            limit -= before - lines.left
        return written

    # --- rows

    def _write_rows(
        self, lines: Lines, label: str, columns: Sequence[int], rows: Sequence[int]
    ) -> int:
        if not rows:
            return 0
        head = f"{label} {self._row_names(columns)}"
        max_chars = _MAX_CELL_CHARS if len(rows) > _WHOLE_RECORDS else _MAX_LONG_CELL_CHARS
        rendered = [self._row(row, columns, max_chars) for row in rows[:_MAX_ROWS]]
        return lines.add_rows(head, rendered, len(rows), noun="of these records")

    def _row_names(self, columns: Sequence[int]) -> str:
        return row_text(
            [self._table.columns[index] for index in columns], max_chars=_MAX_CELL_CHARS
        )

    def _row(self, row: int, columns: Sequence[int], max_chars: int = _MAX_CELL_CHARS) -> str:
        cells = [self._table.rows[row][index] for index in columns]
        mixed = [self._columns[index].is_mixed for index in columns]
        return row_text(cells, max_chars=max_chars, mixed=mixed)

    def _write_ends(self, lines: Lines) -> None:
        """Write errors, or else the first and the last records."""
        columns = self._readable_columns
        if self._error_rows:
            self._write_rows(lines, "Errors:", columns, self._error_rows)
            return
        total = len(self._table.rows)
        head = f"First and last records: {self._row_names(columns)}"
        gap = f"… {total:,} records …"
        left = lines.left - len(head) - len(gap) - 2
        first: list[str] = []
        last: list[str] = []
        # One from the beginning, one from the end, until a row does not fit.
        while len(first) + len(last) < min(total, _MAX_ROWS):
            if len(first) <= len(last):
                first.append(self._row(len(first), columns))
                left -= len(first[-1]) + 1
            else:
                last.append(self._row(total - 1 - len(last), columns))
                left -= len(last[-1]) + 1
            if left < 0:
                (first if len(first) > len(last) else last).pop()
                break
        if not first:
            return
        lines.add(head)
        for row in first:
            lines.add(row)
        missing = total - len(first) - len(last)
        if missing:
            lines.add(f"… {missing:,} records …")
        for row in reversed(last):
            lines.add(row)

    @cached_property
    def _error_rows(self) -> list[int]:
        """Indexes of the first records whose level or status is an error."""
        for column in self._columns:
            if not _OUTCOME_NAMES & set(column.last_stems):
                continue
            rows = []
            for row, cell in enumerate(column.cells):
                if cell_text(cell).lower() in _ERRORS:
                    rows.append(row)
            if 0 < len(rows) < len(column.cells) / 2:
                return rows[:_MAX_ERRORS]
        return []

    # --- columns

    @cached_property
    def _key_column(self) -> int | None:
        """Index of the first column with a short and different value in each record."""
        for column in self._columns[:_KEY_COLUMNS]:
            is_unique = column.counts.total() == len(column.counts) == len(self._table.rows)
            if is_unique and self._widths[column.index] <= _MAX_CELL_CHARS // 2:
                return column.index
        return None

    @cached_property
    def _widths(self) -> list[int]:
        """Characters of each column in a row, on average."""
        widths = []
        sample = self._table.rows[:_SAMPLE_ROWS]
        for index in range(len(self._columns)):
            chars = sum(len(_value(row[index])) for row in sample)
            widths.append(chars // max(len(sample), 1) + 3)
        return widths

    @cached_property
    def _readable_columns(self) -> list[int]:
        """Indexes of the columns with short values, in their order, as many as fit a row."""
        columns: list[int] = []
        width = 0
        for index in range(len(self._columns)):
            cells = self._cells(index, range(min(_SAMPLE_ROWS, len(self._table.rows))))
            is_link = any("://" in cell_text(cell) for cell in cells)
            if is_link or not any(map(_is_readable, cells)):
                continue
            if width + self._widths[index] <= _MAX_ROW_CHARS:
                columns.append(index)
                width += self._widths[index]
        return columns or [0]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _name(column: str) -> str:
    return shown_cell(column, IN_LABEL, max_chars=_MAX_CELL_CHARS)


def _with_count(value: str, count: int) -> str:
    text = _value(value, _MAX_VALUE_CHARS)
    return f"{text} ({count:,})" if count > 1 else text


def _value(cell: Cell, max_chars: int = _MAX_CELL_CHARS) -> str:
    return shown_cell(cell, IN_LIST, max_chars=max_chars)


def _is_readable(cell: Cell) -> bool:
    """Return whether a cell holds a value, and no list of objects."""
    return cell is not None and cell != "" and not cell_text(cell).startswith(("[{", "[]"))


def _is_short(cell: Cell) -> bool:
    """Return whether a cell is worth showing unasked: a short value, and no link."""
    text = cell_text(cell)
    return _is_readable(cell) and len(text) <= _MAX_CELL_CHARS and "://" not in text
