"""Runs of an agent: whether a folded history has the values that the next call needs."""

import asyncio
from typing import Any, Final

from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Cell, Row, Section, Share, Table
from benchmarks.quality_provenance import Provenance, measured

__all__ = ["folds"]

LIMITS: Final = (1_000, 2_000)
LABELS: Final = {
    "fold": "llm-common, fold",
    "newest that fit": "newest messages that fit",
    "all outputs but 3 cleared": "outputs cleared but the newest three, then the newest that fit",
}


def folds(inputs: Inputs, limit: int | None) -> Section:
    """Measure which needed values are in a folded history."""
    runs: list[dict[str, Any]] = [
        {**run, "messages": run["traj"]} for run in inputs.json("airline_runs")
    ]
    # Constants were chosen on the runs of tasks with an even number.
    tuned = [run for run in runs if run["task_id"] % 2 == 0][:limit]
    unseen = [run for run in runs if run["task_id"] % 2 == 1][:limit]
    columns: list[str] = []
    cells: dict[str, list[Cell]] = {name: [] for name in LABELS}
    notes = []
    for budget in LIMITS:
        halves = [asyncio.run(measured(half, budget, with_search=True)) for half in (tuned, unseen)]
        columns += [f"in view, {budget:,}", f"or found, {budget:,}", f"tokens, {budget:,}"]
        for name in LABELS:
            cells[name] += _cells(name, halves)
        calls, needed = sum(half.calls for half in halves), sum(half.needed for half in halves)
        notes.append(f"Above {budget:,} tokens, {calls:,} calls need {needed:,} values.")
    rows = [
        Row(label, tuple(cells[name]), "ours" if name == "fold" else "baseline")
        for name, label in LABELS.items()
    ]
    title = f"tau-bench, airline ({len(tuned) + len(unseen)} runs)"
    table = Table(title, tuple(columns), tuple(rows))
    return Section("Folded histories: what the next call needs", ABOUT, (table,), tuple(notes))


def _cells(name: str, halves: list[Provenance]) -> list[Cell]:
    """Return the shares in view and after a search, and the mean tokens of the prompts."""
    tuned, unseen = halves
    if not tuned.needed or not unseen.needed:
        return [None, None, None]  # only with a small limit
    sizes = tuned.sizes[name] + unseen.sizes[name]
    tokens = f"{sum(sizes) / len(sizes):,.0f}"
    searched = _share("fold and one search", tuned, unseen) if name == "fold" else None
    return [_share(name, tuned, unseen), searched, tokens]


def _share(name: str, tuned: Provenance, unseen: Provenance) -> Share:
    whole = (tuned.held[name] + unseen.held[name]) / (tuned.needed + unseen.needed)
    return Share(whole, unseen.share(name))


ABOUT: Final = """\
All 200 recorded runs of gpt-4o at an airline's service desk (sierra-research/tau-bench, 50 tasks,
four trials each). At each tool call, a needed value is an argument of four characters or more that
an earlier message has. Only calls count whose history exceeds the limit, beside the system message.
"in view" is the share of these values in the messages that would be sent, and "or found" adds those
that one search of the folded history for the value finds, which only `fold` offers. No model decides anything, so this is
not the success of tasks, and a value can be in the prompt twice or be of no use there.

The 100 runs of the tasks with an even number were tuned on. In parentheses are the other 100. We
know of no other figures for this measure."""
