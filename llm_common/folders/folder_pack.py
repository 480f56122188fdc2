"""`pack_folders`: folders and files searched, weighed and packed for a question, with a record of all of it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llm_common.context.bundle import ContextBundle
from llm_common.context.intent import classify_intent
from llm_common.context.packing import pack
from llm_common.context.pool import DataPoolSnapshot
from llm_common.context.request import ContextSelectionRequest, allocate_budget
from llm_common.core.tokens import TokenCounter
from llm_common.folders.candidates import MAX_RANKED, candidate_files
from llm_common.folders.index_cache import IndexFolder
from llm_common.folders.searched_folder import FileChoice, search_folder

__all__ = ["FolderPack", "PackRequest", "Tell", "pack_folders", "packed_places", "shown_file"]


def packed_places(paths: Sequence[Path]) -> tuple[dict[str, Path], dict[str, Path]]:
    """The folders by what their paths are shown with in front, and the other paths by the path to show.

    A folder within another one goes without saying. Paths are shown as they can be opened from the working directory;
    below a single folder elsewhere they are relative to it, below several the folder's name stands in front.

    Args:
        paths: Existing folders and files.
    """
    roots = {path.resolve() for path in paths if path.is_dir()}
    outermost = sorted(root for root in roots if roots.isdisjoint(root.parents))
    folders: dict[str, Path] = {}
    for root in outermost:
        folders[_prefix(root, folders, alone=len(outermost) == 1)] = root
    files = [path.resolve() for path in paths if not path.is_dir()]
    return folders, {shown_file(file, folders): file for file in files}


def shown_file(file: Path, folders: Mapping[str, Path]) -> str:
    """The path to show for a file.

    Args:
        file: Resolved.
        folders: By what their paths are shown with in front.
    """
    for prefix, root in folders.items():
        if file.is_relative_to(root):
            return prefix + file.relative_to(root).as_posix()
    here = Path.cwd()
    return file.relative_to(here).as_posix() if file.is_relative_to(here) else file.as_posix()


def _prefix(root: Path, taken: Mapping[str, Path], *, alone: bool) -> str:
    if root.is_relative_to(here := Path.cwd()):
        below = root.relative_to(here).as_posix()
        return "" if below == "." else f"{below}/"
    if alone:
        return ""
    return f"{root.as_posix()}/" if f"{root.name}/" in taken else f"{root.name}/"


Tell = Callable[[str, int, int], object]
"""Called with what is being done, and how much of how much; 0 of 0 where that is not known."""


@dataclass(frozen=True, slots=True)
class PackRequest:
    """What to pack.

    Attributes:
        query: The question or task.
        folders: Resolved folders, by what their paths are shown with in front ("", or ending with a slash).
        files: Files that the caller named, by the path to show.
        budget_tokens: Most tokens of the packed text.
        choice: Which files of the folders to look at.
        cache_dir: Where indexes are kept.
    """

    query: str
    folders: Mapping[str, Path]
    files: Mapping[str, Path]
    budget_tokens: int
    choice: FileChoice
    cache_dir: Path


@dataclass(frozen=True, slots=True)
class FolderPack:
    """What was packed, and from what; `seconds` is wall time by step."""

    request: PackRequest
    intent: str
    counter: str
    searched: int
    read: int
    left_out: Mapping[str, int]
    weighed: int
    bundle: ContextBundle
    packed: str
    notes: tuple[str, ...]
    seconds: Mapping[str, float]


def pack_folders(request: PackRequest, *, counter: tuple[TokenCounter, str], tell: Tell) -> FolderPack:
    """The text that answers the query best within the budget, by a ranking on this machine alone.

    Args:
        request: What to pack.
        counter: What counts the tokens, and how it does, in words.
        tell: Told before and during each step.

    Raises:
        ConfigError: SQLite was built without FTS5.
    """
    begin = time.perf_counter()
    indexes = IndexFolder(request.cache_dir)
    folders = [
        search_folder(
            root,
            request.query,
            prefix=prefix,
            choice=request.choice,
            limit=MAX_RANKED,
            indexes=indexes,
            progress=lambda done, total: tell("Reading what changed", done, total),
        )
        for prefix, root in request.folders.items()
    ]
    searched = time.perf_counter()
    tell("Weighing the best files", 0, 0)
    now = datetime.now(UTC)
    candidates = candidate_files(request.query, folders, request.files, now=now)
    token_counter, label = counter
    selection = ContextSelectionRequest(
        intent=classify_intent(request.query),
        token_budget=request.budget_tokens,
        counter=token_counter,
        now=now,
    )
    pool = DataPoolSnapshot(context_files=candidates.files)
    bundle = pack(pool, candidates.scores, selection, allocate_budget(selection), texts={})
    packed = time.perf_counter()
    return FolderPack(
        request=request,
        intent=selection.intent.classification.value,
        counter=label,
        searched=sum(len(folder.paths) for folder in folders),
        read=sum(folder.read for folder in folders),
        left_out=sum((Counter(folder.left_out) for folder in folders), Counter[str]()),
        weighed=len(candidates.files),
        bundle=bundle,
        packed=bundle.render(),
        notes=tuple(indexes.notes),
        seconds={"searching": round(searched - begin, 3), "packing": round(packed - searched, 3)},
    )
