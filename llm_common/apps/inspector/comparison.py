"""Compares the texts of two steps: from which byte on they differ, and what follows there."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from llm_common.apps.inspector.recorded_runs import Step
from llm_common.apps.inspector.run_values import BAR_WIDTH, exact_text
from llm_common.trace.differing import same_prefix
from llm_common.trace.lines import Line, ModelCallLine, PackingLine, RunBegin, RunEnd
from llm_common.trace.recording import digest, same_bytes
from llm_common.trace.trace_file import RecordedRun

_BEFORE_CHARS: Final = 300
_AFTER_CHARS: Final = 3_000
_MAX_CHOICES: Final = 50


class FirstChange(NamedTuple):
    """Where two texts begin to differ.

    Attributes:
        sentence: For a reader.
        same_bytes: How many bytes both begin with. None if that is not known.
    """

    sentence: str
    same_bytes: int | None = None


class ChangedText(NamedTuple):
    """The part of a text around its first change.

    Attributes:
        is_cut: Whether the text begins before `same`.
        same: The end of what both texts begin with.
        first: The first changed character. Empty at the end of the text.
        rest: What follows.
        more_chars: How many more characters follow `rest`.
    """

    is_cut: bool
    same: str
    first: str
    rest: str
    more_chars: int


def comparable_steps(step: Step, others: Sequence[RecordedRun]) -> dict[str, list[Step]]:
    """Return the steps of the same kind, by the run that they belong to.

    Those of the step's own run come first, the one just before it first of all.
    """
    if isinstance(step.line, RunBegin | RunEnd):
        return {}
    seq = step.line.seq
    own = [other for other in _same_kind(step, step.run) if other.line.seq != seq]
    own.sort(key=lambda other: (other.line.seq > seq, abs(other.line.seq - seq)))
    choices = {"This run": own[:_MAX_CHOICES]}
    for run in others:
        choices[f"Run {run.run_id}"] = _same_kind(step, run)[:_MAX_CHOICES]
    return choices


def _same_kind(step: Step, run: RecordedRun) -> list[Step]:
    return [Step(run, line) for line in run.of(type(step.line))]


def first_change(before: Line, after: Line) -> FirstChange:
    """Return from which byte on the texts of two steps differ."""
    if isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        total = after.prompt.bytes
        least, most = same_prefix(before.prompt, after.prompt)
        if before.prompt.digest == after.prompt.digest:
            return FirstChange(f"Both prompts are the same {total:,} bytes.", least)
        if least != most:
            return FirstChange(
                f"The first changed byte is between {least:,} and {most:,} of {total:,}. "
                "Traces with texts tell it exactly."
            )
    old, new = exact_text(before), exact_text(after)
    if old is None or new is None:
        return FirstChange(
            "Where the texts differ is not known: a trace has them only with texts=True."
        )
    same = same_bytes(old.encode(), new.encode())
    total = len(new.encode())
    if old == new:
        sentence = f"Both texts are the same {total:,} bytes."
    else:
        sentence = (
            f"The first changed byte is {same:,} of {total:,}, counted from 0: "
            f"{same / max(total, 1):.0%} begins alike."
        )
    if _is_cut(before) or _is_cut(after):
        sentence += " At least one of the texts is cut or redacted in its trace."
    return FirstChange(sentence, same)


def _is_cut(line: Line) -> bool:
    return isinstance(line, PackingLine) and line.text_digest != digest(line.text or "")


def shared_width(same: int, text: str) -> int:
    """Return how much of a bar stands for what begins alike."""
    return round(BAR_WIDTH * same / max(len(text.encode()), 1))


def changed_text(text: str, same: int) -> ChangedText:
    """Return the end of the first `same` bytes of a text, and the beginning of the rest."""
    # the last of the bytes may lie within a character
    alike = text.encode()[:same].decode("utf-8", "ignore")
    rest = text[len(alike) :]
    return ChangedText(
        is_cut=len(alike) > _BEFORE_CHARS,
        same=alike[-_BEFORE_CHARS:],
        first=rest[:1],
        rest=rest[1:_AFTER_CHARS],
        more_chars=max(len(rest) - _AFTER_CHARS, 0),
    )
