"""Show what `bench_store.py` measured as tables, on the screen and in `docs/benchmarks.md`."""

import math
import os
import platform
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from benchmarks.store_measuring import Sample

__all__ = ["Column", "Table", "replace_between_markers", "where_and_when"]

Quantity = Literal["cpu_s", "wall_s", "stall_s"]


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of what every row did in turn: for each row its samples, in the order of the rounds."""

    quantity: Quantity
    samples: dict[str, list[Sample]]

    def values(self, row: str) -> list[float]:
        return [getattr(sample, self.quantity) for sample in self.samples[row]]

    def median_ms(self, row: str) -> float:
        return statistics.median(self.values(row)) * 1_000

    def ratio(self, row: str, to: str) -> float:
        """Return the median of the ratios of the rounds."""
        return statistics.median(
            mine / its for mine, its in zip(self.values(row), self.values(to), strict=True)
        )


@dataclass(frozen=True, slots=True)
class Table:
    """Medians in milliseconds with their ratio to another row.

    Args:
        title: What was done.
        columns: What was measured, by heading; a row that a column lacks is left empty there.
        ratio_to: The row that another one is compared with.
    """

    title: str
    columns: Mapping[str, Column]
    ratio_to: Mapping[str, str]

    def markdown(self) -> str:
        rows = list(
            dict.fromkeys(row for column in self.columns.values() for row in column.samples)
        )
        head = ["store", *self.columns]
        body = [
            [row, *(self._cell(column, row) for column in self.columns.values())] for row in rows
        ]
        widths = [max(map(len, cells)) for cells in zip(head, *body, strict=True)]
        lines = [head, ["-" * width for width in widths], *body]
        table = "\n".join(f"| {' | '.join(map(str.ljust, cells, widths))} |" for cells in lines)
        return f"**{self.title}**\n\n{table}"

    def _cell(self, column: Column, row: str) -> str:
        if row not in column.samples:
            return "-"
        cell = _three_digits(column.median_ms(row))
        base = self.ratio_to.get(row)
        return (
            f"{cell} ({column.ratio(row, base):.2f}x)"
            if base in column.samples and base != row
            else cell
        )


def where_and_when(folder: Path, packages: Iterable[str]) -> str:
    """Return date, versions, processor, file system and load of the machine."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = (
        f"{cores} cores of {_processor()}, {platform.system()}, {_file_system(folder)}, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    return f"{datetime.now(UTC):%Y-%m-%d}: {python}, {where}; {versions}."


def replace_between_markers(document: Path, name: str, text: str) -> None:
    """Replace the text between the two markers of the document with a name.

    Raises:
        SystemExit: The document lacks them.
    """
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    before, _, rest = document.read_text(encoding="utf-8").partition(start)
    _, has_end, after = rest.partition(end)
    if not has_end:
        raise SystemExit(f"{document} needs the lines {start} and {end}")
    document.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")


def _three_digits(milliseconds: float) -> str:
    decimals = max(0, 2 - math.floor(math.log10(max(milliseconds, 0.001))))
    return f"{milliseconds:,.{decimals}f} ms"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "file system unknown"
    places = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    inside = [
        (len(place), kind) for place, kind in places if folder.resolve().is_relative_to(place)
    ]
    return max(inside)[1]
