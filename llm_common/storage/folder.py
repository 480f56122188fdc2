"""`Folder`: one opened directory of a file store, in which every file is reached relative to its descriptor."""

import errno
import itertools
import os
import random
import secrets
import stat
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from llm_common.errors import LockTimeoutError, PointerNotFoundError, StoreError, StoreFullError, UnsafePathError
from llm_common.storage.blob import StampedFile

__all__ = [
    "LOCK_NAME",
    "NOT_OURS",
    "TEMPORARY_PREFIX",
    "Folder",
    "Standing",
    "TemporaryFile",
    "Trust",
    "as_store_errors",
    "flush",
    "lock_file",
    "open_folder",
    "remove_directory",
    "take_turn",
    "unlock_file",
]

if sys.platform != "win32":
    import fcntl


_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.008


@lru_cache(maxsize=256)
def _turn(path: str, process: int) -> threading.Lock:  # noqa: ARG001 - a forked child has turns of its own
    return threading.Lock()


def take_turn(path: str, *, timeout_s: float) -> threading.Lock:
    """The right of one thread of this process to lock that path, taken and to be released; the others wait for it.

    It spares them the intervals at which `lock_file` asks, and replaces no lock: two threads may have it at once when
    very many paths are locked at the same time.

    Raises:
        LockTimeoutError: Others had it all the time.
    """
    turn = _turn(path, os.getpid())
    if not turn.acquire(timeout=timeout_s):
        raise _timeout(timeout_s)
    return turn


def lock_file(descriptor: int, *, shared: bool, deadline: float, timeout_s: float) -> None:
    """Locks an open file; `unlock_file` ends it, and so does the end of the process.

    The kernel's own waiting cannot be timed, so this asks again, at random and ever longer intervals up to 8 ms: short
    enough that nobody starves behind busy writers.

    Args:
        descriptor: The file.
        shared: True admits other shared holders.
        deadline: When to give up, by `time.monotonic`.
        timeout_s: How long the caller waits in all, for the error.

    Raises:
        LockTimeoutError: Others held it all the time.
        OSError: The file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    pause = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, wanted)
        except BlockingIOError as exc:
            if time.monotonic() >= deadline:
                raise _timeout(timeout_s) from exc
        else:
            return
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def unlock_file(descriptor: int) -> None:
    """Ends the lock, also for a child that was forked while it was held and shares the open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _timeout(timeout_s: float) -> LockTimeoutError:
    return LockTimeoutError(
        f"Another writer held this part of the store for {timeout_s:g} s; raise lock_timeout_s, "
        "or end the process that hangs"
    )


NOT_OURS = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
"""What opening or reading gives for something that is no plain file or folder."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class as_store_errors:  # noqa: N801 - reads as a function; a generator would take longer than what it guards
    """Turns what the system refuses within the block into `StoreError` classes.

    Args:
        action: What was tried, as a verb for the text; for `write` a missing file is no missing pointer.
    """

    def __init__(self, action: str) -> None:
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise _store_error(error, self._action) from error


def _store_error(error: OSError, action: str) -> StoreError:
    code = errno.errorcode.get(error.errno or 0, "unknown error")
    if error.errno == errno.ENOENT and action != "write":
        return PointerNotFoundError("Nothing is stored under this key; use one that the store lists")
    if error.errno in _FULL:
        return StoreFullError(f"No room left in the store ({code}); nothing was changed: free some and save again")
    if error.errno in NOT_OURS:
        return UnsafePathError(f"A path of the store is no plain file or folder ({code}); remove what stands there")
    return StoreError(f"The store could not {action} ({code}); check its directory, permissions and limits")


if sys.platform != "win32":
    import fcntl

    _NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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


if sys.platform != "win32":
    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    _FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # non-blocking, so that opening a fifo returns


LOCK_NAME = ".lock"
_TEMPORARY_LIFE_S = 3600.0  # no healthy write takes an hour
_SECOND_NS = 1_000_000_000
_FINE_GRAIN_NS = 50_000_000
_COARSE_GRAIN_NS = 2_100_000_000
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class Trust:
    """What a store accepts beside its own plain files; see the arguments of `FileBlobStore`."""

    hard_links: bool
    unsafe_dir: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in a folder beside its lock: sizes of plain and of old temporary files, and names of the rest."""

    sizes: dict[str, int]
    temporaries: dict[str, int]
    unsafe: list[str]
    hidden: list[str]


