"""Lines of cells between commas, tabs and their kin."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from llm_common.tables.forms.fit import MIN_LINES, MOST, SAMPLE_LINES, share_of
from llm_common.tables.table import Table, table_of_rows

DELIMITERS: Final = ("\t", ",", ";", "|")
_MAX_PREFACE: Final = 5  # lines before the header
_MAX_NAME_CHARS: Final = 60
_HEAD_ROWS: Final = 20
_MIN_JOINED_LINES: Final = 12
_MAX_REREAD: Final = 4  # times the length of a text
_csv_reader: Final = partial(csv.reader, skipinitialspace=True)


def delimited(text: str, lines: list[str]) -> Table | None:
    """Return the table of delimited lines with a heading, or None."""
    for delimiter in DELIMITERS:
        for preface in range(min(_MAX_PREFACE, len(lines) - MIN_LINES) + 1):
            sample = "\n".join(lines[preface : preface + SAMPLE_LINES])
            head = _first_rows(sample, delimiter)
            if not _is_delimited(head):
                continue
            body = text
            if preface:
                body = "\n".join(lines[preface:])
            rows = _DelimitedLines(body, delimiter, width=len(head[0])).rows()
            try:
                header = next(rows, [])
                return table_of_rows("", header, rows)
            except csv.Error:
                return None
    return None


def _first_rows(sample: str, delimiter: str) -> list[list[str]]:
    rows = []
    with suppress(csv.Error):  # the rows before it decide
        for row in islice(_csv_reader(io.StringIO(sample), delimiter=delimiter), _HEAD_ROWS):
            if row:
                rows.append(row)
    return rows


def _is_delimited(rows: list[list[str]]) -> bool:
    """Return whether the first rows look like a header and records of its width."""
    if len(rows) < MIN_LINES or len(rows[0]) < 2:  # noqa: PLR2004
        return False
    header = [name.strip() for name in rows[0]]
    # Names are short and no sentences. Prose with commas fails here.
    names_fit = all(0 < len(name) <= _MAX_NAME_CHARS for name in header)
    is_sentence = header[-1].endswith((".", "!", "?"))
    if not names_fit or is_sentence or len(set(header)) < len(header):
        return False
    if any(re.fullmatch(r"[-+]?\d[\d.,]*", name) for name in header):
        return False
    same_width = [row for row in rows[1:] if len(row) == len(header)]
    return len(same_width) >= MOST * len(rows[1:])


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
