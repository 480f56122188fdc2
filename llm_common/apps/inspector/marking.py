"""Marks words and evidence in a text, and shows rows of records in it as tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final, Literal

from llm_common.ranking import search_stems

# A quoted cell may have bars in it. The first one follows the title of a table or a number.
_CELL: Final = re.compile(
    r'(?:^| \| )((?:[^|:"]{1,80}: )?"(?:[^"\\]|\\.)*"…?(?= \| |$)|.*?(?= \| |$))'
)
_MIN_CELLS: Final = 2
_TITLE: Final = re.compile(r"([^|:]{1,80}): (.*)", re.DOTALL)
_MIN_STEM_CHARS: Final = 4  # a shorter word has few forms, and begins many others
_MAX_ENDING_CHARS: Final = 6
_MIN_DIGITS: Final = 3  # a day or an hour would mark half of a table
_MAX_MARKS: Final = 5_000  # a browser lays out more slowly
_MAX_VALUES: Final = 50
# A date, a version or an amount, in one piece.
_COMPOUND: Final = re.compile(r"\w+(?:[-./:,]\w+)+")
_VALUE: Final = re.compile(r"\w*\d(?:[\w.,:-]*\w)?")

Mark = Literal["", "word", "evidence"]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a text: a word of the question, evidence, or neither."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text between tables."""

    fragments: tuple[Fragment, ...]
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of records. `title` is the text before the names of the columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[Fragment, ...], ...], ...]
    kind: Literal["table"] = "table"


class Marker:
    """Finds words of a question and evidence in a text.

    Args:
        query: The question.
        evidence: Values of which each occurrence is evidence.

    Attributes:
        has_evidence: Whether evidence was found so far.
    """

    def __init__(self, query: str, evidence: Sequence[str]) -> None:
        values = sorted({*evidence} - {""}, key=len, reverse=True)[:_MAX_VALUES]
        groups = []
        if values:
            escaped = "|".join(map(re.escape, values))
            groups.append(rf"(?P<evidence>(?<![\w.])(?:{escaped})(?!\w))")
        if words := _word_patterns(query):
            groups.append(rf"(?P<word>(?<!\w)(?:{'|'.join(words)})(?!\w))")
        # Without words and values, the pattern matches nothing.
        self._pattern = re.compile("|".join(groups) or r"(?!)", re.IGNORECASE)
        self._marks_left = _MAX_MARKS
        self.has_evidence = False

    def parts(self, text: str, *, are_marked: bool) -> tuple[TextPart | TablePart, ...]:
        """Return a text in parts. A line of cells with the names above it is a table."""
        parts: list[TextPart | TablePart] = []
        plain: list[str] = []
        for width, group in groupby(text.split("\n"), key=_cell_count):
            lines = [*group]
            if width < _MIN_CELLS or len(lines) == 1:
                plain += lines
                continue
            if plain:
                parts.append(TextPart(self.fragments("\n".join(plain), are_marked=are_marked)))
                plain = []
            parts.append(self._table(lines, are_marked=are_marked))
        if plain:
            parts.append(TextPart(self.fragments("\n".join(plain), are_marked=are_marked)))
        return tuple(parts)

    def _table(self, lines: Sequence[str], *, are_marked: bool) -> TablePart:
        head, *records = lines
        match = _TITLE.fullmatch(head)
        title, names = (match[1], match[2]) if match else ("Records", head)
        rows = []
        for record in records:
            cells = _CELL.findall(record)
            rows.append(tuple(self.fragments(cell, are_marked=are_marked) for cell in cells))
        return TablePart(title, tuple(_CELL.findall(names)), tuple(rows))

    def around(self, text: str, *, before: int, chars: int) -> str:
        """Return the part of a text that begins before the first match, "" without a match."""
        match = self._pattern.search(text)
        if match is None:
            return ""
        start = max(match.start() - before, 0)
        part = text[start : start + chars]
        if start:
            part = f"…{part}"
        if start + chars < len(text):
            part += "…"
        return part

    def fragments(self, text: str, *, are_marked: bool = True) -> tuple[Fragment, ...]:
        """Return a text in pieces, of which those that match are marked."""
        if not are_marked:
            return (Fragment(text),)
        fragments = []
        end = 0
        for match in self._pattern.finditer(text):
            if self._marks_left == 0:
                break
            self._marks_left -= 1
            if match.start() > end:
                fragments.append(Fragment(text[end : match.start()]))
            mark: Mark = "evidence" if match.lastgroup == "evidence" else "word"
            self.has_evidence |= mark == "evidence"
            fragments.append(Fragment(match[0], mark))
            end = match.end()
        fragments.append(Fragment(text[end:]))
        return tuple(fragments)


def _cell_count(line: str) -> int:
    return len(_CELL.findall(line))


def _word_patterns(query: str) -> list[str]:
    patterns = [re.escape(value) for value in _COMPOUND.findall(query)]
    for stem in search_stems(query):
        if stem.isdigit():
            if len(stem) >= _MIN_DIGITS:
                patterns.append(stem)
        elif len(stem) >= _MIN_STEM_CHARS:
            patterns.append(rf"{re.escape(stem)}\w{{0,{_MAX_ENDING_CHARS}}}")
        elif len(stem) > 1:
            patterns.append(re.escape(stem))
    return patterns


def values_of(text: str, query: str) -> list[str]:
    """Return the values with digits of a text that a question does not have."""
    values = chain(_COMPOUND.findall(text), _VALUE.findall(text))
    return [value for value in values if re.search(r"\d", value) and value not in query]
