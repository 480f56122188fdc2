"""Pack the parts of folders and files that answer a question within a token budget: `pack_folder`.

Some files are not searched: those that git ignores, hidden, generated and binary files, files over
1 MB, links that lead out of the folder, and files that usually hold secrets. In the packed text,
recognizable keys and tokens are redacted.

An index on disk keeps the words of the files, readable by its owner only. The next call reads only
changed files. Processes may share an index, and an interrupted call leaves it valid, even after a
KeyboardInterrupt.

In a recorded run, the pack is a line of the run's trace. Otherwise, if `LLM_COMMON_TRACE_DIR` is
set, it is a run by itself. The query id of that run is `pack-`, the folder's name, a hyphen and 8
digits of its path's hash.
"""

import glob
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# As a module, whose names are imported on first use: a trace imports everything that it records.
from llm_common import trace
from llm_common._env import default_cache_dir
from llm_common._telemetry import is_traced, operation, record
from llm_common.context.bundle import ContextBundle, Form, ItemAccount
from llm_common.context.request import (
    FOLDER_STRATEGY,
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
    IntentType,
    UserIntent,
)
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter
from llm_common.errors import ConfigError, install_command
from llm_common.folders.candidates import (
    FileFilter,
    FolderQuestion,
    FolderSearch,
    candidate_files,
    read_file,
    search_folders,
)
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.pack_text import FileTree, PackFormat
from llm_common.folders.passages import pack_passages
from llm_common.folders.tree_index import IndexCache, ProgressCallback

MIN_BUDGET_TOKENS: Final = 256
"""The smallest accepted budget."""

_MAX_NAME_CHARS: Final = 100  # of the folder in a query id


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file that was weighed for the question, with how much of it is in the text, and why.

    Attributes:
        path: The path in the text.
        form: `whole`, `passages` (the definitions that match the question best) or `left_out`.
        tokens: Tokens of the part in the text, 0 if the file is left out.
        score: The score, comparable within one pack. Higher is better, and the best match by words
            scores 1.
        parts: The summands of the score: `words`, `code`, `size`, `named` (the question names its
            path), and `test`, which is negative.
        reason: For a file in the text, `mentioned` (by the caller or by its path in the question)
            or `share`. For a file left out, `no_room`, `poor_match` (its passages match far less
            than the best one), `limit_reached` (`max_files`) or `empty`.
        words: Up to four words of the question that the file or its path contains, rarest first.
            Empty for a file outside the searched folders.
    """

    path: str
    form: Form
    tokens: int
    score: float
    parts: Mapping[str, float]
    reason: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FolderPack:
    """The packed text, with an account of the files that were searched, weighed and chosen.

    Attributes:
        query: The question, without surrounding whitespace.
        folders: The searched folders, resolved. A folder inside another one is not repeated.
        text: The text for the prompt, fenced and never over the budget. Empty if no file is related
            to the question.
        counter: A description of the token counter.
        searched: Number of searched files.
        read: Number of searched files that were read because the index did not have their current
            state.
        left_out: Number of files that were not searched, by reason. A folder that was not entered
            counts as one.
        notes: Problems that cost time but did not change the result, such as a damaged index.
        seconds: Wall time by step.
        bundle: The chosen files with the full account.
        words: The `words` of each file that was weighed, by path.
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
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def files(self) -> tuple[PackedFile, ...]:
        """Return the files in the text, mentioned ones first, then best first."""
        return tuple(map(self._packed_file, self.bundle.kept))

    @property
    def dropped(self) -> tuple[PackedFile, ...]:
        """Return the files that were weighed and left out, best first."""
        return tuple(map(self._packed_file, self.bundle.dropped))

    @property
    def budget_tokens(self) -> int:
        """Return the maximum tokens of `text`."""
        return self.bundle.metadata.budget

    @property
    def tokens(self) -> int:
        """Return the tokens of `text`, by the counter."""
        return self.bundle.metadata.total_tokens

    def _packed_file(self, account: ItemAccount) -> PackedFile:
        return PackedFile(
            path=account.id,
            form=account.form,
            tokens=account.tokens,
            score=account.score,
            parts=dict(account.parts),
            reason=account.reason,
            words=self.words.get(account.id, ()),
        )


