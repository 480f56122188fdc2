"""The outputs of a query, sorted and filtered, with the values of two plots."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from llm_common.agents import ContextPointer
from llm_common.apps.inspector.formats import size, time

SIZES: Final = {"": "any size", "1000": "from 1 KB", "10000": "from 10 KB", "100000": "from 100 KB"}
"""Smallest sizes in bytes, with the words of the form."""

AGES: Final = {"": "any time", "1": "last hour", "24": "last day", "168": "last week"}
"""Largest ages in hours, with the words of the form."""

SORTS: Final = {
    "": "newest first",
    "oldest": "oldest first",
    "largest": "largest first",
    "smallest": "smallest first",
    "tool": "by tool",
}
"""Orders, with the words of the form."""

QUERY_SORTS: Final = {
    "": "last changed first",
    "pointers": "most outputs first",
    "bytes": "largest first",
}
"""Orders of queries, named by the fields of a `QuerySummary`."""

_BINS: Final = 40
_MAX_BARS: Final = 8  # more tools than that are in the table only

_KEYS: Final[dict[str, Callable[[ContextPointer], object]]] = {
    "oldest": lambda pointer: pointer.created_at,
    "largest": lambda pointer: -(pointer.result_bytes or 0),
    "smallest": lambda pointer: pointer.result_bytes or 0,
    "tool": lambda pointer: (pointer.tool_name, pointer.summary),
}


@dataclass(frozen=True, slots=True)
class OutputFilter:
    """What a reader chose in the form of a list.

    Attributes:
        tool: Name of a tool. An empty text means any.
        size: A key of `SIZES`.
        age: A key of `AGES`.
        sort: A key of `SORTS`.
    """

    tool: str = ""
    size: str = ""
    age: str = ""
    sort: str = ""

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters of an address with these choices."""
        values = {"tool": self.tool, "size": self.size, "age": self.age, "sort": self.sort}
        return {name: value for name, value in values.items() if value}

    def apply(self, pointers: Sequence[ContextPointer]) -> list[ContextPointer]:
        """Return the pointers that match, in the chosen order.

        Args:
            pointers: The pointers, newest first.
        """
        smallest = int(self.size or 0)
        earliest = datetime.min.replace(tzinfo=UTC)
        if self.age:
            earliest = datetime.now(UTC) - timedelta(hours=int(self.age))
        matching = []
        for pointer in pointers:
            if self.tool not in {"", pointer.tool_name}:
                continue
            if (pointer.result_bytes or 0) < smallest:
                continue
            created_at = time(pointer.created_at)
            if self.age and (created_at is None or created_at < earliest):
                continue
            matching.append(pointer)
        if self.sort in _KEYS:
            # The sort is stable, so equal outputs stay newest first.
            matching.sort(key=_KEYS[self.sort])  # type: ignore[arg-type]
        return matching


@dataclass(frozen=True, slots=True)
class ToolSum:
    """The number of outputs of a tool, and their bytes."""

    tool: str
    outputs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bin:
    """The outputs of a span of time, with the place and height of their bar from 0 to 1."""

    outputs: int
    start: float
    height: float


@dataclass(frozen=True, slots=True)
class OverTime:
    """The outputs over time, and the first and the last of these times."""

    first: str
    last: str
    bins: tuple[Bin, ...]
    width: float


def sums_by_tool(pointers: Sequence[ContextPointer]) -> list[ToolSum]:
    """Return the outputs and bytes of each tool, the most bytes first."""
    outputs, sizes = defaultdict[str, int](int), defaultdict[str, int](int)
    for pointer in pointers:
        outputs[pointer.tool_name] += 1
        sizes[pointer.tool_name] += pointer.result_bytes or 0
    sums = [ToolSum(tool, outputs[tool], sizes[tool]) for tool in outputs]
    return sorted(sums, key=lambda tool: (-tool.bytes, tool.tool))


def largest_tools(sums: Sequence[ToolSum]) -> list[ToolSum]:
    """Return the tools of the plot."""
    return [*sums[:_MAX_BARS]]


def over_time(pointers: Sequence[ContextPointer]) -> OverTime | None:
    """Return how many outputs were saved in each span, or None if all have one time."""
    moments = sorted(filter(None, (time(pointer.created_at) for pointer in pointers)))
    if not moments or moments[0] == moments[-1]:
        return None
    span = moments[-1] - moments[0]
    counts = [0] * _BINS
    for moment in moments:
        counts[min(int((moment - moments[0]) / span * _BINS), _BINS - 1)] += 1
    most = max(counts)
    bins = []
    for position, count in enumerate(counts):
        if count:
            bins.append(Bin(count, position / _BINS, count / most))
    return OverTime(moments[0].isoformat(), moments[-1].isoformat(), tuple(bins), 1 / _BINS)


def shape(pointer: ContextPointer) -> str:
    """Return the form of a result without its size, which has a column of its own."""
    form = pointer.digest.partition("; ")[0]
    return form.removesuffix(f", {pointer.result_bytes or 0:,} bytes")


def total_size(pointers: Sequence[ContextPointer]) -> str:
    """Return the size of all results."""
    return size(sum(pointer.result_bytes or 0 for pointer in pointers))
