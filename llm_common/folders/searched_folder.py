"""`SearchedFolder`: one folder to pack from, found and ranked through its index."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import excluded_items
from llm_common.context.pool import ContextFile, DataPoolSnapshot
from llm_common.folders.exclusion import left_out_by_name
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.folders.index_cache import IndexFolder
from llm_common.folders.tree_index import Progress, TreeIndex

__all__ = ["FileChoice", "SearchedFolder", "search_folder", "shell_of"]


@dataclass(frozen=True, slots=True)
class FileChoice:
    """Which files are looked at beside the ordinary ones, and which are not.

    Attributes:
        hidden: Whether hidden files are.
        generated: Whether files that a tool wrote are.
        exclude: Globs of paths that are not, as in a `.gitignore`.
    """

    hidden: bool = False
    generated: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedFolder:
    """A folder's files and their ranking.

    Attributes:
        root: The folder, resolved.
        prefix: What its paths are shown with in front, "" or ending with a slash.
        paths: The files that may be packed, relative to the root.
        ranked: Those that share a word with the query, best first, with their scores.
        left_out: How many files were left out, by reason.
        read: How many files were read anew.
    """

    root: Path
    prefix: str
    paths: tuple[str, ...]
    ranked: tuple[tuple[str, float], ...]
    left_out: Mapping[str, int]
    read: int

    def shown(self, path: str) -> str:
        """A path of the folder as the prompt shows it."""
        return self.prefix + path


def search_folder(
    root: Path, query: str, *, prefix: str, choice: FileChoice, limit: int, indexes: IndexFolder, progress: Progress
) -> SearchedFolder:
    """The folder's files as they are now, the best of them ranked; only what has changed is read.

    Args:
        root: An existing folder, resolved.
        query: What to rank for.
        prefix: What to show its paths with.
        choice: Which files to look at.
        limit: Most files to rank.
        indexes: Where its index is kept.
        progress: Told while files are read.

    Raises:
        ConfigError: SQLite was built without FTS5.
    """
    files, left_out = _listed(root, choice)
    excluded = _excluded([prefix + file.path for file in files], choice.exclude)

    def work(index: TreeIndex) -> SearchedFolder:
        read = index.refresh(root, files, progress=progress)
        reasons = index.left_out()
        hits = index.search(query, limit=limit + len(excluded))
        ranked = [(hit.key, hit.score) for hit in hits if prefix + hit.key not in excluded]
        return SearchedFolder(
            root=root,
            prefix=prefix,
            paths=tuple(f.path for f in files if f.path not in reasons and prefix + f.path not in excluded),
            ranked=tuple(ranked[:limit]),
            left_out=left_out + Counter(reasons.values()) + Counter(excluded=len(excluded)),
            read=read,
        )

    return indexes.use(root, hidden=choice.hidden, generated=choice.generated, work=work)


def shell_of(path: str) -> ContextFile:
    """A file without its text, to find it by its path."""
    return ContextFile(id=path, path=path, name=PurePosixPath(path).name, content="")


def _listed(root: Path, choice: FileChoice) -> tuple[list[ListedFile], Counter[str]]:
    """The files whose names speak for them, and how many others there are by reason."""
    files: list[ListedFile] = []
    left_out: Counter[str] = Counter()
    for path, file in stat_files(root, list_paths(root, hidden=choice.hidden)):
        reason = left_out_by_name(path, hidden=choice.hidden, generated=choice.generated)
        if file is None or reason:
            left_out[reason or "no plain file"] += 1
        else:
            files.append(file)
    return files, left_out


def _excluded(paths: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    if not patterns:
        return frozenset()
    pool = DataPoolSnapshot(context_files=tuple(map(shell_of, paths)))
    return frozenset(path for _, path in excluded_items(pool, patterns))
