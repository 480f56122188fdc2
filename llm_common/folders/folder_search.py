"""`search_folders`: the files of folders that may be packed, and their ranking for a question."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from llm_common.context.mentions import excluded_items
from llm_common.context.request import ContextFile, DataPoolSnapshot
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import skip_reason_by_name, usually_holds_secrets
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.folders.index_cache import IndexCache
from llm_common.folders.tree_index import ProgressCallback, TreeIndex
from llm_common.ranking.lexical import Hit

_MAX_NAMES = 64
_MIN_NAME_CHARS = 4
# `snake_case`, `camelCase`, what is called or quoted as code, and what follows a dot.
_CODE_NAME = re.compile(
    r"\b(?:(?=[A-Za-z]*_[A-Za-z]|[A-Za-z]*[a-z0-9][A-Z])\w+|[A-Za-z_]\w*(?=\())|(?<=`)[A-Za-z_]\w*(?=`)|(?<=\w\.)[A-Za-z_]\w*"
)


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Which files are searched.

    `exclude` holds globs of shown paths to leave out, as in a `.gitignore`.
    """

    hidden: bool = False
    generated: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(slots=True)
class FolderSearch:
    """What a search found.

    Attributes:
        places: The files that may be packed, by the path to show.
        sizes: Their sizes in bytes, by the path to show.
        scores: How well each matches the query, for all that share a word with it, by the path to
            show.
        titles: The same for the query's first line.
        definers: By each name of the query that looks like code, the paths of the files that define
            it.
        left_out: Number of files that may not be packed, by reason; a folder that was not entered
            counts as one.
        read: Number of the files that may be packed that were read, since the index did not hold
            them as they are.
    """

    places: dict[str, ContainedFile] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    titles: dict[str, float] = field(default_factory=dict)
    definers: dict[str, list[str]] = field(default_factory=dict)
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
    """Lists folders, brings their indexes up to date and ranks their files.

    Reads only files that changed.

    Args:
        query: What to rank for.
        folders: Existing folders, resolved, by the prefix of their shown paths: "", or a path and a
            slash.
        file_filter: Which files to search.
        indexes: Where the indexes are kept.
        progress: Called while files are read.

    Raises:
        ConfigError: SQLite was built without FTS5.
    """
    found = FolderSearch()
    for prefix, root in folders.items():
        _search(
            query,
            prefix,
            root,
            file_filter=file_filter,
            indexes=indexes,
            progress=progress,
            found=found,
        )
    return found


def first_line(query: str) -> str:
    """Return the first line of a query, where a report says what it is about."""
    return query.strip().partition("\n")[0]


def code_names(query: str) -> list[str]:
    """Return the first 64 names of a query that look like code.

    `get_page`, `getPage`, `page()`, `.page`, and what stands in backquotes.
    """
    names = dict.fromkeys(_CODE_NAME.findall(query))
    return [name for name in names if len(name) >= _MIN_NAME_CHARS][:_MAX_NAMES]


def path_stub(path: str) -> ContextFile:
    """Return a file without its text, for rules that look at the path alone."""
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
    excluded: set[str] = set()
    if file_filter.exclude:
        stubs = [path_stub(prefix + file.path) for file in files]
        pool = DataPoolSnapshot(context_files=tuple(stubs))
        excluded = {path for _, path in excluded_items(pool, file_filter.exclude)}

    def work(index: TreeIndex) -> _IndexSearch:
        return _IndexSearch(
            read=index.refresh(root, files, progress=progress),
            skip_reasons=index.skip_reasons(),
            hits=index.search(query),
            title_hits=index.search(first_line(query)),
            definers={name: index.defining(name) for name in code_names(query)},
        )

    result = indexes.use(
        root, hidden=file_filter.hidden, generated=file_filter.generated, work=work
    )
    shown: dict[str, str] = {}  # the path to show of each file that may be packed
    for file in files:
        shown_path = prefix + file.path
        if file.path in result.skip_reasons or shown_path in excluded:
            continue
        shown[file.path] = shown_path
        found.places[shown_path] = ContainedFile(root, file.path)
        found.sizes[shown_path] = file.size
    for scores, hits in ((found.scores, result.hits), (found.titles, result.title_hits)):
        for hit in hits:
            if hit.key in shown:
                scores[shown[hit.key]] = hit.score
    for name, paths in result.definers.items():
        definers = found.definers.setdefault(name, [])
        definers += [shown[path] for path in paths if path in shown]
    found.left_out.update(result.skip_reasons.values())
    if excluded:
        found.left_out["excluded"] += len(excluded)
    found.read += sum(path in shown for path in result.read)


class _IndexSearch(NamedTuple):
    """What the index of one folder returns for a query."""

    read: list[str]
    skip_reasons: dict[str, str]
    hits: list[Hit]
    title_hits: list[Hit]
    definers: dict[str, list[str]]


def _listed(root: Path, file_filter: FileFilter, left_out: Counter[str]) -> Iterator[ListedFile]:
    """Yield the files that their names do not exclude, and count the others by reason."""
    for path, file in stat_files(root, list_paths(root, hidden=file_filter.hidden)):
        reason = skip_reason_by_name(
            path, hidden=file_filter.hidden, generated=file_filter.generated
        )
        if file and file.target and usually_holds_secrets(file.target):
            reason = "secret"
        if file is None or reason:
            left_out[reason or ("unreadable" if path.endswith("/") else "no plain file")] += 1
        else:
            yield file
