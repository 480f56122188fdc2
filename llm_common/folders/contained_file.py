"""Read a file only if its path leads to a regular file inside its folder: `ContainedFile`.

A folder may change after it was listed. Another process that can write there may replace a file by
a link that leads out, or by a pipe that never delivers data. So links are resolved first, then the
resolved path is opened component by component, each relative to the one before (openat). A
component that has become a link is refused, so a swap at any moment leads nowhere.
"""

import codecs
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

# Flags that a system lacks are 0. Windows has no pipes at paths and, for most users, no links.
_O_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK keeps the open from waiting for the writer of a pipe.
_FILE: Final = os.O_RDONLY | _O_NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
# O_PATH needs only the right to search a folder, not to list it.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _O_NOFOLLOW
_HAS_OPENAT: Final = os.open in os.supports_dir_fd
UTF_16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks, with which Windows writes texts in UTF-16."""
_OTHER_BYTES: Final = "llm-common-cp1252"


def _read_as_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Return the characters that bytes outside UTF-8 are in Windows' Western code page."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error(_OTHER_BYTES, _read_as_cp1252)


def decoded(data: bytes) -> str:
    """Decode the bytes of a file, without a byte order mark and with line feeds only.

    They are UTF-16 if their byte order mark says so, and else UTF-8. Bytes that are not UTF-8 are
    characters of Windows' Western code page.
    """
    if data.startswith(UTF_16_MARKS):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.decode("utf-8-sig", errors=_OTHER_BYTES)
    return text.replace("\r\n", "\n").replace("\r", "\n")


class ContainedFile(NamedTuple):
    """A file, given as a resolved folder and a relative path with forward slashes."""

    root: Path
    path: str

    def real_path(self) -> str | None:
        """Return the relative path without links.

        Returns None if the path leads out of the folder, to nothing, or in a circle.
        """
        try:
            real = Path(os.path.realpath(self.root / self.path, strict=True))
        except (OSError, ValueError):  # a circle of links, or a null character
            return None
        if not real.is_relative_to(self.root):
            return None
        return real.relative_to(self.root).as_posix()

    def read(self, *, max_bytes: int) -> bytes | None:
        """Read the file without waiting.

        Args:
            max_bytes: Maximum size of the file.

        Returns:
            The content. None if the path does not lead to a regular file in the folder, or the file
            is too large or cannot be read.
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
                # The file may have grown since fstat, and files in /proc report a size of 0.
                data = file.read(max_bytes + 1)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        if len(data) > max_bytes:
            return None
        return data


def _open(root: Path, path: str) -> int:
    """Open a path below the root without following links, and return the descriptor."""
    if not _HAS_OPENAT:
        return os.open(root / path, _FILE)
    *folders, name = PurePosixPath(path).parts
    descriptor = os.open(root, _FOLDER)
    for part, flags in [*((folder, _FOLDER) for folder in folders), (name, _FILE)]:
        try:
            opened = os.open(part, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = opened
    return descriptor
