"""`Lines`: whole lines within a number of characters."""

from collections.abc import Iterable, Sequence

from llm_common.text.display import without_headings


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
        limit = min(max_chars, self.left - 1)
        line, count = without_headings(label), 0
        for item in items:
            longer = f"{line}{', ' if count else ' '}{item}"
            if len(longer) + len(_missing(total - count - 1)) > limit:
                break
            line, count = longer, count + 1
        if count:
            self.add(line + _missing(total - count))
        return count

    def add_rows(self, head: str, rows: Sequence[str], total: int, *, noun: str) -> int:
        """Add a headed list of rows, as many as fit, and return their number.

        The last line says how many rows are missing. Nothing is added if no row fits.

        Args:
            head: The line above the rows.
            rows: The rows, the most important first.
            total: Number of rows, with those that are not in `rows`.
            noun: What the rows are, for the last line.
        """
        head = without_headings(head)
        left = self.left - len(head) - 1
        count = 0
        for row in rows:
            left -= len(without_headings(row)) + 1
            rest = total - count - 1
            if left < (len(_missing_rows(rest, noun)) + 1 if rest else 0):
                break
            count += 1
        if count == 0:
            return 0
        self.add(head)
        for row in rows[:count]:
            self.add(row)
        if count < total:
            self.add(_missing_rows(total - count, noun))
        return count


def _missing(count: int) -> str:
    return f" … {count:,} more" if count > 0 else ""


def _missing_rows(count: int, noun: str) -> str:
    return f"… {count:,} more {noun}"
