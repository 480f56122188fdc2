"""Columns that words make in all lines, as `ls -l`, `mount`, `md5sum` and `ss` print them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from llm_common.tables.forms.fit import (
    MIN_LINES,
    MOST,
    NUMBER,
    Span,
    has_gaps,
    heading_evidence,
    share_of,
    spans_of,
)
from llm_common.tables.table import Table, table_of_rows
from llm_common.text.canonical import Json

_MAX_TITLES: Final = 3  # lines before the columns and behind them, such as `total 48`
_TRIMS: Final = sorted(product(range(_MAX_TITLES + 1), repeat=2), key=sum)
_SAMPLE_LINES: Final = 200
_MAX_NAME_WORDS: Final = 2
_MIN_ROWS: Final = 5  # without a heading


def word_columns(lines: Sequence[str]) -> Table | None:
    """Return the table of lines whose first words stand in columns, or None.

    The last column has the rest of a line.
    """
    # What the first lines are not, a long text is not either.
    if len(lines) > _SAMPLE_LINES and word_columns(lines[:_SAMPLE_LINES]) is None:
        return None
    start, end = _place(lines, 2)
    width = _width(lines[start:end])
    names = _names(lines[start:end][:_SAMPLE_LINES], width)
    if names is None:
        return None
    rows: list[list[Json]] = []
    for line in lines[start + any(names) : end]:
        rows.append(list(line.strip().split(maxsplit=width - 1)))
    others = (*lines[:start], *lines[end:])
    # A heading that is not understood has names for what stands in the last column.
    has_more = any(map(has_gaps, lines[:start])) and any("  " in str(row[-1]) for row in rows)
    if has_more or _may_be_rows(others, width) > max(1, (1 - MOST) * len(rows)):
        return None
    return replace(table_of_rows("", names, rows), other_lines=others, is_log=not any(names))


def word_sections(paragraphs: Sequence[Sequence[str]]) -> Table | None:
    """Return the table of paragraphs whose words stand in as many columns below titles, or None.

    The titles, such as `/usr/bin:`, are the column `section`.
    """
    longest = max(paragraphs, key=len)
    start, end = _place(longest, 2)
    if start == end:
        start, end = _place(longest, 1)
    width = _width(longest[start:end])
    sample = longest[start:end][:_SAMPLE_LINES]
    names = _names(sample, width)
    if names is None or any(names):
        return None
    sample_rows = [line.split(maxsplit=width - 1) for line in sample]
    # Where titles end with a colon, other first lines are none, such as `total 8`.
    with_colon = sum(lines[0].endswith(":") for lines in paragraphs)
    mark = ":" if 2 * with_colon > len(paragraphs) else ""
    rows: list[list[Json]] = []
    others: list[str] = []
    misfits = 0
    title = ""
    for lines in paragraphs:
        start, end = _place(lines, width)
        first = lines[start].split(maxsplit=width - 1) if start < end else []
        # Few lines have as many words by chance.
        if width > 1 and heading_evidence(first, sample_rows) >= 0:
            start = end = len(lines)
        is_titled = start > 0 and lines[0].endswith(mark)
        if is_titled:
            others += filter(None, [title])
            title = lines[0].strip().removesuffix(":")
        for line in lines[start:end]:
            rows.append([title, *line.strip().split(maxsplit=width - 1)])
        if start < end:
            title = ""
        rest = [*lines[is_titled:start], *lines[end:]]
        others += rest
        if len(lines) >= MIN_LINES:
            misfits += _may_be_rows(rest, width)
    titled = sum(bool(row[0]) for row in rows)
    is_one = len({row[0] for row in rows}) < 2  # noqa: PLR2004
    if is_one or titled < MOST * len(rows) or misfits > (1 - MOST) * len(rows):
        return None
    columns = ["section", *(f"column_{number}" for number in range(1, width + 1))]
    table = table_of_rows("line 1", columns, rows)
    return replace(table, other_lines=tuple(others), is_log=True)


def _place(lines: Sequence[str], width: int) -> tuple[int, int]:
    """Return where the lines of so many columns begin and end, between titles."""
    # The lines in the midst decide for most texts.
    midst = lines[_MAX_TITLES:-_MAX_TITLES]
    if midst and _width(midst[:_SAMPLE_LINES]) < width:
        return len(lines), len(lines)
    for before, behind in _TRIMS:
        body = lines[before : len(lines) - behind]
        has_title = len(body) > 0 and body[0].endswith(":")
        if body and not has_title and _width(body) >= width:
            return before, len(lines) - behind
    return len(lines), len(lines)


def _width(lines: Sequence[str]) -> int:
    """Return in how many columns the words stand, of which the last takes the rest of a line."""
    words = list(map(spans_of, lines))
    fewest = min(map(len, words), default=0)
    if len(lines) >= _MIN_ROWS and all(len(spans) == fewest for spans in words):
        return fewest
    width = min(fewest, 1)
    while width < fewest and _is_column(words, width):
        width += 1
    # Lines of one sentence, as `mount` and `arp` print them, have the same words between cells.
    cells = [line.split()[:fewest] for line in lines]
    for index, column in enumerate(zip(*cells, strict=True)):
        if len(set(column)) == 1 and column[0].isalpha():
            width = max(width, min(index + 2, fewest))
    return width


def _is_column(words: Sequence[Sequence[Span]], index: int) -> bool:
    """Return whether a column begins with the words of an index."""
    column = [spans[index] for spans in words]
    ends = {spans[index - 1][1] for spans in words}
    # The words of a cell, as of `system boot`, stand closer to each other than columns do.
    gap = min(column)[0] - max(ends)
    if gap > 0 and len(ends) == 1 and (index == 1 or gap > 1):
        return True  # whatever follows, such as the blanks of a program behind the number of a line
    [[start, _]] = Counter(start for start, _ in column).most_common(1)
    [[end, _]] = Counter(end for _, end in column).most_common(1)
    return gap > 0 and all(span[0] == start or span[1] == end for span in column)


def _names(lines: Sequence[str], width: int) -> list[str] | None:
    """Return the names of the columns, empty without a heading, or None if that is not sure."""
    if len(lines) < MIN_LINES:
        return None
    if width == 1:
        return [""] if share_of(lines, lambda line: len(line.split()) == 1) >= MOST else None
    first, *others = [line.split(maxsplit=width - 1) for line in lines]
    evidence = heading_evidence(first, others)
    if evidence > 0:
        is_heading = has_gaps(lines[0]) and not any(map(NUMBER.fullmatch, first))
        # Two words can be the name of the last column. More cannot be told apart.
        return first if is_heading and len(first[-1].split()) <= _MAX_NAME_WORDS else None
    columns = list(zip(first, *others, strict=True))
    varying = sum(len(set(column)) > 1 for column in columns)
    is_prose = share_of(lines, has_gaps) < MOST and any(len(line.split()) > width for line in lines)
    if width < MIN_LINES and is_prose:
        # In prose, the first words may stand in a column, such as the host before each message.
        evidence = heading_evidence(first[:1], [row[:1] for row in others])
        varying *= len(set(columns[0])) >= MOST * len(lines)
    is_sure = evidence < 0 and varying > 1 and len(lines) >= _MIN_ROWS
    return [""] * width if is_sure else None


def _may_be_rows(lines: Sequence[str], width: int) -> int:
    return sum(len(line.split()) >= width for line in lines)
