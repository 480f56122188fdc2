"""ContextBench: whether a pack has the files and lines that experts marked for an issue."""

import importlib
import json
import re
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
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
from benchmarks.public.tables import Row, Section, Share, Table, reported_rows

__all__ = ["contextbench", "line_scores", "repository_of"]


@dataclass(frozen=True)
class Span:
    """Lines of a file, from the first to the last one, counted from 1."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class AnnotatedIssue(Issue):
    """An issue with the spans of its gold context."""

    spans: tuple[Span, ...]


def line_scores(
    shown: Mapping[str, Sequence[str]], wanted: Mapping[str, frozenset[str]]
) -> tuple[float, float, float]:
    """Return the recall, precision and F1 of lines, compared by their text within a file.

    Lines of one character and blank ones do not count.
    """
    found = read = relevant = 0
    for path, texts in wanted.items():
        found += len(texts.intersection(shown.get(path, ())))
    for path, lines in shown.items():
        telling = [line for line in lines if len(line) > 1]
        read += len(telling)
        relevant += sum(line in wanted.get(path, frozenset()) for line in telling)
    recall = found / max(sum(map(len, wanted.values())), 1)
    precision = relevant / max(read, 1)
    f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
    return recall, precision, f1


def repository_of(instance: str) -> str:
    """Return the repository of an instance such as `cli__cli-5047`."""
    owner, _, rest = instance.removeprefix("instance_").partition("__")
    return f"{owner}/{re.sub(r'-(?:[0-9]+|[0-9a-f]{40}.*)$', '', rest)}"


def _issues(inputs: Inputs) -> list[AnnotatedIssue]:
    duckdb = importlib.import_module("duckdb")  # only in the environment of the peers
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(inputs.read("contextbench"))
        file.flush()
        rows = duckdb.execute(
            "SELECT original_inst_id, base_commit, problem_statement, gold_context "
            "FROM read_parquet(?) ORDER BY instance_id",
            [file.name],
        ).fetchall()
    issues = []
    for instance, commit, text, gold in rows:
        spans = tuple(
            Span(span["file"], span["start_line"], span["end_line"]) for span in json.loads(gold)
        )
        issues.append(AnnotatedIssue(repository_of(instance), commit, text, spans))
    return issues


def _wanted_lines(issue: AnnotatedIssue, searched: SearchedRepository) -> dict[str, frozenset[str]]:
    """Return the texts of the gold lines by path. Files that the commit lacks do not count."""
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for span in issue.spans:
        path = _path_in_tree(span.path, searched.tree.files)
        if path is not None:
            lines = searched.text_lines(path)[span.first - 1 : span.last]
            wanted[path].update(line.strip() for line in lines if len(line.strip()) > 1)
    return {path: frozenset(lines) for path, lines in wanted.items() if lines}


def _path_in_tree(path: str, files: Mapping[str, str]) -> str | None:
    """Return a path without the folder of the annotators' machine."""
    parts = PurePosixPath(path).parts
    for start in range(len(parts)):
        shorter = "/".join(parts[start:])
        if shorter in files:
            return shorter
    return None


def _scores(
    shown: Mapping[str, Sequence[str]], wanted: Mapping[str, frozenset[str]]
) -> tuple[float, ...]:
    """Return the recall and precision of files, and those of lines with their F1."""
    both = len(shown.keys() & wanted.keys())
    return both / len(wanted), both / max(len(shown), 1), *line_scores(shown, wanted)


def contextbench(inputs: Inputs, limit: int | None) -> Section:
    """Measure the files and lines of ContextBench's gold contexts."""
    measured: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for issue, searched in at_each_commit(inputs, _issues(inputs), left_out, limit):
        wanted = _wanted_lines(issue, searched)
        if not wanted:
            left_out[issue.repository] += 1
            continue
        ranked = searched.ranked_by_bm25(issue.text)
        for budget in BUDGETS:
            by_ours = searched.shown_by_ours(issue.text, budget)
            by_bm25 = searched.shown_whole(ranked, budget)
            measured[OURS, budget].append(_scores(by_ours, wanted))
            measured[BASELINE, budget].append(_scores(by_bm25, wanted))
    tables = tuple(_table(measured, budget) for budget in BUDGETS)
    notes = left_out_note(left_out)
    return Section("Code: the files and lines that experts marked", ABOUT, tables, notes)


def _table(measured: Mapping[tuple[str, int], Sequence[tuple[float, ...]]], budget: int) -> Table:
    columns = ("file recall", "file precision", "line recall", "line precision", "line F1")
    rows = []
    for label in (OURS, BASELINE):
        values = zip(*measured[label, budget], strict=True)
        cells = tuple(Share(statistics.fmean(column)) for column in values)
        rows.append(Row(label, cells, "ours" if label == OURS else "baseline"))
    count = len(measured[OURS, budget])
    title = f"ContextBench, {budget:,} tokens ({count} of 50 instances)"
    return Table(title, columns, (*rows, *reported_rows("contextbench", columns)))


ABOUT: Final = """\
Issues in eight languages with the files and lines that experts marked as the context of a solution.
The public repository has a file with 50 of the 1,136 instances. Each cell is the mean over the
instances. Lines are compared by their text within a file, so a repeated line counts wherever it is.
No model reads the prompt, so this is not the share of issues that would be solved.

No constant was chosen on this set. A run of twelve instances had shown that packs have too many
files, and the rule that leaves some out was chosen on SWE-bench Lite. Two instances are from xarray,
other issues of which were tuned on. The reported figures are for all 1,136 instances, and for agents that search step by step with a
model and may look at much more than fits into one prompt, so they are a scale and not a
comparison on equal terms."""