class Folder:
    """Reads, writes, lists and removes the files of one directory; made by `open_folder`, closed by its block."""

    def __init__(self, descriptor: int, *, owners: tuple[int, int], trust: Trust) -> None:
        self._descriptor = descriptor
        self._lock: int | None = None
        self._owners = owners
        self._trust = trust

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the lock, if there is one, and closes the directory."""
        try:
            if self._lock is not None:
                unlock_file(self._lock)
        finally:
            os.close(self._descriptor)

    def lock(self, path: str, *, shared: bool, deadline: float, timeout_s: float) -> bool:
        """Whether the folder is locked now, until it is closed: False when another one stands at its path by then.

        Args:
            path: Where the folder was opened.
            shared: As for `lock_file`; a shared lock does not make the file that it needs.
            deadline: As for `lock_file`.
            timeout_s: As for `lock_file`.

        Raises:
            FileNotFoundError: The folder was deleted, or never locked.
            LockTimeoutError: Others held it all the time.
        """
        flags = _FILE if shared else _FILE | os.O_RDWR | os.O_CREAT
        self._lock = os.open(LOCK_NAME, flags, 0o600, dir_fd=self._descriptor)
        status = self._checked(self._lock)
        lock_file(self._lock, shared=shared, deadline=deadline, timeout_s=timeout_s)
        try:
            return os.path.samestat(status, os.stat(f"{path}/{LOCK_NAME}", follow_symlinks=False))  # noqa: PTH116 - hot
        except FileNotFoundError:
            return False

    def read(self, name: str) -> bytes:
        """The bytes of a plain file."""
        return self._read(name)[0]

    def read_or_none(self, name: str) -> bytes | None:
        """As `read`, but None when this one file cannot be read; a process out of descriptors still raises."""
        try:
            return self._read(name)[0]
        except UnsafePathError:
            return None
        except OSError as exc:
            if exc.errno in _EXHAUSTED:
                raise
            return None

    def read_stamped(self, names: Iterable[str]) -> Generator[tuple[str, bytes, int], None, int]:
        """Name, bytes and the stamp before them of each plain file that is there; then how many others there are."""
        odd, now_ns = 0, time.time_ns()
        for name in names:
            try:
                data, status = self._read(name)
            except FileNotFoundError:
                continue
            except (OSError, UnsafePathError) as exc:
                if isinstance(exc, OSError) and exc.errno not in NOT_OURS:
                    raise
                odd += 1
            else:
                yield name, data, _stamp(status, now_ns)
        return odd

    def write(self, files: Iterable[tuple[str, bytes]], *, durable: bool) -> None:
        """Puts whole files in place, in their order, each by a temporary one and a rename.

        All are flushed before the first gets its name. The next one is asked for while those before it are already on
        their way to the disk. On failure the temporary ones are gone.
        """
        temporaries: list[TemporaryFile] = []
        try:
            for name, data in files:
                temporaries.append(TemporaryFile(self._descriptor, name))
                temporaries[-1].fill(data, durable=durable)
            for temporary in temporaries:
                temporary.complete()
            for temporary in temporaries:
                temporary.place()
        except BaseException:
            for temporary in temporaries:
                temporary.drop()
            raise

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Makes the names of the folder survive a power failure; a refused flush is never tried again."""
        flush(self._descriptor)

    def stamp(self) -> int | None:
        """A number that is another one after every change of the folder's names, None while one might not show."""
        return _stamp(os.fstat(self._descriptor), time.time_ns()) or None

    def files(self, *, unseen: str | None) -> Generator[StampedFile, None, int]:
        """Every plain file that is not hidden, as for `StampingBlobStore.files`; then how many others there are."""
        odd, now_ns = 0, time.time_ns()
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    self._sweep(entry)
                elif unseen is not None and name.endswith(unseen):
                    yield name, 0, 0
                else:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if self._is_ours(status):
                        yield name, status.st_size, _stamp(status, now_ns) if unseen is None else 0
                    else:
                        odd += 1
        return odd

    def survey(self) -> "Standing":
        """Everything in the folder; nothing is changed."""
        found = Standing({}, {}, [], [])
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                if entry.name == LOCK_NAME:
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.startswith(TEMPORARY_PREFIX):
                        if status.st_mtime < time.time() - _TEMPORARY_LIFE_S:
                            found.temporaries[entry.name] = status.st_size
                    elif entry.name.startswith("."):
                        found.hidden.append(entry.name)
                    elif self._is_ours(status):
                        found.sizes[entry.name] = status.st_size
                    else:
                        found.unsafe.append(entry.name)
        return found

    def remove_temporaries(self) -> None:
        """Removes every temporary file; for a caller that knows of no other writer."""
        with os.scandir(self._descriptor) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
        for name in names:
            self.remove(name)

    def _read(self, name: str) -> tuple[bytes, os.stat_result]:
        """The bytes of a plain file, and what it was before they were read."""
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        try:
            status = self._checked(descriptor)
            size = status.st_size
            data = os.read(descriptor, size + 1)
            if len(data) != size:
                data += b"".join(iter(partial(os.read, descriptor, size + 1), b""))
            return data, status
        finally:
            os.close(descriptor)

    def _checked(self, descriptor: int) -> os.stat_result:
        """What an open file is.

        Raises:
            UnsafePathError: Something else than a plain file, or one that others could alter.
        """
        status = os.fstat(descriptor)
        if self._is_ours(status):
            return status
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
        if entry.name.startswith(TEMPORARY_PREFIX):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _TEMPORARY_LIFE_S:
                    self.remove(entry.name)


