"""`SearchedFolder`: one folder to pack from, listed and ranked through its index."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import excluded_items
from llm_common.context.pool import ContextFile, DataPoolSnapshot
from llm_common.folders.exclusion import skip_reason_by_name
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.folders.index_cache import IndexCache
from llm_common.folders.tree_index import ProgressCallback, TreeIndex

__all__ = ["FileFilter", "SearchedFolder", "path_stub", "search_folder"]

_MAX_RANKED = 200


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files of a folder are searched.

    Attributes:
        hidden: Whether hidden files are.
        generated: Whether files that a tool wrote are.
        exclude: Globs of shown paths that are not, as in a `.gitignore`.
    """

    hidden: bool = False
    generated: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedFolder:
    """A folder's files and their ranking.

    Attributes:
        root: The folder, resolved.
        prefix: Stands in front of its paths where they are shown: "", or a path that ends with a slash.
        paths: The files that may be packed, relative to the root.
        ranked: At most 200 of them that share a word with the query, best first, with their scores.
        left_out: Number of files that may not be packed, by reason.
        read: Number of files that were read.
    """

    root: Path
    prefix: str
    paths: tuple[str, ...]
    ranked: tuple[tuple[str, float], ...]
    left_out: Mapping[str, int]
    read: int


def search_folder(
    root: Path, query: str, *, prefix: str, file_filter: FileFilter, indexes: IndexCache, progress: ProgressCallback
) -> SearchedFolder:
    """Lists the folder, brings its index up to date and ranks its files; reads only files that changed.

    Args:
        root: An existing folder, resolved.
        query: What to rank for.
        prefix: Stands in front of the shown paths.
        file_filter: Which files to search.
        indexes: Where the index is kept.
        progress: Called while files are read.

    Raises:
        ConfigError: SQLite was built without FTS5, or `.gitignore` files cannot be read without the extra `cli`.
    """
    files, left_out = _listed(root, file_filter)
    excluded = _excluded([prefix + file.path for file in files], file_filter.exclude)

    def work(index: TreeIndex) -> SearchedFolder:
        read = index.refresh(root, files, progress=progress)
        reasons = index.skip_reasons()
        hits = index.search(query, limit=_MAX_RANKED + len(excluded))
        ranked = [(hit.key, hit.score) for hit in hits if prefix + hit.key not in excluded]
        return SearchedFolder(
            root=root,
            prefix=prefix,
            paths=tuple(f.path for f in files if f.path not in reasons and prefix + f.path not in excluded),
            ranked=tuple(ranked[:_MAX_RANKED]),
            left_out=left_out + Counter(reasons.values()) + Counter(excluded=len(excluded)),
            read=read,
        )

    return indexes.use(root, hidden=file_filter.hidden, generated=file_filter.generated, work=work)


def path_stub(path: str) -> ContextFile:
    """A file without its text, for rules that look at the path alone."""
    return ContextFile(id=path, path=path, name=PurePosixPath(path).name, content="")


def _listed(root: Path, file_filter: FileFilter) -> tuple[list[ListedFile], Counter[str]]:
    """The files that their names do not exclude, and the number of the others by reason."""
    files: list[ListedFile] = []
    left_out: Counter[str] = Counter()
    for path, file in stat_files(root, list_paths(root, hidden=file_filter.hidden)):
        reason = skip_reason_by_name(path, hidden=file_filter.hidden, generated=file_filter.generated)
        if file is None or reason:
            left_out[reason or "no plain file"] += 1
        else:
            files.append(file)
    return files, left_out


def _excluded(paths: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    if not patterns:
        return frozenset()
    pool = DataPoolSnapshot(context_files=tuple(map(path_stub, paths)))
    return frozenset(path for _, path in excluded_items(pool, patterns))
