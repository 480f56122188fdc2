"""List the files of a folder that git tracks or that no `.gitignore` excludes."""

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from llm_common._env import environment_without
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import skip_reason_by_name
from llm_common.text.display import visible
from llm_common.text.ignore_rules import IgnoreRules

_GIT_TIMEOUT_S = 20.0
# Git sets these for its hooks. They would direct our git to the hook's repository.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
# One entry of `git ls-files --stage`: mode, object id, stage, a tab, and then the path.
_STAGED = re.compile(rb"(?P<mode>\d{6}) [0-9a-f]{40,64} \d\t")
_LINE_BREAK_OR_TAB = re.compile(r"[\t\n\u2028\u2029]")  # the others are control characters
_SUBMODULE = b"160000"  # the mode of a submodule
_MAX_NESTED = 5  # checkouts in checkouts; each level starts a git process per checkout
_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file below a folder.

    Attributes:
        path: The path relative to the folder, with forward slashes.
        size: The size in bytes.
        mtime_ns: The modification time in nanoseconds since 1970, at least 1.
        target: If the file or one of its folders is a link, the real path relative to the folder.
    """

    path: str
    size: int
    mtime_ns: int
    target: str | None = field(default=None, compare=False)


def list_paths(root: Path, *, hidden: bool = False) -> Iterator[str]:
    """Yield the paths below a folder, relative to it, with forward slashes, in a fixed order.

    In a git checkout, these are the files that git tracks or would track, including those of
    submodules and other checkouts inside it. In other folders, these are all files that no
    `.gitignore` file excludes. A hidden, generated or unreadable folder is not entered. It is
    yielded as one path that ends with a slash, and "/" is the folder itself. Only `.gitignore`
    files are opened.

    Args:
        root: An existing folder, resolved.
        hidden: Whether to enter hidden folders, except `.git`. Has no effect in a git checkout.
    """
    yield from _git_paths(root) or _walked_paths(root, hidden=hidden)


def stat_files(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, ListedFile | None]]:
    """Yield each path with its file, or with None if it must not be read.

    These are paths that do not lead to a regular file inside the folder, and paths that
    `is_unsafe`.

    Args:
        root: The folder, resolved.
        paths: Paths relative to the folder, with forward slashes.
    """

    @cache  # many files share a folder
    def real_folder(folder: str) -> str | None:
        return ContainedFile(root, folder).real_path()

    def regular_file(path: str) -> ListedFile | None:
        folder = path.rpartition("/")[0]
        target = None
        try:
            status = (root / path).lstat()
            if stat.S_ISLNK(status.st_mode) or real_folder(folder) != (folder or "."):
                target = ContainedFile(root, path).real_path()
            if target:
                status = (root / path).stat()
        except OSError:
            return None
        # A link without a target inside the folder has a link's mode, so it is not regular.
        is_regular = stat.S_ISREG(status.st_mode)
        if not is_regular or is_unsafe(path) or real_folder(folder) is None:
            return None
        # The index stores 0 for files that it has to read again.
        return ListedFile(path, status.st_size, max(status.st_mtime_ns, 1), target)

    for path in paths:
        yield path, regular_file(path)


def is_unsafe(path: str) -> bool:
    """Return whether a terminal, a prompt or a reader could misread a path.

    It contains control characters, line breaks, marks that change the direction of text, letters
    that no font shows, or bytes that are not UTF-8.
    """
    return visible(path) != path or _LINE_BREAK_OR_TAB.search(path) is not None


def _git_paths(root: Path, depth: int = 0) -> list[str]:
    """Return the files below the folder that git tracks or would track, or [] if git fails."""
    # The checkout may be untrusted, and `core.fsmonitor` in its configuration names a program.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard", "--stage"]
    try:
        listing = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            command,
            capture_output=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=environment_without(*_GIT_VARIABLES),
        )
    except (OSError, subprocess.SubprocessError):
        return []
    paths: set[str] = set()
    for entry in filter(None, listing.stdout.split(b"\0")):
        staged = _STAGED.match(entry)
        path = os.fsdecode(entry)
        is_checkout = path.endswith("/")  # an untracked one
        if staged:
            path = os.fsdecode(entry[staged.end() :])
            is_checkout = staged["mode"] == _SUBMODULE
        inner: list[str] = []
        if is_checkout:
            inner = _checkout_paths(root, path.rstrip("/"), depth)
        paths.update(inner or [path])
    return sorted(paths)


def _checkout_paths(root: Path, path: str, depth: int) -> list[str]:
    """Return the files of a checkout inside another one, relative to the outer one.

    Returns [] if the path is not a checkout, or is nested too deep.
    """
    folder = root / path
    # `Path.is_symlink` and `Path.exists` raise if a folder may not be searched.
    is_checkout = not os.path.islink(folder) and os.path.exists(folder / ".git")  # noqa: PTH110, PTH114
    if depth >= _MAX_NESTED or not is_checkout:
        return []
    return [f"{path}/{inner}" for inner in _git_paths(folder, depth + 1)]


def _walked_paths(root: Path, *, hidden: bool) -> Iterator[str]:
    rules: dict[str, IgnoreRules] = {}  # by the folder of the `.gitignore` file
    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=unreadable.append):
        prefix = _below(root, folder)
        if content := ContainedFile(root, f"{prefix}.gitignore").read(max_bytes=_MAX_IGNORE_BYTES):
            rules[prefix.removesuffix("/")] = IgnoreRules(
                content.data.decode("utf-8", errors="replace")
            )
        entered = []
        for name in sorted(folders):
            path = f"{prefix}{name}/"
            if name == ".git" or _is_ignored(path, rules):
                continue
            if skip_reason_by_name(path, hidden=hidden, generated=False):
                yield path
            elif os.path.islink(root / path):  # noqa: PTH114 - `Path.is_symlink` may raise
                yield path.removesuffix("/")
            else:
                entered.append(name)
        folders[:] = entered  # in place, as `os.walk` requires
        for name in sorted(files):
            # In a worktree or a submodule, `.git` is a file.
            if name != ".git" and not _is_ignored(prefix + name, rules):
                yield prefix + name
    for error in unreadable:
        yield _below(root, error.filename) or "/"


def _is_ignored(path: str, rules: Mapping[str, IgnoreRules]) -> bool:
    """Return whether git would ignore a path. The path of a folder ends with a slash."""
    folder = path.rstrip("/")
    # As in git, the nearest `.gitignore` file with a matching rule decides.
    while folder:
        folder = folder.rpartition("/")[0]
        if folder in rules:
            verdict = rules[folder].verdict(path[len(folder) :].lstrip("/"))
            if verdict is not None:
                return verdict
    return False


def _below(root: Path, folder: str) -> str:
    """Return the relative path of a folder with a slash at its end, or "" for the root."""
    return "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
