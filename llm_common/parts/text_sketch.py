"""`TextSketch`: a text without records in few lines: what failed, what matches, and both ends.

1. How many lines there are, how many places tell of a failure, and how many lines contain words of
   the question.
2. Where lines with the rarest of these words do not fit: the pattern that finds them.
3. Lines with their numbers, in the order of the text.

Lines are chosen in an order that does not depend on the room, until one does not fit: what failed,
what matches, and both ends. So more room never shows less.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import log
from operator import itemgetter
from typing import Final

from llm_common.parts.fill import Lines
from llm_common.parts.text_lines import (
    MAX_FAILURES,
    TextLines,
    failed_lines,
    failures_in,
)
from llm_common.ranking.lexical import folded, stem
from llm_common.ranking.question_words import (
    FILLERS,
    NEUTRAL,
    asks_for_failures,
    is_request,
    set_of,
    words_of,
)
from llm_common.tables.values import IN_LABEL, IN_LIST, Cell, shown_cell
from llm_common.text.display import one_line

_MAX_LINE_CHARS: Final = 300  # of a line that matches
_MAX_OTHER_CHARS: Final = 200
_MAX_ONLY_CHARS: Final = 450  # of few lines that match
_FEW_LINES: Final = 2
_CHARS_BEFORE: Final = 60  # of a word in a long line
_MAX_WORD_CHARS: Final = 80
_AS_WRITTEN: Final = '"{}"'
_IN_ANY_CASE: Final = '"{}" in any case'
_AS_LETTERS: Final = 'the letters "{}" in any case'
_MAX_WORDS: Final = 8
_MAX_COUNTED: Final = 3
_MAX_FIELD_CHARS: Final = 200
_MAX_BESIDE_CHARS: Final = 400
_FIRST_FAILED_LINES: Final = 3  # where the question asks for something else

# Words that ask for lines of a text, and say nothing about them.
_REQUEST_WORDS: Final = (
    FILLERS
    | NEUTRAL
    | set_of(
        "line lines log logs file output text mention mentions mentioned mentioning say says said"
        " print prints printed containing about occurs appear appears"
    )
)


_LAST_MARK: Final = re.compile(r"[.:]\?")  # of a word: "Which lines mention package.?"
_ALONE: Final = r"(?<!\w)(?<!\w[.:@-])(?:{})(?!\w|[.:@-]\w)"  # and in no name: `com.app.health`


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the question, as lines contain it.

    Attributes:
        text: The word, or the part of it that the lines share.
        lines: Indexes of the lines.
        weight: The more, the rarer it is.
        form: How the lines contain it.
    """

    text: str
    lines: frozenset[int]
    weight: float
    form: str


