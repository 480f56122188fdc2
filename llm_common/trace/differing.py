"""`diff`: compares what two runs chose, and tells from which byte on their prompts differ."""

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
    """One step of two runs.

    Attributes:
        name: What it is, such as `packing 1`.
        before: Its line in the first run; None if that has no such step.
        after: Its line in the second.
        changes: What differs, in sentences; empty if nothing does.
    """

    name: str
    before: int | None
    after: int | None
    changes: tuple[str, ...] = ()


def diff(before: RecordedRun, after: RecordedRun) -> tuple[StepDiff, ...]:
    """Return the steps of both runs, paired by their kind and order.

    Those of the second run that are new come last.
    """
    old, new = _named_steps(before), _named_steps(after)
    names = dict.fromkeys([*old, *new])
    return tuple(_compared(name, old.get(name), new.get(name)) for name in names)


def _named_steps(run: RecordedRun) -> dict[str, Line]:
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


def _compared(name: str, before: Line | None, after: Line | None) -> StepDiff:
    if after is None:
        assert before is not None
        return StepDiff(name, before.seq, None, (f"only in the first run: {title(before)}",))
    if before is None:
        return StepDiff(name, None, after.seq, (f"only in the second run: {title(after)}",))
    return StepDiff(name, before.seq, after.seq, tuple(step_changes(before, after)))


def step_changes(before: Line, after: Line) -> list[str]:
    """Return what two steps chose or sent differently, in sentences."""
    changes: list[str] = []
    if title(before) != title(after):
        changes.append(f"{title(before)} → {title(after)}")
    if isinstance(before, SelectionLine) and isinstance(after, SelectionLine):
        changes += _changed(_reasons(before), _reasons(after))
    elif isinstance(before, PackingLine) and isinstance(after, PackingLine):
        changes += packing_changes(before, after)
    elif isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        changes += _prompt_change(before.prompt, after.prompt)
    return changes


def packing_changes(before: PackingLine, after: PackingLine) -> list[str]:
    """Return each item that is new, gone, or shown in another form or size."""
    return _changed(_forms(before), _forms(after))


def _reasons(line: SelectionLine) -> dict[str, str]:
    return {candidate.id: candidate.reason for candidate in line.candidates}


def _forms(line: PackingLine) -> dict[str, str]:
    forms = {}
    for item in line.items:
        form = item.form.replace("_", " ")
        forms[f"{item.source} {item.id}"] = f"{form} ({item.tokens:,} tokens)"
    return forms


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what changed, then what is new, then what is gone."""
    changed, new = [], []
    for name, value in after.items():
        if name not in before:
            new.append(f"{name}: new, {value}")
        elif before[name] != value:
            changed.append(f"{name}: {before[name]} → {value}")
    gone = [f"{name}: {before[name]} → not a candidate" for name in before if name not in after]
    return changed + new + gone


def _prompt_change(before: SentPrompt, after: SentPrompt) -> list[str]:
    """Return where two prompts begin to differ: to the byte with texts, else within a chunk."""
    if before.digest == after.digest:
        return []
    least, most = same_prefix(before, after)
    place = f"byte {least:,}" if least == most else f"a byte from {least:,} to {most:,}"
    share = int(100 * least / max(after.bytes, 1))
    differ = f"the prompts differ from {place} of {after.bytes:,} on"
    return [f"{differ}; a cache can serve {share}% at least"]


def same_prefix(before: SentPrompt, after: SentPrompt) -> tuple[int, int]:
    """Return the least and the most bytes that both prompts may begin with."""
    if _is_whole(before) and _is_whole(after):
        exact = same_bytes((before.text or "").encode(), (after.text or "").encode())
        return exact, exact
    chunk = max(before.chunk_bytes, after.chunk_bytes)
    old, new = _digests_at(before, chunk), _digests_at(after, chunk)
    least = max((end for end, digest in old.items() if new.get(end) == digest), default=0)
    return least, min(least + chunk - 1, before.bytes, after.bytes)


def _digests_at(prompt: SentPrompt, chunk: int) -> dict[int, str]:
    """Return the digests of the prompt's beginnings, by their bytes, in steps of a chunk."""
    digests = {}
    for number, digest in enumerate(prompt.prefixes, 1):
        end = number * prompt.chunk_bytes
        if end % chunk == 0:  # the other prompt may have longer chunks
            digests[end] = digest
    return digests


def _is_whole(prompt: SentPrompt) -> bool:
    """Return whether the trace has all of the prompt's text."""
    return bool(prompt.text) and len((prompt.text or "").encode()) == prompt.bytes
