"""Tables of `bench_scale.py`: one column for each size, and the growth from size to size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A measure at several sizes.

    Attributes:
        name: What was measured, with its unit.
        values: The measured value of each size.
        max_growth: Maximum ratio of the last value to `base`, or None without a limit.
        base: The size that the last one is compared with.
        most: Maximum of the last value, or None without a limit.
    """

    name: str
    values: Mapping[int, float]
    max_growth: float | None = None
    base: int = 10_000
    most: float | None = None

    def cells(self) -> list[str]:
        """Return the values, each with its ratio to the value before."""
        cells: list[str] = []
        before: float | None = None
        for value in self.values.values():
            cell = _text(value)
            if before:
                cell += f" (x{value / before:.2f})"
            cells.append(cell)
            before = value
        return cells

    def problem(self) -> str:
        """Return how a limit is exceeded, or the empty text."""
        last_size, last = [*self.values.items()][-1]
        if self.most is not None and last > self.most:
            return f"{self.name}: {_text(last)} at {last_size:,}, at most {_text(self.most)}"
        base = self.values.get(self.base)
        if self.max_growth is None or base is None or last_size <= self.base:
            return ""
        growth = last / base
        if growth > self.max_growth:
            return f"{self.name}: x{growth:.2f} from {self.base:,} to {last_size:,}"
        return ""


def print_rows(title: str, rows: Sequence[Row]) -> list[str]:
    """Print a table, and return the exceeded limits."""
    sizes = [*rows[0].values]
    print(f"\n| {title} | {' | '.join(f'{size:,}' for size in sizes)} |")
    print(f"|---|{'---|' * len(sizes)}")
    for row in rows:
        print(f"| {row.name} | {' | '.join(row.cells())} |")
    return [problem for row in rows if (problem := row.problem())]


def _text(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
