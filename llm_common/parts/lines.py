"""`Lines`: whole lines within a number of characters."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from llm_common.parts.fill import fill
from llm_common.text.display import without_headings

_Item = TypeVar("_Item")


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
