"""`RecordedRuns`: the traces of a folder, found without reading more of them than a page shows."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson
from pydantic import ValidationError

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace.lines import LINE, Line, RunBegin, RunEnd, SelectionLine, ToolCallLine
from llm_common.trace.trace_file import RecordedRun, read_trace

_RUN: Final = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}")
_EDGE_BYTES: Final = 100_000  # a question has up to 20,000 characters
_MAX_RUN_BYTES: Final = 32_000_000
_MAX_COUNTED_BYTES: Final = 40_000_000


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run by its first and last line.

    Attributes:
        folder: The folder of its query.
        run_id: Its name.
        bytes: Of its file.
        begin: Its first line; None if that cannot be read.
        end: Its last line; None for a run that goes on, or was killed.
    """

    folder: str
    run_id: str
    bytes: int
    begin: RunBegin | None
    end: RunEnd | None


@dataclass
class ToolCost:
    """What a tool costs, over several runs.

    Attributes:
        definition_tokens: At most so many tokens of its signature; the most that was seen.
        offered: How often a model could choose it.
        calls: How often it was called.
        failed: How many of the calls failed.
        bytes: Of what it returned.
    """

    definition_tokens: int = 0
    offered: int = 0
    calls: int = 0
    failed: int = 0
    bytes: int = 0

    @property
    def offered_tokens(self) -> int:
        """Tokens of its definition, each time that it was offered."""
        return self.definition_tokens * self.offered


@dataclass
class ToolCosts:
    """The tools of the newest runs, and how many of how many runs were read."""

    by_tool: dict[str, ToolCost] = field(default_factory=dict)
    read: int = 0
    total: int = 0


class RecordedRuns:
    """The runs whose traces are in a folder, as `Trace` writes them; links are passed over.

    Args:
        directory: The folder; it may be missing.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def rows(
        self, *, limit: int, offset: int = 0, folder: str | None = None
    ) -> tuple[list[RunRow], int]:
        """Some runs, newest first, and how many there are.

        Args:
            limit: Most rows.
            offset: Rows before them.
            folder: Those of one query alone.
        """
        paths = self._paths(folder)
        return [_row(path) for path in paths[offset : offset + limit]], len(paths)

    def run(self, folder: str, run_id: str) -> RecordedRun:
        """A whole run.

        Raises:
            PointerNotFoundError: There is no such run.
            StoreError: Its file is too large, cannot be read, or is no trace.
        """
        path = self._directory / folder / f"{run_id}.jsonl"
        if not _RUN.fullmatch(run_id) or path not in self._paths(folder):
            raise PointerNotFoundError(
                f"There is no run {run_id[:40]!r}; take one of the list of runs"
            )
        if path.stat().st_size > _MAX_RUN_BYTES:
            raise StoreError(
                f"{path.name} has over {_MAX_RUN_BYTES:,} bytes, too many for a page; read it with another program"
            )
        return read_trace(path)

    def step(self, folder: str, run_id: str, seq: int) -> tuple[RecordedRun, Line]:
        """A line of a run, and the run.

        Raises:
            PointerNotFoundError: There is no such run or line.
            StoreError: The run cannot be read.
        """
        run = self.run(folder, run_id)
        for line in run.lines:
            if line.seq == seq and not isinstance(line, RunBegin | RunEnd):
                return run, line
        raise PointerNotFoundError(f"The run has no step {seq}; take one of its page")

    def others(self, run: RecordedRun, *, limit: int) -> list[RecordedRun]:
        """The newest other runs of a run's query, without those that cannot be read."""
        folder, found = run.path.parent.name, []
        for row in self.rows(limit=limit + 1, folder=folder)[0]:
            with suppress(OSError, StoreError):
                if row.run_id != run.run_id:
                    found.append(self.run(folder, row.run_id))
        return found[:limit]

    def tool_costs(self) -> ToolCosts:
        """What the tools cost, over the newest runs of up to 40 MB together."""
        paths, costs, left = self._paths(None), ToolCosts(), _MAX_COUNTED_BYTES
        costs.total = len(paths)
        for path in paths:
            with suppress(OSError, StoreError):
                left -= path.stat().st_size
                if left < 0:
                    break
                _count(read_trace(path), costs.by_tool)
                costs.read += 1
        return costs

    def _paths(self, folder: str | None) -> list[Path]:
        """The files of runs, newest first."""
        found = (
            path
            for place in self._folders()
            if folder in {None, place.name}
            for path in _runs_in(place)
        )
        return sorted(found, key=lambda path: path.name, reverse=True)

    def _folders(self) -> Iterator[Path]:
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)


def _runs_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name, _, ending = entry.name.rpartition(".")
            if ending == "jsonl" and _RUN.fullmatch(name) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _row(path: Path) -> RunRow:
    head = tail = b""
    size = 0
    with suppress(OSError), path.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        head = opened.read(_EDGE_BYTES)
        opened.seek(max(size - _EDGE_BYTES, 0))
        tail = opened.read()
    begin, end = _line(head.partition(b"\n")[0]), _line(tail.rstrip(b"\n").rpartition(b"\n")[2])
    return RunRow(
        path.parent.name,
        path.stem,
        size,
        begin if isinstance(begin, RunBegin) else None,
        end if isinstance(end, RunEnd) else None,
    )


def _line(text: bytes) -> Line | None:
    try:
        return LINE.validate_python(orjson.loads(text))
    except (ValidationError, orjson.JSONDecodeError):
        return None


def _count(run: RecordedRun, costs: dict[str, ToolCost]) -> None:
    """Adds the tools of a run."""
    for line in run.of(SelectionLine):
        if line.of == "tools":
            for one in line.candidates:
                cost = costs.setdefault(one.id, ToolCost())
                cost.offered += one.reason != "not shown"
                cost.definition_tokens = max(cost.definition_tokens, one.tokens or 0)
    for call in run.of(ToolCallLine):
        cost = costs.setdefault(call.tool, ToolCost())
        cost.calls += 1
        cost.failed += call.failure is not None
        cost.bytes += call.result_bytes or 0
