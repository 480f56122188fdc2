"""`TemporaryFile`: a file on its way to its place in a folder, and the flush that makes it survive a power failure."""

import itertools
import os
import secrets
import sys
from contextlib import suppress

if sys.platform != "win32":
    import fcntl

    _NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

__all__ = ["TEMPORARY_PREFIX", "TemporaryFile", "flush"]

TEMPORARY_PREFIX = ".tmp-"

_numbers = itertools.count()
"""Tells the files of one process apart; random digits tell those of others, which may have its number elsewhere."""


class TemporaryFile:
    """A new file under a name of its own, opened until it is complete.

    Args:
        folder: Descriptor of its folder.
        name: What it is to be called in the end.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._path = f"{TEMPORARY_PREFIX}{os.getpid()}-{next(_numbers)}-{secrets.token_hex(8)}"
        self._descriptor: int | None = os.open(self._path, _NEW, 0o600, dir_fd=folder)

    def fill(self, data: bytes, *, durable: bool) -> None:
        """Writes all of it; if it is to be flushed, the system begins to write it to the disk."""
        assert self._descriptor is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        if durable:
            _begin_flush(self._descriptor)
        else:
            self._close()

    def complete(self) -> None:
        """Flushes what is to be flushed, and closes it."""
        try:
            if self._descriptor is not None:
                flush(self._descriptor)
        finally:
            self._close()

    def place(self) -> None:
        """Gives it its name, in place of what has it."""
        os.replace(self._path, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def drop(self) -> None:
        """Removes it, as far as the system lets it, unless it has its name already."""
        with suppress(OSError):
            self._close()
        with suppress(OSError):
            os.unlink(self._path, dir_fd=self._folder)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def flush(descriptor: int) -> None:
    """Waits until a file, or the names of a folder, are on the disk."""
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync(2) alone leaves the data in the drive's cache
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def _begin_flush(descriptor: int) -> None:
    """Lets the system begin to write a file to the disk, if it can: a flush that follows waits for less.

    That is what Linux does when told that a file will not be read soon (mm/fadvise.c); its pages stay in memory while
    they are being written.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