def open_folder(base: str, name: str, *, create: bool, durable: bool, trust: Trust) -> Folder:
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
    try:
        return _open(base, path, trust)
    except FileNotFoundError:
        if not create:
            raise
    _make(Path(path), durable=durable)
    return _open(base, path, trust)


def _open(base: str, path: str, trust: Trust) -> Folder:
    owners = os.geteuid(), _owner_of(base, trust)
    descriptor = os.open(path, _DIRECTORY)
    if trust.unsafe_dir or os.fstat(descriptor).st_uid in owners:
        return Folder(descriptor, owners=owners, trust=trust)
    os.close(descriptor)
    raise UnsafePathError("A folder of the store belongs to another user; set allow_unsafe_dir to accept that")


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


def remove_directory(path: Path, *, durable: bool) -> None:
    """Removes an empty directory; no error when there is something in it."""
    with suppress(OSError):  # somebody has come in since
        path.rmdir()
        if durable:
            _flush_directory(path.parent)


def _make(path: Path, *, durable: bool) -> None:
    """Makes a directory and its missing parents, each 0700; a link that dangles is left to the open that follows."""
    missing = [path, *itertools.takewhile(lambda parent: not parent.exists(), path.parents)]
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if durable:
            _flush_directory(directory.parent)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def _stamp(status: os.stat_result, now_ns: int) -> int:
    """A number that is another one after every change, 0 while the next change might bear the same time.

    The time of the last change of an inode is the kernel's: no program can set it. But it has a grain, of up to 10 ms,
    or of seconds on old file systems. Two changes within a grain look alike, so what changed just now has no stamp.
    """
    changed_ns = status.st_ctime_ns
    grain_ns = _FINE_GRAIN_NS if changed_ns % _SECOND_NS else _COARSE_GRAIN_NS
    return 0 if now_ns - changed_ns < grain_ns else hash((changed_ns, status.st_ino))
