"""`diff`: compares what two runs chose, and finds the first byte at which their prompts differ."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from llm_common.trace.account import title
from llm_common.trace.lines import (
    Line,
    ModelCallLine,
    PackingLine,
    RunBegin,
    RunEnd,
    SelectionLine,
    SentPrompt,
)
from llm_common.trace.recording import same_bytes
from llm_common.trace.trace_file import RecordedRun


@dataclass(frozen=True, slots=True)
class StepDiff:
    """A step of two runs.

    Attributes:
        name: Its kind and number, such as `packing 1`.
        before: Number of its line in the first run. None if that run has no such step.
        after: Number of its line in the second run. None if that run has no such step.
        changes: Sentences about the differences. Empty if there are none.
    """

    name: str
    before: int | None
    after: int | None
    changes: tuple[str, ...] = ()


def diff(before: RecordedRun, after: RecordedRun) -> tuple[StepDiff, ...]:
    """Compare two runs step by step. Steps are paired by their kind and order.

    Returns:
        A diff for each step of the first run, then for each step only in the second.
    """
    old, new = _steps_by_name(before), _steps_by_name(after)
    names = dict.fromkeys([*old, *new])
    return tuple(_compare(name, old.get(name), new.get(name)) for name in names)


def _steps_by_name(run: RecordedRun) -> dict[str, Line]:
    # Numbered by kind, so that an additional step shifts only steps of its own kind.
    counts = Counter[str]()
    steps: dict[str, Line] = {}
    for line in run.lines:
        if isinstance(line, RunBegin | RunEnd):
            continue
        kind = line.kind.replace("_", " ")
        if isinstance(line, SelectionLine):
            kind = f"selection of {line.of}"
        counts[kind] += 1
        steps[f"{kind} {counts[kind]}"] = line
    return steps


def _compare(name: str, before: Line | None, after: Line | None) -> StepDiff:
    if after is None:
        assert before is not None
        return StepDiff(name, before.seq, None, (f"only in the first run: {title(before)}",))
    if before is None:
        return StepDiff(name, None, after.seq, (f"only in the second run: {title(after)}",))
    return StepDiff(name, before.seq, after.seq, tuple(step_changes(before, after)))


def step_changes(before: Line, after: Line) -> list[str]:
    """Return sentences about what two steps chose or sent differently."""
    changes: list[str] = []
    if title(before) != title(after):
        changes.append(f"{title(before)} → {title(after)}")
    if isinstance(before, SelectionLine) and isinstance(after, SelectionLine):
        old = {candidate.id: candidate.reason for candidate in before.candidates}
        new = {candidate.id: candidate.reason for candidate in after.candidates}
        changes += _value_changes(old, new)
    elif isinstance(before, PackingLine) and isinstance(after, PackingLine):
        changes += packing_changes(before, after)
    elif isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        changes += _prompt_change(before.prompt, after.prompt)
    return changes


def packing_changes(before: PackingLine, after: PackingLine) -> list[str]:
    """Return each item that is new, gone, or shown in another form or size."""
    return _value_changes(_forms(before), _forms(after))


def _forms(line: PackingLine) -> dict[str, str]:
    forms = {}
    for item in line.items:
        form = item.form.replace("_", " ")
        forms[f"{item.source} {item.id}"] = f"{form} ({item.tokens:,} tokens)"
    return forms


def _value_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return sentences about changed values, then new ones, then removed ones."""
    changed, new = [], []
    for name, value in after.items():
        if name not in before:
            new.append(f"{name}: new, {value}")
        elif before[name] != value:
            changed.append(f"{name}: {before[name]} → {value}")
    gone = [f"{name}: {before[name]} → not a candidate" for name in before if name not in after]
    return changed + new + gone


def _prompt_change(before: SentPrompt, after: SentPrompt) -> list[str]:
    """Return where two prompts begin to differ: a byte if both have texts, else a range."""
    if before.digest == after.digest:
        return []
    least, most = same_prefix(before, after)
    first_change = f"byte {least:,}"
    if least != most:
        first_change = f"a byte from {least:,} to {most:,}"
    # Rounded down, since 100% would mean that the whole prompt is the same.
    share = int(100 * least / max(after.bytes, 1))
    sentence = f"the prompts differ from {first_change} of {after.bytes:,} on"
    return [f"{sentence}, and a cache can serve at least {share}%"]


def same_prefix(before: SentPrompt, after: SentPrompt) -> tuple[int, int]:
    """Return the minimum and maximum number of bytes with which both prompts may begin.

    They are equal if both traces have the whole text. Otherwise the digests of the beginnings tell
    the number to within a chunk.
    """
    old_text, new_text = (before.text or "").encode(), (after.text or "").encode()
    # A text can be cut or redacted. Then its length is another one.
    if len(old_text) == before.bytes > 0 and len(new_text) == after.bytes > 0:
        exact = same_bytes(old_text, new_text)
        return exact, exact
    # Sizes are 256 times a power of two, so the shorter chunks end wherever the longer ones do.
    chunk = max(before.chunk_bytes, after.chunk_bytes)
    shared = _digests_by_end(before, chunk).items() & _digests_by_end(after, chunk).items()
    least = max((end for end, _ in shared), default=0)
    return least, min(least + chunk - 1, before.bytes, after.bytes)


def _digests_by_end(prompt: SentPrompt, chunk: int) -> dict[int, str]:
    """Return the digests of a prompt's beginnings whose length is a multiple of a chunk."""
    digests = {}
    for number, digest in enumerate(prompt.prefixes, 1):
        end = number * prompt.chunk_bytes
        if end % chunk == 0:  # the other prompt may have longer chunks
            digests[end] = digest
    return digests
