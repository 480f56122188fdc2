"""`Folder`: one opened directory of a file store, in which every file is reached relative to its descriptor."""

import errno
import itertools
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from llm_common.errors import PointerNotFoundError, StoreError, StoreFullError, UnsafePathError

if sys.platform != "win32":
    import fcntl

    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    _FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking, so that opening a fifo returns

__all__ = ["LOCK_NAME", "Folder", "Trust", "as_store_errors", "open_folder"]

LOCK_NAME = ".lock"
_TEMPORARY_PREFIX = ".tmp-"
_TEMPORARY_LIFE_S = 3600.0  # no healthy write takes an hour
_NOT_OURS = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Trust:
    """What a store accepts beside its own plain files; see the arguments of `FileBlobStore`."""

    hard_links: bool
    unsafe_dir: bool


class Folder:
    """Reads, writes, lists and removes the files of one directory; made by `open_folder`."""

    def __init__(self, descriptor: int, *, owners: frozenset[int], trust: Trust) -> None:
        self._descriptor = descriptor
        self._owners = owners
        self._trust = trust

    def read(self, name: str) -> bytes:
        """The bytes of a plain file."""
        descriptor = self.open(name, os.O_RDONLY)
        try:
            chunks, size = [], os.fstat(descriptor).st_size + 1
            while chunk := os.read(descriptor, size):
                chunks.append(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def read_or_none(self, name: str) -> bytes | None:
        """As `read`, but None when this one file cannot be read; a process out of descriptors still raises."""
        try:
            return self.read(name)
        except UnsafePathError:
            return None
        except OSError as exc:
            if exc.errno in _EXHAUSTED:
                raise
            return None

    def write(self, name: str, data: bytes, *, durable: bool) -> None:
        """Puts a whole file in place by a temporary one and a rename; on failure the temporary one is gone."""
        temporary = f"{_TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=self._descriptor)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if durable:
                    _flush(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            with suppress(OSError):
                self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Makes the names of the folder survive a power failure; a refused flush is never tried again."""
        _flush(self._descriptor)

    def sizes(self) -> tuple[dict[str, int], int]:
        """Size by name of every plain file that is not hidden, and how many other visible entries there are."""
        sizes: dict[str, int] = {}
        odd = 0
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    self._sweep(entry)
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if self._is_ours(status):
                    sizes[entry.name] = status.st_size
                else:
                    odd += 1
        return sizes, odd

    def names(self) -> set[str]:
        """Every entry, whatever it is."""
        with os.scandir(self._descriptor) as entries:
            return {entry.name for entry in entries}

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a plain file.

        Raises:
            UnsafePathError: Something else has that name, or a file that others could alter.
        """
        descriptor = os.open(name, flags | _FILE, 0o600, dir_fd=self._descriptor)
        if self._is_ours(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
        raise UnsafePathError(
            "A stored file is no plain file of this store's owner with a single name; remove it, "
            "or allow it with allow_hard_links or allow_unsafe_dir"
        )

    def _is_ours(self, status: os.stat_result) -> bool:
        return (
            stat.S_ISREG(status.st_mode)
            and (status.st_nlink <= 1 or self._trust.hard_links)
            and (status.st_uid in self._owners or self._trust.unsafe_dir)
        )

    def _sweep(self, entry: os.DirEntry[str]) -> None:
        """Removes the temporary file of a writer that was killed long ago."""
        if entry.name.startswith(_TEMPORARY_PREFIX):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _TEMPORARY_LIFE_S:
                    self.remove(entry.name)


@contextmanager
def open_folder(base: str, name: str, *, create: bool, durable: bool, trust: Trust) -> Iterator[Folder]:
    """The opened folder of a store.

    Args:
        base: Directory of the store; it may be reached through links, since its owner chose them.
        name: Folder in it, checked by the caller; it may not be a link.
        create: True makes what is missing of the path, 0700.
        durable: True flushes the directories that got a new entry.
        trust: What to accept beside our own.

    Raises:
        FileNotFoundError: There is no such folder.
        StoreError: The base is no directory.
        UnsafePathError: The base or the folder is open to others.
    """
    path = f"{base}/{name}"
    if create and not os.path.exists(path):  # noqa: PTH110 - on the way of every save
        _make(Path(path), durable=durable)
    owner = _owner_of(base, trust)
    descriptor = os.open(path, _DIRECTORY)
    try:
        owners = frozenset({os.geteuid(), owner})
        if os.fstat(descriptor).st_uid not in owners and not trust.unsafe_dir:
            raise UnsafePathError("A folder of the store belongs to another user; set allow_unsafe_dir to accept that")
        yield Folder(descriptor, owners=owners, trust=trust)
    finally:
        os.close(descriptor)


@contextmanager
def as_store_errors(action: str) -> Iterator[None]:
    """Turns what the system refuses within the block into `StoreError` classes.

    Args:
        action: What was tried, as a verb for the text; for `write` a missing file is no missing pointer.
    """
    try:
        yield
    except OSError as exc:
        raise _store_error(exc, action) from exc


def _store_error(error: OSError, action: str) -> StoreError:
    code = errno.errorcode.get(error.errno or 0, "unknown error")
    if error.errno == errno.ENOENT and action != "write":
        return PointerNotFoundError("Nothing is stored under this key")
    if error.errno in _FULL:
        return StoreFullError(f"No room left in the store ({code}); nothing was changed: free some and save again")
    if error.errno in _NOT_OURS:
        return UnsafePathError(f"A path of the store is no plain file or folder ({code}); remove what stands there")
    return StoreError(f"The store could not {action} ({code}); check its directory, permissions and limits")


def _owner_of(base: str, trust: Trust) -> int:
    status = os.stat(base)  # noqa: PTH116 - on the way of every save and load
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError("The base of the store is not a directory; choose another base_dir")
    others_write = status.st_mode & stat.S_IWOTH and status.st_uid != os.geteuid()
    if others_write and not trust.unsafe_dir:
        raise UnsafePathError(
            "Everybody may write to the base of the store, and it belongs to another user; choose another base_dir, "
            "or set allow_unsafe_dir to accept that"
        )
    return status.st_uid


def _make(path: Path, *, durable: bool) -> None:
    """Makes a directory and its missing parents, each 0700; a link that dangles is left to the open that follows."""
    missing = [path, *itertools.takewhile(lambda parent: not parent.exists(), path.parents)]
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if durable:
            parent = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _flush(parent)
            finally:
                os.close(parent)


def _flush(descriptor: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync(2) alone leaves the data in the drive's cache
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)
