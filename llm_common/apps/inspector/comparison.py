"""Compares the texts of two steps: the first byte that differs, and the text around it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from llm_common.apps.inspector.recorded_runs import Step
from llm_common.apps.inspector.run_values import BAR_WIDTH, exact_text
from llm_common.trace.differing import same_prefix
from llm_common.trace.lines import Line, ModelCallLine, PackingLine, RunBegin, RunEnd
from llm_common.trace.recording import digest, same_bytes
from llm_common.trace.trace_file import RecordedRun

_BEFORE_CHARS: Final = 300  # enough to recognize the place
_AFTER_CHARS: Final = 3_000  # about a screen
_MAX_CHOICES: Final = 50  # of a run, in a drop-down list


class FirstChange(NamedTuple):
    """The first difference of two texts.

    Attributes:
        sentence: A sentence about it.
        same_bytes: Number of equal bytes before it. None if that is unknown.
    """

    sentence: str
    same_bytes: int | None = None


class ChangedText(NamedTuple):
    """The part of a text around its first change.

    Attributes:
        is_cut: Whether the text has more before `same`.
        same: The end of the common beginning.
        first: The first changed character. Empty at the end of the text.
        following: The text after `first`.
        more_chars: Number of characters after `following`.
    """

    is_cut: bool
    same: str
    first: str
    following: str
    more_chars: int


def comparable_steps(step: Step, runs: Sequence[RecordedRun]) -> dict[str, list[Step]]:
    """Return the steps of the same kind in the step's run and in other runs, by run.

    The steps of the same run come first. They begin with the last step before this one.
    """
    if isinstance(step.line, RunBegin | RunEnd):
        return {}
    seq, kind = step.line.seq, type(step.line)
    neighbours = [line for line in step.run.of(kind) if line.seq != seq]
    neighbours.sort(key=lambda line: (line.seq > seq, abs(line.seq - seq)))
    choices = {"This run": [Step(step.run, line) for line in neighbours[:_MAX_CHOICES]]}
    for run in runs:
        choices[f"Run {run.run_id}"] = [Step(run, line) for line in run.of(kind)[:_MAX_CHOICES]]
    return choices


def first_change(before: Line, after: Line) -> FirstChange:
    """Return the first byte at which the texts of two steps differ."""
    if isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        total = after.prompt.bytes
        least, most = same_prefix(before.prompt, after.prompt)
        if before.prompt.digest == after.prompt.digest:
            return FirstChange(f"Both prompts are the same {total:,} bytes.", least)
        if least != most:
            return FirstChange(
                f"The first changed byte is between {least:,} and {most:,} of {total:,}. "
                "Record with texts=True to find it exactly."
            )
    old, new = exact_text(before), exact_text(after)
    if old is None or new is None:
        return FirstChange("The texts cannot be compared. A trace has them only with texts=True.")
    same = same_bytes(old.encode(), new.encode())
    total = len(new.encode())
    if old == new:
        sentence = f"Both texts are the same {total:,} bytes."
    else:
        sentence = (
            f"The first changed byte is {same:,} of {total:,}, counted from 0: "
            f"{same / max(total, 1):.0%} of the bytes come before it."
        )
    for line in (before, after):
        if isinstance(line, PackingLine) and line.text_digest != digest(line.text or ""):
            sentence += f" The text of step {line.seq} is cut or redacted in its trace."
    return FirstChange(sentence, same)


def shared_width(same: int, text: str) -> int:
    """Return the width of a bar for the common beginning."""
    return round(BAR_WIDTH * same / max(len(text.encode()), 1))


def changed_text(text: str, same: int) -> ChangedText:
    """Return the part of a text around its first change, after `same` equal bytes."""
    # "ignore" drops a character of which only some bytes are the same.
    prefix = text.encode()[:same].decode("utf-8", "ignore")
    changed = text[len(prefix) :]
    return ChangedText(
        is_cut=len(prefix) > _BEFORE_CHARS,
        same=prefix[-_BEFORE_CHARS:],
        first=changed[:1],
        following=changed[1:_AFTER_CHARS],
        more_chars=max(len(changed) - _AFTER_CHARS, 0),
    )
