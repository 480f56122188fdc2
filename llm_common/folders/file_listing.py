"""The files of a folder that git tracks or would track, or that no `.gitignore` excludes."""

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from llm_common._env import environment_without
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.exclusion import skip_reason_by_name
from llm_common.folders.ignore_rules import IgnoreRules

_GIT_TIMEOUT_S = 20.0
# Set where git itself has started us, as in a hook: they would name its repository in place of the
# folder's.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
_STAGED = re.compile(rb"(?P<mode>\d{6}) [0-9a-f]{40,64} \d\t")
_SUBMODULE = b"160000"
_MAX_NESTED = 5
_MAX_IGNORE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file below a folder: its path with forward slashes, size and time of change.

    Attributes:
        mtime_ns: Nanoseconds since 1970, at least 1.
        target: The path of the file that it leads to, below the same folder, where it or its folder
            is a link.
    """

    path: str
    size: int
    mtime_ns: int
    target: str | None = field(default=None, compare=False)


def list_paths(root: Path, *, hidden: bool = False) -> Iterator[str]:
    """Paths below a folder, relative to it, with forward slashes, in a fixed order.

    In a git checkout these are the files that git tracks or would track, also those of submodules
    and other checkouts within it. Elsewhere: every file except those that `.gitignore` files
    exclude. A folder that is not entered, since it is hidden, tools generate it or it cannot be
    read, is one path that ends with a slash; "/" is the folder itself. Opens no file but
    `.gitignore` files.

    Args:
        root: An existing folder, resolved.
        hidden: True walks hidden folders too, where git is not asked; never `.git`.
    """
    yield from _git_paths(root) or _walked_paths(root, hidden=hidden)


def stat_files(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, ListedFile | None]]:
    """Yield each path with its file, or None.

    None for what is not a regular file, or lies outside the folder once links are followed.

    None also for a path that does not print on one line, which a terminal or a prompt could
    misread.

    Args:
        root: The folder, resolved.
        paths: Relative to it, with forward slashes.
    """

    @cache
    def real_folder(folder: str) -> str | None:
        return ContainedFile(root, folder).real_path()

    def regular_file(path: str) -> ListedFile | None:
        folder = path.rpartition("/")[0]
        target = None
        try:
            status = (root / path).lstat()
            is_link = stat.S_ISLNK(status.st_mode)
            if (is_link or real_folder(folder) != (folder or ".")) and (
                target := ContainedFile(root, path).real_path()
            ):
                status = (root / path).stat()
        except OSError:
            return None
        inside = (
            stat.S_ISREG(status.st_mode) and path.isprintable() and real_folder(folder) is not None
        )
        return (
            ListedFile(path, status.st_size, max(status.st_mtime_ns, 1), target) if inside else None
        )

    for path in paths:
        yield path, regular_file(path)


def _git_paths(root: Path, depth: int = 0) -> list[str]:
    """The files that git tracks or would track below the folder; empty where git does not work."""
    # The checkout may be a third party's: its configuration must not start a program.
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
        path = os.fsdecode(entry[staged.end() if staged else 0 :])
        is_checkout = path.endswith("/") or (staged is not None and staged["mode"] == _SUBMODULE)
        inner = _checkout_paths(root, path.rstrip("/"), depth) if is_checkout else ()
        paths.update(inner or [path])
    return sorted(paths)


def _checkout_paths(root: Path, path: str, depth: int) -> list[str]:
    """The files of a checkout within another one, relative to that.

    Empty if it is none, or nested too deep.
    """
    folder = root / path
    # The methods of `Path` raise where a folder may not be searched.
    is_checkout = not os.path.islink(folder) and os.path.exists(folder / ".git")  # noqa: PTH110, PTH114
    if depth >= _MAX_NESTED or not is_checkout:
        return []
    return [f"{path}/{inner}" for inner in _git_paths(folder, depth + 1)]


def _walked_paths(root: Path, *, hidden: bool) -> Iterator[str]:
    rules: dict[str, IgnoreRules] = {}  # by the folder that holds the `.gitignore` file

    def is_ignored(path: str) -> bool:
        """As in git, the nearest file decides, and in it the last rule that matches.

        A folder ends with a slash.
        """
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            verdict = (
                rules[folder].verdict(path[len(folder) :].lstrip("/")) if folder in rules else None
            )
            if verdict is not None:
                return verdict
        return False

    unreadable: list[OSError] = []
    for folder, folders, files in os.walk(root, onerror=unreadable.append):
        prefix = _below(root, folder)
        if content := ContainedFile(root, f"{prefix}.gitignore").read(max_bytes=_MAX_IGNORE_BYTES):
            rules[prefix.removesuffix("/")] = IgnoreRules(
                content.data.decode("utf-8", errors="replace")
            )
        entered = []
        for path in (f"{prefix}{name}/" for name in sorted(folders) if name != ".git"):
            if is_ignored(path):
                continue
            if skip_reason_by_name(path, hidden=hidden, generated=False):
                yield path
            elif os.path.islink(root / path):  # noqa: PTH114 - `Path.is_symlink` raises where that cannot be told
                yield path.removesuffix("/")
            else:
                entered.append(PurePosixPath(path).name)
        folders[:] = entered
        names = (name for name in sorted(files) if name != ".git")  # of a worktree or a submodule
        yield from (path for name in names if not is_ignored(path := prefix + name))
    yield from (_below(root, error.filename) or "/" for error in unreadable)


def _below(root: Path, folder: str) -> str:
    """The path of a folder with a slash behind it; "" for the root."""
    return "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
