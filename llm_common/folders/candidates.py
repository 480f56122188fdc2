"""`candidate_files`: the few files of a large tree that the context selector gets to weigh, with text and outline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from llm_common.context.mentions import MentionFinder
from llm_common.context.pool import ContextFile, FileMetadata
from llm_common.context.request import Scores
from llm_common.folders.exclusion import MAX_FILE_BYTES, is_binary
from llm_common.folders.file_scores import rank_value, score_files
from llm_common.folders.languages import language_of
from llm_common.folders.searched_folder import SearchedFolder, shell_of
from llm_common.folders.starting_points import starting_point
from llm_common.folders.symbols import outline, symbols_of
from llm_common.ranking.fusion import max_normalised

__all__ = ["MAX_RANKED", "Candidates", "candidate_files", "read_file"]

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
