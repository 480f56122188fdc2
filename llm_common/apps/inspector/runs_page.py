"""The page that lists runs: finds the traces in a folder, and reads only what the page shows."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace import (
    Line,
    RecordedRun,
    RunBegin,
    RunEnd,
    read_ends,
    read_trace,
    why_no_run,
)

_MAX_RUN_BYTES: Final = 32_000_000  # four times the default of `Trace`
_MAX_LISTED_BYTES: Final = 20_000_000  # of all runs of a list, about half a second
_MAX_DEPTH: Final = 3  # a folder of traces may be inside the folder that a reader names
_MAX_DIRECTORIES: Final = 5_000
_MAX_STRANGERS: Final = 20  # a page names so many files


class RecordedRuns:
    """The runs whose traces are in a folder or its subfolders. Links are not followed.

    Args:
        directory: The folder, which may be missing. None means no runs.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    def rows(self, *, limit: int, offset: int = 0) -> tuple[list[RecordedRun], int]:
        """Return one page of runs, newest first, and the number of all runs.

        Runs are read whole up to 20 MB in all. The others have their first and last line.

        Args:
            limit: Maximum number of rows.
            offset: Number of newer runs to skip.
        """
        paths = [path for path in self._paths(None) if not why_no_run(path)]
        runs = []
        free_bytes = _MAX_LISTED_BYTES
        for path in paths[offset : offset + limit]:
            run = read_ends(path)
            with suppress(OSError, StoreError):  # a `Trace` may delete the file meanwhile
                free_bytes -= path.stat().st_size
                if free_bytes >= 0:
                    run = read_trace(path)
            runs.append(run)
        return runs, len(paths)

    def strangers(self) -> list[str]:
        """Return the first 20 `.jsonl` files that are not runs, each with the reason."""
        sentences: list[str] = []
        for path in self._paths(None):
            if len(sentences) == _MAX_STRANGERS:
                break
            if reason := why_no_run(path):
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
                if path.stat().st_size > _MAX_RUN_BYTES:
                    raise StoreError(
                        f"{path.name} has over {_MAX_RUN_BYTES:,} bytes, too many for a page. "
                        "Read it with another program"
                    )
                return read_trace(path)
        raise PointerNotFoundError(f"There is no run {run_id[:40]!r}. Choose one under Runs")

    def step(self, folder: str, run_id: str, seq: int) -> tuple[RecordedRun, Line]:
        """Return a run, and one of its lines.

        Raises:
            PointerNotFoundError: If there is no such run or line.
            StoreError: If the run cannot be read.
        """
        run = self.run(folder, run_id)
        for line in run.lines:
            if line.seq == seq and not isinstance(line, RunBegin | RunEnd):
                return run, line
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
        if self.directory is None:
            return
        todo = deque([(self.directory, 0)])
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
