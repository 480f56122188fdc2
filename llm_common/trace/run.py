"""`RecordedRun`: a run as its trace has it, and what commands and pages ask about it.

`read_trace` reads the lines of one run, and skips damaged ones.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import ValidationError

from llm_common.errors import StoreError
from llm_common.trace.lines import (
    LINE,
    AnswerLine,
    Line,
    ModelCallLine,
    PackingLine,
    RunBegin,
    RunEnd,
    SelectionLine,
)

LineT = TypeVar("LineT", bound=Line)

_MAX_FILE_BYTES: Final = 256_000_000  # decoded lines take several times as much memory
_MAX_NOTES: Final = 10  # a file that is not a trace would have one a line
_END_BYTES: Final = 100_000  # the first line has a question of up to 20,000 characters

RUN_FILE: Final = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}\.jsonl")
"""The names that `Trace` gives to its files."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The recorded lines of a run.

    Attributes:
        path: The file.
        lines: The readable lines, in order.
        notes: Sentences about lines that could not be read.
        is_whole: Whether all lines were read, and not only the first and the last one.
    """

    path: Path
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def run_id(self) -> str:
        """Return the id of the run, which is the name of its file."""
        return self.path.stem

    @property
    def folder(self) -> str:
        """Return the name of the folder of the run's query."""
        return self.path.parent.name

    @property
    def begin(self) -> RunBegin | None:
        """Return the first line, or None if it is missing."""
        return next(iter(self.of(RunBegin)), None)

    @property
    def end(self) -> RunEnd | None:
        """Return the last line, or None if the run is not over or was killed."""
        return next(iter(self.of(RunEnd)), None)

    @property
    def question(self) -> str:
        """Return the question, or an empty text if the trace does not have it."""
        return (self.begin.query if self.begin else None) or ""

    @property
    def title(self) -> str:
        """Return the question, or else the id."""
        return self.question or f"Run {self.run_id}"

    @property
    def answer(self) -> AnswerLine | None:
        """Return the last answer, or None if the run has none."""
        return next(reversed(self.of(AnswerLine)), None)

    @property
    def answer_text(self) -> str | None:
        """Return the text of the last answer, or None if no model or no trace has it."""
        answer = self.answer
        return None if answer is None or answer.is_without_model else answer.text

    @property
    def model_calls(self) -> list[ModelCallLine]:
        """Return the calls of models, without those of a client that asks none."""
        return [call for call in self.of(ModelCallLine) if not call.is_without_model]

    @property
    def known_costs(self) -> list[float]:
        """Return the dollars of each model call with a known price."""
        costs = [call.attempt.cost_usd for call in self.model_calls]
        return [cost for cost in costs if cost is not None]

    @property
    def cost_usd(self) -> float | None:
        """Return the dollars of all model calls, or None if one is unknown or none was made."""
        costs = self.known_costs
        return sum(costs) if costs and len(costs) == len(self.model_calls) else None

    @property
    def prompts(self) -> list[ModelCallLine]:
        """Return the model calls that do not belong to a selection."""
        selections = {line.step for line in self.of(SelectionLine) if line.step}
        return [call for call in self.of(ModelCallLine) if call.parent not in selections]

    @property
    def sent_packing(self) -> PackingLine | None:
        """Return the packing that the last prompt was made from, or None if nothing was packed.

        A prompt that is too long is packed again under a smaller budget, so the last packing before
        the last prompt counts.
        """
        packings = self.of(PackingLine)
        prompts = self.prompts
        if prompts:
            packings = [line for line in packings if line.seq < prompts[-1].seq] or packings
        return next(reversed(packings), None)

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