class TextSketch:
    """A text, sketched for a question.

    Args:
        text: The text, without what wraps it. See `unwrapped`.
        question: The question. "" for none.
        path: Where the text stands in its result. "" if it is the result.
        beside: What stands beside it, by path, such as the exit code of a command.
        are_values: Whether the lines are values behind their paths, which have no numbers.
        name: The name of its lines or entries in SQL. "" for none.
        tables: A line for each table in it.
    """

    def __init__(
        self,
        text: str,
        question: str,
        *,
        path: str = "",
        beside: Mapping[str, Cell] | None = None,
        are_values: bool = False,
        name: str = "",
        tables: Sequence[str] = (),
    ) -> None:
        self._are_values = are_values
        self._sql_name = f", table {name}" if name else ""
        self._tables = tables
        self._path = path
        self._beside = beside or {}
        self._text = TextLines(text)
        self._lines = self._text.lines
        self._question = question

    @property
    def has_matches(self) -> bool:
        """Whether lines contain words of the question."""
        return bool(self._words)

    def text(self, max_chars: int) -> str:
        """Return the sketch in at most `max_chars` characters."""
        heads = [*self._heads()]
        sketch = Lines(max_chars)
        shown = self._write(sketch, heads)
        pattern = self._pattern_of_others(shown)
        if pattern:
            sketch = Lines(max_chars)
            self._write(sketch, [*heads, f"pattern: {pattern}"])
        return sketch.text

    def _pattern_of_others(self, shown: set[int]) -> str:
        """Return the pattern of the lines with the rarest word, or "" if all of them are shown."""
        if self._are_values or not self._words:
            return ""
        word = self._words[0]
        # A folded word has lost its accents, without which a pattern finds too little.
        is_exact = word.form == _AS_WRITTEN or self._text.is_ascii
        return _pattern_of(word) if is_exact and not word.lines <= shown else ""

    def _write(self, sketch: Lines, heads: Sequence[str]) -> set[int]:
        """Write the sketch, and return the indexes of the lines that it shows whole."""
        shown: Sequence[tuple[int, str]] = ()

        def lines_of(chosen: Sequence[tuple[int, str]]) -> list[str]:
            nonlocal shown
            shown = chosen
            return [line for _, line in sorted(chosen)]

        # A head that does not fit ends the sketch, so that none takes the room of lines.
        if all(map(sketch.add, heads)):
            sketch.add_best(self._numbered(), itemgetter(1), lines_of)
        return {index for index, text in shown if text.endswith(self._lines[index])}

    def _heads(self) -> Iterator[str]:
        if self._beside:
            fields = []
            for path, cell in self._beside.items():
                value = shown_cell(cell, IN_LIST, max_chars=_MAX_FIELD_CHARS)
                fields.append(f"{_name(path)}: {value}")
            yield one_line(f"Beside the text: {', '.join(fields)}", max_chars=_MAX_BESIDE_CHARS)
        where = f"{_name(self._path)}: " if self._path else ""
        what = "values, each in a line with its path. Some of them:"
        if not self._are_values:
            what = f"lines{self._sql_name}. Some of them, with their numbers:"
        yield f"{where}{len(self._lines):,} {what}"
        yield from self._tables
        if self._failures:
            first = next(failed_lines(self._text))
            least = "at least " if len(self._failures) == MAX_FAILURES else ""
            count = f"{least}{len(self._failures):,}"
            # A runner tells of one failure at several places, so no number of failures is stated.
            yield f"Places that may tell of failures: {count}, the first in line {first + 1:,}."
        yield from self._counts()

    def _numbered(self) -> Iterator[tuple[int, str]]:
        """Yield the index and the text of each line to show, the most important first."""
        seen: set[int] = set()
        shown: set[str] = set()
        for index in self._in_order():
            if index in seen or not self._lines[index].strip():
                continue
            seen.add(index)
            text = self._clipped(index)
            if text not in shown:
                shown.add(text)
                yield index, text if self._are_values else f"{index + 1}: {text}"

    # --- what failed

    @cached_property
    def _failures(self) -> list[range]:
        """Blocks that tell of a failure: those with words of the question, then one of a kind."""
        weights = self._weights
        return sorted(
            () if self._are_values else failures_in(self._text),
            key=lambda block: -max(weights.get(index, 0.0) for index in block),
        )

    # --- what matches

    @cached_property
    def _words(self) -> list[_Word]:
        """The words of the question that lines contain, the rarest first."""
        words: dict[str, _Word] = {}
        for word in words_of(self._question):
            end = word.end + bool(_LAST_MARK.match(self._question, word.end))
            written = self._question[word.start : end]
            if word.text not in _REQUEST_WORDS and written not in words:
                for text, lines, form in self._forms(written):
                    if lines:
                        weight = log(1 + len(self._lines) / len(lines))
                        words[text] = _Word(text, lines, weight, form)
                        break
        return sorted(words.values(), key=lambda word: -word.weight)[:_MAX_WORDS]

    def _forms(self, word: str) -> Iterator[tuple[str, frozenset[int], str]]:
        """Yield a word as it is written, in any case, and without its ending, with the lines."""
        yield word, self._text.as_written(word), _AS_WRITTEN
        yield folded(word), self._text.in_any_case(folded(word)), _IN_ANY_CASE
        letters = stem(folded(word))
        yield letters, self._text.in_any_case(letters, is_word=False), _AS_LETTERS

    @cached_property
    def _weights(self) -> dict[int, float]:
        """How well each line matches, by its index."""
        weights: dict[int, float] = {}
        for word in self._words:
            for index in word.lines:
                weights[index] = weights.get(index, 0.0) + word.weight
        return weights

    @cached_property
    def _matching(self) -> list[int]:
        """Indexes of the lines that match, best first."""
        weights = self._weights
        # A word within a name, such as `health` in `com.app.health`, tells less than one alone.
        words = "|".join(re.escape(word.text) for word in self._words)
        alone = re.compile(_ALONE.format(words), re.IGNORECASE)
        parts = {index for index in weights if not alone.search(self._lines[index])}
        return sorted(weights, key=lambda index: (-weights[index], index in parts, index))

    def _counts(self) -> Iterator[str]:
        """Yield how many lines contain the words of the question, together and alone."""
        words = self._words[:_MAX_COUNTED]
        together = [word for word in words if self._matching[0] in word.lines]
        if len(together) > 1:
            lines = frozenset.intersection(*(word.lines for word in together))
            yield f"{_contain(len(lines))} {' and '.join(map(_quoted, together))}"
        for word in words:
            count = f"{_contain(len(word.lines))} {_quoted(word)}"
            alone = re.compile(_ALONE.format(re.escape(word.text)))
            lines_alone = list(filter(alone.search, map(self._lines.__getitem__, word.lines)))
            if word.form == _AS_WRITTEN and 0 < len(lines_alone) < len(word.lines):
                count += f", {len(lines_alone):,} of them outside of longer names"
            yield count

    def _clipped(self, index: int) -> str:
        """Return a line, or the part around the first word of the question in it."""
        line = self._lines[index]
        limit = _MAX_OTHER_CHARS
        if index in self._weights:
            limit = _MAX_ONLY_CHARS if len(self._matching) <= _FEW_LINES else _MAX_LINE_CHARS
        if len(line) <= limit:
            # A line of a program keeps its indentation.
            return line if line.isprintable() else one_line(line, max_chars=limit)
        text = folded(line)
        places = (text.find(folded(word.text)) for word in self._words)
        first = min((place for place in places if place >= 0), default=0)
        start = max(first - _CHARS_BEFORE, 0)
        return ("…" if start else "") + one_line(line[start:], max_chars=limit)

    # --- the order of the lines

    def _in_order(self) -> Iterator[int]:
        """Yield the indexes of lines in the order in which they are shown."""
        if self._words and not asks_for_failures(self._question):
            for block in self._failures[:1]:
                yield from block[:_FIRST_FAILED_LINES]
            if is_request(self._question):
                pairs = zip(chain.from_iterable(self._failures), self._matching, strict=False)
                yield from chain.from_iterable(pairs)
            yield from self._matching
        yield from chain.from_iterable(self._failures)
        yield from self._matching
        yield from self._ends()

    def _ends(self) -> Iterator[int]:
        """Yield lines from the beginning and from the end in turn."""
        total = len(self._lines)
        for index in range((total + 1) // 2):
            yield index
            yield total - 1 - index


def _name(path: str) -> str:
    return shown_cell(path, IN_LABEL, max_chars=_MAX_FIELD_CHARS)


def _contain(count: int) -> str:
    return "1 line contains" if count == 1 else f"{count:,} lines contain"


def _pattern_of(word: _Word) -> str:
    """Return the regular expression of the lines that contain a word."""
    pattern = re.escape(word.text)
    if word.form != _AS_LETTERS:
        pattern = re.sub(r"^(?=\w)|(?<=\w)$", r"\\b", pattern)
    return pattern if word.form == _AS_WRITTEN else f"(?i){pattern}"


def _quoted(word: _Word) -> str:
    return word.form.format(one_line(word.text, max_chars=_MAX_WORD_CHARS))
