"""Lines of cells between commas, tabs and their kin."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from typing import Final, NamedTuple

from llm_common.tables.forms.fit import MIN_LINES, MOST, SAMPLE_LINES, share_of
from llm_common.tables.forms.heading import heading_evidence, is_second_heading
from llm_common.tables.table import Table, table_of_rows

DELIMITERS: Final = ("\t", ",", ";", "|")
_MIN_FIELDS: Final = 4  # between colons
_FIELD: Final = re.compile(r"(?=.*[g-zG-Z*/])[^\s:]+:")
_MAX_PREFACE: Final = 5  # lines before the header
_MAX_NAME_CHARS: Final = 60
_NUMBER: Final = re.compile(r"[-+]?\d[\d.,]*")
_RULE: Final = re.compile(r"\s*(?:[-=_]{2,}\s*)?")
_MIN_JOINED_LINES: Final = 12
_MAX_REREAD: Final = 4  # times the length of a text
_csv_reader: Final = partial(csv.reader, skipinitialspace=True)


def delimited(text: str, lines: list[str], *, has_names: bool = True) -> Table | None:
    """Return the table of lines that one delimiter divides into as many cells, or None.

    Args:
        text: The text.
        lines: Its lines that are not blank.
        has_names: Whether its first row names the columns. Otherwise it is a record.
    """
    sample = "\n".join(lines[:SAMPLE_LINES])
    delimiters = filter(sample.__contains__, DELIMITERS if has_names else (*DELIMITERS, ":"))
    fits = [_fit(delimiter, _first_rows(sample, delimiter)) for delimiter in delimiters]
    fit = max(filter(None, fits), key=lambda fit: fit.share, default=None)
    if fit is None or has_names is (fit.header is None):
        return None
    records = _Records(fit, _DelimitedLines(text, fit.delimiter, width=fit.width))
    try:
        table = table_of_rows("", fit.header or [""] * fit.width, records)
    except csv.Error:
        return None
    total = table.total_rows + len(records.others)
    if table.total_rows < MIN_LINES - 1 or records.misfits > (1 - MOST) * total:
        return None
    return replace(table, other_lines=tuple(records.others))


def _first_rows(sample: str, delimiter: str) -> list[list[str]]:
    rows = []
    with suppress(csv.Error):  # the rows before it decide
        for row in _csv_reader(io.StringIO(sample), delimiter=delimiter):
            if row:
                rows.append(list(map(str.strip, row)))
    return rows


class _Fit(NamedTuple):
    """How a delimiter divides the first rows of a text.

    Attributes:
        delimiter: The delimiter.
        width: Number of cells in a row.
        preface: Number of rows before the first record or heading.
        header: The names of the columns, or None if the first row is a record.
        start: Number of rows before the first record.
        share: Share of the rows that have the width.
    """

    delimiter: str
    width: int
    preface: int
    header: list[str] | None
    start: int
    share: float


def _fit(delimiter: str, rows: list[list[str]]) -> _Fit | None:
    """Return how a delimiter divides the first rows of a text, or None if these are no records."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    if not widths:
        return None
    width, count = widths.most_common(1)[0]
    preface = sum(1 for _ in takewhile(lambda row: len(row) != width or _is_title(row), rows))
    # Words that spaces align have delimiters by chance.
    spaced = share_of(list(chain(*rows[preface:])), lambda cell: "  " in cell)
    if len(rows) - preface < MIN_LINES or preface > _MAX_PREFACE or spaced > MOST / 2:
        return None
    header = rows[preface]
    evidence = heading_evidence(header, rows[preface + 1 :])
    names = list(filter(None, header))
    is_heading = evidence > 0 and 2 * len(set(names)) > len(names)
    if is_heading or (evidence == 0 and _are_names(header)):
        start, second = preface + 1, rows[preface + 1]
        if is_second_heading(second, rows[preface + 2 :]):
            start += 1
            header = [" ".join(filter(None, names)) for names in zip(header, second, strict=False)]
        return _Fit(delimiter, width, preface, header, start, count / len(rows))
    # Sentences of prose have commas too.
    may_be_prose = delimiter == "," and not any(map(_NUMBER.fullmatch, header))
    # Colons also stand in times, addresses, and behind keys.
    if delimiter == ":" and (
        width < _MIN_FIELDS or not all(map(_FIELD.match, map(":".join, rows)))
    ):
        return None
    if evidence == 0 or count < len(rows) or may_be_prose:
        return None
    return _Fit(delimiter, width, 0, None, 0, 1)


def _is_title(row: list[str]) -> bool:
    """Return whether a row has one text, as titles and notes of a spreadsheet have."""
    return sum(map(bool, row)) < min(len(row), 2)


def _is_rule(row: list[str]) -> bool:
    """Return whether a row has no cells, or dashes only."""
    return all(map(_RULE.fullmatch, row))


def _are_names(header: list[str]) -> bool:
    """Return whether cells are short, different and no sentences. Prose with commas fails here."""
    names_fit = all(0 < len(name) <= _MAX_NAME_CHARS for name in header)
    is_sentence = header[-1].endswith((".", "!", "?"))
    return names_fit and not is_sentence and len(set(header)) == len(header)


