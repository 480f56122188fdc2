"""`FileBlobStore`: blobs as plain files under one directory.

Every file is reached relative to the descriptor of its opened folder (openat), and neither the
folder nor the file may be a symbolic link: swapping one in at any instant leads nowhere.
"""

import errno
import itertools
import logging
import os
import random
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self

from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
    StoreError,
    StoreFullError,
    UnsafePathError,
)
from llm_common.storage.blob import (
    BlobEntry,
    FolderScan,
    check_folder,
    check_key,
    check_name,
    query_id_of,
)

if sys.platform != "win32":
    import fcntl

    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    # non-blocking: opening a fifo returns
    _FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    _NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Durability = Literal["full", "rename"]

_LOCK_NAME: Final = ".lock"
_TEMPORARY_PREFIX: Final = ".tmp-"
_TEMPORARY_LIFE_S: Final = 3600.0  # no healthy write takes an hour
_CLOCK_GRAIN_S: Final = 0.05
_FIRST_PAUSE_S: Final = 0.0005
_MAX_PAUSE_S: Final = 0.008

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_UNSAFE = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
"""What opening or reading gives for something that is no regular file or folder."""

_numbers = itertools.count()
"""Tells the temporary files of one process apart.

Random digits tell those of processes with the same number.
"""

_log = logging.getLogger(__name__)


