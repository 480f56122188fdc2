"""`ResultSketch`: the tables of a result, each in few lines by a `TableSketch`.

A table has what answers the question, then counts, then rows:

1. How many records there are, and their fields.
2. Each condition that the question sets, with the number of records that meet it.
3. Up to three records that answer, a line for each field, and nothing more.
4. More records in rows.
5. How often each value of the asked columns occurs in all records, and then of the others.
6. Without matching records: the first and last records.
7. A query, which finds the records that did not fit.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from llm_common.parts.fill import Lines
from llm_common.ranking.question_words import asks_for_failures, is_request
from llm_common.tables.columns import NOTHING, Column, condition_of, is_id_name
from llm_common.tables.finding import Records
from llm_common.tables.question.logic import Condition
from llm_common.tables.question.table_question import TableQuestion, read_question
from llm_common.tables.table import Table, quoted
from llm_common.tables.values import (
    IN_LABEL,
    IN_LIST,
    IN_ROW,
    Cell,
    cell_text,
    row_text,
    shown_cell,
)
from llm_common.text.display import counted, one_line

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
_FEW_RECORDS: Final = 3  # so few are shown with a line for each field
_MAX_MATCHED_COLUMNS: Final = 2
_NAMING_SHARE: Final = 0.8  # of the most distinct values that a column of texts has
_MAX_ROWS: Final = 500  # rendered for a sketch
_SAMPLE_ROWS: Final = 50
_MAX_FACET_VALUES: Final = 400
_MAX_DENSE_VALUES: Final = 30
_QUERY_COLUMNS: Final = 2
UNNAMED: Final = "records"
"""The name of the records of a result that nothing can query."""

_LOG_NOUNS: Final = "line log entry"  # how a question calls its records
# Of a test report, a job or a pod: a value that says it alone, and a field that only failures have.
_VERDICTS: Final = frozenset(
    {"fail", "failed", "failure", "failing", "error", "errored", "fatal", "panic"}
)
_FIELDS: Final = frozenset({"failure", "error", "err", "exception"})

# Shares of the characters that are left.
_FIELDS_SHARE: Final = 0.25
_FACET_SHARE: Final = 0.5
_FACETS_SHARE_BEFORE_ROWS: Final = 0.35


class TableSketch:
    """One table, sketched for a question.

    Args:
        table: The table.
        question: The question. "" for none.
        name: The name of the table in SQL.
        question_name: What the question is, such as "call" for the arguments of a call.

    Attributes:
        tells_of_failures: Whether records that may tell of failures stand in place of an answer,
            since nothing else is asked.
        has_matches: Whether the question names records.
        is_counted: Whether the question asks how many records there are.
    """

    def __init__(self, table: Table, question: str, *, name: str, question_name: str) -> None:
        self._table = table
        self._sql_name = name
        self._question_name = question_name
        self._columns = [Column(table, index) for index in range(len(table.columns))]
        self.tells_of_failures = False
        self._question: TableQuestion | None = None
        if question.strip():
            nouns = f"{name} {table.path} {_LOG_NOUNS if table.is_log else ''}"
            self._question = read_question(question, table, self._columns, nouns=nouns)
        self.has_matches = self._question is not None and bool(self._question.rows)
        self.is_counted = self._question is not None and self._question.is_counting
        # The lines of a log tell of failures, beside which its entries say less.
        is_text = table.is_log or table.misses_records
        if not is_text and self._leaves_open(question):
            failed = _failed_records(self._columns)
            self.tells_of_failures = failed is not None
            self._question = failed or self._question

    def _leaves_open(self, text: str) -> bool:
        """Return whether the question sets no condition, and does not ask for other records."""
        if self._question is None:
            return True
        if self._question.conditions or self._question.is_counting:
            return False
        return asks_for_failures(text) or is_request(text)

    @cached_property
    def relevance(self) -> float:
        """How much of the question the table answers. 0 without a question."""
        if self._question is None:
            return 0.0
        if self.tells_of_failures:
            # Of suites and their tests, which are more, the tests.
            return 2.0 - 0.5 / len(self._question.rows)
        named = min(len(self._question.columns), _MAX_ASKED_COLUMNS)
        return 2.0 * len(self.telling) + 0.5 * named

    @property
    def telling(self) -> list[Condition]:
        """The conditions of the question that some records meet, and some do not."""
        conditions = self._question.conditions if self._question else ()
        return [each for each in conditions if 0 < len(each.rows) < len(self._table.rows)]

    def note_other(self, other: "TableSketch") -> None:
        """Claim no number of records if another table has some that answer as well."""
        if self._question is not None and self.telling and other.telling:
            self._question = replace(self._question, misses_records=True)

    @property
    def is_answer(self) -> bool:
        """Whether all that the question asks is read, so that the sketch answers it."""
        question = self._question
        return question is not None and bool(question.conditions) and question.is_claimed

    @cached_property
    def headline(self) -> str:
        """Number of records and fields, and where they stand."""
        table = self._table
        path = one_line(table.path, max_chars=_MAX_VALUE_CHARS)
        where = f", at {path}" if path else ""
        records = counted(table.total_rows, "record")
        fields = counted(table.total_columns, "field")
        return f"Table {self._sql_name}{where}: {records}, {fields}"

    @cached_property
    def query(self) -> str:
        """A query that a model can copy, for all records. "" if nothing can query.

        It has all fields, or those of the question if a field has texts beside its values.
        """
        # Beside some columns a table in SQL has their texts, which `*` would have too.
        has_texts = any(column.type.has_texts for column in self._columns)
        return self._query_for(self._asked_names if has_texts else "*")

    @cached_property
    def query_for_matches(self) -> str:
        """The query, for the records alone that meet the question's conditions."""
        question = self._question
        if question is not None and question.total:
            where = self._where(question)
            if where:
                query = self._query_for(self._asked_names)
                return query and query + where
        return self.query

    @property
    def _asked_names(self) -> str:
        """The names in SQL of the columns that the question asks for, or of the first."""
        question = self._question
        asked: Sequence[int] = question.columns[:_MAX_ASKED_COLUMNS] if question else ()
        if question and question.total:
            asked = self._match_columns(question)
        names = []
        for index in dict.fromkeys((*asked, *range(len(self._columns)))):
            name = self._table.columns[index]
            if _name(name) == name:  # a name that is clipped or escaped is no name in SQL
                names.append(quoted(name))
        return ", ".join(names[: max(len(asked), _QUERY_COLUMNS)])

    def _query_for(self, columns: str) -> str:
        if not columns or self._sql_name == UNNAMED:
            return ""
        return f"sql: SELECT {columns} FROM {self._sql_name}"  # noqa: S608 - is shown

    def _where(self, question: TableQuestion) -> str:
        """Return the certain conditions of a question that one column and few values express."""
        conditions = []
        for condition in question.conditions:
            if condition.is_certain and len(condition.columns) == 1:
                column = self._columns[condition.columns[0]]
                conditions.append(condition_of(column, condition.rows, condition.patterns))
        text = " AND ".join(filter(None, conditions))
        return f" WHERE {text}" if text else ""

    def write(self, lines: Lines) -> bool:
        """Write the sketch, and return whether it has all records that the question names."""
        self.write_fields(lines)
        if self._table.total_rows > len(self._table.rows):
            lines.add(f"Counted and compared: the first {len(self._table.rows):,} records.")
        rows, has_all = 0, False
        question = self._question
        if question is not None:
            self._write_conditions(lines, question)
            rows, has_all = self._write_matches(lines, question)
            # Beside few records a reader takes counts for their values.
            if rows and len(question.rows) <= _FEW_RECORDS:
                return has_all
        self._write_facets(lines, 1.0 if rows else _FACETS_SHARE_BEFORE_ROWS)
        if not rows:
            self._write_ends(lines)
        return has_all

    def write_answers(self, lines: Lines) -> None:
        """Write the fields, and how many records meet each condition of the question."""
        self.write_fields(lines)
        if self._question is not None:
            self._write_conditions(lines, self._question)

    def write_records(self, lines: Lines) -> bool:
        """Write records with all of their fields: those asked for, then the others in order.

        Returns:
            Whether all records fit.
        """
        table = self._table
        asked = self._question.rows if self._question else ()
        order = dict.fromkeys((*asked, *range(len(table.rows))))
        columns = range(len(table.columns))
        rows = (self._row(row, columns, _MAX_WHOLE_CELL_CHARS) for row in order)
        head = f"Whole records of {self._sql_name}: {self._row_names(columns)}"
        return lines.add_rows(head, rows, table.total_rows, noun="records") == table.total_rows

    # --- fields

    def write_fields(self, lines: Lines, *, share: float = _FIELDS_SHARE) -> None:
        """Write the headline and the names of the fields in a share of the characters."""
        asked = self._question.columns if self._question else ()
        described = []
        for index in dict.fromkeys((*asked, *range(len(self._columns)))):
            described.append(_name(self._columns[index].name))
        limit = int(lines.left * share)
        total = self._table.total_columns
        if not lines.add_list(f"{self.headline}:", described, total, max_chars=limit):
            lines.add(self.headline)

    # --- what answers the question

    def _write_conditions(self, lines: Lines, question: TableQuestion) -> None:
        total = len(self._table.rows)
        if self.tells_of_failures:
            # In one line, so that nobody takes the number for an answer to the question.
            text = one_line(question.conditions[0].text, max_chars=_MAX_CONDITION_CHARS)
            head = f"Records that may tell of failures, with {text}"
            lines.add(f"{head}: {question.total:,} of {total:,}")
            return
        if question.conditions or question.rows:
            lines.add(f"For the {self._question_name}:")
        if not question.is_claimed:
            return
        for condition in question.conditions[:_MAX_CONDITIONS]:
            text = one_line(condition.text, max_chars=_MAX_CONDITION_CHARS)
            lines.add(f"{text}: {len(condition.rows):,} of {total:,} records")
        if len(question.conditions) > 1:
            lines.add(f"All of these: {question.total:,} of {total:,} records")

    def _write_matches(self, lines: Lines, question: TableQuestion) -> tuple[int, bool]:
        """Write the records that the question asks for.

        Returns:
            Their number, and whether all of them are written, with whole cells in the columns that
            it names.
        """
        rows = question.rows
        kind = "Nearest record" if question.conditions and not question.total else "Record"
        columns = self._match_columns(question)
        if len(rows) > _FEW_RECORDS:
            noun = "of these records"
            if not question.is_claimed:
                # A question that only orders names nothing that a record could match.
                is_of_all = len(rows) == len(self._table.rows)
                noun = "records" if is_of_all else "that match in part"
            head = f"{kind}s: {self._row_names(columns)}"
            shown = self._whole_rows(rows, columns, lines.left - len(head) - 1)
            is_clipped = False
            if shown is None:
                shown = (self._row(row, columns) for row in rows[:_MAX_ROWS])
                asked = set().union(*(self._cells(index, rows) for index in question.columns))
                is_clipped = any(len(cell_text(cell)) > _MAX_CELL_CHARS for cell in asked)
            count = lines.add_rows(head, shown, len(rows), noun=noun)
            return count, count == len(rows) and not is_clipped
        heads = {}
        of = f" of {len(rows)}" if question.is_claimed else ""
        for number, row in enumerate(rows, start=1):
            heads[row] = f"{kind} {number}{of}:"
        for row in question.neighbours:
            heads[row] = "Neighbour before:" if row < rows[0] else "Neighbour after:"
        ordered = sorted(heads) if question.neighbours else list(rows)
        count = 0
        for number, row in enumerate(ordered):
            limit = lines.left // (len(ordered) - number)
            fields = self._fields_of(row, columns, limit - len(heads[row]) - 1)
            count += bool(lines.add_rows(heads[row], fields, len(fields), noun="fields"))
        return count, 0 < count == len(heads)

    def _whole_rows(
        self, rows: Sequence[int], columns: Sequence[int], max_chars: int
    ) -> Iterable[str] | None:
        """Return rows with whole cells, or None as soon as they do not fit."""
        shown = []
        for row in rows[:_MAX_ROWS]:
            shown.append(self._row(row, columns, _MAX_LONG_CELL_CHARS))
            max_chars -= len(shown[-1]) + 1
            if max_chars < 0:
                return None
        return shown

    def _fields_of(self, row: int, columns: Sequence[int], max_chars: int) -> list[str]:
        """Return a line for each field of a record, as many as fit, with some columns first."""
        fields = []
        for index in dict.fromkeys((*columns, *range(len(self._columns)))):
            cell = self._table.rows[row][index]
            is_short = len(cell_text(cell)) <= _MAX_CELL_CHARS and "://" not in cell_text(cell)
            if not _is_readable(cell) or not (is_short or index in columns):
                continue
            # A long text leaves room for the other fields.
            max_cell_chars = min(max(max_chars // 2, _MAX_CELL_CHARS), _MAX_LONG_CELL_CHARS)
            field = f"{_name(self._columns[index].name)}: {self._cell(index, cell, max_cell_chars)}"
            if len(field) < max_chars:
                fields.append(field)
                max_chars -= len(field) + 1
        return fields

    def _match_columns(self, question: TableQuestion) -> list[int]:
        """Return the columns of matching records: what matched, what names them, what is asked."""
        columns = [*question.matched[:_MAX_MATCHED_COLUMNS]]
        for condition in question.conditions:
            columns += condition.columns[:2]
        columns += self._naming_columns
        if question.order is not None and question.order.column is not None:
            columns.append(question.order.column)
        columns += question.columns[:_MAX_ASKED_COLUMNS]
        # A column that is empty here, or holds objects, takes room and says nothing.
        columns = [index for index in columns if self._is_readable_in(index, question.rows)]
        columns = list(dict.fromkeys(columns or [0]))
        for index in self._distinct_columns:
            if index not in columns and self._look_alike(question.rows, columns):
                columns.append(index)
        return columns[:_MAX_SHOWN_COLUMNS]

    @cached_property
    def _distinct_columns(self) -> list[int]:
        """Indexes of the two columns of short cells with the most different ones."""
        columns = sorted(self._columns, key=lambda column: -len(column.counts))
        indexes = (column.index for column in columns)
        return [index for index in indexes if self._widths[index] <= _MAX_CELL_CHARS][:2]

    def _look_alike(self, rows: Sequence[int], columns: Sequence[int]) -> bool:
        """Return whether some rows show the same, which says less than their number."""
        sample = rows[:_SAMPLE_ROWS]
        return len({self._row(row, columns) for row in sample}) < len(sample)

    def _cells(self, column: int, rows: Sequence[int]) -> set[Cell]:
        return {self._table.rows[row][column] for row in rows[:_SAMPLE_ROWS]}

    def _is_readable_in(self, column: int, rows: Sequence[int]) -> bool:
        return any(map(_is_readable, self._cells(column, rows)))

    def _cell(self, index: int, cell: Cell, max_chars: int) -> str:
        """Return a cell on one line. Of a long cell, the part around a word of the question."""
        text = cell_text(cell)
        words = self._question.words if self._question else ()
        for word in words if len(text) > max_chars else ():
            match = re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE)
            if match and match.end() > max_chars // 2:
                start = min(match.start() - max_chars // 4, len(text) - max_chars + 1)
                return "…" + shown_cell(text[start:].strip(), IN_ROW, max_chars=max_chars)
        if len(text) > max_chars and " " not in text:  # paths differ at their ends
            return "…" + shown_cell(text[1 - max_chars :], IN_ROW, max_chars=max_chars)
        is_mixed = self._columns[index].is_mixed
        return shown_cell(cell, IN_ROW, max_chars=max_chars, is_mixed=is_mixed)

    # --- counts of values

    def _facet_columns(self) -> list[int]:
        """Return the columns that are asked for, then those with few values, the fewest first."""
        columns: list[int] = []
        if self._question is not None:
            columns += self._question.columns
            for condition in self._question.conditions:
                columns += condition.columns
        sizes = [(len(facet), index) for index, facet in enumerate(self._facets)]
        columns += [index for size, index in sorted(sizes) if 1 < size <= _MAX_DENSE_VALUES]
        return [index for index in dict.fromkeys(columns) if self._facets[index]]

    @cached_property
    def _facets(self) -> list[Counter[str]]:
        return [self._facet(index) for index in range(len(self._columns))]

    def _facet(self, index: int) -> Counter[str]:
        """Return how often each value of a column occurs, or nothing if that says little."""
        values = self._columns[index].value_counts
        if not values or len(values) > _MAX_FACET_VALUES or len(values) == values.total():
            return Counter()
        # Long values that are clipped alike would be one value with two counts.
        return values if len(set(map(_value, values))) == len(values) else Counter()

    def _write_facets(self, lines: Lines, share: float) -> None:
        """Write the counts of columns as far as they fit."""
        limit = int(lines.left * share)
        of = "Of all records, " if len(self._table.rows) == self._table.total_rows else ""
        for index in self._facet_columns():
            values = self._facets[index].most_common()
            items = (f"{_value(value)} ({count:,})" for value, count in values)
            before = lines.left
            label = f"{of}{_name(self._columns[index].name)}:"
            lines.add_list(label, items, len(values), max_chars=int(limit * _FACET_SHARE))
            limit -= before - lines.left

    # --- rows

    def _row_names(self, columns: Sequence[int]) -> str:
        return row_text(
            [self._table.columns[index] for index in columns], max_chars=_MAX_CELL_CHARS
        )

    def _row(self, row: int, columns: Sequence[int], max_chars: int = _MAX_CELL_CHARS) -> str:
        cells = self._table.rows[row]
        return " | ".join([self._cell(index, cells[index], max_chars) for index in columns])

    def _write_ends(self, lines: Lines) -> None:
        """Write the first and the last records."""
        columns: list[int] = []
        chars_left = _MAX_ROW_CHARS
        for index, width in enumerate(self._widths):
            if width <= chars_left and self._is_readable_in(index, self._sample):
                columns.append(index)
                chars_left -= width
        columns = columns or [0]
        total = len(self._table.rows)
        # The last ones of a long table are not read.
        of = "" if total == self._table.total_rows else f"of the first {total:,} "
        head = f"First and last {of}records: {self._row_names(columns)}"

        def lines_of(rows: Sequence[int]) -> list[str]:
            text = [self._row(row, columns) for row in sorted(rows)]
            if len(rows) < total:
                text.insert((len(rows) + 1) // 2, f"… {total - len(rows):,} records …")
            return [head, *text]

        # One from the beginning, one from the end.
        rows = (total - 1 - n // 2 if n % 2 else n // 2 for n in range(min(total, _MAX_ROWS)))
        lines.add_best(rows, lambda row: self._row(row, columns), lines_of)

    # --- columns

    @cached_property
    def _naming_columns(self) -> list[int]:
        """Indexes of the columns that name a record: the most distinct short text, and a key."""
        keys: list[int] = []
        texts: dict[int, int] = {}
        for column in self._columns:
            if column.is_unique:
                keys.append(column.index)
            is_text = not (column.is_numeric or column.is_date or column.is_flag)
            is_text &= self._is_readable_in(column.index, self._sample)
            if is_text and not (self.tells_of_failures and is_id_name(column.path)):
                texts[column.index] = len(column.counts)
        # The names of tests are long.
        max_chars = _MAX_CELL_CHARS if self.tells_of_failures else _MAX_CELL_CHARS // 2
        narrow = [index for index, width in enumerate(self._widths) if width <= max_chars]
        least = _NAMING_SHARE * max(texts.values(), default=1)
        names = [index for index in narrow if texts.get(index, 0) >= least]
        narrow_keys = [index for index in narrow if index in keys]
        return [*names[:1], *narrow_keys[:1]] or keys[:1]

    @cached_property
    def _widths(self) -> list[int]:
        """Characters of each column in a row, on average."""
        widths = []
        for index in range(len(self._columns)):
            chars = sum(len(_value(self._table.rows[row][index])) for row in self._sample)
            widths.append(chars // max(len(self._sample), 1) + 3)
        return widths

    @property
    def _sample(self) -> range:
        return range(min(_SAMPLE_ROWS, len(self._table.rows)))


def _name(column: str) -> str:
    return shown_cell(column, IN_LABEL, max_chars=_MAX_CELL_CHARS)


def _value(cell: Cell) -> str:
    return shown_cell(cell, IN_LIST, max_chars=_MAX_CELL_CHARS)


def _is_readable(cell: Cell) -> bool:
    """Return whether a cell holds a value, and no list of objects."""
    return cell is not None and cell != "" and not cell_text(cell).startswith(("[{", "[]"))


def _failed_records(columns: Sequence[Column]) -> TableQuestion | None:
    """Return the records that tell of a failure as if a question asked for them, or None.

    Args:
        columns: The columns of the table.
    """
    compared: dict[str, int] = {}
    rows: set[int] = set()
    for column in columns:
        fields = [name for name in column.path.split(".") if name.casefold() in _FIELDS]
        if fields and not (column.is_numeric or column.is_flag):
            text = _name(fields[0])
            telling = set(column.counts) - NOTHING
        elif column.is_category:
            telling = {cell for cell in column.counts if cell_text(cell).casefold() in _VERDICTS}
            text = f"{_name(column.name)} = {' or '.join(sorted(map(cell_text, telling)))}"
        else:
            continue
        if telling:
            compared.setdefault(text, column.index)
            rows |= {row for row, cell in enumerate(column.cells) if cell in telling}
    if not rows:
        return None
    reasons = []
    for column in columns:
        filled = {row for row, cell in enumerate(column.cells) if cell not in NOTHING}
        # What only failed records have says why they failed.
        if filled and filled <= rows and len(rows) < len(column.cells):
            reasons.append(column.index)
    condition = Condition(tuple(compared.values()), " or ".join(compared), frozenset(rows))
    return TableQuestion(tuple(reasons), (condition,), None, tuple(sorted(rows)), len(rows))


# About 400 tokens, as in previews. Whole records take the room beyond it.
_SKETCH_CHARS: Final = 1_600
_MAX_TABLES: Final = 5
_OTHERS_SHARE: Final = 0.25
_QUERY_SHARE: Final = 0.15
_BESIDE_SHARE: Final = 0.1
_MAX_FIELD_CHARS: Final = 100
_LONG_BESIDE_SHARE: Final = 0.25


class ResultSketch:
    """The tables of a result, sketched for a question.

    Args:
        records: The records of the result. At least one table.
        name: The name of the result's first table in SQL.
        question: The question that the sketch should help to answer. "" for none.
        question_name: What the question is, such as "call" for the arguments of a call.

    Attributes:
        first: The sketch of the table that the question is about, or else of the largest.
    """

    def __init__(
        self, records: Records, question: str, *, name: str, question_name: str = "question"
    ) -> None:
        self._fields = records.fields
        self._total_rows = sum(table.total_rows for table in records.tables)
        self._are_more_tables = len(records.tables) > _MAX_TABLES
        sketches = []
        for table_name, table in zip(records.names(name), records.tables, strict=False):
            sketches.append(
                TableSketch(table, question, name=table_name, question_name=question_name)
            )
        sketches.sort(key=lambda sketch: -sketch.relevance)
        self.first, *self._others = sketches[:_MAX_TABLES]
        for other in self._others:
            self.first.note_other(other)

    @property
    def has_matches(self) -> bool:
        """Whether the question names records."""
        return any(sketch.has_matches for sketch in (self.first, *self._others))

    def text(self, max_chars: int) -> str:
        """Return the sketch in at most `max_chars` characters, in whole lines."""
        lines = Lines(max_chars)
        if self._write(lines, keeps_query=True) or not self.first.has_matches:
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
            lines.reserve(len(self.first.query_for_matches) + 1, at_most=most)
        self._write_fields(lines)
        has_all = self.first.write(lines)
        lines.free()
        for sketch in self._others:
            sketch.write_fields(lines, share=1.0)
        query = self.first.query_for_matches
        if has_all and not self.first.is_counted:  # what else there is
            query = self.first.query
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
        for table_sketch in (self.first, *self._others):
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
        for sketch in (self.first, *self._others):
            sketch.write_answers(lines)
            if not sketch.write_records(lines):
                return ""
        return lines.text

    def _write_fields(self, lines: Lines) -> None:
        """Write the values beside the records, such as a status or the cursor of a next page."""
        items = []
        for path, cell in self._fields:
            if cell is not None and cell != "":
                name = shown_cell(path, IN_LABEL, max_chars=_MAX_FIELD_CHARS)
                items.append(f"{name}: {shown_cell(cell, IN_LIST, max_chars=_MAX_FIELD_CHARS)}")
        lines.add_list(
            "Beside the records:", items, len(items), max_chars=int(lines.left * _BESIDE_SHARE)
        )

    def _write_long_fields(self, lines: Lines) -> None:
        """Write the texts beside the records that the sketch clips."""
        left = int(lines.left * _LONG_BESIDE_SHARE)
        for path, cell in self._fields:
            text = cell_text(cell)
            if len(text) > _MAX_FIELD_CHARS < left:
                before = lines.left
                lines.add(one_line(f"{path}: {text}", max_chars=left - 1))
                left -= before - lines.left
