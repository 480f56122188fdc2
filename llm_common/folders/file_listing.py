"""The files of a folder: those that git tracks or would track, or those that `.gitignore` files do not exclude."""

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from llm_common.errors import ConfigError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_GIT_TIMEOUT_S = 20.0
_MAX_IGNORE_BYTES = 1024 * 1024
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "build", "coverage", "dist", "env", "node_modules", "site-packages", "target", "vendor", "venv"}
)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A regular file below a folder: its path there with forward slashes, its size, its time of change."""

    path: str
    size: int
    mtime_ns: int


def list_paths(root: Path, *, hidden: bool = False) -> Iterator[str]:
    """Paths below a folder, relative to it, with forward slashes, in a fixed order.

    In a git checkout these are the files that git tracks or would track. Elsewhere: every file except those that
    `.gitignore` files exclude and those in folders that tools generate. Opens no file but `.gitignore` files.

    Args:
        root: An existing folder, resolved.
        hidden: True walks hidden folders too, where git is not asked; never `.git`.

    Raises:
        ConfigError: A folder outside of git has a `.gitignore` file, and the extra `cli` is not installed.
    """
    yield from _git_paths(root) or _walked_paths(root, hidden=hidden)


def stat_files(root: Path, paths: Iterable[str]) -> Iterator[tuple[str, ListedFile | None]]:
    """Each path with its file: None if it is no regular file, or lies outside the folder once links are followed.

    None also for a path that does not print on one line, which a terminal or a prompt could misread.

    Args:
        root: The folder, resolved.
        paths: Relative to it, with forward slashes.
    """

    @cache
    def is_inside(folder: str) -> bool:
        return (root / folder).resolve().is_relative_to(root)

    def regular_file(path: str) -> ListedFile | None:
        try:
            status = (root / path).lstat()
            if stat.S_ISLNK(status.st_mode) and (root / path).resolve().is_relative_to(root):
                status = (root / path).stat()
        except OSError:
            return None
        inside = stat.S_ISREG(status.st_mode) and path.isprintable() and is_inside(path.rpartition("/")[0])
        return ListedFile(path, status.st_size, status.st_mtime_ns) if inside else None

    for path in paths:
        yield path, regular_file(path)


def _git_paths(root: Path) -> list[str]:
    """The files that git tracks or would track below the folder; empty where git does not work."""
    # The checkout may be a third party's: its configuration must not start a program.
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
    specs: dict[str, GitIgnoreSpec] = {}  # by the folder that holds the `.gitignore` file

    def is_ignored(path: str) -> bool:
        """As in git, the nearest file decides, and in it the last rule that matches; a folder ends with a slash."""
        folder = path.rstrip("/")
        while folder:
            folder = folder.rpartition("/")[0]
            spec = specs.get(folder)
            verdict = spec.check_file(path[len(folder) :].lstrip("/")).include if spec else None
            if verdict is not None:
                return verdict
        return False

    def is_entered(folder: str) -> bool:
        name = PurePosixPath(folder).name
        if name == ".git" or name in _SKIPPED_FOLDERS or (name.startswith(".") and not hidden):
            return False
        return not is_ignored(f"{folder}/")

    for folder, folders, files in os.walk(root):
        prefix = "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
        if spec := _ignore_spec(root / prefix / ".gitignore"):
            specs[prefix.removesuffix("/")] = spec
        folders[:] = sorted(name for name in folders if is_entered(prefix + name))
        yield from (path for name in sorted(files) if not is_ignored(path := prefix + name))


def _ignore_spec(file: Path) -> "GitIgnoreSpec | None":
    """The rules of a `.gitignore` file; None when it is missing or cannot be read. Skips lines that are no rule."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_IGNORE_BYTES:
            return None
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    try:
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - an extra, which folders without such files do not need
    except ModuleNotFoundError as exc:
        raise ConfigError(
            "reading .gitignore files needs an extra: pip install 'llm-common[cli]'", variable="pathspec"
        ) from exc

    def is_rule(line: str) -> bool:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            return False
        return True

    return GitIgnoreSpec.from_lines(filter(is_rule, lines))
