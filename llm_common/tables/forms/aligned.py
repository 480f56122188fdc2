"""Columns aligned by spaces, as `ps`, `df`, `systemctl` and `kubectl get` print them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
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

_THROUGH: Final = re.compile(r"\S{3}")
_BEGIN: Final = re.compile(r"\s\S")
_LAST_WORD: Final = re.compile(r"\S+(?P<more>\s{2}.*)?")
_RULE: Final = re.compile(r"[\s=+─━-]+")
_RULE_OF_COLUMNS: Final = re.compile(r"\s*[-=─━]{2,}(?:\s+[-=─━]{2,})+\s*")
_COMMENT: Final = re.compile(r"^#(?=\s)")
_MAX_HEADING_CHARS: Final = 1_000
_MAX_PREFACE: Final = 4  # lines before the heading, such as the legend of `dpkg`
_SAMPLE_LINES: Final = 200
_MAX_PUSHED_GAP: Final = 8


def aligned(paragraphs: Sequence[Sequence[str]]) -> Table | None:
    """Return the table of columns that spaces align under a heading, or None.

    Args:
        paragraphs: The lines. Several paragraphs have a line in common, such as the heading, and
            what stands before it is the column `section`.
    """
    for heading in paragraphs[0][: _MAX_PREFACE + 1]:
        if len(heading) > _MAX_HEADING_CHARS or not has_gaps(heading):
            continue
        if all(heading in lines for lines in paragraphs):
            table = _table_under(heading, paragraphs)
            if table is not None:
                return table
    return None


def _table_under(heading: str, paragraphs: Sequence[Sequence[str]]) -> Table | None:
    """Return the table of lines whose words stand under the words of a heading, or None."""
    lines: list[str] = []
    sections: list[str] = []
    preface: list[str] = []
    for paragraph in paragraphs:
        start = paragraph.index(heading)
        preface += paragraph[:start]
        body = [line for line in paragraph[start + 1 :] if not _RULE.fullmatch(line)]
        lines += body
        sections += [paragraph[0].strip()] * len(body)
    line = _COMMENT.sub(" ", heading)
    rule = next(filter(_RULE_OF_COLUMNS.fullmatch, paragraph[start + 1 : start + 2]), "")
    names, cells = _names_and_cells(line, rule, lines[:_SAMPLE_LINES])
    evidence = heading_evidence(names, list(filter(None, cells)))
    # A line above such a rule, or that several paragraphs have in common, is a heading.
    evidence += bool(rule) + len(paragraphs) - 1
    has_several = len(names) >= MIN_LINES
    is_titled = len(paragraphs) > 1 and has_several  # such as `avg-cpu:` before the names
    are_pairs = any(name.endswith(":") or "=" in name for name in names[is_titled:])
    # A row of dots such as that of a test run names nothing.
    if are_pairs or any(map(NUMBER.fullmatch, names)) or not any(map(str.isalpha, heading)):
        return None
    if evidence < 0 or (evidence == 0 and not (has_several and heading.isupper())):
        return None
    names, cells = _names_and_cells(line, rule, lines)
    rows: list[list[str]] = []
    others: list[str] = []
    has_sections = len(paragraphs) > 1 and len(preface) > 0
    for section, line, fitting in zip(sections, lines, cells, strict=True):
        if fitting is None:
            others.append(line)
        else:
            rows.append([section, *fitting] if has_sections else fitting)
    if len(rows) < MIN_LINES - 1 or len(rows) < MOST * len(lines):
        return None
    if share_of(rows, lambda row: "  " in row[-1]) > 1 - MOST:  # a column without a name
        names.append("")
        for row in rows:
            row[-1:] = map(str.strip, f"{row[-1]}  ".split("  ", 1))
    if has_sections:
        names.insert(0, "section")
    else:
        others = preface + others
    return replace(table_of_rows("", names, rows), other_lines=tuple(others))


def _names_and_cells(
    heading: str, rule: str, lines: Sequence[str]
) -> tuple[list[str], list[list[str] | None]]:
    """Return the names of columns, and the cells of each line, or None where it fits none.

    Args:
        heading: The line of the names.
        rule: The dashes below it, which blanks divide as the columns, or "".
        lines: The lines of cells.
    """
    sample = lines[:: -(-len(lines) // _SAMPLE_LINES) or 1]
    spans = spans_of(rule) or _spans_of_names(heading, sample)
    gaps = [_freest((end, start), sample) for (_, end), (start, _) in pairwise(spans)]
    names = _cells_between(heading, gaps) if gaps else None
    if names is None:
        return [], [None] * len(lines)
    cells = _cells_of(lines, names, spans, gaps)
    rows = list(filter(None, cells))[:_SAMPLE_LINES]
    for index, name in enumerate(names):
        if sum(row[index] == name for row in rows) < MOST * max(len(rows), 1):
            break
        # All lines begin with it, as with the time that `pidstat` writes before each.
        names[index] = ""
    return names, cells


def _cells_of(
    lines: Sequence[str], names: list[str], spans: Sequence[Span], gaps: Sequence[int]
) -> list[list[str] | None]:
    """Return the cells of each line that fits the columns, and None for the others."""
    read = [_cells_between(line, gaps) or _cells_in_order(line, spans, max_gap=0) for line in lines]
    # Where each cell is one word, so are those of a line that a wide word has pushed on.
    first_cells = chain.from_iterable(cells[:-1] for cells in filter(None, read))
    are_words = all(len(cell.split()) == 1 for cell in first_cells)
    rows: list[list[str] | None] = []
    for line, fitting in zip(lines, read, strict=True):
        cells = fitting
        if cells is None and are_words:
            cells = _cells_in_order(line, spans, max_gap=_MAX_PUSHED_GAP)
        is_row = cells is not None and cells != names and sum(map(bool, cells)) > 1
        rows.append(cells if is_row else None)
    return rows


def _cells_between(line: str, gaps: Sequence[int]) -> list[str] | None:
    """Return what stands between the gaps, if no word runs through one."""
    if any(not line[gap].isspace() for gap in gaps if gap < len(line)):
        return None
    cells = [line[start:end].strip() for start, end in pairwise([0, *gaps, len(line)])]
    # Words that stand apart are cells of columns without a name.
    return None if any("  " in cell for cell in cells[:-1]) else cells


def _cells_in_order(line: str, spans: Sequence[Span], *, max_gap: int) -> list[str] | None:
    """Return as many words as there are names, if each is under its name at least in part.

    Args:
        line: The line.
        spans: Where the names stand.
        max_gap: Maximum blanks between a wide word and the one behind it, which it pushes on.
    """
    cells = line.split(maxsplit=len(spans) - 1)
    if len(cells) < len(spans):
        return None
    end = shift = 0
    for (name_start, name_end), cell in zip(spans, cells, strict=True):
        start = line.index(cell, end)
        if end - shift >= name_start and start - end <= max_gap:
            shift = start - name_start
        end = start + len(cell)
        if start - shift >= name_end or end - shift <= name_start:
            return None
    return [cell.rstrip() for cell in cells]


def _spans_of_names(heading: str, sample: Sequence[str]) -> list[Span]:
    """Return where names stand, or [] if that is not clear.

    A blank stands between the names of two columns, or within the name of one.
    """
    words = spans_of(heading)
    end = max((spans_of(line)[0][1] for line in sample), default=len(heading))
    if end < words[0][0] - 1:
        words.insert(0, (0, end))  # without a name, as the first column of `free`
    if _are_in_order(words, sample):
        return words
    fitting = [spans for spans in _pairs_joined(words) if _are_in_order(spans, sample)]
    if not fitting:
        run_through = _run_through(words, sample)
        # Several names of two words, as in `ss`.
        for spans in (run_through, *_pairs_joined(run_through)):
            if _are_in_order(spans, sample) and _are_whole(spans, sample):
                return spans
    return _joined(words, sample) or (fitting[0] if len(fitting) == 1 else [])


def _are_in_order(spans: Sequence[Span], sample: Sequence[str]) -> bool:
    fitting = 0
    for line in sample:
        fitting += _cells_in_order(line, spans, max_gap=_MAX_PUSHED_GAP) is not None
    return fitting >= MOST * max(len(sample), 1)


def _are_whole(spans: Sequence[Span], sample: Sequence[str]) -> bool:
    """Return whether the last of so many cells is one word in all lines, with or without more."""
    has_more = set()
    for line in sample:
        cells = _cells_in_order(line, spans, max_gap=_MAX_PUSHED_GAP)
        if cells is not None:
            last = _LAST_WORD.fullmatch(cells[-1])
            has_more.add(last and bool(last["more"]))
    return len(has_more) == 1 and None not in has_more


def _pairs_joined(spans: list[Span]) -> Iterator[list[Span]]:
    """Yield the spans with two joined that one blank divides, as in `Mounted on`."""
    for index, (before, after) in enumerate(pairwise(spans)):
        if after[0] - before[1] == 1:
            yield [*spans[:index], (before[0], after[1]), *spans[index + 2 :]]


def _run_through(spans: list[Span], sample: Sequence[str]) -> list[Span]:
    """Return the spans, with those joined whose only blank a cell runs through."""
    joined = spans[:1]
    for start, end in spans[1:]:
        before, gap = joined[-1]
        is_one = start - gap == 1 and any(_THROUGH.match(line, gap - 1) for line in sample)
        joined[-1:] = [(before, end)] if is_one else [(before, gap), (start, end)]
    return joined


def _joined(spans: list[Span], sample: Sequence[str]) -> list[Span]:
    """Return the spans, with those joined that one blank divides, and no cells.

    Where cells of some lines are divided and run through in others, there is no span.
    """
    joined = spans[:1]
    for start, end in spans[1:]:
        before, gap = joined[-1]
        through = divided = clear = 0
        for line in sample:
            cell = line[gap:end]
            if _THROUGH.match(line, gap - 1):
                through += 1
            elif cell[1:].strip():
                divided += 1
                # A cell of several words begins below the first name, and has none below the other.
                is_below = cell[0].isspace() and not (cell[1].isspace() and cell[-1].isspace())
                clear += is_below or _BEGIN.match(line, before - 1) is None
        if start - gap > 1 or divided >= MOST * max(divided + through, 1):
            joined.append((start, end))
        elif clear > (1 - MOST) * (clear + through):
            return []
        else:
            joined[-1] = (before, end)
    return joined


def _freest(gap: Span, sample: Sequence[str]) -> int:
    """Return the place in a gap that the fewest lines use, preferably beside a name."""
    start, end = gap

    def uses(place: int) -> int:
        return sum(place < len(line) and not line[place].isspace() for line in sample)

    places: list[int] = [end - 1, *range(start, end)]
    return min(places, key=uses)
