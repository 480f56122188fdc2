"""Read a question about folders, rank their files for it, and read those worth weighing."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TypeVar

from llm_common.context.mentions import excluded_items, files_named_in, is_code, is_test
from llm_common.context.request import (
    ContextFile,
    DataPoolSnapshot,
    Kind,
    Score,
    Scores,
)
from llm_common.folders.contained_file import ContainedFile, decoded
from llm_common.folders.file_listing import (
    MAX_FILE_BYTES,
    ListedFile,
    is_binary,
    is_unsafe,
    list_paths,
    skip_reason_by_name,
    stat_files,
    usually_holds_secrets,
)
from llm_common.folders.symbols import language_of
from llm_common.folders.tree_index import IndexCache, IndexQuery, ProgressCallback
from llm_common.ranking.cues import names_in
from llm_common.ranking.lexical import max_normalised, search_stems
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.sentences import sentences_in

_Value = TypeVar("_Value")

# Each has to be read and redacted, and the shares of later files are too small for a passage.
_MAX_WEIGHED = 30

# Chosen on the halves `tune` of commits and issues of public repositories. "Finding files" in
# docs/benchmarks.md has the results. The best match by words scores 1.
_CODE = 0.7  # code answers most questions about a folder, although prose matches more words
_SECONDARY = 0.5  # the share of `_CODE` for vendored code, documentation, examples and scripts
_SIZE = 0.05  # per tenfold size: BM25 prefers short files, and long ones answer more often
_NAMED = 0.25  # for a path in the query, divided among the files that it may mean
_TEST_LOSS_OF_CHANGES = 0.1  # a change of code often changes its tests too
_TEST_LOSS = 0.35  # tests seldom answer a question or explain a bug
_IS_QUESTION_OR_REPORT = re.compile(
    r"[?\n]|\A(?:what|where|when|which|who|whose|why|how|is|are|do|does|did|can|could|should|explain|find|show|describe)\b",
    re.IGNORECASE,
)
_IS_SECONDARY = re.compile(
    r"(?:^|/)(?:_?vendor(?:ed|s)?|third[_-]?party|extern(?:al)?|_?bundled|docs?|docs?[_-]src|documentation|website|\.github"
    r"|examples?|samples?|demos?|tutorials?|benchmarks?|scripts?|tools?)/"
    r"|\.(?:html?|css|scss|less|ipynb|sh|bash|bat|ps1|cmake|tf)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a file.

    Attributes:
        path: The file's path.
        name: The defined name.
        parent: The name of the definition around it, or "".
        span: The indexes of its first character and after its last, with the decorators and
            comments above it.
    """

    path: str
    name: str
    parent: str
    span: tuple[int, int]


