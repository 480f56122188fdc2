"""What a prompt shows of a repository at a commit: our packs, and whole files by BM25."""

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from benchmarks.public.bm25 import BM25, code_words
from benchmarks.public.inputs import Inputs
from benchmarks.public.trees import Tree
from llm_common.core import DefaultCounter
from llm_common.folders import FolderPack, pack_folder
from llm_common.folders.folder_pack import MIN_BUDGET_TOKENS

__all__ = [
    "BASELINE",
    "BUDGETS",
    "OURS",
    "Issue",
    "SearchedRepository",
    "at_each_commit",
    "left_out_note",
]

BUDGETS: Final = (8_000, 16_000)
OURS: Final = "llm-common, pack_folder"
BASELINE: Final = "BM25 over whole source files, identifiers split"
COUNTER: Final = DefaultCounter()
# What the baseline ranks: sources in the languages of both sets, without tests.
SOURCES: Final = frozenset(
    [
        ".c",
        ".cc",
        ".cpp",
        ".go",
        ".h",
        ".hpp",
        ".java",
        ".js",
        ".jsx",
        ".kt",
        ".py",
        ".rs",
        ".svelte",
        ".ts",
        ".tsx",
        ".vue",
    ]
)
_TEST: Final = re.compile(
    r"(^|/)(tests?|testing|__tests__|spec)(/|$)|(^|/)test_|[._]test\.|_test\."
)
MAX_SOURCE_BYTES: Final = 1_000_000


@dataclass(frozen=True)
class Issue:
    """An issue of a repository.

    Attributes:
        repository: The owner and the name.
        commit: The commit whose files are searched.
        text: The issue.
    """

    repository: str
    commit: str
    text: str


AnyIssue = TypeVar("AnyIssue", bound=Issue)


class SearchedRepository:
    """One repository at one commit after another, with both ways to choose."""

    def __init__(self, tree: Tree, cache: Path) -> None:
        self.tree = tree
        self._cache = cache
        self._counts: dict[str, Counter[str]] = {}

    def first_by_ours(self, text: str) -> str | None:
        """Return the file that is ranked first."""
        pack = pack_folder(
            text,
            self.tree.folder,
            budget_tokens=MIN_BUDGET_TOKENS,
            max_files=1,
            cache_dir=self._cache,
        )
        return next((file.path for file in (*pack.files, *pack.dropped)), None)

    def packed_by_ours(self, text: str, budget_tokens: int) -> FolderPack:
        """Return a pack."""
        return pack_folder(
            text, self.tree.folder, budget_tokens=budget_tokens, cache_dir=self._cache
        )

    def shown_by_ours(self, text: str, budget_tokens: int) -> dict[str, list[str]]:
        """Return what a pack shows."""
        pack = self.packed_by_ours(text, budget_tokens)
        return {block.id: _stripped(block.text) for block in pack.bundle.blocks}

    def ranked_by_bm25(self, text: str) -> list[str]:
        """Return the source files that share a word with the issue, best first."""
        paths = [path for path in self.tree.files if self._is_source(path)]
        index = BM25([self._counts_of(path) for path in paths])
        return [paths[place] for place in index.ranked(code_words(text))]

    def shown_whole(self, paths: Sequence[str], budget_tokens: int) -> dict[str, list[str]]:
        """Return whole files in their order, as many as fit. The last one is cut."""
        shown: dict[str, list[str]] = {}
        left = budget_tokens
        for path in paths:
            text = self._text(path)
            tokens = COUNTER.count(f"{path}\n{text}\n")
            if tokens > left:
                shown[path] = _stripped(_cut(text, left))
                break
            shown[path] = _stripped(text)
            left -= tokens
        return {path: lines for path, lines in shown.items() if lines}

    def text_lines(self, path: str) -> list[str]:
        """Return the lines of a file, without their ends."""
        return self._text(path).splitlines()

    def _is_source(self, path: str) -> bool:
        if PurePosixPath(path).suffix not in SOURCES or _TEST.search(path):
            return False
        return (self.tree.folder / path).stat().st_size <= MAX_SOURCE_BYTES

    def _counts_of(self, path: str) -> Counter[str]:
        blob = self.tree.files[path]
        if blob not in self._counts:
            self._counts[blob] = Counter(code_words(f"{path}\n{self._text(path)}"))
        return self._counts[blob]

    def _text(self, path: str) -> str:
        return (self.tree.folder / path).read_text(encoding="utf-8", errors="replace")


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _cut(text: str, max_tokens: int) -> str:
    lines = text.splitlines()
    while lines and COUNTER.count("\n".join(lines)) > max_tokens:
        del lines[len(lines) * 9 // 10 :]
    return "\n".join(lines)


def at_each_commit(
    inputs: Inputs, issues: Sequence[AnyIssue], left_out: Counter[str], limit: int | None = None
) -> Iterator[tuple[AnyIssue, SearchedRepository]]:
    """Yield the issues with their files in place. Counts those without by their repository.

    With a limit, yield an issue of each repository, up to the limit.
    """
    if limit is not None:
        first_ones = {issue.repository: issue for issue in reversed(issues)}
        yield from islice(at_each_commit(inputs, [*first_ones.values()], left_out), limit)
        return
    by_repository: defaultdict[str, list[AnyIssue]] = defaultdict(list)
    for issue in issues:
        by_repository[issue.repository].append(issue)
    for repository, its_issues in sorted(by_repository.items()):
        git_directory = inputs.git_directory(repository)
        if git_directory is None:
            left_out[repository] += len(its_issues)
            continue
        with tempfile.TemporaryDirectory() as work:
            tree = Tree(git_directory, Path(work) / "tree")
            searched = SearchedRepository(tree, Path(work) / "indexes")
            for issue in its_issues:
                if not tree.has(issue.commit):
                    left_out[repository] += 1
                    continue
                tree.move_to(issue.commit)
                yield issue, searched


def left_out_note(left_out: Counter[str]) -> tuple[str, ...]:
    """Return a sentence on the issues that were left out, if any were."""
    if not left_out:
        return ()
    names = ", ".join(f"{repository} ({count})" for repository, count in sorted(left_out.items()))
    return (f"Left out, since the data folder does not have the repository or commit: {names}.",)
