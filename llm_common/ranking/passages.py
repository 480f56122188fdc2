"""Passages of a text around the words of a request, as many as a budget of tokens allows.

A part of a text grows piece by piece, in an order that no budget decides: what a smaller budget
shows, a larger one shows too. `folders/passages.py` remains beside this: it divides programs where
their definitions begin, and orders the passages of many files in one queue.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from math import inf, log
from typing import Final, Generic, NamedTuple, TypeVar

from llm_common.ranking.lexical import folded, places_of

# Smallest and largest size in characters: of the passages that are ranked, and of the pieces in
# which a passage is revealed.
_PASSAGE_CHARS: Final = (200, 600)
_PIECE_CHARS: Final = (40, 100)
_BOUNDARIES: Final = ("\n\n", "\n", "},", ", ", " ")  # best first
# Only a text that is shorter than this many times a part may take fewer tokens whole.
_COUNTED_WHOLE: Final = 4

_Item = TypeVar("_Item")


class Passages(NamedTuple):
    """The text to show, and how many of its characters are from the original."""

    text: str
    chars_shown: int


class PartSize(NamedTuple):
    """The size of a part of a text: how many pieces it has, their characters, and its tokens."""

    pieces: int
    chars: int
    tokens: int


class RankedPassages:
    """A text in passages, ranked once for a request.

    Args:
        text: The text that is too long.
        stems: The stems of the request. See `search_stems`.

    Attributes:
        matches: Whether the text has one of the stems.
    """

    def __init__(self, text: str, stems: Sequence[str]) -> None:
        self.text = text
        self._spans = list(_spans(text, 0, len(text), _PASSAGE_CHARS))
        passages = [folded(text[start:end]) for start, end in self._spans]
        self._weights = _StemWeights(stems, passages)
        self._order = _ranked(self._weights.weigh(passages))
        self.matches = bool(self._order)
        self.pieces = _Cached(self._reveal())
        """Start and end of each piece, in the order in which they are shown."""

    def best(self, *, room: int, count: Callable[[str], int]) -> Passages | None:
        """Return the passages that have the rarest stems, then their neighbours.

        A passage that is longer than the room is cut around its stems. A larger room shows the same
        and more.

        Args:
            room: Maximum number of tokens of the passages and of the marks between them, each
                counted by itself.
            count: Counts the tokens of a text.

        Returns:
            The passages, or None when the text has none of the stems, or when no passage fits.
        """
        if not self.matches:
            return None
        size = PartSizes(self, count=count).largest_within(room)
        return self.join(size.pieces) if size else None

    def join(self, pieces: int) -> Passages:
        """Return the first so many pieces in the order of the text, with marks between them."""
        shown = sorted(islice(self.pieces, pieces))
        text = join_spans(self.text, shown)
        if shown[-1][1] < len(self.text):
            text = text.removesuffix("\n")  # of the last mark
        return Passages(text, sum(end - start for start, end in shown))

    def _reveal(self) -> Iterator[tuple[int, int]]:
        """Yield the pieces: passage by passage, from the best piece of each to those around it."""
        text, last = self.text, len(self._spans) - 1
        shown: set[int] = set()
        for number in self._order or _from_both_ends(len(self._spans)):
            pieces = list(_spans(text, *self._spans[number], _PIECE_CHARS))
            weights = self._weights.weigh([folded(text[start:end]) for start, end in pieces])
            best = weights.index(max(weights))
            follows_shown = number - 1 in shown
            precedes_shown = number + 1 in shown or 0 < number == last
            if not weights[best] and precedes_shown and not follows_shown:
                best = len(pieces) - 1  # beside what follows
            shown.add(number)
            by_distance = sorted(
                range(len(pieces)), key=lambda place: (abs(place - best), place < best)
            )
            for place in by_distance:
                yield pieces[place]


class PartSizes:
    """The sizes that a part of a text takes as it grows, each in more tokens than the one before.

    Args:
        passages: The text.
        count: Counts the tokens of a piece and of a mark.
        overhead: Tokens around the text.
        whole_tokens: Returns the tokens of the whole text, which every part takes fewer of.
    """

    def __init__(
        self,
        passages: RankedPassages,
        *,
        count: Callable[[str], int],
        overhead: int = 0,
        whole_tokens: Callable[[], float] = lambda: inf,
    ) -> None:
        self._passages = passages
        self._count = count
        self._overhead = overhead
        self._whole_tokens = whole_tokens
        self._sizes = _Cached(self._measure())

    def smallest_with(self, chars: int) -> PartSize | None:
        """Return the first size that shows so many characters, or None."""
        return next((size for size in self._sizes if size.chars >= chars), None)

    def largest_within(self, max_tokens: int) -> PartSize | None:
        """Return the last size before the first that takes more tokens, or None."""
        largest = None
        for size in self._sizes:
            if size.tokens > max_tokens:
                break
            largest = size
        return largest

    def _measure(self) -> Iterator[PartSize]:
        text = self._passages.text
        mark_tokens = self._count(gap_mark(len(text)))
        chars = tokens = last_tokens = 0
        gaps, edges = 1, {0, len(text)}
        for pieces, (start, end) in enumerate(self._passages.pieces, start=1):
            # A piece parts a gap in two. An edge that it shares closes one.
            gaps += 1 - (start in edges) - (end in edges)
            edges |= {start, end}
            chars += end - start
            tokens += self._count(text[start:end])
            size = PartSize(pieces, chars, self._overhead + tokens + gaps * mark_tokens)
            is_more = chars < len(text) and size.tokens > last_tokens
            if is_more and not self._exceeds_whole(size):
                last_tokens = size.tokens
                yield size

    def _exceeds_whole(self, size: PartSize) -> bool:
        is_large = size.chars * _COUNTED_WHOLE >= len(self._passages.text)
        return is_large and size.tokens >= self._whole_tokens()


class _Cached(Generic[_Item]):
    """Items that are computed once each, when they are first asked for."""

    def __init__(self, source: Iterator[_Item]) -> None:
        self._source = source
        self._items: list[_Item] = []

    def __iter__(self) -> Iterator[_Item]:
        number = 0
        while True:
            if number == len(self._items):
                self._items.extend(islice(self._source, 1))
            if number == len(self._items):
                return
            yield self._items[number]
            number += 1


class _StemWeights:
    """Weighs texts by the stems that they have, the rarer the more.

    Words count as in the ranking. Only where no text has one, letters within other words do:
    `user` in `getUser`.

    Args:
        stems: The stems of the request.
        texts: The folded texts that tell how rare a stem is.
    """

    def __init__(self, stems: Sequence[str], texts: Sequence[str]) -> None:
        self._find = places_of
        self._weights = self._weights_of(stems, texts)
        if not self._weights:
            self._find = _places_within
            self._weights = self._weights_of(stems, texts)

    def _weights_of(self, stems: Iterable[str], texts: Sequence[str]) -> dict[str, float]:
        weights: dict[str, float] = {}
        for stem in stems:
            holders = len(self._find(stem, texts))
            if holders:
                weights[stem] = log(1 + len(texts) / holders)
        return weights

    def weigh(self, texts: Sequence[str]) -> list[float]:
        """Return the weight of each folded text, 0 for one without a stem."""
        weights = [0.0] * len(texts)
        for stem, weight in self._weights.items():
            for place in self._find(stem, texts):
                weights[place] += weight
        return weights


def _places_within(stem: str, texts: Sequence[str]) -> list[int]:
    return [place for place, text in enumerate(texts) if stem in text]


def _spans(text: str, start: int, stop: int, sizes: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield that part of a text in spans that end at a paragraph, a line or a word.

    Each has the smallest to the largest size. The last may be larger by the smallest size.
    """
    smallest, largest = sizes
    while stop - start > largest:
        end = _cut(text, start + smallest, start + largest)
        if stop - end < smallest:
            break  # the note of what is missing would be longer than the rest
        yield start, end
        start = end
    yield start, stop


