"""When the steps of a run ended, and how long each took, by the times in its trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from llm_common.apps.inspector.formats import time
from llm_common.apps.inspector.run_values import BAR_WIDTH
from llm_common.trace import Line, ModelCallLine, RecordedRun, ToolCallLine, account


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step with its place on the time axis.

    Attributes:
        line: The step.
        depth: Number of steps around it.
        seconds: How long it took. None if the trace has no times.
        start: Where its bar begins, of `BAR_WIDTH`.
        width: Width of its bar.
    """

    line: Line
    depth: int
    seconds: float | None = None
    start: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class _Span:
    begin: datetime
    end: datetime


def timeline(run: RecordedRun) -> list[StepTime]:
    """Return the steps of a run in the order of its tree, each with its time.

    A trace has the time at which each step ended. A model call, and a tool call that was measured,
    has its duration too. Any other step is shown from the end of the step before it, so what the
    caller did in between is a part of it.
    """
    spans = _spans(run)
    steps = list(_flattened(account.tree(run), spans, depth=0))
    measured = [spans[step.line.seq] for step in steps if step.line.seq in spans]
    if not measured:
        return steps
    first = min(span.begin for span in measured)
    total = max(max(span.end for span in measured) - first, timedelta(milliseconds=1))
    placed = []
    for step in steps:
        span = spans.get(step.line.seq)
        if span is None:
            placed.append(step)
            continue
        start = (span.begin - first) / total * BAR_WIDTH
        width = (span.end - span.begin) / total * BAR_WIDTH
        seconds = (span.end - span.begin).total_seconds()
        placed.append(replace(step, seconds=seconds, start=start, width=width))
    return placed


def _flattened(
    nodes: Sequence[account.Node], spans: dict[int, _Span], *, depth: int
) -> Iterator[StepTime]:
    for node in nodes:
        yield StepTime(node.line, depth)
        inner = list(_flattened(node.children, spans, depth=depth + 1))
        own = spans.get(node.line.seq)
        begins = [spans[step.line.seq].begin for step in inner if step.line.seq in spans]
        if own is not None and begins:
            # A step around others is recorded at its end, after them.
            spans[node.line.seq] = _Span(min(own.begin, *begins), own.end)
        yield from inner


def _spans(run: RecordedRun) -> dict[int, _Span]:
    """Return when each line began and ended. Lines without a readable time are left out."""
    spans: dict[int, _Span] = {}
    before: datetime | None = None
    for line in run.lines:
        end = time(line.at)
        if end is None:
            continue
        begin = before or end
        duration = _duration(line)
        if duration is not None:
            begin = end - duration
        spans[line.seq] = _Span(min(begin, end), end)
        before = end
    return spans


def _duration(line: Line) -> timedelta | None:
    match line:
        case ModelCallLine():
            return timedelta(milliseconds=max(line.attempt.latency_ms, 0))
        case ToolCallLine(seconds=float(seconds)):
            return timedelta(seconds=max(seconds, 0.0))
    return None
