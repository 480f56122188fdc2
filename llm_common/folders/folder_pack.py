"""`pack_folders`: folders and files searched, weighed and packed for a question, with a record of all of it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
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

__all__ = ["FolderPack", "PackRequest", "Tell", "pack_folders"]

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
