"""`candidate_files`: the few files of a large tree that the context selector gets to weigh, with text and outline."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import MentionFinder, is_code, is_test
from llm_common.context.pool import ContextFile, FileMetadata
from llm_common.context.request import Score, Scores
from llm_common.folders.exclusion import MAX_FILE_BYTES, is_binary
from llm_common.folders.languages import language_of
from llm_common.folders.searched_folder import SearchedFolder, shell_of
from llm_common.folders.symbols import outline, symbols_of
from llm_common.ranking.fusion import max_normalised
from llm_common.ranking.lexical import query_terms

__all__ = ["MAX_RANKED", "Candidates", "candidate_files", "rank_value", "read_file", "score_files", "starting_point"]

_CODE, _TEST, _RECENT = 0.2, -0.1, 0.2
_TEST_LOSS = 0.6  # commits change tests with the code; a question that names no tests is seldom answered by one
_WEEK_H = 168.0


def rank_value(path: str, share: float, query: str) -> float:
    """What a file is worth for its words and its kind.

    Code counts a fifth of the best match more, a test a tenth less unless tests are asked for: measured on which files
    the commits of public repositories changed, against words alone.

    Args:
        path: The file's.
        share: Its score in the ranking as a share of the best one.
        query: The question.
    """
    return math.fsum([share, _CODE * is_code(path), _TEST * _is_unwanted_test(path, query)])


def score_files(
    files: Sequence[ContextFile],
    shares: Mapping[str, float],
    query: str,
    *,
    mentioned: AbstractSet[str],
    now: datetime,
) -> Scores:
    """The score of each file, as packing takes it.

    The shares come from an index of the whole tree: among the few files that share words with the question, how rare a
    word is could not be told. A score is the square of its summands' sum, so that a file which is half as good as the
    best is worth far less than half: the room goes to the few that answer, not to the many that touch on the question.
    A test has less than half of it, unless tests are asked for.

    Args:
        files: The files to score.
        shares: Their scores in the ranking as shares of the best one; 0 for what is missing.
        query: The question.
        mentioned: Paths that the caller or the question names.
        now: The moment that ages are measured from.
    """
    return {
        ("file", file.path): _score(
            _parts(file, shares.get(file.path, 0.0), query, now),
            "mentioned" if file.path in mentioned else "ranked",
        )
        for file in files
    }


def _parts(file: ContextFile, share: float, query: str, now: datetime) -> dict[str, float]:
    parts = {"words": share, "code": _CODE * is_code(file.path), "recent": _RECENT * _freshness(file, now)}
    parts["test"] = -_TEST_LOSS * _is_unwanted_test(file.path, query) * math.fsum(parts.values())
    return parts


def _score(parts: Mapping[str, float], rule: str) -> Score:
    """The square of the sum; each part has its share of it."""
    total = math.fsum(parts.values())
    return Score(total * total, {name: part * total for name, part in parts.items()}, rule)


def _is_unwanted_test(path: str, query: str) -> bool:
    return is_test(path) and "test" not in query_terms(query)


def _freshness(file: ContextFile, now: datetime) -> float:
    changed = file.metadata.last_modified
    return math.exp(-max((now - changed).total_seconds() / 3600, 0.0) / _WEEK_H) if changed else 0.0


_STEMS = ("readme", "__init__", "index", "main", "app", "lib")


def starting_point(path: str) -> int:
    """How early one should look into a file to learn what a folder is about; low for a readme, an entry point."""
    stem = PurePosixPath(path).stem.lower()
    return _STEMS.index(stem) if stem in _STEMS else len(_STEMS)


MAX_RANKED = 200
"""Files of a folder's ranking that are looked at."""

_MAX_WEIGHED = 60  # what answers a question stands well before, and each costs its reading
_LEAST_SHARE = 0.4  # of the best score; what has less shares but a common word, unless there is little else
_LITTLE = 10
_MAX_MENTIONED = 40
_STARTING_POINTS = 20
_PARSED_CHARS = 400_000  # 0.1 s of Python's own parser


@dataclass(frozen=True, slots=True)
class Candidates:
    """The files to weigh, and the score of each."""

    files: tuple[ContextFile, ...]
    scores: Scores


def candidate_files(
    query: str, folders: Sequence[SearchedFolder], named: Mapping[str, Path], *, now: datetime
) -> Candidates:
    """The files worth weighing for a query, each once, with text, outline, size and time of change.

    First those that the caller named, then those that the query mentions by path or name, then the best of the
    rankings. Where nothing is named, mentioned or ranked, the files that introduce a folder.

    Args:
        query: What is asked.
        folders: What was searched for it.
        named: Files that the caller named, by the path to show; other names of the same file are dropped.
        now: The moment that ages are measured from.
    """
    places = {folder.shown(path): folder.root / path for folder in folders for path in folder.paths}
    found = {folder.shown(path): score for folder in folders for path, score in folder.ranked}
    shares = max_normalised(found)
    values = {path: rank_value(path, share, query) for path, share in shares.items()}
    best = [
        path
        for place, path in enumerate(sorted(values, key=lambda path: (-values[path], path))[:_MAX_WEIGHED])
        if place < _LITTLE or shares[path] >= _LEAST_SHARE
    ]
    mentioned = MentionFinder(map(shell_of, places)).find(query)
    first = sorted(mentioned, key=lambda path: (-shares.get(path, 0.0), path))[:_MAX_MENTIONED]
    paths = [*named, *first, *best]
    if not paths:
        paths = sorted(places, key=lambda path: (starting_point(path), path.count("/"), path))[:_STARTING_POINTS]
    files = tuple(_with_outlines(_distinct((path, named.get(path) or places[path]) for path in paths), query))
    return Candidates(files, score_files(files, shares, query, mentioned={*named, *first}, now=now))


def read_file(path: str, place: Path) -> ContextFile | None:
    """A text file as the selector takes it, without outline; None when it cannot be read or is no text.

    Args:
        path: The path to show; also its id.
        place: Where it is.
    """
    try:
        status = place.stat()
        content = place.read_bytes() if place.is_file() and status.st_size <= MAX_FILE_BYTES else None
    except OSError:
        return None
    if content is None or is_binary(content):
        return None
    changed = datetime.fromtimestamp(max(status.st_mtime, 0.0), tz=UTC)
    return ContextFile(
        id=path,
        path=path,
        name=PurePosixPath(path).name,
        content=content.decode("utf-8", errors="replace"),
        language=language_of(path),
        metadata=FileMetadata(size=status.st_size, last_modified=changed),
    )


def _distinct(places: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    seen: set[Path] = set()
    for path, place in places:
        real = place.resolve()
        if real not in seen:
            seen.add(real)
            yield path, place


def _with_outlines(places: Iterable[tuple[str, Path]], query: str) -> Iterator[ContextFile]:
    parsed = 0
    for path, place in places:
        if file := read_file(path, place):
            parsed += len(file.content) if file.language == "python" else 0
            symbols = symbols_of(path, file.content, parse=parsed <= _PARSED_CHARS)
            yield file.model_copy(update={"summary": outline(symbols, query) or None})
