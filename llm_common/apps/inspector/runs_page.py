"""What the pages of runs read: the traces in a folder.

Only what a page shows is read.
"""

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace import (
    Line,
    RecordedRun,
    RunBegin,
    RunEnd,
    is_run,
    read_ends,
    read_trace,
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
        paths = list(filter(is_run, self._paths(None)))
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

    def questions(self, folders: Collection[str]) -> dict[str, str]:
        """Return the question of the newest run in each of these folders that has runs."""
        questions: dict[str, str] = {}
        for path in self._paths(None):
            folder = path.parent.name
            if folder in folders and folder not in questions:
                questions[folder] = read_ends(path).question
        return questions

    def strangers(self) -> list[str]:
        """Return the names of the first 20 `.jsonl` files that are not runs."""
        strangers = (path.name for path in self._paths(None) if not is_run(path))
        return [*islice(strangers, _MAX_STRANGERS)]

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
        if self.directory is None:
            return []
        paths: list[Path] = []
        # Includes the folder itself, which may have copies of traces. Links are not followed, and
        # what cannot be read is left out.
        for root, folders, names in islice(os.walk(self.directory), _MAX_DIRECTORIES):
            directory = Path(root)
            if len(directory.relative_to(self.directory).parts) == _MAX_DEPTH:
                folders.clear()  # not entered
            if folder not in {None, directory.name}:
                continue
            for name in names:
                path = directory / name
                with suppress(OSError):  # a directory may list files and allow no access to them
                    if name.endswith(".jsonl") and stat.S_ISREG(path.lstat().st_mode):
                        paths.append(path)
        # File names begin with the time of the run.
        return sorted(paths, key=lambda path: path.name, reverse=True)
