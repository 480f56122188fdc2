"""Columns aligned by spaces, as `ps`, `df`, `systemctl` and `kubectl get` print them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final, TypeAlias

from llm_common.tables.forms.fit import MIN_LINES, MOST, share_of
from llm_common.tables.forms.heading import heading_evidence
from llm_common.tables.table import Table, table_of_rows

Span: TypeAlias = tuple[int, int]
"""Start and end of a name in the heading."""

_WORD: Final = re.compile(r"\S+")
_THROUGH: Final = re.compile(r"\S{3}")
_NUMBER: Final = re.compile(r"[-+]?\d[\d.,]*%?")
_RULE: Final = re.compile(r"[\s=+─━-]+")
_MAX_HEADING_CHARS: Final = 1_000
_MAX_PREFACE: Final = 4  # lines before the heading, such as the legend of `dpkg`
_SAMPLE_LINES: Final = 200


def aligned(lines: list[str]) -> Table | None:
    """Return the table of columns that spaces align under a heading, or None."""
    lines = [line.expandtabs() for line in lines]
    for start in range(min(_MAX_PREFACE, len(lines) - MIN_LINES) + 1):
        table = _table_under(lines[start], lines[start + 1 :], has_preface=start > 0)
        if table is not None:
            return replace(table, other_lines=(*lines[:start], *table.other_lines))
    return None


def _table_under(heading: str, body: list[str], *, has_preface: bool) -> Table | None:
    """Return the table of lines whose words stand under the words of a heading, or None."""
    # Prose has single spaces only.
    has_gaps = heading.isupper() or "  " in heading.strip()
    if not has_gaps or len(heading) > _MAX_HEADING_CHARS or _RULE.fullmatch(heading):
        return None
    lines = [line for line in body if not _RULE.fullmatch(line)]
    sample = lines[:: -(-len(body) // _SAMPLE_LINES)]
    spans = _spans_of_names(heading, sample)
    gaps = [_freest((end, start), sample) for (_, end), (start, _) in pairwise(spans)]
    names = _cells_between(heading, gaps) if gaps and min(gaps) > 0 else None
    # A line of a key and its value is no heading.
    if (
        names is None
        or names[0].endswith(":")
        or ":" in names
        or any(map(_NUMBER.fullmatch, names))
    ):
        return None
    rows, others = _rows_and_others(lines, names, spans, gaps)
    if len(rows) < MIN_LINES - 1 or len(rows) < MOST * len(lines):
        return None
    if share_of(rows, lambda row: "  " in row[-1]) > 1 - MOST:  # columns without a name
        return None
    first_rows = rows[:_SAMPLE_LINES]
    for index, name in enumerate(names):
        if sum(row[index] == name for row in first_rows) < MOST * len(first_rows):
            break
        # All lines begin with it, as with the time that `pidstat` writes before each.
        names[index] = ""
    evidence = heading_evidence(names, first_rows)
    is_plain = not has_preface and len(names) >= MIN_LINES and heading.isupper()
    if evidence < 0 or (evidence == 0 and not is_plain):
        return None
    return replace(table_of_rows("", names, rows), other_lines=tuple(others))


def _rows_and_others(
    lines: Sequence[str], names: list[str], spans: Sequence[Span], gaps: Sequence[int]
) -> tuple[list[list[str]], list[str]]:
    """Return the cells of the lines that fit the columns, and the other lines."""
    read = [_cells_between(line, gaps) or _cells_in_order(line, spans) for line in lines]
    # Where each cell is one word, so are those of a line that a wide word has pushed on.
    are_words = all(len(cell.split()) == 1 for cells in read if cells for cell in cells[:-1])
    rows: list[list[str]] = []
    others: list[str] = []
    for line, fitting in zip(lines, read, strict=True):
        cells = fitting
        if cells is None and are_words and len(line.split()) >= len(names):
            cells = line.split(maxsplit=len(names) - 1)
        if cells is None or cells == names or sum(map(bool, cells)) < 2:  # noqa: PLR2004
            others.append(line)
        else:
            rows.append(cells)
    return rows, others


def _cells_between(line: str, gaps: Sequence[int]) -> list[str] | None:
    """Return what stands between the gaps, if no word runs through one."""
    if any(not line[gap].isspace() for gap in gaps if gap < len(line)):
        return None
    cells = [line[start:end].strip() for start, end in pairwise([0, *gaps, len(line)])]
    # Words that stand apart are cells of columns without a name.
    return None if any("  " in cell for cell in cells[:-1]) else cells


def _cells_in_order(line: str, spans: Sequence[Span]) -> list[str] | None:
    """Return as many words as there are names, if each is under its name at least in part.

    A wide word pushes the others on.
    """
    cells = line.split(maxsplit=len(spans) - 1)
    if len(cells) < len(spans):
        return None
    end = 0
    for (name_start, name_end), cell in zip(spans, cells, strict=True):
        start = line.index(cell, end)
        end = start + len(cell)
        if start >= name_end or end <= name_start:
            return None
    return [cell.rstrip() for cell in cells]


def _spans_of_names(heading: str, sample: Sequence[str]) -> list[Span]:
    """Return where names stand, or [] if that is not clear.

    A blank stands between the names of two columns, or within the name of one.
    """
    words = [match.span() for match in _WORD.finditer(heading)]
    ends = [word.end() for word in map(_WORD.search, sample) if word]
    if ends and max(ends) < words[0][0] - 1:
        words = [(0, max(ends)), *words]  # without a name, as the first column of `free`
    if _are_in_order(words, sample):
        return words
    fitting = [spans for spans in _pairs_joined(words) if _are_in_order(spans, sample)]
    return _joined(words, sample) or (fitting[0] if len(fitting) == 1 else [])


def _are_in_order(spans: Sequence[Span], sample: Sequence[str]) -> bool:
    return share_of(sample, lambda line: _cells_in_order(line, spans) is not None) >= MOST


def _pairs_joined(spans: list[Span]) -> Iterator[list[Span]]:
    """Yield the spans with two joined that one blank divides, as in `Mounted on`."""
    for index, (before, after) in enumerate(pairwise(spans)):
        if after[0] - before[1] == 1:
            yield [*spans[:index], (before[0], after[1]), *spans[index + 2 :]]


def _joined(spans: list[Span], sample: Sequence[str]) -> list[Span]:
    """Return the spans, with those joined that one blank divides, and no cells.

    Where cells of some lines are divided and run through in others, there is no span.
    """
    joined = spans[:1]
    for start, end in spans[1:]:
        before, gap = joined[-1]
        through = sum(_THROUGH.match(line, gap - 1) is not None for line in sample)
        divided = sum(bool(line[start:end].strip()) for line in sample) - through
        share = divided / max(divided + through, 1)
        if start - gap > 1 or share >= MOST:
            joined.append((start, end))
        elif share > 1 - MOST:
            return []
        else:
            joined[-1] = (before, end)
    return joined


def _freest(gap: Span, sample: Sequence[str]) -> int:
    """Return a place in a gap that the fewest lines use, or 0 if two are as good."""
    uses = {}
    for place in range(*gap):
        cells = [line[place] for line in sample if place < len(line)]
        uses[place] = len(cells) - sum(map(str.isspace, cells))
    most = max(min(uses.values()), int((1 - MOST) * len(sample)))
    # Words of a cell stand closer to each other than to the next cell.
    runs: list[list[int]] = []
    for is_free, run in groupby(uses, key=lambda place: uses[place] <= most):
        if is_free:
            runs.append(list(run))
    runs.sort(key=len, reverse=True)
    if len(runs) > 1 and len(runs[0]) == len(runs[1]):
        return 0
    return min(reversed(runs[0]), key=lambda place: uses[place])
