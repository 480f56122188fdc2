"""`search_folders`: the files of folders that may be packed, and their ranking for a question."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import excluded_items
from llm_common.context.pool import ContextFile, DataPoolSnapshot
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
    """The first line of a query, where a report says what it is about."""
    return query.strip().partition("\n")[0]


def code_names(query: str) -> list[str]:
    """The first 64 names of a query that look like code: `get_page`, `getPage`, `page()`, `.page`, or in backquotes."""
    names = dict.fromkeys(
        name for name in _CODE_NAME.findall(query) if len(name) >= _MIN_NAME_CHARS
    )
    return list(names)[:_MAX_NAMES]


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
        pool = DataPoolSnapshot(
            context_files=tuple(path_stub(prefix + file.path) for file in files)
        )
        excluded = frozenset(path for _, path in excluded_items(pool, file_filter.exclude))

    names = code_names(query)

    def work(
        index: TreeIndex,
    ) -> tuple[list[str], dict[str, str], list[list[Hit]], list[list[str]]]:
        read = index.refresh(root, files, progress=progress)
        hits = [index.search(text) for text in (query, first_line(query))]
        return read, index.skip_reasons(), hits, [index.defining(name) for name in names]

    read, reasons, hits, definers = indexes.use(
        root, hidden=file_filter.hidden, generated=file_filter.generated, work=work
    )
    packable = (file.path for file in files if file.path not in reasons)
    shown = {path: prefix + path for path in packable if prefix + path not in excluded}
    found.places |= {shown_path: ContainedFile(root, path) for path, shown_path in shown.items()}
    found.sizes |= {shown[file.path]: file.size for file in files if file.path in shown}
    for scores, ranked in zip((found.scores, found.titles), hits, strict=True):
        scores |= {shown[hit.key]: hit.score for hit in ranked if hit.key in shown}
    for name, paths in zip(names, definers, strict=True):
        found.definers.setdefault(name, []).extend(shown[path] for path in paths if path in shown)
    found.left_out.update([*reasons.values(), *("excluded" for _ in excluded)])
    found.read += sum(path in shown for path in read)


def _listed(root: Path, file_filter: FileFilter, left_out: Counter[str]) -> Iterator[ListedFile]:
    """The files that their names do not exclude; counts the others by reason."""
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
