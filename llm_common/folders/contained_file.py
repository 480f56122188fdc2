"""`ContainedFile`: a file that is read only if its path leads to a regular file of its folder.

A folder may change after it was listed, and whoever writes there may swap a file for a link that
leads out, or for a pipe that never answers. Links are resolved first. The resolved path is then
opened one component after the other, each relative to the one before (openat), and none of them may
be a link by then: a swap at any instant leads nowhere.
"""

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

# What a system lacks is 0: Windows has neither pipes at paths nor, for most users, links.
_O_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE: Final = os.O_RDONLY | _O_NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _O_NOFOLLOW
_HAS_OPENAT: Final = os.open in os.supports_dir_fd


class FileContent(NamedTuple):
    """The bytes of a file, and when it was changed, in seconds since 1970."""

    data: bytes
    mtime_s: float

    def text(self, *, max_bytes: int | None = None) -> str:
        """The data as UTF-8, without a byte order mark, every line ended by a line feed.

        Args:
            max_bytes: Bytes from the beginning that are decoded; None takes all.
        """
        text = self.data[:max_bytes].decode("utf-8-sig", errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n")


class ContainedFile(NamedTuple):
    """A file by its folder, resolved, and its path there with forward slashes."""

    root: Path
    path: str

    def real_path(self) -> str | None:
        """The path without links.

        None if it leads out of the folder, to nothing, or in a circle.
        """
        try:
            real = Path(os.path.realpath(self.root / self.path, strict=True))
        except (OSError, ValueError):  # a circle; a zero character
            return None
        return real.relative_to(self.root).as_posix() if real.is_relative_to(self.root) else None

    def read(self, *, max_bytes: int) -> FileContent | None:
        """The content.

        None if it is no regular file of the folder, is larger, or cannot be read. Never waits.

        Args:
            max_bytes: The largest size that is read.
        """
        real = self.real_path()
        if real is None:
            return None
        try:
            descriptor = _open(self.root, real)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)  # whatever its size is said to be
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return FileContent(data, status.st_mtime) if len(data) <= max_bytes else None


def _open(root: Path, path: str) -> int:
    if not _HAS_OPENAT:
        return os.open(root / path, _FILE)
    descriptor = os.open(root, _FOLDER)
    *folders, name = PurePosixPath(path).parts
    for part, flags in [*((folder, _FOLDER) for folder in folders), (name, _FILE)]:
        try:
            opened = os.open(part, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = opened
    return descriptor