@contextmanager
def translate_os_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StoreError`.

    Args:
        action: A verb for the text. For `write` a missing file is not a missing pointer.
        path: The directory or file, for the text.
    """
    try:
        yield
    except OSError as exc:
        code = errno.errorcode.get(exc.errno or 0, "unknown error")
        if exc.errno == errno.ENOENT and action != "write":
            raise PointerNotFoundError(
                f"Nothing is stored under this name in {path}; use one that it lists"
            ) from exc
        if exc.errno in _FULL:
            raise StoreFullError(
                f"No room left in the store at {path} ({code}); "
                "nothing was changed: free some and save again"
            ) from exc
        if exc.errno in _UNSAFE:
            raise UnsafePathError(
                f"{path} is no regular file or folder, or holds one that is none ({code}); "
                "remove what is there"
            ) from exc
        raise StoreError(
            f"The store could not {action} in {path} ({code}); "
            "check this directory, its permissions and limits"
        ) from exc


class FileBlobStore:
    """A `LockingBlobStore` of files `base_dir/folder/name` that survives kill -9 and power failure.

    New files are 0600, new directories 0700, whatever the umask. Needs POSIX (Linux, macOS).

    Args:
        base_dir: Directory of the store, made absolute at once, created by the first put.
        durability: `full` flushes each file and its directory: what a put returned for survives a
            power failure. `rename` leaves that to the system: a power failure may lose the newest
            puts, but never mixes two.
        lock_timeout_s: Seconds that a caller waits for a folder; 10 outlasts any healthy save.
        allow_hard_links: True reads files with several names. Off, since a second name lets others
            alter what is read.
        allow_unsafe_dir: True accepts a base directory that everybody may write to and that belongs
            to another user, and folders and files of any owner.

    Raises:
        StoreError: The system is not POSIX.
        ValueError: `durability` is neither of the two.
    """

    def __init__(
        self,
        base_dir: Path | str,
        *,
        durability: Durability = "full",
        lock_timeout_s: float = 10.0,
        allow_hard_links: bool = False,
        allow_unsafe_dir: bool = False,
    ) -> None:
        if sys.platform == "win32":
            ways_out = "use InMemoryContextPointerStore or ObjectContextPointerStore instead"
            raise StoreError(
                f"A store of files needs a POSIX system, such as Linux, macOS or WSL; {ways_out}"
            )
        if durability not in ("full", "rename"):
            raise ValueError(f'durability is {durability!r}; pass "full" or "rename"')
        self._base_dir = Path(base_dir).expanduser().absolute()
        self._lock_timeout_s = lock_timeout_s
        self._access = _Access(
            hard_links=allow_hard_links, unsafe_dir=allow_unsafe_dir, durable=durability == "full"
        )

    @property
    def base_dir(self) -> Path:
        """The absolute directory of the store."""
        return self._base_dir

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes by a temporary file and a rename; see `BlobStore.put`."""
        folder, name = check_key(key)
        with self._open(folder, "write", create=True) as opened:
            opened.put((name, data))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a regular file; see `BlobStore.get`."""
        folder, name = check_key(key)
        with self._open(folder, "read") as opened:
            return opened.read(name, max_bytes)

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for one that is missing, too large or unreadable.

        Raises:
            StoreError: The folder cannot be read, or the process has run out of descriptors or
                memory: that says nothing about the blobs.
        """
        checked = [check_name(name) for name in names]
        try:
            with self._open(folder, "read") as opened:
                for name in checked:
                    yield opened.read_or_none(name, max_bytes)
        except PointerNotFoundError:  # no such folder
            yield from itertools.repeat(None, len(checked))

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Stores what the change makes of the bytes under the key; see `BlobStore.update`."""
        folder, name = check_key(key)
        with self.lock(folder) as opened:
            data = None
            with suppress(CorruptPointerError):
                data = opened.get(name, max_bytes=max_bytes)
            opened.put((name, change(data)))

    def scan(self, folder: str) -> FolderScan:
        """Everything in a folder; see `BlobStore.scan`."""
        with suppress(PointerNotFoundError), self._open(folder, "list") as opened:
            return opened.scan()
        return FolderScan()

    def folder_etag(self, folder: str) -> object:
        """The inode of the directory and its last change; see `BlobStore.folder_etag`."""
        with suppress(PointerNotFoundError), self._open(folder, "list") as opened:
            return opened.etag()
        return None

    def folders(self) -> Iterator[str]:
        """Every directory, or link, whose name a query can have; see `BlobStore.folders`."""
        listing = translate_os_errors("list", self._base_dir)
        with suppress(PointerNotFoundError), listing, os.scandir(self._base_dir) as entries:
            for entry in entries:
                with suppress(InvalidIdError):
                    query_id_of(entry.name)
                    if not entry.is_file(follow_symlinks=False):
                        yield entry.name

    def delete(self, key: str) -> None:
        """Removes a file; see `BlobStore.delete`."""
        folder, name = check_key(key)
        with suppress(PointerNotFoundError), self._open(folder, "delete") as opened:
            opened.delete(name)

    def sweep(self, folder: str) -> None:
        """Removes temporary files that a killed writer left more than an hour ago."""
        with suppress(PointerNotFoundError), self._open(folder, "delete") as opened:
            opened.delete(*opened.scan().temporaries, fsync=False)

    def remove_folder(self, folder: str) -> None:
        """Remove what killed writers left in a folder, its lock, and the folder if it is empty."""
        path = self._base_dir / check_folder(folder)
        with translate_os_errors("delete", path):
            if not path.is_dir():
                return
        with (
            self.lock(folder) as opened,
            suppress(PointerNotFoundError),
            translate_os_errors("delete", path),
        ):
            # writers hold the lock: these are all left over
            opened.delete(*opened.temporaries(), fsync=False)
            opened.delete(_LOCK_NAME, fsync=False)  # a waiter notices, and makes a new one
            with suppress(OSError):  # another program has put something in since
                path.rmdir()
                if self._access.durable:
                    _fsync_directory(path.parent)

    @contextmanager
    def lock(self, folder: str) -> Iterator["_Folder"]:
        """The folder under flock(2) of its lock file; see `LockingBlobStore.lock`."""
        with self._locked(folder, shared=False) as opened:
            yield opened

    @contextmanager
    def lock_shared(self, folder: str) -> Iterator[None]:
        """A shared lock.

        On a folder that no writer ever locked it holds nothing, as in a read-only store.
        """
        with ExitStack() as stack:
            with suppress(PointerNotFoundError):
                stack.enter_context(self._locked(folder, shared=True))
            yield

    def location(self, key: str) -> str:
        """The absolute path of the file."""
        check_key(key)
        return f"{self._base_dir}/{key}"

    @contextmanager
    def _open(self, folder: str, action: str, *, create: bool = False) -> Iterator["_Folder"]:
        path = f"{self._base_dir}/{check_folder(folder)}"
        with (
            translate_os_errors(action, path),
            _open(self._base_dir, folder, self._access, create) as opened,
        ):
            yield opened

    def _locked(self, folder: str, *, shared: bool) -> "_Folder":
        """The folder, locked until it is closed."""
        check_folder(folder)
        deadline = time.monotonic() + self._lock_timeout_s
        with translate_os_errors("read" if shared else "write", f"{self._base_dir}/{folder}"):
            while True:
                opened = None
                try:
                    opened = _open(self._base_dir, folder, self._access, not shared)
                    if opened.lock(
                        shared=shared, deadline=deadline, timeout_s=self._lock_timeout_s
                    ):
                        locked, opened = opened, None
                        return locked
                except FileNotFoundError:
                    # another's `remove_folder` came between the folder and its lock
                    if shared or time.monotonic() >= deadline:
                        raise
                finally:
                    if opened is not None:
                        opened.close()


@dataclass(frozen=True, slots=True)
class _Access:
    """What a store accepts beside its own regular files, and whether it flushes.

    See `FileBlobStore`.
    """

    hard_links: bool
    unsafe_dir: bool
    durable: bool


class _Folder:
    """One opened directory; a `LockedFolder` once it is locked.

    Args:
        path: Of the directory; it may not be a link.
        owners: Users whose files are accepted.
        access: What else is.

    Raises:
        FileNotFoundError: There is no such folder.
        UnsafePathError: The folder belongs to another user.
    """

    def __init__(self, path: str, owners: tuple[int, int], access: _Access) -> None:
        self._path = path
        self._owners = owners
        self._access = access
        self._lock: int | None = None
        self._descriptor = os.open(path, _DIRECTORY)
        if not access.unsafe_dir and os.fstat(self._descriptor).st_uid not in owners:
            os.close(self._descriptor)
            raise UnsafePathError(
                f"{path} belongs to another user; set allow_unsafe_dir to accept that"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the lock, if there is one, and closes the directory."""
        try:
            if self._lock is not None:
                _locks.release(self._lock)
        finally:
            os.close(self._descriptor)

    def lock(self, *, shared: bool, deadline: float, timeout_s: float) -> bool:
        """Whether the folder is locked until it is closed.

        False when another lock file is at its path by then. The kernel's own waiting cannot be
        timed: this asks again, at random and ever longer intervals up to 8 ms, short enough that no
        waiter starves behind busy writers.

        Args:
            shared: True admits other shared holders, and does not make the lock file.
            deadline: When to give up, by `time.monotonic`.
            timeout_s: How long the caller waits in all, for the error.

        Raises:
            FileNotFoundError: The folder was deleted, or never locked.
            LockTimeoutError: Others held it all the time.
            OSError: The file system has no locks (ENOLCK, EOPNOTSUPP).
        """
        flags = _FILE if shared else _FILE | os.O_RDWR
        try:
            self._lock = _locks.open(partial(os.open, _LOCK_NAME, flags, dir_fd=self._descriptor))
        except FileNotFoundError:
            if shared:
                raise
            # a writer that made the folder may have been killed before it flushed its name
            if self._access.durable:
                _fsync_directory(Path(self._path).parent)
            make = partial(os.open, _LOCK_NAME, flags | os.O_CREAT, 0o600, dir_fd=self._descriptor)
            self._lock = _locks.open(make)
        status = self._checked(self._lock, _LOCK_NAME)
        wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.flock(self._lock, wanted)
                break
            except BlockingIOError as exc:
                if time.monotonic() >= deadline:
                    text = (
                        f"Another writer held {self._path} for {timeout_s:g} s; "
                        "raise lock_timeout_s, or end it"
                    )
                    raise LockTimeoutError(text) from exc
            time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)
        try:
            return os.path.samestat(
                status,
                os.stat(f"{self._path}/{_LOCK_NAME}", follow_symlinks=False),  # noqa: PTH116
            )
        except FileNotFoundError:
            return False

    def get(self, name: str, *, max_bytes: int | None = None) -> bytes | None:
        """The bytes of a regular file, None when there is none; see `LockedFolder.get`."""
        with translate_os_errors("read", self._path):
            try:
                return self.read(name, max_bytes)
            except FileNotFoundError:
                return None

    def put(self, *blobs: tuple[str, bytes]) -> None:
        """Puts whole files in place, each by a temporary one and a rename; see `LockedFolder.put`.

        All are flushed before the first gets its name; a refused flush is never tried again (the
        kernel may have dropped the pages: https://lwn.net/Articles/752063/). On failure the
        temporary ones are gone.
        """
        temporaries: list[str] = []
        with translate_os_errors("write", self._path):
            try:
                for _, data in blobs:
                    temporaries.append(
                        f"{_TEMPORARY_PREFIX}{os.getpid()}-{next(_numbers)}-{secrets.token_hex(8)}"
                    )
                    self._write(temporaries[-1], data)
                for (name, _), temporary in zip(blobs, temporaries, strict=True):
                    os.replace(
                        temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
                    )
            except BaseException:
                for temporary in temporaries:
                    with suppress(OSError):  # it has its name already, or was never made
                        os.unlink(temporary, dir_fd=self._descriptor)
                raise
            if self._access.durable:
                _fsync(self._descriptor)

    def delete(self, *names: str, fsync: bool = True) -> None:
        """Removes files that are there, in this order; see `LockedFolder.delete`."""
        with translate_os_errors("delete", self._path):
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._descriptor)
            if fsync and self._access.durable:
                _fsync(self._descriptor)

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """The bytes of a regular file.

        Raises:
            CorruptPointerError: It has more than `max_bytes`, or more than the memory holds.
        """
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        try:
            size = self._checked(descriptor, name).st_size
            if max_bytes is not None and size > max_bytes:
                raise MemoryError  # noqa: TRY301 - as one that the memory cannot hold
            data = os.read(descriptor, size + 1)
            if len(data) != size:
                data += b"".join(iter(partial(os.read, descriptor, size + 1), b""))
        except (MemoryError, OverflowError) as exc:
            raise CorruptPointerError(
                f"{self._path}/{name} has too many bytes; restore it from a copy"
            ) from exc
        else:
            return data
        finally:
            os.close(descriptor)

    def read_or_none(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """As `read`, but None when this one file cannot be read.

        A process out of descriptors still raises.
        """
        try:
            return self.read(name, max_bytes)
        except (UnsafePathError, CorruptPointerError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno in _EXHAUSTED:
                raise
            return None

    def scan(self) -> FolderScan:
        """Everything in the folder; nothing is changed."""
        blobs: dict[str, BlobEntry] = {}
        temporaries: dict[str, int] = {}
        unsafe: list[str] = []
        unrecognized: list[str] = []
        now_s = time.time()
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                name = entry.name
                if name == _LOCK_NAME:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if name.startswith(_TEMPORARY_PREFIX):
                    if status.st_mtime < now_s - _TEMPORARY_LIFE_S:
                        temporaries[name] = status.st_size
                elif name.startswith("."):
                    unrecognized.append(name)
                elif self._is_accepted(status):
                    blobs[name] = BlobEntry(status.st_size, _etag(status, now_s), status.st_ctime)
                else:
                    unsafe.append(name)
        ordered = {name: blobs[name] for name in sorted(blobs)}
        return FolderScan(ordered, temporaries, tuple(sorted(unsafe)), tuple(sorted(unrecognized)))

    def etag(self) -> object:
        """What `folder_etag` tells."""
        return _etag(os.fstat(self._descriptor), time.time())

    def temporaries(self) -> list[str]:
        """The names of all temporary files, of any age."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries if entry.name.startswith(_TEMPORARY_PREFIX)]

    def _write(self, name: str, data: bytes) -> None:
        """Makes a file of these bytes, flushed where the store is durable."""
        descriptor = os.open(name, _NEW, 0o600, dir_fd=self._descriptor)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._access.durable:
                _fsync(descriptor)
        finally:
            os.close(descriptor)

    def _checked(self, descriptor: int, name: str) -> os.stat_result:
        """What an open file is.

        Raises:
            UnsafePathError: Something else than a regular file, or one that others could alter.
        """
        status = os.fstat(descriptor)
        if self._is_accepted(status):
            return status
        raise UnsafePathError(
            f"{self._path}/{name} is no regular file of this store's owner with a single name; "
            "remove it, "
            "or allow it with allow_hard_links or allow_unsafe_dir"
        )

    def _is_accepted(self, status: os.stat_result) -> bool:
        return (
            stat.S_ISREG(status.st_mode)
            and (status.st_nlink <= 1 or self._access.hard_links)
            and (status.st_uid in self._owners or self._access.unsafe_dir)
        )


class _LockDescriptors:
    """The descriptors of lock files that this process has open.

    flock(2) belongs to the open file, which a forked child shares: a child that outlives its parent
    would keep the parent's locks. A child therefore closes them at once.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        # no fork comes between the opening of a descriptor and its entry here
        self._guard = threading.Lock()
        if sys.platform != "win32":
            os.register_at_fork(
                before=self._guard.acquire,
                after_in_parent=self._guard.release,
                after_in_child=self._close_all,
            )

    def open(self, make: Callable[[], int]) -> int:
        with self._guard:
            descriptor = make()
            self._open.add(descriptor)
            return descriptor

    def release(self, descriptor: int) -> None:
        """End the lock, also for a child forked without Python's knowledge, and close the file."""
        if descriptor not in self._open:  # this process was forked within the block
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            with self._guard:
                self._open.discard(descriptor)
                os.close(descriptor)

    def _close_all(self) -> None:
        for descriptor in self._open:
            with suppress(OSError):
                os.close(descriptor)
        self._open.clear()
        self._guard.release()


_locks = _LockDescriptors()


def _open(base: Path, name: str, access: _Access, create: bool) -> _Folder:
    """The opened folder of a store.

    Args:
        base: Directory of the store; it may be reached through links, since its owner chose them.
        name: Folder in it, checked by the caller.
        access: What to accept beside our own.
        create: True makes what is missing of the path, 0700.

    Raises:
        FileNotFoundError: There is no such folder.
        StoreError: The base is no directory.
        UnsafePathError: The base or the folder is open to others.
    """
    path = f"{base}/{name}"
    try:
        return _Folder(path, (os.geteuid(), _owner_of(base, access)), access)
    except FileNotFoundError:
        if not create:
            raise
    _make(Path(path), durable=access.durable)
    return _Folder(path, (os.geteuid(), _owner_of(base, access)), access)


def _etag(status: os.stat_result, now_s: float) -> object:
    """Return the ETag of a file or folder, None for one changed just now.

    Uses ctime, since no program can set it. Kernels stamp it in ticks of up to 10 ms, so the next
    change of a file that was changed just now may have the same time.
    """
    if now_s - status.st_ctime < _CLOCK_GRAIN_S:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def _owner_of(base: Path, access: _Access) -> int:
    status = os.stat(base)  # noqa: PTH116 - on the way of every save and load
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(
            f"The base of the store, {base}, is not a directory; choose another base_dir"
        )
    others_write = status.st_mode & stat.S_IWOTH and status.st_uid != os.geteuid()
    if others_write and not access.unsafe_dir:
        raise UnsafePathError(
            f"Everybody may write to the base of the store, {base}, "
            "and it belongs to another user; "
            "choose another base_dir, or set allow_unsafe_dir to accept that"
        )
    return status.st_uid


def _make(path: Path, *, durable: bool) -> None:
    """Makes a directory and its missing parents, each 0700.

    A link that dangles is left to the open that follows.
    """
    missing = [path, *itertools.takewhile(lambda parent: not parent.exists(), path.parents)]
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if durable:
            _fsync_directory(directory.parent)


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    """Waits until a file, or the names of a folder, are on the disk."""
    # macOS: fsync(2) alone leaves the data in the drive's cache
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)
