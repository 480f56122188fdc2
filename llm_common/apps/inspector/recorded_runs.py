"""Finds the traces in a folder, and reads no more of them than a page shows."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from pydantic import ValidationError

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace.lines import LINE, Line, RunBegin, RunEnd, SelectionLine, ToolCallLine
from llm_common.trace.trace_file import RecordedRun, read_trace

_EDGE_BYTES: Final = 100_000  # a question has up to 20,000 characters
_MAX_RUN_BYTES: Final = 32_000_000
_MAX_COUNTED_BYTES: Final = 40_000_000


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as its first and last line describe it.

    Attributes:
        folder: The folder of its query.
        run_id: Its name.
        bytes: Size of its file.
        begin: Its first line. None if it cannot be read.
        end: Its last line. None for a run that goes on or was killed.
    """

    folder: str
    run_id: str
    bytes: int
    begin: RunBegin | None
    end: RunEnd | None


class Step(NamedTuple):
    """A line and the run that it belongs to."""

    run: RecordedRun
    line: Line

    @property
    def folder(self) -> str:
        """The folder of the run's query."""
        return self.run.path.parent.name

    @property
    def key(self) -> str:
        """The step in an address."""
        return f"{self.folder}/{self.run.run_id}/{self.line.seq}"


@dataclass
class ToolCost:
    """The cost of a tool over several runs.

    Attributes:
        definition_tokens: Upper bound of its signature's tokens, the largest of all runs.
        offered: How often a model could choose it.
        calls: How often it was called.
        failed: How many of the calls failed.
        bytes: Size of what it returned.
    """

    definition_tokens: int = 0
    offered: int = 0
    calls: int = 0
    failed: int = 0
    bytes: int = 0

    @property
    def offered_tokens(self) -> int:
        """Tokens of its definition each time that it was offered."""
        return self.definition_tokens * self.offered


@dataclass
class ToolCosts:
    """The tools of the newest runs, how many runs were read, and how many there are."""

    by_tool: dict[str, ToolCost] = field(default_factory=dict)
    read: int = 0
    total: int = 0


class RecordedRuns:
    """The runs whose traces are in a folder or in the folders in it. Links are not followed.

    Args:
        directory: The folder. It may be missing. None has no runs.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def rows(
        self, *, limit: int, offset: int = 0, folder: str | None = None
    ) -> tuple[list[RunRow], int]:
        """Return one page of runs, newest first, and the number of all runs.

        Args:
            limit: Maximum number of rows.
            offset: Rows before them.
            folder: Returns the runs of this query only.
        """
        paths = self._paths(folder)
        return [_read_row(path) for path in paths[offset : offset + limit]], len(paths)

    def run(self, folder: str, run_id: str) -> RecordedRun:
        """Return a whole run.

        Raises:
            PointerNotFoundError: If there is no such run.
            StoreError: If its file is too large, cannot be read, or is no trace.
        """
        # the name is compared and never joined to a path, so it cannot lead out of the folder
        for path in self._paths(folder):
            if path.stem == run_id:
                return _read_run(path)
        raise PointerNotFoundError(f"There is no run {run_id[:40]!r}; take one of the list of runs")

    def step(self, folder: str, run_id: str, seq: int) -> Step:
        """Return a line of a run, with the run.

        Raises:
            PointerNotFoundError: If there is no such run or line.
            StoreError: If the run cannot be read.
        """
        run = self.run(folder, run_id)
        for line in run.lines:
            if line.seq == seq and not isinstance(line, RunBegin | RunEnd):
                return Step(run, line)
        raise PointerNotFoundError(f"The run has no step {seq}; take one of its page")

    def others(self, run: RecordedRun, *, limit: int) -> list[RecordedRun]:
        """Return the newest other runs of a run's query, without those that cannot be read."""
        folder, others = run.path.parent.name, []
        for path in self._paths(folder)[: limit + 1]:
            with suppress(OSError, StoreError):
                if path.stem != run.run_id:
                    others.append(_read_run(path))
        return others[:limit]

    def tool_costs(self) -> ToolCosts:
        """Return the cost of the tools over the newest runs of up to 40 MB together."""
        paths = self._paths(None)
        costs, counted_bytes = ToolCosts(total=len(paths)), 0
        for path in paths:
            with suppress(OSError, StoreError):
                counted_bytes += path.stat().st_size
                if counted_bytes > _MAX_COUNTED_BYTES:
                    break
                _count_tools(read_trace(path), costs.by_tool)
                costs.read += 1
        return costs

    def _paths(self, folder: str | None) -> list[Path]:
        """Return the files of runs, newest first."""
        paths: list[Path] = []
        for directory in self._directories():
            if folder in {None, directory.name}:
                paths.extend(_trace_files(directory))
        return sorted(paths, key=lambda path: path.name, reverse=True)

    def _directories(self) -> Iterator[Path]:
        """Yield the folder, where copies of traces may be, and the folders of queries in it."""
        if self._directory is None:
            return
        yield self._directory
        for entry in _entries(self._directory):
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _trace_files(directory: Path) -> Iterator[Path]:
    for entry in _entries(directory):
        if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a directory, none if it cannot be read."""
    with suppress(OSError), os.scandir(directory) as entries:
        yield from entries


def _read_run(path: Path) -> RecordedRun:
    if path.stat().st_size > _MAX_RUN_BYTES:
        raise StoreError(
            f"{path.name} has over {_MAX_RUN_BYTES:,} bytes, too many for a page; "
            "read it with another program"
        )
    return read_trace(path)


def _read_row(path: Path) -> RunRow:
    head = tail = b""
    size = 0
    with suppress(OSError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_EDGE_BYTES)
        file.seek(max(size - _EDGE_BYTES, 0))
        tail = file.read()
    begin = _parse_line(head.partition(b"\n")[0])
    end = _parse_line(tail.rstrip(b"\n").rpartition(b"\n")[2])
    return RunRow(
        folder=path.parent.name,
        run_id=path.stem,
        bytes=size,
        begin=begin if isinstance(begin, RunBegin) else None,
        end=end if isinstance(end, RunEnd) else None,
    )


def _parse_line(text: bytes) -> Line | None:
    try:
        return LINE.validate_python(orjson.loads(text))
    except (ValidationError, orjson.JSONDecodeError):
        return None


def _count_tools(run: RecordedRun, costs: dict[str, ToolCost]) -> None:
    """Add the tools of a run to the costs."""
    for line in run.of(SelectionLine):
        if line.of != "tools":
            continue
        for candidate in line.candidates:
            cost = costs.setdefault(candidate.id, ToolCost())
            cost.offered += candidate.reason != "not shown"
            cost.definition_tokens = max(cost.definition_tokens, candidate.tokens or 0)
    for call in run.of(ToolCallLine):
        cost = costs.setdefault(call.tool, ToolCost())
        cost.calls += 1
        cost.failed += call.failure is not None
        cost.bytes += call.result_bytes or 0
