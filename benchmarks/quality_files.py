"""Which files of a repository `pack_folder` finds, and how much of them it shows.

Reads `folder_questions.jsonl` beside this script, `files/` in the folder that LLM_COMMON_EVAL_DATA names, and the repositories from
LLM_COMMON_EVAL_REPOS: a folder with a git directory `{owner}+{name}/repo` for each. The tree of
each commit is put beside them, in `.trees`, once. Its files have one old date, since a pack
prefers what changed lately.

Commits: the share of the changed files among the first five, with and without the tests among them.
Issues: how often the file that was mended is first. Questions: 20 of our own about click and httpx,
with the files that answer them and the lines of the definitions in them.

Packs of issues and questions at 4,000, 8,000 and 16,000 tokens: the share of the wanted files that
is shown, the files that are shown for each wanted one, the share of the queries with every wanted
line, and recall, precision and F1 of lines. Wanted lines of an issue are those that were edited.
Lines are compared by their text within a file, blank ones do not count, and all are macro means.

A query belongs to the half `tune` when the SHA-256 of its id is even, else to the half `check`. Our
questions have no halves. Run:

    LLM_COMMON_EVAL_DATA=… LLM_COMMON_EVAL_REPOS=… python benchmarks/quality_files.py --half check

With `--ranking` nothing is packed but a line of the best file: a minute for all, once the trees and
indexes are there.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality_context import read, read_half
from llm_common.folders import FolderPack, pack_folder
from llm_common.folders.folder_pack import MIN_BUDGET_TOKENS

BUDGETS = (4_000, 8_000, 16_000)
FIRST = 5
QUESTIONS = Path(__file__).with_name("folder_questions.jsonl")
OLD_S = 1_577_836_800  # the beginning of 2020


def git_directory(repositories: Path, repo: str) -> Path:
    return repositories / repo.replace("/", "+") / "repo"


def tree_of(repositories: Path, repo: str, commit: str) -> Path:
    """Return a folder with the regular files of a commit that the copy of its repository has."""
    name = repo.replace("/", "+")
    folder = repositories / ".trees" / f"{name}@{commit[:12]}"
    if folder.exists():
        return folder
    git = ["git", "-C", str(git_directory(repositories, repo))]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", commit], check=True, capture_output=True
    ).stdout
    entries = [entry.partition(b"\t") for entry in listed.split(b"\0") if entry.startswith(b"100")]
    wanted = b"".join(about.split()[2] + b"\n" for about, _, _ in entries)
    objects = io.BytesIO(
        subprocess.run(
            [*git, "cat-file", "--batch"], check=True, input=wanted, capture_output=True
        ).stdout
    )
    partial = folder.with_suffix(f".{os.getpid()}")
    for _, _, path in entries:
        about = objects.readline().split()
        if about[1] == b"missing":
            continue
        file = partial / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(objects.read(int(about[2])))
        os.utime(file, (OLD_S, OLD_S))
        objects.readline()
    partial.rename(folder)
    return folder


def packed(
    row: dict[str, Any], repositories: Path, budget_tokens: int, *, max_files: int | None = None
) -> FolderPack:
    """Return the pack for a query in the tree."""
    tree, indexes = tree_of(repositories, row["repo"], row["commit"]), repositories / ".indexes"
    return pack_folder(
        row["query"], tree, budget_tokens=budget_tokens, max_files=max_files, cache_dir=indexes
    )


def ranked(row: dict[str, Any], repositories: Path) -> list[str]:
    """Return the ranked files, best first."""
    pack = packed(row, repositories, MIN_BUDGET_TOKENS, max_files=1)
    return [file.path for file in (*pack.files, *pack.dropped)]


def recall(gold: list[str], paths: list[str]) -> float:
    return sum(path in paths for path in gold) / len(gold)


@dataclass(frozen=True)
class Shown:
    """How much of what a query wants is in its pack."""

    wanted_files: float
    files_for_each: float
    all_lines: float
    recall: float
    precision: float
    f1: float


def wanted_lines(row: dict[str, Any], tree: Path) -> dict[str, set[str]]:
    """Return the stripped lines that a query wants, by file."""
    numbers: dict[str, list[int]] = row.get("edited_lines", {})
    for path, spans in row.get("lines", {}).items():
        numbers[path] = [number for start, end in spans for number in range(start, end + 1)]
    wanted: dict[str, set[str]] = {}
    for path, numbers_of_file in numbers.items():
        lines = (tree / path).read_text(encoding="utf-8", errors="replace").splitlines()
        texts = {lines[number - 1].strip() for number in numbers_of_file if number <= len(lines)}
        wanted[path] = texts - {""}
    return wanted


def shown(pack: FolderPack, row: dict[str, Any]) -> Shown:
    """Return how much of what a query wants its pack shows."""
    wanted = wanted_lines(row, pack.folders[0])
    blocks: dict[str, list[str]] = {}
    for block in pack.bundle.blocks:
        lines = [line.strip() for line in block.text.splitlines()[1:]]
        blocks[block.id] = [line for line in lines if line and not line.startswith("```")]
    hits = sum(len(lines & set(blocks.get(path, ()))) for path, lines in wanted.items())
    total = sum(map(len, wanted.values()))
    right = sum(line in wanted.get(path, ()) for path, lines in blocks.items() for line in lines)
    line_recall = hits / total if total else 1.0
    precision = right / max(sum(map(len, blocks.values())), 1)
    both = line_recall + precision
    return Shown(
        wanted_files=recall(list(wanted), list(blocks)),
        files_for_each=len(blocks) / len(wanted),
        all_lines=float(hits == total),
        recall=line_recall,
        precision=precision,
        f1=2 * line_recall * precision / both if both else 0.0,
    )


def measure_commits(rows: list[dict[str, Any]], repositories: Path) -> None:
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        first = ranked(row, repositories)[:FIRST]
        sources = [path for path in row["gold"] if path not in row["gold_tests"]]
        with_tests = recall(row["gold"], first)
        found[row["repo"]].append((with_tests, recall(sources, first) if sources else with_tests))
    print(f"{'commits, Recall@5':34}{'with tests':>12}{'without':>12}")
    for repo, values in sorted(found.items()):
        print_row(
            f"{repo} ({len(values)})",
            *(statistics.fmean(column) for column in zip(*values, strict=True)),
        )
    everything = [value for values in found.values() for value in values]
    print_row(
        f"all ({len(everything)})",
        *(statistics.fmean(column) for column in zip(*everything, strict=True)),
    )


def measure_issues(rows: list[dict[str, Any]], repositories: Path) -> None:
    is_first = [ranked(row, repositories)[:1] == row["gold"][:1] for row in rows]
    print(f"\n{'issues':34}{'first':>12}")
    print_row(f"any budget ({len(rows)})", statistics.fmean(is_first))


def measure_packs(rows: list[dict[str, Any]], repositories: Path) -> None:
    heads = ("wanted", "files each", "all lines", "recall", "precision", "F1")
    print(f"\n{'packs':34}" + "".join(f"{head:>12}" for head in heads))
    for budget_tokens in BUDGETS:
        results = [astuple(shown(packed(row, repositories, budget_tokens), row)) for row in rows]
        print_row(
            f"{budget_tokens:,} tokens ({len(rows)})",
            *(statistics.fmean(column) for column in zip(*results, strict=True)),
        )


def print_row(label: str, *values: float) -> None:
    print(f"{label:34}" + "".join(f"{value:12.3f}" for value in values), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--half", choices=("tune", "check", "all"), default="check", help="default check"
    )
    parser.add_argument("--only", choices=("commits", "issues", "questions"), help="default all")
    parser.add_argument("--ranking", action="store_true", help="leave out what the packs show")
    options = parser.parse_args()
    data, repositories = (os.environ.get(f"LLM_COMMON_EVAL_{name}") for name in ("DATA", "REPOS"))
    if not data:
        sys.exit("Set LLM_COMMON_EVAL_DATA to the folder that holds files/")
    if not repositories:
        print("left out: LLM_COMMON_EVAL_REPOS names no folder of repositories")
        return
    started = time.perf_counter()
    measures = {
        "commits": [measure_commits],
        "issues": [measure_issues, *([] if options.ranking else [measure_packs])],
        "questions": [] if options.ranking else [measure_packs],
    }
    for name in measures if options.only is None else [options.only]:
        if name == "questions":
            rows = list(read(QUESTIONS))
        else:
            rows = read_half(Path(data) / "files" / f"{name}.jsonl", options.half)
        there = [row for row in rows if git_directory(Path(repositories), row["repo"]).exists()]
        if len(there) < len(rows):
            print(f"left out: {len(rows) - len(there)} {name} of repositories that are not there")
        for measure in measures[name]:
            measure(there, Path(repositories))
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