class FolderQuestion:
    """A question about folders, read once for all steps of a pack.

    Args:
        text: The question.

    Attributes:
        text: The question, without surrounding whitespace.
        whole: Its words in an index.
        title: The words of its first line, if that is one sentence, as the title of a bug report.
        stems: Its words in a text.
        title_stems: Those of its title.
        symbols: The names in it that look like code, or that are within quotes.
        asks_for_change: Whether it is one line that asks for a change.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        first_line = self.text.partition("\n")[0]
        # Several sentences are a text that begins, and no title.
        title = first_line if len([*sentences_in(first_line)]) == 1 else ""
        self.whole = IndexQuery(self.text)
        self.title = IndexQuery(title)
        self.stems = search_stems(self.text)
        self.title_stems = search_stems(title)
        self.symbols: dict[str, None] = {}
        for name in names_in(self.text):
            if name.kind in ("symbol", "quoted"):
                self.symbols[name.text.removesuffix("()")] = None
        self.asks_for_change = _IS_QUESTION_OR_REPORT.search(self.text) is None

    def named(self, definitions: Iterable[Definition]) -> set[Definition]:
        """Return the definitions that it names.

        It names a definition by `Class.method`, or by a symbol, if no other definition has that
        name. Definitions in tests do not count.
        """
        by_name: defaultdict[str, list[Definition]] = defaultdict(list)
        for definition in definitions:
            if not is_test(definition.path):
                by_name[definition.name].append(definition)

        named: set[Definition] = set()
        for symbol in self.symbols:
            parts = symbol.split(".")
            for name in parts[1:] or parts:
                if len(by_name[name]) == 1:
                    named.update(by_name[name])
            for parent, name in pairwise(parts):
                named.update(method for method in by_name[name] if method.parent == parent)
        return named


@dataclass(frozen=True, slots=True)
class FileFilter:
    """The choice of files to search.

    Attributes:
        hidden: Whether to search hidden files and folders.
        generated: Whether to search generated files.
        exclude: Globs of displayed paths to leave out, as in a `.gitignore`.
    """

    hidden: bool = False
    generated: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(slots=True)
class FolderSearch:
    """The result of a search. Files are keyed by the path to display.

    Attributes:
        files: The files that may be packed.
        sizes: The sizes of these files in bytes.
        scores: The match with the query, for the files that share a word with it.
        titles: The match with the title of the query.
        words: Up to four words of the query that a file contains, rarest first.
        left_out: Number of files that may not be packed, by reason. A folder that was not entered
            counts as one.
        read: Number of packable files that were read because the index did not have their current
            state.
    """

    files: dict[str, ContainedFile] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    titles: dict[str, float] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    read: int = 0


def search_folders(
    question: FolderQuestion,
    folders: Mapping[str, Path],
    *,
    file_filter: FileFilter,
    indexes: IndexCache,
    progress: ProgressCallback,
) -> FolderSearch:
    """List folders, update their indexes and rank their files. Only changed files are read.

    Args:
        question: The question to rank for.
        folders: Existing folders, resolved, by the prefix of their displayed paths: "", or a path
            with a slash at its end.
        file_filter: The choice of files.
        indexes: Keeps the indexes.
        progress: Called while files are read.

    Raises:
        ConfigError: If SQLite was built without FTS5.
    """
    result = FolderSearch()
    for prefix, root in folders.items():
        _search(
            question,
            prefix,
            root,
            file_filter=file_filter,
            indexes=indexes,
            progress=progress,
            result=result,
        )
    return result


def path_stub(path: str) -> ContextFile:
    """Return a file without its text, for rules that need only the path."""
    return ContextFile(id=path, path=path, name=PurePosixPath(path).name, content="")


def _search(
    question: FolderQuestion,
    prefix: str,
    root: Path,
    *,
    file_filter: FileFilter,
    indexes: IndexCache,
    progress: ProgressCallback,
    result: FolderSearch,
) -> None:
    """Search one folder and add its files to the result."""
    files = list(_listed(root, file_filter, result.left_out))
    excluded: set[str] = set()
    if file_filter.exclude:
        stubs = [path_stub(prefix + file.path) for file in files]
        pool = DataPoolSnapshot(context_files=tuple(stubs))
        excluded = {path for _, path in excluded_items(pool, file_filter.exclude)}

    read, skip_reasons, scores, titles, words = indexes.use(
        root,
        hidden=file_filter.hidden,
        generated=file_filter.generated,
        work=lambda index: (
            index.refresh(root, files, progress=progress),
            index.skip_reasons(),
            index.search(question.whole),
            index.search(question.title),
            index.matched_words(question.whole),
        ),
    )
    displayed: dict[str, str] = {}  # the displayed path of each file that may be packed
    for file in files:
        path = prefix + file.path
        if file.path in skip_reasons or path in excluded:
            continue
        displayed[file.path] = path
        result.files[path] = ContainedFile(root, file.path)
        result.sizes[path] = file.size
    result.scores |= _by_displayed_path(scores, displayed)
    result.titles |= _by_displayed_path(titles, displayed)
    result.words |= _by_displayed_path(words, displayed)
    result.left_out.update(skip_reasons.values())
    if excluded:
        result.left_out["excluded"] += len(excluded)
    result.read += sum(path in displayed for path in read)


def _by_displayed_path(
    values: Mapping[str, _Value], displayed: Mapping[str, str]
) -> dict[str, _Value]:
    """Return the values of the files that have a displayed path, by that path."""
    return {displayed[path]: value for path, value in values.items() if path in displayed}


def _listed(root: Path, file_filter: FileFilter, left_out: Counter[str]) -> Iterator[ListedFile]:
    """Yield the files that their names do not exclude, and count the other files by reason."""
    for path, file in stat_files(root, list_paths(root, hidden=file_filter.hidden)):
        reason = skip_reason_by_name(
            path, hidden=file_filter.hidden, generated=file_filter.generated
        )
        # A link with a harmless name must not lead to a secret.
        if file and file.target and usually_holds_secrets(file.target):
            reason = "secret"
        if file and not reason:
            yield file
        elif reason:
            left_out[reason] += 1
        else:
            left_out[_unlisted_reason(path)] += 1


def _unlisted_reason(path: str) -> str:
    """Return why a path leads to no file that may be read."""
    if path.endswith("/"):
        return "unreadable"
    return "unsafe name" if is_unsafe(path) else "no plain file"


def candidate_files(
    question: FolderQuestion, search: FolderSearch, named: Mapping[str, ContainedFile]
) -> tuple[tuple[ContextFile, ...], Scores]:
    """Return the files worth weighing for a question, each once, with their scores.

    The files that the caller named come first. Then come the 30 files with the highest scores,
    among those that share a word with it, or whose path it names.

    Args:
        question: The question.
        search: The result of the search for it.
        named: Files that the caller named, by the path to display. Other paths of the same file
            are dropped.
    """
    parts = _parts_by_path(question, search)
    values = {path: math.fsum(summands.values()) for path, summands in parts.items()}
    best = sorted(values, key=lambda path: (-values[path], path))[:_MAX_WEIGHED]
    files: list[ContextFile] = []
    scores: dict[tuple[Kind, str], Score] = {}
    seen: set[Path] = set()
    for path in [*named, *best]:
        source = named.get(path) or search.files[path]
        real = source.real_path()
        # The file was removed since it was listed, or it is another path of an earlier file.
        if real is None or source.root / real in seen:
            continue
        seen.add(source.root / real)
        file = read_file(path, source)
        if file is not None:
            files.append(file)
            summands = parts.get(path, {})
            rule = "mentioned" if path in named or summands.get("named") else "ranked"
            scores["file", path] = Score(values.get(path, 0.0), summands, rule)
    return tuple(files), scores


def read_file(path: str, source: ContainedFile) -> ContextFile | None:
    """Read a text file, with line feeds only and with recognizable keys and tokens redacted.

    Returns None if the file cannot be read, is binary or is larger than 1 MB.

    Args:
        path: The path to display, which is also the id.
        source: The file to read.
    """
    content = source.read(max_bytes=MAX_FILE_BYTES)
    if content is None or is_binary(content):
        return None
    return ContextFile(
        id=path,
        path=path,
        name=PurePosixPath(path).name,
        content=DEFAULT_REDACTOR.shapes(decoded(content)),
        language=language_of(path),
    )


def _parts_by_path(question: FolderQuestion, search: FolderSearch) -> dict[str, dict[str, float]]:
    """Return the summands of the score of each file that is related to the question."""
    title = max_normalised(search.titles)
    # The first line of a bug report is its title. Ranked only with the whole text, it would be lost
    # among the many words of the other lines.
    words: dict[str, float] = {}
    for path, share in max_normalised(search.scores).items():
        words[path] = share + title.get(path, 0.0)
    words = max_normalised(words)
    mentioned = files_named_in(question.text, map(path_stub, search.files))
    homonyms = Counter(PurePosixPath(path).name for path in mentioned)
    named = {path: _NAMED / homonyms[PurePosixPath(path).name] for path in mentioned}
    loss = _TEST_LOSS_OF_CHANGES if question.asks_for_change else _TEST_LOSS
    parts: dict[str, dict[str, float]] = {}
    for path in {*words, *named}:
        code = _CODE * is_code(path)
        if _IS_SECONDARY.search(path):
            code *= _SECONDARY
        parts[path] = {
            "words": words.get(path, 0.0),
            "code": code,
            "size": _SIZE * math.log10(100 + search.sizes.get(path, 0)),
            "named": named.get(path, 0.0),
        }
        parts[path]["test"] = -loss * math.fsum(parts[path].values()) * is_test(path)
    return parts
