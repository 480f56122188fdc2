"""`search_folders` ranks the files of folders, `candidate_files` reads those worth weighing."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from llm_common.context.mentions import MentionFinder, excluded_items, is_code, is_test
from llm_common.context.request import (
    ContextFile,
    DataPoolSnapshot,
    FileMetadata,
    Kind,
    Score,
    Scores,
)
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import (
    MAX_FILE_BYTES,
    is_binary,
    skip_reason_by_name,
    usually_holds_secrets,
)
from llm_common.folders.file_listing import ListedFile, list_paths, stat_files
from llm_common.folders.symbols import language_of
from llm_common.folders.tree_index import IndexCache, ProgressCallback, TreeIndex
from llm_common.ranking.lexical import Hit, max_normalised, query_terms
from llm_common.redaction.redactor import DEFAULT_REDACTOR

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


_MAX_WEIGHED = 60  # a file that answers ranks well before, and each one costs a reading
# Chosen on the half `tune` of commits and issues of public repositories; "Finding files" in
# docs/benchmarks.md says what else was seen. The best match by words counts 1.
_CODE = 0.7  # what is asked of a folder is mostly answered by code, though prose has more words
# of it, for code that documents, shows or builds, and for what was taken from other projects
_ELSEWHERE = 0.5
_SIZE = 0.05  # for ten times the size: BM25 prefers short files, and long ones answer more often
_NAMED = 0.5  # a path of the query, divided among the files that it may mean
_DEFINES = 0.2  # a name of the query, divided among the files that define it
_TEST_LOSS_OF_CHANGES = 0.1  # who changes code changes its tests with it
_TEST_LOSS = 0.4  # a question or a report is seldom answered by a test
_RECENT = 0.2  # not measured: the trees of the sets have no times
_WEEK_S = 7 * 24 * 3600.0
_MAX_DEFINERS = 5  # what more files define is no name but a word
_TEST_WORDS = frozenset({"test", "tests", "testing"})
_IS_QUESTION_OR_REPORT = re.compile(
    r"[?\n]|\A(?:what|where|when|which|who|whose|why|how|is|are|do|does|did|can|could|should|explain|find|show|describe)\b",
    re.IGNORECASE,
)
_IS_ELSEWHERE = re.compile(
    r"(?:^|/)(?:_?vendor(?:ed|s)?|third[_-]?party|extern(?:al)?|_?bundled|docs?|docs?[_-]src|documentation|website|\.github"
    r"|examples?|samples?|demos?|tutorials?|benchmarks?|scripts?|tools?)/"
    r"|\.(?:html?|css|scss|less|ipynb|sh|bash|bat|ps1|cmake|tf)$",
    re.IGNORECASE,
)
# the end of the year 9999; file systems keep later times, `datetime` does not
_MAX_TIME_S = 253_402_300_799.0


def candidate_files(
    query: str, search: FolderSearch, named: Mapping[str, ContainedFile], *, now: datetime
) -> tuple[tuple[ContextFile, ...], Scores]:
    """Return the files worth weighing for a query, each once, and their scores.

    First the files that the caller named, then the 60 of the highest scores among those that share
    a word with the query, or that it names by path or by something they define. None when there are
    none.

    Args:
        query: The question.
        search: What a search of folders for it found.
        named: Files that the caller named, by the path to show. Other names of the same file are
            dropped.
        now: The moment that ages are measured from.
    """
    parts = _parts_by_path(query, search)
    loss = _test_loss(query)

    def total(path: str, recent: float = 0.0) -> Score:
        summands = {**parts.get(path, {"words": 0.0}), "recent": recent}
        summands["test"] = -loss * math.fsum(summands.values()) * is_test(path)
        rule = "mentioned" if path in named or summands.get("named") else "ranked"
        return Score(math.fsum(summands.values()), summands, rule)

    best = sorted(parts, key=lambda path: (-total(path).value, path))[:_MAX_WEIGHED]
    files: list[ContextFile] = []
    scores: dict[tuple[Kind, str], Score] = {}
    seen: set[Path] = set()
    for path in [*named, *best]:
        place = named.get(path) or search.places[path]
        real = place.real_path()
        # Another name of a file before, or one that is no longer in its folder.
        if real is None or place.root / real in seen:
            continue
        seen.add(place.root / real)
        file = read_file(path, place)
        if file is not None:
            files.append(file)
            scores["file", path] = total(path, _recent(file, now))
    return tuple(files), scores


def read_file(path: str, place: ContainedFile) -> ContextFile | None:
    """A text file, with line feeds alone.

    None when it cannot be read, is binary or holds over 1 MB. Keys and tokens that their shape
    gives away are redacted.

    Args:
        path: The path to show; also its id.
        place: Where it is.
    """
    content = place.read(max_bytes=MAX_FILE_BYTES)
    if content is None or is_binary(content.data):
        return None
    changed_s = min(max(content.mtime_s, 0.0), _MAX_TIME_S)
    return ContextFile(
        id=path,
        path=path,
        name=PurePosixPath(path).name,
        content=DEFAULT_REDACTOR.shapes(content.text()),
        language=language_of(path),
        metadata=FileMetadata(
            size=len(content.data), last_modified=datetime.fromtimestamp(changed_s, tz=UTC)
        ),
    )


def _parts_by_path(query: str, search: FolderSearch) -> dict[str, dict[str, float]]:
    """The summands of the score of each file that has to do with the query."""
    title = max_normalised(search.titles)
    # The first line of a report says what it is about, and its many other words would drown it.
    words: dict[str, float] = {}
    for path, share in max_normalised(search.scores).items():
        words[path] = share + title.get(path, 0.0)
    words = max_normalised(words)
    mentioned = MentionFinder(map(path_stub, search.places)).find(query)
    homonyms = Counter(PurePosixPath(path).name for path in mentioned)
    named = {path: _NAMED / homonyms[PurePosixPath(path).name] for path in mentioned}
    defines: Counter[str] = Counter()
    for paths in search.definers.values():
        sources = [path for path in paths if not is_test(path)]
        if 0 < len(sources) <= _MAX_DEFINERS:
            defines.update(dict.fromkeys(sources, 1 / len(sources)))
    parts: dict[str, dict[str, float]] = {}
    for path in {*words, *named, *defines}:
        elsewhere = _ELSEWHERE if _IS_ELSEWHERE.search(path) else 1.0
        parts[path] = {
            "words": words.get(path, 0.0),
            "code": _CODE * elsewhere * is_code(path),
            "size": _SIZE * math.log10(100 + search.sizes.get(path, 0)),
            "named": named.get(path, 0.0),
            "defines": _DEFINES * min(defines[path], 1.0),
        }
    return parts


def _test_loss(query: str) -> float:
    """Return how much less a test counts.

    Nothing if tests are asked for, little for one line that asks for a change.
    """
    if not _TEST_WORDS.isdisjoint(query_terms(query)):
        return 0.0
    return _TEST_LOSS if _IS_QUESTION_OR_REPORT.search(query.strip()) else _TEST_LOSS_OF_CHANGES


def _recent(file: ContextFile, now: datetime) -> float:
    changed = file.metadata.last_modified
    if changed is None:
        return 0.0
    return _RECENT * math.exp(-max((now - changed).total_seconds(), 0.0) / _WEEK_S)
