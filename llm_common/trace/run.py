"""`RecordedRun`: a run as its trace has it, and what commands and pages ask about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from llm_common.trace.lines import (
    AnswerLine,
    Line,
    ModelCallLine,
    PackingLine,
    RunBegin,
    RunEnd,
    SelectionLine,
)

LineT = TypeVar("LineT", bound=Line)


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