def pack_folder(
    query: str,
    *paths: Path | str,
    budget_tokens: int = 8_000,
    hidden: bool = False,
    generated: bool = False,
    exclude: Sequence[str | Path] = (),
    max_files: int | None = None,
    line_numbers: bool = False,
    tree: bool = False,
    question: bool = False,
    cache_dir: Path | None = None,
    counter: TokenCounter | None = None,
    progress: ProgressCallback | None = None,
) -> FolderPack:
    """Pack the parts of folders and files that answer a question as text for a prompt.

    Files are ranked on this machine, without a model and without network access. The text never
    exceeds the budget. The lower a file scores, the fewer tokens it gets, and the functions that
    match best come first. CSV, TSV, JSON and JSON lines files above 4,000 characters that are
    mostly records are shown as stored outputs are: how many records meet the question, these
    records, and further ones with their keys once. With room for all of it, a file is `whole`.

    A function, method or class of at most 6,000 characters that the question names is packed whole,
    before all others. It is named by `Class.method`, or by a name that looks like code and that no
    other definition has.

    Passages that match far less than the best one are left out, even if the budget has room for
    them. Named files keep all of theirs, and the three best files keep one. A larger budget keeps
    everything and adds more. The same files, question and options return the same text. The call
    blocks: in a coroutine, await `asyncio.to_thread(pack_folder, query, path)`.

    Args:
        query: The question or task. Files that it names are packed first.
        paths: Folders to search, and text files to pack first, even if they would not be searched.
            Without any, the working directory. Paths in the text are relative to the working
            directory, or to a single folder elsewhere if there are no other paths.
        budget_tokens: Maximum tokens of the text, at least 256.
        hidden: Whether to search hidden files and folders.
        generated: Whether to search generated files, such as lock files, minified and compiled
            sources.
        exclude: Globs of paths to leave out, as in a `.gitignore`. A `Path` leaves out one file.
        max_files: Maximum number of files in the text. None for as many as fit.
        line_numbers: Whether each line begins with its number in the file, such as `12:import sys`.
            Files that are packed by records have none.
        tree: Whether a file tree comes first, in at most a tenth of the budget: the packed files,
            and the folders with the number of their searched files.
        question: Whether the question is at the end of the text.
        cache_dir: The folder for indexes, created if missing. None for `llm-common` in the user's
            cache folder.
        counter: Counts tokens. None counts exactly, as o200k_base, if the extra `tokens` is
            installed. Otherwise it counts an upper bound.
        progress: Called in the calling thread, see `ProgressCallback`.

    Returns:
        The text and its account. The text is empty if no file matches.

    Raises:
        ConfigError: Before the search, if the query is empty or not a str, if a path is neither a
            folder nor a text file of at most 1 MB, if a limit is invalid, or if `exclude` is one
            string. Later, if SQLite has no FTS5, or the user has no home folder.
    """
    _check(query, budget_tokens, exclude, max_files)
    folders, files = _resolve(paths or (Path(),))
    folder_question = FolderQuestion(query)
    request, label = _request(folder_question.text, budget_tokens, counter)
    file_filter = _file_filter(exclude, folders, hidden=hidden, generated=generated)
    begin = time.perf_counter()
    with (
        _traced(query, folders, files),
        operation("retrieval", "folder", {"gen_ai.data_source.id": "folder"}),
    ):
        indexes = IndexCache(cache_dir or default_cache_dir())
        progress = progress or (lambda *_: None)
        search = search_folders(
            folder_question, folders, file_filter=file_filter, indexes=indexes, progress=progress
        )
        progress("Weighing the best files", 0, 0)
        searched = time.perf_counter()
        pack_format = PackFormat(
            line_numbers=line_numbers,
            tree=FileTree(search.files, files) if tree else None,
            question=folder_question.text if question else "",
        )
        bundle = _choose(
            folder_question,
            request,
            search,
            files,
            max_files=max_files,
            pack_format=pack_format,
        )
    return FolderPack(
        query=folder_question.text,
        folders=tuple(folders.values()),
        text=bundle.text,
        counter=label,
        searched=len(search.files),
        read=search.read,
        left_out=dict(search.left_out),
        notes=tuple(indexes.notes),
        seconds={
            "searching": round(searched - begin, 3),
            "packing": round(time.perf_counter() - searched, 3),
        },
        bundle=bundle,
        words={item.id: search.words.get(item.id, ()) for item in (*bundle.kept, *bundle.dropped)},
    )


