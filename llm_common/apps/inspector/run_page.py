"""The page of one run, and an index of several: what their templates show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from llm_common.apps.inspector.marking import ShownMessage, shown_messages
from llm_common.apps.inspector.run_outputs import (
    Flows,
    call_label,
    flows,
    labels,
    sent_packing,
)
from llm_common.apps.inspector.run_values import why_no_answer
from llm_common.apps.inspector.timeline import StepTime, timeline
from llm_common.trace import Line, OffloadLine, PackingLine, RecordedRun, ToolCallLine, account

_MAX_MESSAGE_CHARS: Final = 100_000  # a browser lays out longer texts slowly
_PART_MEANINGS: Final = {
    "words": "words are matches of the question's words",
    "vectors": "vectors is the similarity of the meaning",
    "mentioned": "mentioned means that the question names a value of its call",
    "named": "named means that the best match names its call",
    "names": "names means that it names the call of the best match",
    "recency": "recency is higher for what was saved later",
    "newest": "newest is higher for later turns",
    "neighbours": "neighbours is the score of the turns around it",
    "code": "code is added to source files",
    "tests": "tests is taken off from test files",
    "change": "change is higher for files that changed lately",
    "recent": "recent is higher for files that changed lately",
    "relevance": "relevance is the score that the memory store gave",
    "project": "project is added to what belongs to the project",
}


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The pages around a page, as file names in the same folder. None has no link.

    Attributes:
        previous: The page before.
        next: The page after.
        index: The page that lists all.
    """

    previous: str | None = None
    next: str | None = None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A run in an index.

    Attributes:
        page: File name of its page, in the folder of the index.
        run: The run.
        returned_tokens: See `flows`.
    """

    page: str
    run: RecordedRun
    returned_tokens: Mapping[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the question of the run, or its id."""
        begin = self.run.begin
        return (begin.query if begin else None) or f"Run {self.run.run_id}"

    @property
    def flows(self) -> Flows:
        """Return what its outputs returned, and what was shown."""
        return flows(self.run, returned_tokens=self.returned_tokens)


@dataclass(frozen=True, slots=True)
class RunPage:
    """What the templates of a run show.

    Attributes:
        flows: What each output returned, and how much of it was shown.
        labels: The labels of outputs by id.
        packing: The packing that was sent. None if there is none.
        steps: The steps with their times.
        messages: The messages of the prompt. Empty if the trace has no texts.
        notes: Sentences about the whole run that the answer does not say.
        evidence: The values that the caller named as evidence.
    """

    flows: Flows
    labels: dict[str, str]
    packing: PackingLine | None
    steps: tuple[StepTime, ...]
    messages: tuple[ShownMessage, ...]
    notes: tuple[str, ...]
    evidence: tuple[str, ...] = ()

    @property
    def has_evidence(self) -> bool:
        """Return whether a part of the prompt is marked as evidence."""
        for message in self.messages:
            for part in message.parts:
                for fragment in part.pieces:
                    if fragment.mark == "evidence":
                        return True
        return False

    def not_shown(self, item: account.Unseen) -> str:
        """Return how much of an item was not shown, as counted where its tokens are known."""
        for flow in self.flows.items:
            if self.flows.are_exact and flow.id == item.id:
                return f"{flow.returned - flow.shown:,} tokens of it"
        return item.missing

    def title(self, line: Line) -> str:
        """Return the title of a step, with the arguments of a call in place of the id."""
        if isinstance(line, ToolCallLine):
            return account.title(line).replace(line.tool, call_label(line.tool, line.args), 1)
        if isinstance(line, OffloadLine) and line.pointer_id:
            shown = f"{line.shown_chars:,} of {line.total_chars:,} characters"
            if line.outcome != "whole":
                return f"Stored {self.labels[line.pointer_id]} and previewed {shown}"
        return account.title(line)


def run_page(
    run: RecordedRun,
    *,
    evidence: Sequence[str] = (),
    returned_tokens: Mapping[str, int] = MappingProxyType({}),
) -> RunPage:
    """Return what the templates of a run show.

    Args:
        run: The run.
        evidence: See `shown_messages`.
        returned_tokens: See `flows`.
    """
    return RunPage(
        flows=flows(run, returned_tokens=returned_tokens),
        labels=labels(run),
        packing=sent_packing(run),
        steps=tuple(timeline(run)),
        messages=tuple(shown_messages(run, evidence=evidence, max_chars=_MAX_MESSAGE_CHARS)),
        notes=tuple(note for note in account.verdicts(run) if note != why_no_answer(run)),
        evidence=tuple(evidence),
    )


def score_legend(line: PackingLine) -> str:
    """Return a sentence about the parts of the scores of a packing."""
    names = dict.fromkeys(
        name for item in line.items for name, value in item.parts.items() if value
    )
    meanings = [_PART_MEANINGS[name] for name in names if name in _PART_MEANINGS]
    sentence = "A score is the sum of its parts, and compares with scores of the same kind only."
    return f"{sentence} {'; '.join(meanings).capitalize()}." if meanings else sentence
