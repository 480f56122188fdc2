"""`Workspace`: the text files of one folder, and nothing outside it."""

import os
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

__all__ = ["Workspace"]

_MAX_SEEN = 20_000
_MAX_FILES = 5_000
_MAX_FILE_BYTES = 512 * 1024
_MAX_TOTAL_BYTES = 24 * 1024 * 1024
_GIT_TIMEOUT_S = 10.0
_SNIFFED_BYTES = 8192
_SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "build", "coverage", "dist", "env", "node_modules", "site-packages", "target", "vendor", "venv"}
)


class Workspace:
    """The text files of a folder, found once and read at most once each.

    In a git checkout these are the files that git tracks or would track, so `.gitignore` is respected; elsewhere
    every file below the folder except in generated folders. Left out and counted in `skipped`: hidden files and
    folders (they may hold secrets), binary files, files over 512 KB, links that lead out of the folder, and what
    exceeds 5,000 files or 24 MB of text. Of a very large folder the first 20,000 files are looked at.

    Args:
        root: An existing folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.name = self.root.name or "/"
        self.skipped = 0
        self._texts: dict[str, str] = {}
        self._load()
        self.paths = tuple(sorted(self._texts))

    def text(self, path: str) -> str:
        """Text of a file, as it was when the workspace was opened.

        Args:
            path: One of `paths`; `./` before it and backslashes are accepted.

        Raises:
            ValueError: The folder has no such text file. Nothing outside `paths` is ever opened.
        """
        key = str(PurePosixPath(path.strip().replace("\\", "/")))
        if key not in self._texts:
            raise ValueError("no such text file in the folder; take a path from list_files")
        return self._texts[key]

    def _load(self) -> None:
        room = _MAX_TOTAL_BYTES
        for path in islice(_git_files(self.root) or _walked_files(self.root), _MAX_SEEN):
            content = self._content(path) if len(self._texts) < _MAX_FILES else None
            if content is None or len(content) > room:
                self.skipped += 1
                continue
            room -= len(content)
            self._texts[path] = content.decode("utf-8", errors="replace")

    def _content(self, path: str) -> bytes | None:
        """The bytes of a file worth showing, else None."""
        if not path.isprintable() or any(part.startswith(".") for part in PurePosixPath(path).parts):
            return None
        try:
            real = (self.root / path).resolve()
            if not (real.is_relative_to(self.root) and real.is_file()) or real.stat().st_size > _MAX_FILE_BYTES:
                return None
            content = real.read_bytes()
        except OSError:
            return None
        return None if b"\0" in content[:_SNIFFED_BYTES] else content


def _git_files(root: Path) -> list[str]:
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


def _walked_files(root: Path) -> Iterator[str]:
    """Every file below the folder, in a fixed order, without hidden and generated folders."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not (name.startswith(".") or name in _SKIPPED_FOLDERS))
        below = Path(folder).relative_to(root)
        yield from ((below / name).as_posix() for name in sorted(files))