def _check(
    query: object,
    budget_tokens: int,
    exclude: Sequence[str | Path],
    max_files: int | None,
) -> None:
    if not isinstance(query, str) or not query.strip():
        problem = "not be empty"
        if not isinstance(query, str):
            problem = f"be a str, got {type(query).__name__}"
        raise ConfigError(
            f"the question must {problem}; pass the question that the text is for",
            variable="query",
            value=repr(query),
        )
    # `type`, not `isinstance`: True is an int, but not a number of tokens.
    if type(budget_tokens) is not int or budget_tokens < MIN_BUDGET_TOKENS:
        raise ConfigError(
            f"{budget_tokens!r} is not a valid budget; pass a whole number of tokens, at least "
            f"{MIN_BUDGET_TOKENS}",
            variable="budget_tokens",
            value=repr(budget_tokens),
        )
    if isinstance(exclude, str):
        raise ConfigError(
            f"`exclude` must be a list of globs, got a str; pass [{exclude!r}]",
            variable="exclude",
            value=exclude,
        )
    if max_files is not None and (type(max_files) is not int or max_files < 1):
        raise ConfigError(
            f"{max_files!r} is not a number of files; pass 1 or more, or None for as many as fit",
            variable="max_files",
            value=repr(max_files),
        )


def _request(
    query: str, budget_tokens: int, counter: TokenCounter | None
) -> tuple[ContextSelectionRequest, str]:
    """Return the request for packing, and a description of its token counter."""
    label = f"counted by {type(counter).__name__}"
    if counter is None:
        try:
            counter, label = ExactCounter(), "counted exactly, as o200k_base"
        except ConfigError:
            counter = UpperBoundCounter()
            label = f"an upper bound; for exact counts {install_command('tokens')}"
    # Files get the whole budget, whatever the question asks for.
    intent = UserIntent(text=query, classification=IntentType.FILE_ANALYSIS, confidence=1.0)
    return ContextSelectionRequest(
        intent=intent, token_budget=budget_tokens, counter=counter, strategy=FOLDER_STRATEGY
    ), label


def _traced(
    query: str, folders: Mapping[str, Path], files: Mapping[str, ContainedFile]
) -> AbstractContextManager[object]:
    """Return a traced run for this pack. Inside another run, it has no effect."""
    if not is_traced():
        return nullcontext()
    paths = list(folders.values()) or [file.root / file.path for file in files.values()]
    name = re.sub(r"[^\w.-]+", "-", paths[0].name, flags=re.ASCII)[:_MAX_NAME_CHARS]
    key = hashlib.sha256(b"\0".join(map(os.fsencode, paths))).hexdigest()[:8]
    return trace.begin_run(f"pack-{name}-{key}", query=query.strip()).recorded()


