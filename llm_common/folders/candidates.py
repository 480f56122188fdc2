"""`candidate_files`: the few files of large trees that are weighed for a pack, with text, outline and score."""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import MentionFinder, is_code, is_test
from llm_common.context.pool import ContextFile, FileMetadata
from llm_common.context.request import Score, Scores
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import MAX_FILE_BYTES, is_binary
from llm_common.folders.folder_search import FolderSearch, path_stub
from llm_common.folders.languages import language_of
from llm_common.folders.symbols import outline, symbols_of
from llm_common.ranking.fusion import max_normalised
from llm_common.ranking.lexical import query_terms
from llm_common.redaction.redactor import DEFAULT_REDACTOR

_MAX_WEIGHED = 60  # a file that answers ranks well before, and each one costs a reading
_MIN_SHARE = 0.4  # of the best score: files with less share only a common word
_ALWAYS_WEIGHED = 10  # however low their share
_MAX_MENTIONED = 40
_MAX_INTRODUCTIONS = 20
_MAX_PARSED_CHARS = 400_000  # 0.1 s of Python's own parser
_CODE, _TEST, _RECENT = 0.2, -0.1, 0.2
_TEST_LOSS = 0.6  # commits change tests with the code; a question that names no tests is seldom answered by one
_WEEK_H = 168.0
_MAX_TIME_S = 253_402_300_799.0  # the end of the year 9999; file systems keep later times, `datetime` does not
_INTRODUCTIONS = ("readme", "__init__", "index", "main", "app", "lib")


def candidate_files(
    query: str, search: FolderSearch, named: Mapping[str, ContainedFile], *, now: datetime
) -> tuple[tuple[ContextFile, ...], Scores]:
    """The files worth weighing for a query, each once, with text, outline, size and time of change, and their scores.

    In this order: the files that the caller named, the files that the query mentions by path or name, the best of the
    rankings, where code counts a fifth of the best match more, and a test a tenth less unless tests are asked for. If
    there are none, the files that introduce a folder.

    Args:
        query: The question.
        search: What a search of folders for it found.
        named: Files that the caller named, by the path to show. Other names of the same file are dropped.
        now: The moment that ages are measured from.
    """
    places, shares = search.places, max_normalised(search.scores)
    # Measured on which files the commits of public repositories changed, against words alone.
    values = {
        path: math.fsum([share, _CODE * is_code(path), _TEST * _is_unwanted_test(path, query)])
        for path, share in shares.items()
    }
    best = [
        path
        for place, path in enumerate(sorted(values, key=lambda path: (-values[path], path))[:_MAX_WEIGHED])
        if place < _ALWAYS_WEIGHED or shares[path] >= _MIN_SHARE
    ]
    mentioned = MentionFinder(map(path_stub, places)).find(query)
    first = sorted(mentioned, key=lambda path: (-shares.get(path, 0.0), path))[:_MAX_MENTIONED]
    paths = [*named, *first, *best]
    if not paths:
        paths = sorted(places, key=lambda path: (readme_rank(path), path.count("/"), path))[:_MAX_INTRODUCTIONS]
    files = tuple(_with_outlines(_distinct((path, named.get(path) or places[path]) for path in paths), query))
    rules = dict.fromkeys([*named, *first], "mentioned")
    return files, {
        ("file", file.path): _score(file, shares.get(file.path, 0.0), query, rules.get(file.path, "ranked"), now)
        for file in files
    }


def read_file(path: str, place: ContainedFile) -> ContextFile | None:
    """A text file without its outline; None when it cannot be read, is binary or holds over 1 MB.

    Keys and tokens that their shape gives away are redacted.

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
        content=DEFAULT_REDACTOR.shapes(content.data.decode("utf-8", errors="replace")),
        language=language_of(path),
        metadata=FileMetadata(size=len(content.data), last_modified=datetime.fromtimestamp(changed_s, tz=UTC)),
    )


def readme_rank(path: str) -> int:
    """How early to read a file to learn what its folder is about: 0 for a readme, higher for others."""
    stem = PurePosixPath(path).stem.lower()
    return _INTRODUCTIONS.index(stem) if stem in _INTRODUCTIONS else len(_INTRODUCTIONS)


def _distinct(places: Iterable[tuple[str, ContainedFile]]) -> Iterator[tuple[str, ContainedFile]]:
    """The places without later names of the same file, and without those that are no longer in their folder."""
    seen: set[Path] = set()
    for path, place in places:
        real = place.real_path()
        if real is not None and place.root / real not in seen:
            seen.add(place.root / real)
            yield path, place


def _with_outlines(places: Iterable[tuple[str, ContainedFile]], query: str) -> Iterator[ContextFile]:
    parsed = 0
    for path, place in places:
        if file := read_file(path, place):
            parsed += len(file.content) if file.language == "python" else 0
            symbols = symbols_of(path, file.content, parse=parsed <= _MAX_PARSED_CHARS)
            yield file.model_copy(update={"summary": outline(symbols, query) or None})


def _score(file: ContextFile, share: float, query: str, rule: str, now: datetime) -> Score:
    """The score of a file, as the packer takes it: the square of the sum of its parts.

    The share comes from an index of the whole tree, which knows how rare a word is; the few candidates alone do not.
    Because of the square, a file half as good as the best is worth a quarter: the tokens go to the few files that
    answer. A test has less than half of its score, unless tests are asked for.
    """
    changed = file.metadata.last_modified
    age_h = max((now - changed).total_seconds() / 3600, 0.0) if changed else math.inf
    parts = {"words": share, "code": _CODE * is_code(file.path), "recent": _RECENT * math.exp(-age_h / _WEEK_H)}
    parts["test"] = -_TEST_LOSS * _is_unwanted_test(file.path, query) * math.fsum(parts.values())
    total = math.fsum(parts.values())
    return Score(total * total, {name: part * total for name, part in parts.items()}, rule)


def _is_unwanted_test(path: str, query: str) -> bool:
    return is_test(path) and "test" not in query_terms(query)
