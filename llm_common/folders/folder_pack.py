"""`pack_folder`: the parts of folders and files that answer a question, within a budget of tokens.

Not searched: what git ignores, hidden, generated and binary files, files over 1 MB, links that lead
out of the folder, and files that usually hold secrets. In what is packed, keys and tokens that
their shape gives away are redacted.

An index on disk, readable by its owner alone, holds the words of the files: the next call reads
only what changed. Processes may share it. An interrupted call, also by KeyboardInterrupt, leaves it
whole.

Where a run is recorded, its trace has a line of the pack. Elsewhere the pack is a run of its own,
if `LLM_COMMON_TRACE_DIR` is set; its query id is `pack-`, the folder's name, a hyphen and 8 digits
of its path's hash.
"""

import glob
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Final

from llm_common._telemetry import begin_run, operation, record
from llm_common.context.bundle import ContextBundle, Form, ItemAccount
from llm_common.context.intent import classify_intent
from llm_common.context.request import (
    FOLDER_STRATEGY,
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
)
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter
from llm_common.errors import ConfigError, install_command
from llm_common.folders.candidates import (
    FileFilter,
    FolderSearch,
    candidate_files,
    read_file,
    search_folders,
)
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.passages import pack_passages
from llm_common.folders.tree_index import IndexCache, ProgressCallback, default_cache_dir

MIN_BUDGET_TOKENS: Final = 256
"""The smallest budget that is accepted."""

