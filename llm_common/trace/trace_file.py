"""`read_trace`: reads the lines of one run, and skips damaged ones."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from pydantic import ValidationError

from llm_common.errors import StoreError
from llm_common.trace.lines import LINE, Line, RunBegin, RunEnd
from llm_common.trace.run import RecordedRun

_MAX_FILE_BYTES: Final = 256_000_000  # decoded lines take several times as much memory
_MAX_NOTES: Final = 10  # a file that is not a trace would have one a line
_END_BYTES: Final = 100_000  # the first line has a question of up to 20,000 characters

RUN_FILE: Final = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}\.jsonl")
"""The names that `Trace` gives to its files."""


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


def read_ends(path: Path) -> RecordedRun:
    """Read only the first and the last line of a run, neither if they cannot be read."""
    head = tail = b""
    # A `Trace` may delete the file meanwhile.
    with suppress(OSError), path.open("rb") as file:
        head = file.read(_END_BYTES)
        file.seek(max(os.fstat(file.fileno()).st_size - _END_BYTES, 0))
        tail = file.read()
    lines: list[Line] = []
    for text in (head.partition(b"\n")[0], tail.rstrip(b"\n").rpartition(b"\n")[2]):
        with suppress(ValidationError, orjson.JSONDecodeError):
            lines.append(LINE.validate_python(orjson.loads(text)))
    ends = tuple(line for line in lines if isinstance(line, RunBegin | RunEnd))
    return RecordedRun(path, ends, is_whole=False)


def is_run(path: Path) -> bool:
    """Return whether a file is a run, by its name or by its first or last line."""
    return RUN_FILE.fullmatch(path.name) is not None or bool(read_ends(path).lines)
