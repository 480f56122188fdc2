"""`diff`: what two runs chose differently, and from which byte on their prompts differ."""

from collections import Counter
from collections.abc import Iterable, Mapping
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
    """The steps of both runs, paired by their kind and order.

    Those of the second run that are new come last.
    """
    old, new = _named(before.lines), _named(after.lines)
    return tuple(_step(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new]))


def _named(lines: Iterable[Line]) -> dict[str, Line]:
    counts = Counter[str]()
    named: dict[str, Line] = {}
    for line in lines:
        if not isinstance(line, RunBegin | RunEnd):
            kind = (
                f"selection of {line.of}"
                if isinstance(line, SelectionLine)
                else line.kind.replace("_", " ")
            )
            counts[kind] += 1
            named[f"{kind} {counts[kind]}"] = line
    return named


def _step(name: str, before: Line | None, after: Line | None) -> StepDiff:
    if before is None or after is None:
        only = before or after
        assert only is not None
        said = f"only in the {'first' if before else 'second'} run: {title(only)}"
        return StepDiff(name, before.seq if before else None, after.seq if after else None, (said,))
    return StepDiff(name, before.seq, after.seq, tuple(step_changes(before, after)))


def step_changes(before: Line, after: Line) -> list[str]:
    """What two steps chose or sent differently, in sentences."""
    changes: list[str] = []
    if title(before) != title(after):
        changes.append(f"{title(before)} → {title(after)}")
    if isinstance(before, SelectionLine) and isinstance(after, SelectionLine):
        changes += _changed(
            {one.id: one.reason for one in before.candidates},
            {one.id: one.reason for one in after.candidates},
        )
    elif isinstance(before, PackingLine) and isinstance(after, PackingLine):
        changes += packing_changes(before, after)
    elif isinstance(before, ModelCallLine) and isinstance(after, ModelCallLine):
        changes += _prompt_change(before.prompt, after.prompt)
    return changes


def packing_changes(before: PackingLine, after: PackingLine) -> list[str]:
    """Each item that is new, gone, or shown in another form or size."""
    return _changed(_shown(before), _shown(after))


def _shown(line: PackingLine) -> dict[str, str]:
    return {
        f"{item.source} {item.id}": f"{item.form.replace('_', ' ')} ({item.tokens:,} tokens)"
        for item in line.items
    }


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    gone = [f"{each}: {was} → not a candidate" for each, was in before.items() if each not in after]
    new = [f"{each}: new, {now}" for each, now in after.items() if each not in before]
    return (
        [
            f"{each}: {before[each]} → {now}"
            for each, now in after.items()
            if before.get(each, now) != now
        ]
        + new
        + gone
    )


def _prompt_change(before: SentPrompt, after: SentPrompt) -> list[str]:
    """Where two prompts begin to differ: to the byte with texts, else within a chunk."""
    if before.digest == after.digest:
        return []
    least, most = same_prefix(before, after)
    place = f"byte {least:,}" if least == most else f"a byte from {least:,} to {most:,}"
    share = least / max(after.bytes, 1)
    return [
        f"the prompts differ from {place} of {after.bytes:,} on; a cache can serve {int(share * 100)}% at least"
    ]


def same_prefix(before: SentPrompt, after: SentPrompt) -> tuple[int, int]:
    """At least and at most how many bytes both prompts begin with."""
    if before.text and after.text and not _is_cut(before, after):
        exact = same_bytes(before.text.encode(), after.text.encode())
        return exact, exact
    chunk = max(before.chunk_bytes, after.chunk_bytes)
    old, new = _at(before, chunk), _at(after, chunk)
    least = max((place for place, known in old.items() if new.get(place) == known), default=0)
    return least, min(least + chunk - 1, before.bytes, after.bytes)


def _at(prompt: SentPrompt, chunk: int) -> dict[int, str]:
    found = {number * prompt.chunk_bytes: known for number, known in enumerate(prompt.prefixes, 1)}
    return {place: known for place, known in found.items() if place % chunk == 0}


def _is_cut(*prompts: SentPrompt) -> bool:
    return any(len((prompt.text or "").encode()) != prompt.bytes for prompt in prompts)