def _choose(
    question: FolderQuestion,
    request: ContextSelectionRequest,
    search: FolderSearch,
    named: Mapping[str, ContainedFile],
    *,
    max_files: int | None,
    pack_format: PackFormat,
) -> ContextBundle:
    """Return the bundle of the best passages, and record the choice in the run's trace."""
    budget = request.token_budget
    files, scores = candidate_files(question, search, named)
    bundle = pack_passages(
        files,
        scores,
        request,
        question,
        named=named,
        max_files=max_files,
        pack_format=pack_format,
    )
    lower = len(search.files.keys() - {file.path for file in files})
    record(
        "packing",
        request=request,
        pool=DataPoolSnapshot(context_files=files),
        bundle=bundle,
        allocation=BudgetAllocation(0, 0, budget, 0, 0, total_budget=budget),
        not_weighed=dict(search.left_out + Counter({"lower ranked": lower})),
    )
    return bundle


def _file_filter(
    exclude: Sequence[str | Path], folders: Mapping[str, Path], *, hidden: bool, generated: bool
) -> FileFilter:
    patterns: list[str] = []
    for pattern in exclude:
        if isinstance(pattern, str):
            patterns.append(pattern)
        else:
            # Not `Path.resolve`, which raises for a circle of links.
            path = Path(os.path.realpath(pattern))
            patterns.append("/" + glob.escape(_displayed_path(path, folders)))
    return FileFilter(hidden=hidden, generated=generated, exclude=tuple(patterns))


def _resolve(paths: Sequence[Path | str]) -> tuple[dict[str, Path], dict[str, ContainedFile]]:
    """Return the folders by the prefix of their displayed paths, and the files by displayed path.

    A folder inside another one is dropped. Displayed paths can be opened from the working
    directory, except below a folder elsewhere. These are relative to it if there are no other
    paths. Otherwise, they begin with its name, or are absolute if that name is taken.
    """
    resolved: dict[Path | str, Path] = {}
    for path in paths:
        try:
            resolved[path] = Path(path).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as exc:
            # The path does not exist, is a circle of links, or contains a null character.
            raise ConfigError(
                f"{path} does not exist or cannot be read; check the path",
                variable="paths",
                value=str(path),
            ) from exc
    roots = {path for path in resolved.values() if path.is_dir()}
    outermost = sorted(root for root in roots if roots.isdisjoint(root.parents))
    is_single = len(outermost) == 1 and all(
        path.is_relative_to(outermost[0]) for path in resolved.values()
    )
    folders: dict[str, Path] = {}
    for root in outermost:
        folders[_prefix(root, folders, is_single=is_single)] = root
    files: dict[str, ContainedFile] = {}
    for requested, path in resolved.items():
        if path in roots:
            continue
        file = files[_displayed_path(path, folders)] = ContainedFile(path.parent, path.name)
        if read_file(str(requested), file) is None:
            raise ConfigError(
                f"{path} is not a text file of at most 1 MB; leave it out",
                variable="paths",
                value=str(requested),
            )
    return folders, files


def _prefix(root: Path, folders: Mapping[str, Path], *, is_single: bool) -> str:
    """Return the prefix of the displayed paths of a folder, different from those of `folders`."""
    relative = _relative_to_cwd(root)
    if relative and relative != ".":
        return f"{relative}/"
    if relative == "." or is_single:
        return ""
    # A file in the working directory could have the same displayed path.
    if f"{root.name}/" in folders or os.path.lexists(root.name):
        return f"{root.as_posix()}/"
    return f"{root.name}/"


def _displayed_path(file: Path, folders: Mapping[str, Path]) -> str:
    """Return the path to display for a resolved file."""
    for prefix, root in folders.items():
        if file.is_relative_to(root):
            return prefix + file.relative_to(root).as_posix()
    return _relative_to_cwd(file) or file.as_posix()


def _relative_to_cwd(path: Path) -> str | None:
    """Return the path relative to the working directory, or None if it is outside."""
    try:
        cwd = Path.cwd()
    except OSError:  # the working directory was removed
        return None
    return path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else None
