"""The files of a folder: what git tracks or would track, or what the `.gitignore` files leave."""

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

__all__ = ["IgnoreRules", "ListedFile", "list_paths", "stat_files"]

_MAX_BYTES = 1024 * 1024


class IgnoreRules:
    """The rules of the `.gitignore` files from one folder down, each applied below the folder that it stands in.

    As in git, the file that is nearest decides, and in it the last rule that matches; what nobody has a rule for is
    kept. Feed every folder to `enter` before asking about what is in it, parents first.

    Args:
        root: The folder that paths are relative to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._specs: dict[str, GitIgnoreSpec] = {}

    def enter(self, folder: str) -> None:
        """Reads the rules of a folder, "" for the root; one that has none, or none that can be read, adds nothing."""
        file = self._root / folder / ".gitignore"
        try:
            if not file.is_file() or file.stat().st_size > _MAX_BYTES:
                return
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        self._specs[folder] = GitIgnoreSpec.from_lines(_valid(lines))

    def ignores(self, path: str) -> bool:
        """Whether a path is left out; a folder's path ends with a slash."""
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            spec = self._specs.get(folder)
            verdict = spec.check_file(path[len(folder) :].lstrip("/")).include if spec else None
            if verdict is not None:
                return verdict
        return False


def _valid(lines: Iterable[str]) -> Iterable[str]:
    """The lines that are rules; git passes over the others."""
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        yield line


_GIT_TIMEOUT_S = 20.0
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "build", "coverage", "dist", "env", "node_modules", "site-packages", "target", "vendor", "venv"}
)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A plain file below a folder: its path there with forward slashes, its size, its time of change."""

    path: str
    size: int
    mtime_ns: int


def list_paths(root: Path, *, hidden: bool = False) -> Iterator[str]:
    """Paths below a folder, relative to it, with forward slashes, in a fixed order.

    In a git checkout these are the files that git tracks or would track; elsewhere every file but those that
    `.gitignore` files leave out and those in folders that tools generate. Nothing is opened but `.gitignore` files.

    Args:
        root: An existing folder, resolved.
        hidden: True walks hidden folders too, where git is not asked; never `.git`.
    """
    yield from _git_paths(root) or _walked_paths(root, hidden=hidden)


def stat_files(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, ListedFile | None]]:
    """Each path with what it stands for: None for what is no plain file or lies, links followed, outside the folder.

    None also for a path that cannot be printed on one line, for a terminal's and a prompt's sake.

    Args:
        root: The folder, resolved.
        paths: Relative to it, with forward slashes.
    """

    @cache
    def is_inside(folder: str) -> bool:
        return (root / folder).resolve().is_relative_to(root)

    def plain_file(path: str) -> ListedFile | None:
        try:
            status = (root / path).lstat()
            if stat.S_ISLNK(status.st_mode) and (root / path).resolve().is_relative_to(root):
                status = (root / path).stat()
        except OSError:
            return None
        inside = stat.S_ISREG(status.st_mode) and path.isprintable() and is_inside(path.rpartition("/")[0])
        return ListedFile(path, status.st_size, status.st_mtime_ns) if inside else None

    for path in paths:
        yield path, plain_file(path)


def _git_paths(root: Path) -> list[str]:
    """What git tracks, or would track, below the folder; empty when that cannot be told."""
    # A checkout may be a stranger's: its configuration must not start a program.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard", "--deduplicate"]
    try:
        listing = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            command, capture_output=True, check=True, timeout=_GIT_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return sorted(os.fsdecode(name) for name in listing.stdout.split(b"\0") if name)


def _walked_paths(root: Path, *, hidden: bool) -> Iterator[str]:
    rules = IgnoreRules(root)

    def is_entered(folder: str) -> bool:
        name = PurePosixPath(folder).name
        if name == ".git" or name in _SKIPPED_FOLDERS or (name.startswith(".") and not hidden):
            return False
        return not rules.ignores(f"{folder}/")

    for folder, folders, files in os.walk(root):
        prefix = "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
        rules.enter(prefix.removesuffix("/"))
        folders[:] = sorted(name for name in folders if is_entered(prefix + name))
        yield from (path for name in sorted(files) if not rules.ignores(path := prefix + name))
