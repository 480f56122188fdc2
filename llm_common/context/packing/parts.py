"""The parts of a text that a bundle may show: `TextParts` and `RecordParts`.

Each has a fixed sequence of parts, in ascending order of tokens, which does not depend on a budget.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from llm_common.parts.passages import PartSize, PartSizes, Passages, RankedPassages
from llm_common.parts.result_parts import ResultParts

# Rooms of the parts of records, in characters: the first, and how much larger each next one is.
# With larger steps, the last item of a bundle would leave more of the budget unused.
_FIRST_ROOM: Final = 200
_GROWTH: Final = 1.15


class Parts(Protocol):
    """The parts of a text."""

    @property
    def matches(self) -> bool:
        """Whether they hold something that the request names."""

    def smallest_with(self, chars: int) -> PartSize | None:
        """Return the first part that shows at least `chars` characters, or None."""

    def largest_within(self, max_tokens: int) -> PartSize | None:
        """Return the largest part of at most `max_tokens`, or None."""

    def passages(self, size: PartSize) -> Passages:
        """Return the text of a part."""


class TextParts:
    """The parts of a text: passages that match the request, or its beginning and end.

    Args:
        passages: The text.
        sizes: The sizes of its parts.
    """

    def __init__(self, passages: RankedPassages, sizes: PartSizes) -> None:
        self._passages = passages
        self.matches = passages.matches
        self.smallest_with = sizes.smallest_with
        self.largest_within = sizes.largest_within

    def passages(self, size: PartSize) -> Passages:
        """Return the text of a part."""
        return self._passages.join(size.pieces)


class RecordParts:
    """The parts of records: their number, fields and values, and whole records.

    Args:
        parts: The records.
        total_chars: Characters of the result.
        count: Counts the tokens of a part.
        overhead: Tokens around a part.
        whole_tokens: Returns the tokens of the whole result. Every part takes fewer.
    """

    def __init__(
        self,
        parts: ResultParts,
        *,
        total_chars: int,
        count: Callable[[str], int],
        overhead: int,
        whole_tokens: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._total_chars = total_chars
        self._count = count
        self._overhead = overhead
        self._whole_tokens = whole_tokens
        self._sizes: list[PartSize] = []
        self._more = self._measure()
        self.matches = parts.has_matches

    def smallest_with(self, chars: int) -> PartSize | None:
        """Return the first part that shows at least `chars` characters, or None."""
        return next((size for size in self._in_order() if size.chars >= chars), None)

    def largest_within(self, max_tokens: int) -> PartSize | None:
        """Return the largest part of at most `max_tokens`, or None."""
        largest = None
        for size in self._in_order():
            if size.tokens > max_tokens:
                break
            largest = size
        return largest

    def passages(self, size: PartSize) -> Passages:
        """Return the text of a part."""
        excerpt = self._parts.excerpt(size.pieces, fill=True)
        return Passages(excerpt.text, excerpt.chars_shown)

    def _in_order(self) -> Iterator[PartSize]:
        yield from self._sizes
        for size in self._more:
            self._sizes.append(size)
            yield size

    def _measure(self) -> Iterator[PartSize]:
        """Yield parts that show more characters in more tokens than the one before."""
        room = _FIRST_ROOM
        before = PartSize(0, 0, 0)
        while room < self._total_chars:
            excerpt = self._parts.excerpt(room, fill=True)
            tokens = self._overhead + self._count(excerpt.text)
            if tokens >= self._whole_tokens():
                return
            if excerpt.chars_shown > before.chars and tokens > before.tokens:
                before = PartSize(room, excerpt.chars_shown, tokens)
                yield before
            room = int(room * _GROWTH)
