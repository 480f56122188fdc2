"""`candidate_files`: the files of large trees that are weighed for a pack."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import MentionFinder, is_code, is_test
from llm_common.context.request import ContextFile, FileMetadata, Kind, Score, Scores
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import MAX_FILE_BYTES, is_binary
from llm_common.folders.folder_search import FolderSearch, path_stub
from llm_common.folders.languages import language_of
from llm_common.ranking.fusion import max_normalised
from llm_common.ranking.lexical import query_terms
from llm_common.redaction.redactor import DEFAULT_REDACTOR

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
