"""`search_folders`: the files of folders that may be packed, and their ranking for a question."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import excluded_items
from llm_common.context.pool import ContextFile, DataPoolSnapshot
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import skip_reason_by_name
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.folders.index_cache import IndexCache
from llm_common.folders.secret_names import usually_holds_secrets
from llm_common.folders.tree_index import ProgressCallback, TreeIndex
from llm_common.ranking.lexical import Hit

_MAX_RANKED = 200


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files are searched; `exclude` holds globs of shown paths to leave out, as in a `.gitignore`."""

    hidden: bool = False
    generated: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(slots=True)
class FolderSearch:
    """What a search found.

    Attributes:
        places: The files that may be packed, by the path to show.
        scores: The best 200 of each folder that share a word with the query, by the path to show.
        left_out: Number of files that may not be packed, by reason; a folder that was not entered counts as one.
        read: Number of the files that may be packed that were read, since the index did not hold them as they are.
    """

    places: dict[str, ContainedFile] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    read: int = 0


def search_folders(
    query: str,
    folders: Mapping[str, Path],
    *,
    file_filter: FileFilter,
    indexes: IndexCache,
    progress: ProgressCallback,
) -> FolderSearch:
    """Lists folders, brings their indexes up to date and ranks their files; reads only files that changed.

    Args:
        query: What to rank for.
        folders: Existing folders, resolved, by the prefix of their shown paths: "", or a path and a slash.
        file_filter: Which files to search.
        indexes: Where the indexes are kept.
        progress: Called while files are read.

    Raises:
        ConfigError: SQLite was built without FTS5.
    """
    found = FolderSearch()
    for prefix, root in folders.items():
        _search(query, prefix, root, file_filter=file_filter, indexes=indexes, progress=progress, found=found)
    return found


def path_stub(path: str) -> ContextFile:
    """A file without its text, for rules that look at the path alone."""
    return ContextFile(id=path, path=path, name=PurePosixPath(path).name, content="")


def _search(
    query: str,
    prefix: str,
    root: Path,
    *,
    file_filter: FileFilter,
    indexes: IndexCache,
    progress: ProgressCallback,
    found: FolderSearch,
) -> None:
    files = list(_listed(root, file_filter, found.left_out))
    excluded: frozenset[str] = frozenset()
    if file_filter.exclude:
        pool = DataPoolSnapshot(context_files=tuple(path_stub(prefix + file.path) for file in files))
        excluded = frozenset(path for _, path in excluded_items(pool, file_filter.exclude))

    def work(index: TreeIndex) -> tuple[list[str], dict[str, str], list[Hit]]:
        read = index.refresh(root, files, progress=progress)
        return read, index.skip_reasons(), index.search(query, limit=_MAX_RANKED + len(excluded))

    read, reasons, hits = indexes.use(root, hidden=file_filter.hidden, generated=file_filter.generated, work=work)
    packable = (file.path for file in files if file.path not in reasons)
    shown = {path: prefix + path for path in packable if prefix + path not in excluded}
    found.places |= {shown_path: ContainedFile(root, path) for path, shown_path in shown.items()}
    found.scores |= dict([(shown[hit.key], hit.score) for hit in hits if hit.key in shown][:_MAX_RANKED])
    found.left_out.update([*reasons.values(), *("excluded" for _ in excluded)])
    found.read += sum(path in shown for path in read)


def _listed(root: Path, file_filter: FileFilter, left_out: Counter[str]) -> Iterator[ListedFile]:
    """The files that their names do not exclude; counts the others by reason."""
    for path, file in stat_files(root, list_paths(root, hidden=file_filter.hidden)):
        reason = skip_reason_by_name(path, hidden=file_filter.hidden, generated=file_filter.generated)
        if file and file.target and usually_holds_secrets(file.target):
            reason = "secret"
        if file is None or reason:
            left_out[reason or "no plain file"] += 1
        else:
            yield file
