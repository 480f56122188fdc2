"""Loc-Bench: whether the files that mend an issue are ranked first, and are in a pack."""

import csv
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.public.inputs import Inputs
from benchmarks.public.repositories import (
    BASELINE,
    BUDGETS,
    OURS,
    Issue,
    SearchedRepository,
    at_each_commit,
    left_out_note,
)
from benchmarks.public.tables import Row, Section, Table, share_of

__all__ = ["RESULTS", "LocatedIssue", "loc_bench"]

RESULTS: Final = "loc_bench.csv"
FIRST: Final = (1, 5, 10)
COLUMNS: Final = (
    *(f"Acc@{count}" for count in FIRST),
    *(f"all files shown, {budget:,}" for budget in BUDGETS),
)
# Answers of others to the same issues, by the input that has them.
ANSWERS: Final = {
    "chronorepo_candidates": "ChronoRepo's candidates, no model",
    "chronorepo_kimi_k2": "ChronoRepo and one call of Kimi K2",
}


@dataclass(frozen=True)
class LocatedIssue(Issue):
    """An issue with the paths of the files whose functions its solution edits."""

    name: str
    files: frozenset[str]

    @property
    def is_unseen(self) -> bool:
        """Whether it was held back from tuning."""
        return hashlib.sha256(self.name.encode()).hexdigest()[0] >= "8"


class Located(NamedTuple):
    """What one method has for an issue.

    Attributes:
        rank: The place of the last wanted file in the ranking, from 1. None if a file is missing.
        shown: Whether all wanted files are in the prompt, by budget. Empty without prompts.
    """

    rank: int | None
    shown: tuple[bool, ...] = ()


def loc_bench(inputs: Inputs, limit: int | None) -> Section:
    """Measure the files that mend the issues of Loc-Bench."""
    issues = [*_issues(inputs)]
    answers = {label: _answers(inputs, name) for name, label in ANSWERS.items()}
    measured: dict[LocatedIssue, dict[str, Located]] = {}
    left_out: Counter[str] = Counter()
    for issue, searched in at_each_commit(inputs, issues, left_out, limit):
        methods = {OURS: _by_ours(issue, searched), BASELINE: _by_bm25(issue, searched)}
        for label, ranked in answers.items():
            methods[label] = Located(_rank(issue, ranked.get(issue.name, ())))
        measured[issue] = methods
    rows = []
    for label in (OURS, BASELINE, *answers):
        located = [(methods[label], issue.is_unseen) for issue, methods in measured.items()]
        rows.append(_row(label, located))
    unseen = sum(issue.is_unseen for issue in measured)
    title = f"Loc-Bench ({len(measured)} of {len(issues)} issues, {unseen} of them held back)"
    notes = (f"[Results by issue]({RESULTS}).", *left_out_note(left_out))
    return Section(
        "Code: all the files that mend an issue",
        ABOUT,
        (Table(title, COLUMNS, tuple(rows)),),
        notes,
        files={RESULTS: _by_issue(measured)},
    )


def _issues(inputs: Inputs) -> Iterator[LocatedIssue]:
    edited: dict[str, list[str]] = inputs.json("loc_bench_functions")
    for row in inputs.json_lines("loc_bench"):
        # A function is named `path:Class.method`.
        files = frozenset(name.partition(":")[0] for name in edited[row["instance_id"]])
        text = row["problem_statement"]
        yield LocatedIssue(row["repo"], row["base_commit"], text, row["instance_id"], files)


def _answers(inputs: Inputs, name: str) -> dict[str, list[str]]:
    """Return the ranked files of others by issue."""
    answers = {}
    for row in inputs.json_lines(name):
        ranked = row.get("ranked") or [file["file"] for file in row["hybrid_top"]]
        answers[row["instance_id"]] = ranked
    return answers


def _by_ours(issue: LocatedIssue, searched: SearchedRepository) -> Located:
    shown = []
    ranked: list[str] = []
    for budget in BUDGETS:
        pack = searched.packed_by_ours(issue.text, budget)
        shown.append(issue.files <= {block.id for block in pack.bundle.blocks})
        ranked = [file.path for file in (*pack.files, *pack.dropped)]
    return Located(_rank(issue, ranked), tuple(shown))


def _by_bm25(issue: LocatedIssue, searched: SearchedRepository) -> Located:
    ranked = searched.ranked_by_bm25(issue.text)
    shown = []
    for budget in BUDGETS:
        shown.append(issue.files <= searched.shown_whole(ranked, budget).keys())
    return Located(_rank(issue, ranked), tuple(shown))


def _rank(issue: LocatedIssue, ranked: Sequence[str]) -> int | None:
    places = {path: place for place, path in enumerate(ranked, start=1)}
    if not places.keys() >= issue.files:
        return None
    return max(places[path] for path in issue.files)


def _row(label: str, located: Sequence[tuple[Located, bool]]) -> Row:
    values: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for (rank, shown), is_unseen in located:
        for count in FIRST:
            values[f"Acc@{count}"].append((float(rank is not None and rank <= count), is_unseen))
        for budget, is_shown in zip(BUDGETS, shown, strict=False):
            values[f"all files shown, {budget:,}"].append((float(is_shown), is_unseen))
    cells = []
    for column in COLUMNS:
        cells.append(share_of(values[column]) if column in values else None)
    return Row(label, tuple(cells), "ours" if label == OURS else "baseline")


def _by_issue(measured: dict[LocatedIssue, dict[str, Located]]) -> str:
    """Return the place of the last wanted file by issue and method, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    labels = (OURS, BASELINE, *ANSWERS.values())
    writer.writerow(["issue", "held back", "wanted files", *labels])
    for issue in sorted(measured, key=lambda issue: issue.name):
        ranks = [measured[issue][label].rank for label in labels]
        writer.writerow([issue.name, int(issue.is_unseen), len(issue.files), *ranks])
    return text.getvalue()


ABOUT: Final = """\
The issues of Loc-Bench as they were written: bug reports, feature requests, performance and
security issues of Python projects, each against the files of its commit. The wanted files are those
whose functions the solution edits. "Acc@k" says how often all of them are among the first k, and
the other columns how often all of them are in a prompt of 8,000 or 16,000 tokens. ChronoRepo
publishes its ranked files for each issue, from words, paths, imports and the history of the
repository, and the answer of a model that got them in one call. Its rows are these answers, for the
same issues. No model reads our prompt, so this is not the share of issues that would be solved.

Issues whose SHA-256 of the name begins with a hexadecimal digit below 8 were tuned on. In
parentheses are the others."""
