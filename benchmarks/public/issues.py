"""SWE-bench Lite: whether a pack has the file and the lines that mend an issue."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from benchmarks.public.tables import Row, Section, Table, reported_rows, share_of

__all__ = ["edited_lines", "swe_bench_lite"]

# Constants were chosen on the issues of these repositories.
TUNED: Final = frozenset(
    {
        "mwaskom/seaborn",
        "pallets/flask",
        "psf/requests",
        "pydata/xarray",
        "pylint-dev/pylint",
        "pytest-dev/pytest",
    }
)


@dataclass(frozen=True)
class MendedIssue(Issue):
    """An issue with the numbers of the edited lines by path."""

    lines: Mapping[str, frozenset[int]]

    @property
    def is_unseen(self) -> bool:
        """Whether its repository was held back from tuning."""
        return self.repository not in TUNED


def edited_lines(patch: str) -> dict[str, frozenset[int]]:
    """Return the lines of the old files that a patch changes, by path.

    They are the lines that it removes, and the line before each insertion that removes none.
    """
    lines: defaultdict[str, set[int]] = defaultdict(set)
    path, number, removes = "", 0, False
    for line in patch.splitlines():
        if line.startswith("--- "):
            path = line.removeprefix("--- ").removeprefix("a/")
        elif match := re.match(r"@@ -(\d+)", line):
            number, removes = int(match[1]), False
        elif line.startswith("-"):
            lines[path].add(number)
            number, removes = number + 1, True
        elif line.startswith("+") and not line.startswith("+++ "):
            if not removes:
                lines[path].add(max(number - 1, 1))
        elif line.startswith(" ") or not line:
            number, removes = number + 1, False
    return {path: frozenset(numbers) for path, numbers in lines.items() if path != "/dev/null"}


def swe_bench_lite(inputs: Inputs, limit: int | None) -> Section:
    """Measure the files and lines that mend the issues of SWE-bench Lite."""
    issues = [
        MendedIssue(
            row["repo"], row["base_commit"], row["problem_statement"], edited_lines(row["patch"])
        )
        for row in inputs.json_lines("swe_bench_lite")
    ]
    values: dict[str, list[tuple[list[float], bool]]] = {OURS: [], BASELINE: []}
    left_out: Counter[str] = Counter()
    for issue, searched in at_each_commit(inputs, issues, left_out, limit):
        values[OURS].append((_by_ours(issue, searched), issue.is_unseen))
        values[BASELINE].append((_by_bm25(issue, searched), issue.is_unseen))
    columns = ["first file"]
    for budget in BUDGETS:
        columns += [f"file shown, {budget:,}", f"all lines shown, {budget:,}"]
    rows = []
    for label, measured in values.items():
        cells = tuple(
            share_of((row[place], unseen) for row, unseen in measured)
            for place in range(len(columns))
        )
        rows.append(Row(label, cells, "ours" if label == OURS else "baseline"))
    count, unseen = len(values[OURS]), sum(is_unseen for _, is_unseen in values[OURS])
    table = Table(
        f"SWE-bench Lite ({count} of 300 issues, {unseen} of them held back)",
        tuple(columns),
        (*rows, *reported_rows("swe_bench_lite", columns)),
    )
    notes = (f"The file has {len(issues)} of the 300 issues.", *left_out_note(left_out))
    return Section("Code: the file and lines that mend an issue", ABOUT, (table,), notes)


def _by_ours(issue: MendedIssue, searched: SearchedRepository) -> list[float]:
    row = [float([searched.first_by_ours(issue.text)] == [*issue.lines])]
    for budget in BUDGETS:
        row += _file_and_lines(searched.shown_by_ours(issue.text, budget), issue, searched)
    return row


def _by_bm25(issue: MendedIssue, searched: SearchedRepository) -> list[float]:
    ranked = searched.ranked_by_bm25(issue.text)
    row = [float(ranked[:1] == [*issue.lines])]
    for budget in BUDGETS:
        row += _file_and_lines(searched.shown_whole(ranked, budget), issue, searched)
    return row


def _file_and_lines(
    shown: Mapping[str, Sequence[str]], issue: MendedIssue, searched: SearchedRepository
) -> list[float]:
    """Return whether the edited file is shown, and whether all edited lines are."""
    has_files = shown.keys() >= issue.lines.keys()
    has_lines = has_files
    for path, numbers in issue.lines.items():
        lines = searched.text_lines(path)
        wanted = {lines[number - 1].strip() for number in numbers if number <= len(lines)} - {""}
        has_lines = has_lines and wanted <= {*shown.get(path, ())}
    return [float(has_files), float(has_lines)]


ABOUT: Final = """\
The issues of SWE-bench Lite as they were written, each against the files of its commit. "first
file" says how often the file that the solution edits is ranked first, and the other columns how
often a prompt of 8,000 or 16,000 tokens shows this file and every edited line, with lines compared
by their text. The baseline ranks source files without tests by BM25, with the parts of identifiers
as words, and shows whole files in their order, of which the last one is cut. No model reads
the prompt, so this is not the share of issues that would be solved.

The 40 issues of seaborn, flask, requests, xarray, pylint and pytest were tuned on. In parentheses
are the issues of the others, as far as the data folder has their repositories. The reported figures
are for 274 of the 300 issues."""
