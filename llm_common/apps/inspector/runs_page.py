"""Finds the traces in a folder, and reads only what a page shows."""

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from pydantic import ValidationError

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace import (
    LINE,
    Line,
    RecordedRun,
    RunBegin,
    RunEnd,
    read_trace,
)

_EDGE_BYTES: Final = 100_000  # the first line has a question of up to 20,000 characters
_MAX_RUN_BYTES: Final = 32_000_000  # four times the default of `Trace`
_MAX_DEPTH: Final = 3  # a folder of traces may be inside the folder that a reader names
_MAX_DIRECTORIES: Final = 5_000
_MAX_STRANGERS: Final = 20  # a page names so many files
# The names that `Trace` gives. Files with other names are read to see what they are.
_RUN_FILE: Final = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}\.jsonl")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in a list, with its first and last line.

    Attributes:
        folder: Name of the folder of its query.
        run_id: Its id.
        bytes: Size of its file.
        begin: Its first line. None if it cannot be read.
        end: Its last line. None if the run is not over or was killed.
    """

    folder: str
    run_id: str
    bytes: int
    begin: RunBegin | None
    end: RunEnd | None


class Step(NamedTuple):
    """A line with its run."""

    run: RecordedRun
    line: Line

    @property
    def folder(self) -> str:
        """Return the name of the folder of the run's query."""
        return self.run.path.parent.name


class RecordedRuns:
    """The runs whose traces are in a folder or its subfolders. Links are not followed.

    Args:
        directory: The folder, which may be missing. None means no runs.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def rows(self, *, limit: int, offset: int = 0) -> tuple[list[RunRow], int]:
        """Return one page of runs, newest first, and the number of all runs.

        Args:
            limit: Maximum number of rows.
            offset: Number of newer runs to skip.
        """
        paths = [path for path in self._paths(None) if not _why_no_run(path)]
        return [_read_row(path) for path in paths[offset : offset + limit]], len(paths)

    def strangers(self) -> list[str]:
        """Return the first 20 `.jsonl` files that are not runs, each with the reason."""
        sentences: list[str] = []
        for path in self._paths(None):
            if len(sentences) == _MAX_STRANGERS:
                break
            if reason := _why_no_run(path):
                sentences.append(f"{path.name} {reason}")
        return sentences

    def run(self, folder: str, run_id: str) -> RecordedRun:
        """Return a whole run.

        Raises:
            PointerNotFoundError: If there is no such run.
            StoreError: If its file is too large, cannot be read, or is not a trace.
        """
        # The id is compared, not joined to a path, so ".." cannot leave the folder.
        for path in self._paths(folder):
            if path.stem == run_id:
                return _read_run(path)
        raise PointerNotFoundError(f"There is no run {run_id[:40]!r}. Choose one under Runs")

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
        raise PointerNotFoundError(f"The run has no step {seq}. Choose one of its page")

    def _paths(self, folder: str | None) -> list[Path]:
        """Return the files of runs, newest first."""
        paths: list[Path] = []
        for directory in self._directories():
            if folder not in {None, directory.name}:
                continue
            for entry in _entries(directory):
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                    paths.append(Path(entry.path))
        # File names begin with the time of the run.
        return sorted(paths, key=lambda path: path.name, reverse=True)

    def _directories(self) -> Iterator[Path]:
        """Yield the folder itself, which may have copies of traces, and its subfolders."""
        if self._directory is None:
            return
        todo = deque([(self._directory, 0)])
        count = 0
        while todo and count < _MAX_DIRECTORIES:
            directory, depth = todo.popleft()
            count += 1
            yield directory
            for entry in _entries(directory) if depth < _MAX_DEPTH else ():
                if entry.is_dir(follow_symlinks=False):
                    todo.append((Path(entry.path), depth + 1))


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a directory, none if it cannot be read."""
    with suppress(OSError), os.scandir(directory) as entries:
        yield from entries


def _why_no_run(path: Path) -> str:
    """Return why a file is not a run, or an empty text if it is one."""
    if _RUN_FILE.fullmatch(path.name):
        return ""
    try:
        with path.open("rb") as file:
            head = file.read(_EDGE_BYTES)
    except OSError:
        return "cannot be read"
    first = head.partition(b"\n")[0]
    if not first:
        return "is empty"
    try:
        LINE.validate_python(orjson.loads(first))
    except orjson.JSONDecodeError:
        return "does not begin with a line of JSON"
    except ValidationError:
        return "begins with JSON that is not a line of a trace"
    return ""


def _read_run(path: Path) -> RecordedRun:
    if path.stat().st_size > _MAX_RUN_BYTES:
        raise StoreError(
            f"{path.name} has over {_MAX_RUN_BYTES:,} bytes, too many for a page. "
            "Read it with another program"
        )
    return read_trace(path)


def _read_row(path: Path) -> RunRow:
    # Only the edges are read: a list of fifty runs can be 400 MB.
    head = tail = b""
    size = 0
    # A `Trace` may delete the file meanwhile. The row then has no lines.
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
