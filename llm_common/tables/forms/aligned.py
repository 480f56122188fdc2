"""Columns aligned by spaces, as `ps`, `docker ps` and `kubectl get` print them."""

import re
from collections.abc import Sequence
from typing import Final

from llm_common.tables.forms.fit import MAX_LINE_CHARS, MOST
from llm_common.tables.table import Table, table_of_rows
from llm_common.text.canonical import Json

_WORD: Final = re.compile(r"\S+")
_WORDS: Final = re.compile(r"\S+(?: \S+)*")


def aligned(_: str, lines: list[str]) -> Table | None:
    """Return the table of columns that spaces align under a heading, or None."""
    # A blank stands between the names of two columns, or within the name of one.
    for form, read in ((_WORD, _cells_in_order), (_WORDS, _cells_by_start)):
        header = list(form.finditer(lines[0][:MAX_LINE_CHARS]))
        names = [match[0] for match in header]
        if len(header) < 3 or names != list(map(str.upper, names)):  # noqa: PLR2004
            return None
        records: list[list[Json]] = []
        others = 0
        for line in lines[1:]:
            cells = read(line, header)
            others += not cells
            records.append([*cells, None] if cells else [*[None] * len(names), line])
        if len(records) - others >= MOST * len(records):
            if others:
                names.append("line")
            return table_of_rows("", names, [record[: len(names)] for record in records])
    return None


def _cells_in_order(line: str, header: Sequence[re.Match[str]]) -> list[str]:
    """Return as many words as there are names, if each is under its name at least in part.

    Numbers are aligned to the right, and a wide one pushes the others on.
    """
    cells = line.split(maxsplit=len(header) - 1)
    end = 0
    for name, cell in zip(header, cells, strict=False):
        start = line.index(cell, end)
        end = start + len(cell)
        if start >= name.end() or end <= name.start():
            return []
    return cells if len(cells) == len(header) else []


def _cells_by_start(line: str, header: Sequence[re.Match[str]]) -> list[str]:
    """Return what stands from each name to the next, if no word runs from one to the other."""
    starts = [name.start() for name in header]
    if not all(line[start - 1 : start].isspace() or len(line) < start for start in starts[1:]):
        return []
    ends = [*starts[1:], len(line)]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