def _cut(text: str, start: int, end: int) -> int:
    """Return the last good place to cut within the range, else its end."""
    for boundary in _BOUNDARIES:
        place = text.rfind(boundary, start, end)
        if place >= 0:
            # A space belongs to the word behind it, as tokenizers have it.
            return place + len(boundary.rstrip(" "))
    return end


def _ranked(weights: Sequence[float]) -> list[int]:
    """Return the numbers of the passages, best first. None when no passage has a stem."""
    hits = [number for number, weight in enumerate(weights) if weight]
    if not hits:
        return []
    distances: list[int] = []  # to the nearest hit
    for hit, next_hit in pairwise([-len(weights), *hits, 2 * len(weights)]):
        between = range(max(hit, 0), min(next_hit, len(weights)))
        distances += [min(number - hit, next_hit - number) for number in between]
    return sorted(
        range(len(weights)), key=lambda number: (-weights[number], distances[number], number)
    )


def _from_both_ends(size: int) -> list[int]:
    """Return the numbers below a size: two from the beginning, then one from the end."""
    return sorted(range(size), key=lambda number: (min(number / 2, size - 1 - number), number))


def join_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return spans of a text, in its order, with a mark for what is missing between them."""
    parts: list[str] = []
    end_before = 0
    for start, end in [*spans, (len(text), len(text))]:
        if start > end_before:
            begins_line = not parts or parts[-1].endswith("\n")
            parts.append("" if begins_line else "\n")
            parts.append(gap_mark(start - end_before))
        parts.append(text[start:end])
        end_before = end
    return "".join(parts)


def gap_mark(chars: int) -> str:
    """Return the line that stands for characters that are not shown."""
    return f"[… {chars:,} characters left out …]\n"
