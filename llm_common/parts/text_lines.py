"""`TextLines`: the lines of a text, and which of them contain a word."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from llm_common.ranking.lexical import folded


class TextLines:
    """The lines of a text, found by their words in time that is linear in the text.

    Args:
        text: The text. Its lines end with line feeds.

    Attributes:
        lines: The lines.
        is_ascii: Whether no letter has an accent or is of another script.
    """

    def __init__(self, text: str) -> None:
        self._text = text.removesuffix("\n")  # which ends the last line, and begins no other
        self.lines = self._text.split("\n")
        self.is_ascii = text.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return _starts_of(self.lines)

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        """The text in lower case without accents, and where its lines begin."""
        text = folded(self._text)
        starts = self._starts if len(text) == len(self._text) else _starts_of(text.split("\n"))
        return text, starts

    def as_written(self, word: str) -> frozenset[int]:
        """Return the indexes of the lines that contain a word as it is written."""
        return _lines_with(word, self._text, self._starts, is_word=True)

    def in_any_case(self, word: str, *, is_word: bool = True) -> frozenset[int]:
        """Return the indexes of the lines that contain a folded word, or letters of a word."""
        text, starts = self._folded
        if len(starts) != len(self.lines):  # a letter has become a line end
            return frozenset()
        return _lines_with(word, text, starts, is_word=is_word)


def _starts_of(lines: Sequence[str]) -> list[int]:
    return list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))


def _lines_with(word: str, text: str, starts: Sequence[int], *, is_word: bool) -> frozenset[int]:
    lines: set[int] = set()
    position = text.find(word)
    while position >= 0:
        end = position + len(word)
        if not is_word or (_is_edge(text, position) and _is_edge(text, end)):
            index = bisect_right(starts, position) - 1
            lines.add(index)
            end = starts[index + 1] if index + 1 < len(starts) else len(text)
        position = text.find(word, end)
    return frozenset(lines)


def _is_edge(text: str, index: int) -> bool:
    """Return whether a word may begin or end at an index."""
    if index in (0, len(text)):
        return True
    return not (_is_letter(text[index - 1]) and _is_letter(text[index]))


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"
