"""Lines of cells between commas, tabs and their kin."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from llm_common.tables.forms.fit import MIN_LINES, MOST, SAMPLE_LINES, heading_evidence, share_of
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
    best: _Fit | None = None
    for delimiter in DELIMITERS if has_names else (*DELIMITERS, ":"):
        if delimiter in sample:
            fit = _fit(delimiter, _first_rows(sample, delimiter))
            if fit is not None and (best is None or fit.share > best.share):
                best = fit
    if best is None or has_names is (best.header is None):
        return None
    others: list[list[str]] = []
    rows = _DelimitedLines(text, best.delimiter, width=best.width).rows()
    if best.delimiter == "|":  # blanks beside it are there to align it
        rows = (list(map(str.strip, row)) for row in rows)
    names = best.header or [""] * best.width
    try:
        table = table_of_rows("", names, _records(best, rows, others))
    except csv.Error:
        return None
    if table.total_rows < MIN_LINES - 1:
        return None
    other_lines = [best.delimiter.join(row) for row in others if any(row)]
    return replace(table, other_lines=tuple(other_lines))


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
        share: Share of the rows that have the width.
    """

    delimiter: str
    width: int
    preface: int
    header: list[str] | None
    share: float


def _fit(delimiter: str, rows: list[list[str]]) -> _Fit | None:
    """Return how a delimiter divides the first rows of a text, or None if these are no records."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    if not widths:
        return None
    width, count = widths.most_common(1)[0]
    preface = 0
    while preface < len(rows) and (len(rows[preface]) != width or _is_title(rows[preface])):
        preface += 1
    # Words that spaces align have delimiters by chance.
    spaced = share_of(list(chain(*rows[preface:])), lambda cell: "  " in cell)
    if len(rows) - preface < MIN_LINES or preface > _MAX_PREFACE or spaced > MOST / 2:
        return None
    header = rows[preface]
    evidence = heading_evidence(header, rows[preface + 1 :])
    # R and pandas write the names of rows in a column that has none itself.
    if not header[0] and all(row[0] for row in rows[preface + 1 :]):
        evidence = 1
    names = list(filter(None, header))
    is_heading = evidence > 0 and 2 * len(set(names)) > len(names)
    if evidence == 0:
        # Names are short, different and no sentences. Prose with commas fails here.
        are_short = all(0 < len(name) <= _MAX_NAME_CHARS for name in header)
        is_sentence = header[-1].endswith((".", "!", "?"))
        is_heading = are_short and not is_sentence and len(set(header)) == len(header)
    if is_heading:
        return _Fit(delimiter, width, preface, header, count / len(rows))
    # Sentences of prose have commas too.
    may_be_prose = delimiter == "," and not any(map(_NUMBER.fullmatch, header))
    if evidence == 0 or count < len(rows) or may_be_prose:
        return None
    if delimiter == ":":
        # Colons also stand in times, addresses, and behind keys.
        are_fields = all(_FIELD.match(":".join(row)) for row in rows)
        if width < _MIN_FIELDS or not are_fields:
            return None
    return _Fit(delimiter, width, 0, None, 1)


def _is_title(row: list[str]) -> bool:
    """Return whether a row has one text, and not at its end, as titles and notes have."""
    return sum(map(bool, row)) < min(len(row), 2) and not row[-1]


def _records(fit: _Fit, rows: Iterator[list[str]], others: list[list[str]]) -> Iterator[list[str]]:
    """Yield the rows that are records, and add the others to a list.

    The others stand before the heading, are rules or repeated headings, or are notes at the end.

    Raises:
        csv.Error: If too many rows have another width.
    """
    names: list[str] = []
    notes: list[list[str]] = []  # or records that lack their last cells, if more follow
    has_ragged = is_apart = False
    count = misfits = 0
    for row in rows:
        count += 1
        is_preface = count <= fit.preface
        # A line with the delimiter is no preface: it may be the record of another table.
        misfits += len(row) != fit.width and (not is_preface or len(row) > 1)
        is_rule = all(map(_RULE.fullmatch, row))
        is_note = _is_title(row) and (is_apart or sum(map(len, row)) > _MAX_NAME_CHARS)
        if count == fit.preface + 1 and fit.header is not None:
            names = row
        elif is_preface or is_rule or len(row) == 1 or row == names:
            others.append(row)
            is_apart = is_rule
        elif is_note or len(row) < fit.width:
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
        others += notes
    if misfits > (1 - MOST) * count:
        raise csv.Error("too many rows have another width")


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
        if share_of(lines[1:], self._is_row) < MOST:
            return False
        if len(lines) <= _MIN_JOINED_LINES:
            # So few lines may look like rows by chance, unless their quotes are wrong too.
            with suppress(csv.Error):
                next(_csv_reader(lines, delimiter=self._delimiter, strict=True))
                return False
        # They are read again, so that many such quotes would take quadratic time.
        self._chars_left -= sum(map(len, lines))
        if self._chars_left < 0:
            raise csv.Error("too many stray quotes")
        return True

    def _is_row(self, line: str) -> bool:
        delimiters = line.count(self._delimiter)
        if delimiters < self._width or '"' not in line:
            return delimiters == self._width - 1
        with suppress(csv.Error):
            return len(next(_csv_reader([line], delimiter=self._delimiter))) == self._width
        return False
