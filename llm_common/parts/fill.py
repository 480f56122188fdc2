"""`fill`: as many things as fit a limit. `Parts` and `largest_room`: how much of one thing fits.

`Lines` are whole lines within a number of characters.

They go through an order that no limit changes, until something does not fit. So a larger limit
never shows less of a thing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from llm_common.text.display import Excerpt, without_headings

_FIRST_ROOM: Final = 64
_PRECISION: Final = 32  # each room is larger by such a part of it

_Item = TypeVar("_Item")


def fill(
    limit: int,
    items: Iterable[_Item],
    size: Callable[[_Item], int],
    *,
    part: Callable[[_Item, int], _Item | None] | None = None,
    whole: Callable[[Sequence[_Item]], int] | None = None,
) -> list[_Item]:
    """Take items in their order until one does not fit, and then a part of that one.

    Smaller items behind it could still fit, but then a larger limit might not show them.

    Args:
        limit: What all items may take: tokens or characters.
        items: The items, the most important first, each read only if those before it fit.
        size: Returns what an item takes.
        part: Returns the largest part of an item that takes at most as much, or None. None if
            items have no parts.
        whole: Returns what a text of items takes, with all that it says about the others. While
            that is over the limit, the last item becomes smaller or leaves. None if that is the sum
            of the sizes.

    Returns:
        The items, the last one perhaps as a part.
    """
    taken: list[_Item] = []
    left = limit
    for item in items:
        left_after = left - size(item)
        if left_after < 0:
            smaller = part(item, left) if part else None
            if smaller is not None:
                taken.append(smaller)
            break
        left = left_after
        taken.append(item)
    while whole is not None and taken and whole(taken) > limit:
        last = taken.pop()
        smaller = part(last, size(last) - 1) if part else None
        if smaller is not None:
            taken.append(smaller)
    return taken


def largest_room(most: int, fits: Callable[[int], bool], *, likely: int = _FIRST_ROOM) -> int:
    """Return nearly the most of something with which a text fits, or 0 if it fits with none.

    Args:
        most: The most characters or columns that it may have.
        fits: Whether it fits if it may have so many.
        likely: With how many it may fit. The nearer, the fewer are tried.
    """
    # Doubled, since the half of a huge text takes long to count.
    fitting, room = 0, likely
    while room < most and fits(room):
        fitting = room
        room *= 2
    # Rooms that do not depend on the limit, so that a larger limit never gets a smaller one.
    rooms = [*_rooms_below(min(room, most))]
    if room >= most:
        rooms.append(most)
    first = bisect_right(rooms, fitting)
    number = bisect_left(rooms, True, first, key=lambda room: not fits(room))
    if number == first:  # the room below the last double was not tried, and may not fit
        while number and not fits(rooms[number - 1]):
            number -= 1
    return rooms[number - 1] if number else 0


def _rooms_below(most: int) -> Iterator[int]:
    room = 1
    while room < most:
        yield room
        room += max(room // _PRECISION, 1)


class PartSize(NamedTuple):
    """A part of a thing: its number in the order of the parts, its characters, and its tokens."""

    number: int
    chars: int
    tokens: int


class Parts:
    """The parts of one thing, each larger than the one before it.

    Args:
        sizes: The sizes of the parts, in ascending order of tokens. Read as far as they are asked.
        show: Returns the text of the part with a number.
        matches: Whether they have something that the question names.
    """

    def __init__(
        self, sizes: Iterator[PartSize], show: Callable[[int], Excerpt], *, matches: bool
    ) -> None:
        self._sizes = Cached(sizes)
        self._show = show
        self.matches = matches

    def __iter__(self) -> Iterator[PartSize]:
        """Yield the sizes of the parts."""
        return iter(self._sizes)

    def smallest_with(self, chars: int) -> PartSize | None:
        """Return the first part that shows at least `chars` characters, or None."""
        return next((size for size in self._sizes if size.chars >= chars), None)

    def largest_within(self, max_tokens: int) -> PartSize | None:
        """Return the largest part of at most `max_tokens`, or None."""
        largest = None
        for size in self._sizes:
            if size.tokens > max_tokens:
                break
            largest = size
        return largest

    def text(self, size: PartSize) -> Excerpt:
        """Return the text of a part."""
        return self._show(size.number)


class Cached(Generic[_Item]):
    """The items of an iterator, computed on demand and kept for the next iteration."""

    def __init__(self, source: Iterator[_Item]) -> None:
        self._source = source
        self._items: list[_Item] = []

    def __iter__(self) -> Iterator[_Item]:
        """Yield the items."""
        # By index, since another iteration may extend the list between two items.
        index = 0
        while True:
            if index == len(self._items):
                self._items.extend(islice(self._source, 1))
            if index == len(self._items):
                return
            yield self._items[index]
            index += 1


class Lines:
    """Lines within a number of characters. None looks like the heading of a block.

    Args:
        max_chars: Maximum characters of all lines with their line ends.

    Attributes:
        left: Characters that are left.
    """

    def __init__(self, max_chars: int) -> None:
        self._lines: list[str] = []
        self._reserved = 0
        self.left = max_chars

    @property
    def text(self) -> str:
        """The lines as text."""
        return "\n".join(self._lines)

    def reserve(self, chars: int, *, at_most: int) -> None:
        """Keep characters for later lines, `at_most` in all."""
        chars = min(chars, at_most - self._reserved, self.left)
        if chars > 0:
            self._reserved += chars
            self.left -= chars

    def free(self) -> None:
        """Let the next lines take what was reserved."""
        self.left += self._reserved
        self._reserved = 0

    def add(self, line: str) -> bool:
        """Add a line, and return whether it fits."""
        line = without_headings(line)
        if len(line) + 1 > self.left:
            return False
        self._lines.append(line)
        self.left -= len(line) + 1
        return True

    def add_list(self, label: str, items: Iterable[str], total: int, *, max_chars: int) -> int:
        """Add a line with a label and as many items as fit, and return their number.

        The line says how many items are missing. Nothing is added if no item fits.

        Args:
            label: The beginning of the line.
            items: The items, the most important first.
            total: Number of items, with those that are not in `items`.
            max_chars: Maximum characters of the line.
        """
        label = without_headings(label)

        def line_of(shown: Sequence[str]) -> str:
            return f"{label} {', '.join(shown)}{_missing(total - len(shown))}"

        # Without a comma before the first item.
        chars_before = len(label) - 1
        shown = fill(
            min(max_chars, self.left - 1) - chars_before,
            items,
            lambda item: len(item) + 2,
            whole=lambda shown: len(line_of(shown)) - chars_before,
        )
        if shown:
            self.add(line_of(shown))
        return len(shown)

    def add_best(
        self,
        items: Iterable[_Item],
        line_of: Callable[[_Item], str],
        lines_of: Callable[[Sequence[_Item]], Sequence[str]],
    ) -> int:
        """Add the lines of as many items as fit, and return their number.

        Args:
            items: The items, the most important first.
            line_of: Returns the line of an item.
            lines_of: Returns the lines of items with those around them, such as one that says how
                many are missing.
        """

        def chars(lines: Iterable[str]) -> int:
            return sum(len(without_headings(line)) + 1 for line in lines)

        shown = fill(
            self.left,
            items,
            lambda item: chars([line_of(item)]),
            whole=lambda shown: chars(lines_of(shown)),
        )
        if shown:
            for line in lines_of(shown):
                self.add(line)
        return len(shown)

    def add_rows(self, head: str, rows: Iterable[str], total: int, *, noun: str) -> int:
        """Add a headed list of rows, as many as fit, and return their number.

        The last line says how many rows are missing. Nothing is added if no row fits.

        Args:
            head: The line above the rows.
            rows: The rows, the most important first.
            total: Number of rows, with those that are not in `rows`.
            noun: What the rows are, for the last line.
        """

        def lines_of(shown: Sequence[str]) -> list[str]:
            missing = total - len(shown)
            return [head, *shown, *([f"… {missing:,} more {noun}"] if missing > 0 else [])]

        return self.add_best(rows, str, lines_of)


def _missing(count: int) -> str:
    return f" … {count:,} more" if count > 0 else ""