_MAX_NAME_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file that was weighed for the question: how much of it is shown, and why.

    Attributes:
        path: The path that the text shows.
        form: `whole`; `passages`: the definitions that match the question best; `left_out`:
            nothing.
        tokens: Tokens of the part that is shown; 0 when the file is left out.
        score: Higher is better; compares within one pack. The best match by words counts 1.
        parts: The summands of the score: `words`; `code`; `size`; `named` and `defines`: the
            question names its path or something that it defines; `recent`; `test`, which lowers it.
        reason: Shown: `mentioned` (by the caller, or the question names its path) or `share`. Left
            out: `no_room`, `below_cut_off` (scores less than `min_score`), `limit_reached`
                (`max_files`) or `empty`.
    """

    path: str
    form: Form
    tokens: int
    score: float
    parts: Mapping[str, float]
    reason: str


@dataclass(frozen=True, slots=True)
class FolderPack:
    """The packed text, and what was searched, weighed, chosen and left out.

    Attributes:
        query: The question, without surrounding blanks.
        folders: The folders that were searched, resolved; a folder inside another one is not
            repeated.
        text: For the prompt: fenced, never over the budget; empty when no file has to do with the
            question, or none scores `min_score`.
        counter: What counted the tokens, in words.
        searched: Number of files that were searched.
        read: Number of the searched files that were read because the index did not hold them as
            they are now.
        left_out: Number of files that were not searched, by reason; a folder that was not entered
            counts as one.
        notes: Problems that cost time but did not change the result, such as a damaged index.
        seconds: Wall time by step.
        bundle: The choice with its full account.
    """

    query: str
    folders: tuple[Path, ...]
    text: str = field(repr=False)
    counter: str
    searched: int
    read: int
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]
    bundle: ContextBundle = field(repr=False)

    @property
    def files(self) -> tuple[PackedFile, ...]:
        """The files that the text shows: mentioned ones first, then by falling score."""
        return tuple(map(_packed_file, self.bundle.kept))

    @property
    def dropped(self) -> tuple[PackedFile, ...]:
        """The files that were weighed and are not shown, best first."""
        return tuple(map(_packed_file, self.bundle.dropped))

    @property
    def intent(self) -> str:
        """What kind of request the question was classified as."""
        return self.bundle.metadata.intent.value

    @property
    def budget_tokens(self) -> int:
        """Most tokens that `text` may take."""
        return self.bundle.metadata.budget

    @property
    def tokens(self) -> int:
        """Tokens of `text`, by the counter."""
        return self.bundle.metadata.total_tokens


def pack_folder(
    query: str,
    *paths: Path | str,
    budget_tokens: int = 8_000,
    hidden: bool = False,
    generated: bool = False,
    exclude: Sequence[str | Path] = (),
    max_files: int | None = None,
    min_score: float = 0.0,
    cache_dir: Path | None = None,
    counter: TokenCounter | None = None,
    progress: ProgressCallback | None = None,
) -> FolderPack:
    """The parts of folders and files that answer a question, as text for a prompt.

    Ranks on this machine: asks no model and sends nothing. The text never takes more than the
    budget. Files get tokens in proportion to their lead, and show the functions that match best
    first; a larger budget shows the same and more. The text is empty where no file matches. The
    same files, question and options give the same text, but for the weeks after a file's change,
    when it counts more. Blocks until it is done: a coroutine awaits `asyncio.to_thread(pack_folder,
    query, path)`.

    Args:
        query: The question or task. Files that it names are packed first.
        paths: Folders to search, and text files to pack first, whatever their kind; none means the
            working directory. The text shows paths relative to the working directory, or to a
            folder elsewhere that is all that is given.
        budget_tokens: Most tokens of the text, at least 256.
        hidden: True searches hidden files and folders too.
        generated: True searches generated files too: lock files, minified and compiled sources.
        exclude: Globs of paths to leave out, as in a `.gitignore`; a `Path` leaves out that one
            file.
        max_files: Most files to show; None for as many as fit.
        min_score: Files that score less are left out, except those in `paths`; see
            `PackedFile.parts`.
        cache_dir: Where indexes are kept; made if missing. None takes `llm-common` in the user's
            cache folder.
        counter: Counts the tokens. None counts exactly, as o200k_base, with the extra `tokens`,
            else an upper bound.
        progress: Called in the calling thread, as `ProgressCallback` says.

    Raises:
        ConfigError: Before any search: an empty query or none, a path that is neither a folder nor
            a text file of at most 1 MB, a bad budget, or `exclude` as a single string. Later:
            SQLite without FTS5, no home folder.
    """
    _check(query, budget_tokens, exclude, max_files=max_files, min_score=min_score)
    folders, files = _resolve(paths or (Path(),))
    request, label = _request(query, budget_tokens, counter)
    file_filter = _file_filter(exclude, folders, hidden=hidden, generated=generated)
    begin = time.perf_counter()
    with (
        _traced(query, folders, files),
        operation("retrieval", "folder", {"gen_ai.data_source.id": "folder"}),
    ):
        found, notes = _search(
            query, folders, file_filter, cache_dir, progress or (lambda *_: None)
        )
        searched = time.perf_counter()
        bundle = _choose(request, found, files, max_files=max_files, min_score=min_score)
    return FolderPack(
        query=query.strip(),
        folders=tuple(folders.values()),
        text=bundle.render(),
        counter=label,
        searched=len(found.places),
        read=found.read,
        left_out=dict(found.left_out),
        notes=notes,
        seconds={
            "searching": round(searched - begin, 3),
            "packing": round(time.perf_counter() - searched, 3),
        },
        bundle=bundle,
    )


def _check(
    query: object,
    budget_tokens: int,
    exclude: Sequence[str | Path],
    *,
    max_files: int | None,
    min_score: float,
) -> None:
    if not isinstance(query, str) or not query.strip():
        what = "empty" if isinstance(query, str) else f"of type {type(query).__name__}"
        reason = f"the question is {what}; give what the packed text is for"
        raise ConfigError(reason, variable="query", value=repr(query))
    # True and 8e3 pass for numbers of tokens, but stand for a mistake.
    if type(budget_tokens) is not int or budget_tokens < MIN_BUDGET_TOKENS:
        raise ConfigError(
            f"{budget_tokens!r} is no budget; give a whole number of tokens, at least "
            f"{MIN_BUDGET_TOKENS}",
            variable="budget_tokens",
            value=repr(budget_tokens),
        )
    if isinstance(exclude, str):
        raise ConfigError(
            "exclude takes a list of globs; put the one in a list",
            variable="exclude",
            value=exclude,
        )
    if max_files is not None and (type(max_files) is not int or max_files < 1):
        raise ConfigError(
            f"{max_files!r} is no number of files; give 1 or more, or None for as many as fit",
            variable="max_files",
            value=repr(max_files),
        )
    if type(min_score) not in (int, float) or not isfinite(min_score):
        raise ConfigError(
            f"{min_score!r} is no score; give a finite number, such as 1.0",
            variable="min_score",
            value=repr(min_score),
        )


def _request(
    query: str, budget_tokens: int, counter: TokenCounter | None
) -> tuple[ContextSelectionRequest, str]:
    """What to pack, and how its tokens are counted, in words."""
    label = f"counted by {type(counter).__name__}"
    if counter is None:
        try:
            counter, label = ExactCounter(), "counted exactly, as o200k_base"
        except ConfigError:
            counter = UpperBoundCounter()
            label = f"an upper bound; for exact counts {install_command('tokens')}"
    intent = classify_intent(query.strip())
    return ContextSelectionRequest(
        intent=intent, token_budget=budget_tokens, counter=counter, strategy=FOLDER_STRATEGY
    ), label


def _traced(
    query: str, folders: Mapping[str, Path], files: Mapping[str, ContainedFile]
) -> AbstractContextManager[object]:
    """Return a traced run for this pack; within another run it has no effect."""
    places = list(folders.values()) or [file.root / file.path for file in files.values()]
    name = re.sub(r"[^\w.-]+", "-", places[0].name, flags=re.ASCII)[:_MAX_NAME_CHARS]
    key = hashlib.sha256(b"\0".join(map(os.fsencode, places))).hexdigest()[:8]
    return begin_run(f"pack-{name}-{key}", query=query.strip()).recorded()


def _choose(
    request: ContextSelectionRequest,
    found: FolderSearch,
    named: Mapping[str, ContainedFile],
    *,
    max_files: int | None,
    min_score: float,
) -> ContextBundle:
    """What is shown of what was found; recorded, where a run is."""
    now, budget = datetime.now(UTC), request.token_budget
    files, scores = candidate_files(request.intent.text, found, named, now=now)
    bundle = pack_passages(
        files, scores, request, named=named, max_files=max_files, min_score=min_score
    )
    lower = len(found.places.keys() - {file.path for file in files})
    record(
        "packing",
        request=request,
        pool=DataPoolSnapshot(context_files=files),
        bundle=bundle,
        allocation=BudgetAllocation(0, 0, budget, 0, 0, total_budget=budget),
        not_weighed=dict(found.left_out + Counter({"lower ranked": lower})),
    )
    return bundle


def _search(
    query: str,
    folders: Mapping[str, Path],
    file_filter: FileFilter,
    cache_dir: Path | None,
    progress: ProgressCallback,
) -> tuple[FolderSearch, tuple[str, ...]]:
    """What a search finds, and the notes of the indexes."""
    indexes = IndexCache(cache_dir or default_cache_dir())
    found = search_folders(
        query, folders, file_filter=file_filter, indexes=indexes, progress=progress
    )
    progress("Weighing the best files", 0, 0)
    return found, tuple(indexes.notes)


def _file_filter(
    exclude: Sequence[str | Path], folders: Mapping[str, Path], *, hidden: bool, generated: bool
) -> FileFilter:
    patterns = (
        # Not `Path.resolve`, which raises for a circle of links.
        each
        if isinstance(each, str)
        else "/" + glob.escape(_shown(Path(os.path.realpath(each)), folders))
        for each in exclude
    )
    return FileFilter(hidden=hidden, generated=generated, exclude=tuple(patterns))


def _resolve(paths: Sequence[Path | str]) -> tuple[dict[str, Path], dict[str, ContainedFile]]:
    """Return the folders by the prefix of their shown paths, and other files by their shown path.

    Drops a folder that lies within another one. A shown path can be opened from the working
    directory. Paths below a folder elsewhere are relative to it if nothing else is given. Else they
    begin with its name, or are absolute where the working directory has something of that name.
    """
    resolved: dict[Path | str, Path] = {}
    for path in paths:
        try:
            resolved[path] = Path(path).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as exc:
            # absent; a circle of links; a zero character
            raise ConfigError(
                f"{path} does not exist or cannot be read; check it",
                variable="paths",
                value=str(path),
            ) from exc
    roots = {path for path in resolved.values() if path.is_dir()}
    outermost = sorted(root for root in roots if roots.isdisjoint(root.parents))
    alone = len(outermost) == 1 and all(
        path.is_relative_to(outermost[0]) for path in resolved.values()
    )
    folders: dict[str, Path] = {}
    for root in outermost:
        folders[_prefix(root, folders, alone=alone)] = root
    files: dict[str, ContainedFile] = {}
    for given, path in resolved.items():
        if path in roots:
            continue
        place = files[_shown(path, folders)] = ContainedFile(path.parent, path.name)
        if read_file(str(given), place) is None:
            raise ConfigError(
                f"{path} is no text file of at most 1 MB; leave it out",
                variable="paths",
                value=str(given),
            )
    return folders, files


def _prefix(root: Path, taken: Mapping[str, Path], *, alone: bool) -> str:
    if below := _below_here(root):
        return "" if below == "." else f"{below}/"
    if alone:
        return ""
    # Another folder's files, or a named file, would be shown by the same paths.
    is_taken = f"{root.name}/" in taken or os.path.lexists(root.name)
    return f"{root.as_posix()}/" if is_taken else f"{root.name}/"


def _shown(file: Path, folders: Mapping[str, Path]) -> str:
    """The path to show for a resolved file."""
    for prefix, root in folders.items():
        if file.is_relative_to(root):
            return prefix + file.relative_to(root).as_posix()
    return _below_here(file) or file.as_posix()


def _below_here(path: Path) -> str | None:
    """The path from the working directory; None if it is not below that, or that was removed."""
    try:
        here = Path.cwd()
    except OSError:
        return None
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else None


def _packed_file(account: ItemAccount) -> PackedFile:
    return PackedFile(
        account.id, account.form, account.tokens, account.score, dict(account.parts), account.reason
    )