class _Records:
    """The rows of delimited lines that are records, which can be read once.

    Attributes:
        others: The rows that are something else: before the heading, the first of two headings,
            rules, repeated headings and notes at the end.
        misfits: Number of rows of another width.
    """

    def __init__(self, fit: _Fit, lines: "_DelimitedLines") -> None:
        self._fit = fit
        self._lines = lines
        self.others: list[str] = []
        self.misfits = 0

    def __iter__(self) -> Iterator[list[str]]:
        delimiter, width, preface, _, start, _ = self._fit
        names: list[str] = []
        notes: list[list[str]] = []  # or records that lack their last cells, if more follow
        has_ragged = is_apart = False
        rows = self._lines.rows()
        if delimiter == "|":  # blanks beside it are there to align it
            rows = (list(map(str.strip, row)) for row in rows)
        for number, row in enumerate(rows):
            # A line with the delimiter is no preface: it may be the record of another table.
            self.misfits += len(row) != width and (number >= preface or len(row) > 1)
            if preface <= number < start:
                names = row
                if number < start - 1:  # shows above which columns its names stand
                    self._add_other(row)
            elif number < preface or len(row) == 1 or row == names or _is_rule(row):
                self._add_other(row)
                is_apart = _is_rule(row)
            elif self._is_note(row, is_apart=is_apart):
                notes.append(row)
            else:
                has_ragged = has_ragged or bool(notes)
                yield from notes
                notes.clear()
                is_apart = False
                yield row
        if has_ragged:
            yield from notes
        else:
            for row in notes:
                self._add_other(row)

    def _is_note(self, row: list[str], *, is_apart: bool) -> bool:
        if len(row) == self._fit.width:
            return _is_title(row) and (is_apart or sum(map(len, row)) > _MAX_NAME_CHARS)
        # A stray quote joins cells.
        delimiters = self._fit.delimiter.join(row).count(self._fit.delimiter)
        return delimiters < self._fit.width - 1

    def _add_other(self, row: list[str]) -> None:
        if any(row):
            self.others.append(self._fit.delimiter.join(row))


class _DelimitedLines:
    """The lines of a delimited text.

    A cell in quotes may hold several lines. A quote that only begins a text, as in `"Heroes`, would
    make one cell of all rows up to the next quote. Such a row is its first line alone.

    Args:
        text: The text, from its header on.
        delimiter: What separates cells.
        width: Number of cells in the header.
    """

    def __init__(self, text: str, delimiter: str, *, width: int) -> None:
        self._lines = io.StringIO(text).readlines()
        self._delimiter = delimiter
        self._width = width
        self._chars_left = _MAX_REREAD * len(text)

    def rows(self) -> Iterator[list[str]]:
        """Yield the rows.

        Raises:
            csv.Error: If a cell of several lines has over 131,072 characters, or stray quotes
                are too many to read around them.
        """
        begin = 0
        while begin < len(self._lines):
            start = begin
            # Begins in the midst without a copy of the lines.
            lines = map(self._lines.__getitem__, range(start, len(self._lines)))
            reader = _csv_reader(lines, delimiter=self._delimiter)
            try:
                for row in reader:
                    end = start + reader.line_num
                    if end - begin > 1 and self._are_rows(begin, end):
                        break
                    if row:
                        yield row
                    begin = end
                else:
                    return
            except csv.Error:  # a cell is too long, or has a carriage return
                end = start + reader.line_num
                if end - begin > 1 and not self._are_rows(begin, end):
                    raise
            # The last cell takes what exceeds the header, so that nothing is lost.
            yield self._lines[begin].rstrip("\n").split(self._delimiter, self._width - 1)
            begin += 1

    def _are_rows(self, begin: int, end: int) -> bool:
        """Return whether the lines that a quote makes one row are several."""
        lines = self._lines[begin:end]
        if len(lines) > _MIN_JOINED_LINES and share_of(lines[1:-1], self._is_row) >= MOST:
            are_rows = True
        else:
            # So few lines may look like rows by chance, unless their quotes are wrong too.
            are_rows = share_of(lines[1:], self._is_row) >= MOST and not self._is_balanced(lines)
        if are_rows:
            # They are read again, so that many such quotes would take quadratic time.
            self._chars_left -= sum(map(len, lines))
            if self._chars_left < 0:
                raise csv.Error("too many stray quotes")
        return are_rows

    def _is_row(self, line: str) -> bool:
        delimiters = line.count(self._delimiter)
        if delimiters < self._width or '"' not in line:
            return delimiters == self._width - 1
        with suppress(csv.Error):
            return len(next(_csv_reader([line], delimiter=self._delimiter))) == self._width
        return False

    def _is_balanced(self, lines: list[str]) -> bool:
        """Return whether each quote that begins a cell has one that ends it."""
        with suppress(csv.Error):
            next(_csv_reader(lines, delimiter=self._delimiter, strict=True))
            return True
        return False
