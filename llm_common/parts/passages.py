"""Show the passages of a text around the words of a request, within a budget of tokens.

A part of a text grows piece by piece, in an order that does not depend on the budget. So a larger
budget shows all that a smaller one shows. `folders/passages.py` is separate, because it divides
programs where their definitions begin, and orders the passages of many files in one queue.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Final

from llm_common.parts.fill import Cached, Parts, PartSize
from llm_common.ranking.lexical import folded, scan_stems
from llm_common.text.display import Excerpt

# Smallest and largest size in characters. Passages are ranked, and each is shown piece by piece.
_PASSAGE_CHARS: Final = (200, 600)
_PIECE_CHARS: Final = (40, 100)
_READ_CHARS: Final = 2_000_000  # a longer text is searched only this far
_BOUNDARIES: Final = ("\n\n", "\n", "},", ", ", " ")  # best first
COUNTED_WHOLE: Final = 4
"""Counting a long text is slow, and only a short one can take fewer tokens than a part of it."""


class RankedPassages:
    """A text in passages, ranked once for a request.

    Args:
        text: The text that is too long.
        stems: The stems of the request. See `search_stems`.

    Attributes:
        matches: Whether the text contains one of the stems.
    """

    def __init__(self, text: str, stems: Sequence[str]) -> None:
        self.text = text
        self._stems = stems
        self._spans = list(_spans(text, 0, min(len(text), _READ_CHARS), _PASSAGE_CHARS))
        self._scores = self._scores_of(self._spans)
        self.matches = any(self._scores)
        self.pieces = Cached(self._reveal())
        """Start and end of each piece, in the order in which they are shown."""

    def best(self, *, max_size: int, count: Callable[[str], int]) -> Excerpt | None:
        """Return the passages with the rarest stems, then their neighbours.

        A passage that does not fit is cut around its stems. A higher limit shows the same and more.

        Args:
            max_size: Limit for the passages and the marks between them, each counted separately.
            count: Counts the tokens of a text, or its characters if the limit is in characters.

        Returns:
            The passages, or None if the text contains none of the stems, or if no passage fits.
        """
        if not self.matches:
            return None
        parts = self.parts(count)
        size = parts.largest_within(max_size)
        return parts.text(size) if size else None

    def parts(
        self,
        count: Callable[[str], int],
        *,
        overhead: int = 0,
        whole_tokens: Callable[[], float] = lambda: inf,
    ) -> Parts:
        """Return the parts of the text that show ever more pieces.

        Args:
            count: Counts the tokens of a piece and of a mark.
            overhead: Tokens around the text.
            whole_tokens: Returns the tokens of the whole text. Every part takes fewer.
        """
        sizes = self._sizes(count, overhead, whole_tokens)
        return Parts(sizes, self.join, matches=self.matches)

    def _sizes(
        self, count: Callable[[str], int], overhead: int, whole_tokens: Callable[[], float]
    ) -> Iterator[PartSize]:
        # Of the longest mark, so that no gap takes more tokens than counted.
        mark_tokens = count(gap_mark(len(self.text)))
        chars = tokens = last_tokens = 0
        gaps, edges = 1, {0, len(self.text)}
        for pieces, (start, end) in enumerate(self.pieces, start=1):
            # A piece splits a gap in two. Where it touches another piece, it closes a gap.
            gaps += 1 - (start in edges) - (end in edges)
            edges |= {start, end}
            chars += end - start
            tokens += count(self.text[start:end])
            size = PartSize(pieces, chars, overhead + tokens + gaps * mark_tokens)
            # A piece that closes a gap removes a mark, so the tokens may not grow.
            if chars == len(self.text) or size.tokens <= last_tokens:
                continue
            if chars * COUNTED_WHOLE < len(self.text) or size.tokens < whole_tokens():
                last_tokens = size.tokens
                yield size

    def join(self, pieces: int) -> Excerpt:
        """Return the best `pieces` pieces in the order of the text, with marks between them."""
        spans = sorted(islice(self.pieces, pieces))
        text = join_spans(self.text, spans)
        if spans[-1][1] < len(self.text):
            text = text.removesuffix("\n")  # of the last mark
        return Excerpt(text, sum(end - start for start, end in spans))

    def _reveal(self) -> Iterator[tuple[int, int]]:
        """Yield the pieces of each passage, the best piece first, then those next to it."""
        scores, last = self._scores, len(self._spans) - 1
        # Without a match, alternately two passages from the start and one from the end.
        order = sorted(range(last + 1), key=lambda index: (min(index / 2, last - index), index))
        if self.matches:
            order = sorted(range(last + 1), key=lambda index: (-scores[index], index))
        for passage in order:
            pieces = list(_spans(self.text, *self._spans[passage], _PIECE_CHARS))
            piece_scores = self._scores_of(pieces)
            best = piece_scores.index(max(piece_scores))
            indexes = range(len(pieces))
            for index in sorted(indexes, key=lambda index: (abs(index - best), index < best)):
                yield pieces[index]

    def _scores_of(self, spans: Sequence[tuple[int, int]]) -> list[float]:
        """Return how well each part of the text matches the request."""
        texts = [folded(self.text[start:end]) for start, end in spans]
        return scan_stems(self._stems, [texts], weights=(1.0,))


def _spans(text: str, start: int, stop: int, sizes: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield spans of a part of a text that end at a paragraph, a line or a word.

    Each has the smallest to the largest size. The last may be larger by the smallest size.
    """
    smallest, largest = sizes
    while stop - start > largest:
        end = _cut(text, start + smallest, start + largest)
        if stop - end < smallest:
            break  # the mark for the missing characters would be longer than the text it replaces
        yield start, end
        start = end
    yield start, stop


def _cut(text: str, start: int, end: int) -> int:
    """Return the end of the last boundary within the range, else the end of the range."""
    for boundary in _BOUNDARIES:
        index = text.rfind(boundary, start, end)
        if index >= 0:
            # Tokenizers join a space with the word after it.
            return index + len(boundary.rstrip(" "))
    return end


def join_spans(
    text: str,
    spans: Iterable[tuple[int, int]],
    *,
    part: Callable[[int, int], str] | None = None,
) -> str:
    """Join spans of a text, which come in its order, with a mark for each gap.

    Args:
        text: The text.
        spans: The start and the end of each span.
        part: Returns a span as it is shown. None for the characters of the text.
    """
    parts: list[str] = []
    end_before = 0
    for start, end in [*spans, (len(text), len(text))]:
        if start > end_before:
            begins_line = not parts or parts[-1].endswith("\n")
            parts.append("" if begins_line else "\n")
            parts.append(gap_mark(start - end_before))
        parts.append(part(start, end) if part and start < end else text[start:end])
        end_before = end
    return "".join(parts)


def gap_mark(chars: int) -> str:
    """Return the line that replaces characters that are not shown."""
    return f"[… {chars:,} characters left out …]\n"
