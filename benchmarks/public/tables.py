"""Tables of shares: ours, baselines of the same run, and what others report."""

import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

__all__ = [
    "REPORTED",
    "Cell",
    "Row",
    "Section",
    "Share",
    "Table",
    "ahead_of_ours",
    "is_compared",
    "reported_rows",
    "share_of",
]

REPORTED: Final = Path(__file__).with_name("reported.toml")
# Less is a tie at three digits.
TIE: Final = 0.0005

Group = Literal["ours", "baseline", "reported"]


class Share(NamedTuple):
    """A mean over a set, and over the part of it that was never tuned on, if there is one."""

    whole: float
    unseen: float | None = None

    def __str__(self) -> str:
        whole = _three_digits(self.whole)
        return whole if self.unseen is None else f"{whole} ({_three_digits(self.unseen)})"


Cell = Share | str | None


@dataclass(frozen=True)
class Row:
    """A row of a table, with a cell for each column.

    Attributes:
        label: What was measured.
        cells: The values. None where nothing is known.
        group: Whether it is ours, a baseline of the same run, or reported by others.
        source: Where a reported row is from.
    """

    label: str
    cells: tuple[Cell, ...]
    group: Group
    source: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under one title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def markdown(self) -> str:
        """Return the table in Markdown, under its title."""
        lines = [f"**{self.title}**", "", _line(["method", *self.columns])]
        lines.append("|" + "---|" * (len(self.columns) + 1))
        for row in self.rows:
            label = f"**{row.label}**" if row.group == "ours" else row.label
            if row.source:
                label = f"reported: {label} ([source]({row.source}))"
            lines.append(_line([label, *("" if cell is None else str(cell) for cell in row.cells)]))
        return "\n".join(lines)


@dataclass(frozen=True)
class Section:
    """What one benchmark showed.

    Attributes:
        title: Its heading.
        about: What is measured, what is not, and which part was tuned on.
        tables: Its tables.
        notes: Sentences about this run, such as what was left out.
        files: Results by case, the texts of files beside the page by their names.
    """

    title: str
    about: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = field(default=())
    files: Mapping[str, str] = field(default_factory=dict)


def share_of(values: Iterable[tuple[float, bool]]) -> Share:
    """Return the mean of values, and of those that are marked as unseen.

    If all values have the same mark, there is only one mean.
    """
    rows = [*values]
    unseen = [value for value, is_unseen in rows if is_unseen]
    whole = statistics.fmean(value for value, _ in rows)
    if not unseen or len(unseen) == len(rows):
        return Share(whole)
    return Share(whole, statistics.fmean(unseen))


def reported_rows(name: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield what others report for a table, in the order of `reported.toml`."""
    for row in tomllib.loads(REPORTED.read_text(encoding="utf-8")).get(name, []):
        unknown = row["cells"].keys() - set(columns)
        if unknown:
            raise ValueError(f"{name} has no columns {sorted(unknown)}")
        cells: list[Cell] = []
        for column in columns:
            value = row["cells"].get(column)
            cells.append(Share(value) if isinstance(value, float) else value)
        yield Row(row["label"], tuple(cells), "reported", row["source"])


def ahead_of_ours(table: Table) -> list[str]:
    """Return a phrase for each column in which another row is ahead of every row of ours.

    Held-back parts are compared where both rows have one. A table without two rows to compare has
    no phrases either, see `is_compared`.
    """
    phrases = []
    for place, column in enumerate(table.columns):
        whole = _ahead(table.rows, place, lambda cell: cell.whole)
        unseen = _ahead(table.rows, place, lambda cell: cell.unseen)
        phrases += [f"{column}: {whole}"] if whole else []
        phrases += [f"{column}, held back: {unseen}"] if unseen else []
    return phrases


def is_compared(table: Table) -> bool:
    """Return whether a row of others has a share in a column in which ours has one."""
    for column in zip(*(row.cells for row in table.rows), strict=True):
        groups = set()
        for row, cell in zip(table.rows, column, strict=True):
            if isinstance(cell, Share):
                groups.add(row.group == "ours")
        if len(groups) > 1:
            return True
    return False


def _ahead(rows: Sequence[Row], place: int, value_of: Callable[[Share], float | None]) -> str:
    values: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
    for row in rows:
        cell = row.cells[place]
        value = value_of(cell) if isinstance(cell, Share) else None
        if value is not None:
            name = row.label.partition(":")[0]
            values[row.group == "ours"].append((value, name))
    if not values[True]:
        return ""
    best, _ = max(values[True])
    ahead = [
        f"{name} {_three_digits(value)}" for value, name in values[False] if value > best + TIE
    ]
    return f"{', '.join(ahead)} (ours {_three_digits(best)})" if ahead else ""


def _three_digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
