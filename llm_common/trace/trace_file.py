"""`read_trace`: reads the lines of one run, as far as they are whole."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import ValidationError

from llm_common.errors import StoreError
from llm_common.trace.lines import LINE, Line, RunBegin, RunEnd

_MAX_FILE_BYTES: Final = 256_000_000
_MAX_NOTES: Final = 10

LineT = TypeVar("LineT", bound=Line)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as its trace contains it.

    Attributes:
        path: The file.
        lines: The readable lines, in their order.
        notes: What could not be read, in sentences.
    """

    path: Path
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        """Return the run's name, which is the file's."""
        return self.path.stem

    @property
    def begin(self) -> RunBegin | None:
        """Return the first line, None if it is missing."""
        return next(iter(self.of(RunBegin)), None)

    @property
    def end(self) -> RunEnd | None:
        """Return the last line, None for a run that goes on or was killed."""
        return next(iter(self.of(RunEnd)), None)

    def of(self, kind: type[LineT]) -> list[LineT]:
        """Return the lines of a kind."""
        return [line for line in self.lines if isinstance(line, kind)]


def read_trace(path: str | Path) -> RecordedRun:
    """Read the run of a file, or the newest run in a folder and the folders in it.

    Ignores a last line that is cut, and lines of another kind or form. `notes` tells of them.

    Args:
        path: A `.jsonl` file of a trace, or a folder of them.

    Raises:
        StoreError: If there is no such file, it cannot be read, or it is not a trace.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file = max(file.rglob("*.jsonl"), key=lambda trace: trace.name)
        with file.open("rb") as opened:
            is_readable = os.fstat(opened.fileno()).st_size <= _MAX_FILE_BYTES
            data = opened.read(_MAX_FILE_BYTES) if is_readable else b""
    except ValueError as exc:  # of `max`: the folder has no trace
        raise StoreError(f"{file} holds no trace; give a .jsonl file that a Trace wrote") from exc
    except OSError as exc:
        raise StoreError(
            f"{file} cannot be read ({exc.strerror}); give a .jsonl file that a Trace wrote"
        ) from exc
    *texts, rest = data.split(b"\n")
    lines: list[Line] = []
    notes = []
    if rest:
        notes.append("the last line is cut: the process was killed, or the disk was full")
    for number, text in enumerate(texts, 1):
        try:
            lines.append(LINE.validate_python(orjson.loads(text)))
        except (ValidationError, orjson.JSONDecodeError):
            notes.append(f"line {number} is of another kind or form and was ignored")
    if not lines:
        raise StoreError(f"{file} holds no line of a trace; give a .jsonl file that a Trace wrote")
    return RecordedRun(file, tuple(lines), tuple(notes[:_MAX_NOTES]))
