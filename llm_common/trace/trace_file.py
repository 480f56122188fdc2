"""`read_trace`: reads the lines of one run, and skips damaged ones."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import ValidationError

from llm_common.errors import StoreError
from llm_common.trace.lines import LINE, Line, RunBegin, RunEnd

_MAX_FILE_BYTES: Final = 256_000_000  # decoded lines take several times as much memory
_MAX_NOTES: Final = 10  # a file that is not a trace would have one a line

LineT = TypeVar("LineT", bound=Line)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The recorded lines of a run.

    Attributes:
        path: The file.
        lines: The readable lines, in order.
        notes: Sentences about lines that could not be read.
    """

    path: Path
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        """Return the id of the run, which is the name of its file."""
        return self.path.stem

    @property
    def begin(self) -> RunBegin | None:
        """Return the first line, or None if it is missing."""
        return next(iter(self.of(RunBegin)), None)

    @property
    def end(self) -> RunEnd | None:
        """Return the last line, or None if the run is not over or was killed."""
        return next(iter(self.of(RunEnd)), None)

    def of(self, kind: type[LineT]) -> list[LineT]:
        """Return the lines of a kind."""
        return [line for line in self.lines if isinstance(line, kind)]


def read_trace(path: str | Path) -> RecordedRun:
    """Read the run of a file, or the newest run in a folder and its subfolders.

    A truncated last line and lines of an unknown kind are skipped, and listed in `notes`.

    Args:
        path: A `.jsonl` file of a trace, or a folder with such files.

    Returns:
        The run with its readable lines, at least one.

    Raises:
        StoreError: If there is no such file, it cannot be read, or it is not a trace.
    """
    file = Path(path)
    try:
        if file.is_dir():
            # File names begin with the time of the run.
            file = max(file.rglob("*.jsonl"), key=lambda trace: trace.name)
        with file.open("rb") as opened:
            # Of the open file, since another one can replace it. The run may still append to it.
            size_bytes = os.fstat(opened.fileno()).st_size
            if size_bytes > _MAX_FILE_BYTES:
                raise StoreError(
                    f"{file} has {size_bytes:,} bytes, more than the {_MAX_FILE_BYTES:,} "
                    "that can be read. Read the trace of another run"
                )
            data = opened.read(_MAX_FILE_BYTES)
    except ValueError as exc:  # from `max` of nothing
        raise StoreError(
            f"{file} contains no trace. Give a .jsonl file that a Trace wrote"
        ) from exc
    except OSError as exc:
        raise StoreError(
            f"{file} cannot be read ({exc.strerror}). Give a .jsonl file that a Trace wrote"
        ) from exc
    # Each whole line ends in a line end, so anything after the last one is cut.
    *texts, incomplete = data.split(b"\n")
    lines: list[Line] = []
    notes = []
    if incomplete:
        notes.append("the last line is cut: the process was killed, or the disk was full")
    for number, text in enumerate(texts, 1):
        try:
            lines.append(LINE.validate_python(orjson.loads(text)))
        except (ValidationError, orjson.JSONDecodeError):
            # A later version of the library may write kinds that this one does not know.
            notes.append(f"line {number} is of an unknown kind or form and was skipped")
    if not lines:
        raise StoreError(
            f"{file} contains no line of a trace. Give a .jsonl file that a Trace wrote"
        )
    return RecordedRun(file, tuple(lines), tuple(notes[:_MAX_NOTES]))
