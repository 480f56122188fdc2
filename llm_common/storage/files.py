"""`FileBlobStore`: blobs as plain files under one directory.

Every file is opened relative to the descriptor of its folder (openat), and symbolic links are never
followed. A link that is swapped in at any moment therefore leads nowhere.
"""

import errno
import itertools
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
    OWN_FOLDER,
    BlobEntry,
    FolderScan,
    always_held,
    check_folder,
    check_key,
    check_name,
    query_id_of,
)

try:
    import fcntl
except ImportError:  # the system is not POSIX, and `FileBlobStore` refuses it
    _IS_POSIX = False
else:
    _IS_POSIX = True
    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    # O_NONBLOCK: opening a FIFO without a writer would wait for one.
    _FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    _NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

Durability = Literal["full", "rename"]

_LOCK_NAME: Final = ".lock"
_LEASE_PREFIX: Final = ".lease-"
_TEMPORARY_PREFIX: Final = ".tmp-"
# No healthy write takes an hour, so an older temporary file has lost its writer.
_TEMPORARY_LIFE_S: Final = 3600.0
# Linux advances file times in ticks of 1 to 10 ms. This covers slower file systems too.
_CLOCK_GRAIN_S: Final = 0.05

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# The process has run out of descriptors or memory, which proves nothing about the file.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# Opening or reading anything but a regular file or directory fails with one of these. For a link
# under O_NOFOLLOW, Linux reports ELOOP and FreeBSD EMLINK.
_UNSAFE = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})

# Distinguishes the temporary files of one process. Random digits distinguish processes, since
# containers that share a disk can have the same process id.
_numbers = itertools.count()


@contextmanager
def translate_os_errors(action: str, path: Path | str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StoreError`.

    Args:
        action: Verb for the error text. For `write`, a missing file is not a missing pointer.
        path: Directory or file for the error text.
    """
    try:
        yield
    except OSError as exc:
        code = errno.errorcode.get(exc.errno or 0, "unknown error")
        if exc.errno == errno.ENOENT and action != "write":
            raise PointerNotFoundError(
                f"Nothing is stored under this name in {path}. Use a name that it lists"
            ) from exc
        if exc.errno in _FULL:
            raise StoreFullError(
                f"No space left in the store at {path} ({code}), and nothing was changed. "
                "Free some and save again"
            ) from exc
        if exc.errno in _UNSAFE:
            raise UnsafePathError(
                f"{path} is not a regular file or directory, or contains something that is not "
                f"({code}). Remove it"
            ) from exc
        raise StoreError(
            f"The store could not {action} in {path} ({code}). "
            "Check this directory, its permissions and limits"
        ) from exc


class FileBlobStore:
    """A `LockingBlobStore` of files that survives kill -9 and power failure.

    A blob is the file `base_dir/folder/name`. New files have mode 0600 and new directories 0700,
    whatever the umask. Needs POSIX (Linux, macOS).

    Args:
        base_dir: Directory of the store. The first put creates it. A relative path is resolved
            when the store is created.
        durability: `full` flushes each file and its directory, so that a completed put survives a
            power failure. `rename` does not flush: a power failure can lose the newest puts, but
            never mixes two versions.
        lock_timeout_s: Seconds to wait for the lock of a folder. 10 outlasts any healthy save.
        allow_hard_links: True reads files with several hard links. By default they are refused,
            because others could change the content through another name.
        allow_unsafe_dir: True accepts folders and files of any owner, and a base directory of
            another user that everybody can write to.
        git_ignored: True writes a `.gitignore` into a base directory that the store creates, so
            that git shows and commits nothing of it.

    Attributes:
        base_dir: Absolute directory of the store.

    Raises:
        StoreError: If the system is not POSIX.
        ValueError: If `durability` is neither `full` nor `rename`.
    """

    def __init__(
        self,
        base_dir: Path | str,
        *,
        durability: Durability = "full",
        lock_timeout_s: float = 10.0,
        allow_hard_links: bool = False,
        allow_unsafe_dir: bool = False,
        git_ignored: bool = False,
    ) -> None:
        if not _IS_POSIX or sys.platform == "win32":
            raise StoreError(
                "A store of files needs a POSIX system, such as Linux, macOS or WSL. "
                "Use InMemoryContextPointerStore or ObjectContextPointerStore"
            )
        if durability not in ("full", "rename"):
            raise ValueError(f'durability must be "full" or "rename", got {durability!r}')
        self.base_dir: Final = Path(base_dir).expanduser().absolute()
        self._lock_timeout_s = lock_timeout_s
        self._access = _Access(
            hard_links=allow_hard_links,
            unsafe_dir=allow_unsafe_dir,
            durable=durability == "full",
            git_ignored=git_ignored,
        )

    def put(self, key: str, data: bytes) -> None:
        """Store the bytes with a temporary file and a rename. See `BlobStore.put`."""
        folder, name = check_key(key)
        with self._open(folder, "write", create=True) as opened:
            opened.put((name, data))

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a file. See `BlobStore.get`."""
        folder, name = check_key(key)
        with self._open(folder, "read") as opened:
            return opened.read(name, max_bytes)

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for a missing, unreadable or oversized file.

        Raises:
            StoreError: If the folder cannot be read, or the process has run out of descriptors or
                memory. Neither proves anything about the files.
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
        """Replace a file by a function of its bytes, under the lock of its folder."""
        folder, name = check_key(key)
        with self.lock(folder) as opened:
            data = None
            with suppress(CorruptPointerError):
                data = opened.get(name, max_bytes=max_bytes)
            opened.put((name, change(data)))

    def scan(self, folder: str) -> FolderScan:
        """List the content of a folder. See `BlobStore.scan`."""
        with suppress(PointerNotFoundError), self._open(folder, "list") as opened:
            return opened.scan()
        return FolderScan()

    def folder_etag(self, folder: str) -> object:
        """Return the directory's inode, change time and size, None if it changed just now."""
        with suppress(PointerNotFoundError), self._open(folder, "list") as opened:
            return opened.etag()
        return None

    def folders(self) -> Iterator[str]:
        """Yield every directory or link whose name a query's folder can have."""
        for entry in self._folder_entries():
            yield entry.name

    def folder_times(self) -> dict[str, float]:
        """Return when each folder's content last changed, without reading the folders.

        Every put and every deletion counts. The times are POSIX timestamps.

        Raises:
            StoreError: If the base directory cannot be read.
        """
        times: dict[str, float] = {}
        for entry in self._folder_entries():
            with suppress(OSError):  # removed during the walk
                times[entry.name] = entry.stat(follow_symlinks=False).st_ctime
        return times

    def _folder_entries(self) -> Iterator[os.DirEntry[str]]:
        listing = translate_os_errors("list", self.base_dir)
        with suppress(PointerNotFoundError), listing, os.scandir(self.base_dir) as entries:
            for entry in entries:
                with suppress(InvalidIdError):
                    query_id_of(entry.name)
                    if not entry.is_file(follow_symlinks=False):
                        yield entry

    def delete(self, key: str) -> None:
        """Remove a file, if it exists."""
        folder, name = check_key(key)
        with suppress(PointerNotFoundError), self._open(folder, "delete") as opened:
            opened.delete(name)

    def sweep(self, folder: str) -> None:
        """Remove temporary files that killed writers left more than an hour ago."""
        with suppress(PointerNotFoundError), self._open(folder, "delete") as opened:
            # Not flushed: a file that is back after a power failure is swept again.
            opened.delete(*opened.scan().temporaries, fsync=False)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder's lock and all temporaries, and the folder if it is then empty."""
        path = self.base_dir / check_folder(folder)
        with translate_os_errors("delete", path):
            if not path.is_dir():
                return
        with (
            self.lock(folder) as opened,
            suppress(PointerNotFoundError),
            translate_os_errors("delete", path),
        ):
            # No writer is at work, since this process holds the lock. Temporaries of any age are
            # therefore left over.
            opened.delete(*opened.temporaries(), fsync=False)
            # A waiter compares the lock file that it opened with the path, and creates a new one.
            opened.delete(_LOCK_NAME, fsync=False)
            with suppress(OSError):  # another program has added a file
                # rmdir refuses a folder that has content, so no blob can be lost here.
                path.rmdir()
                if self._access.durable:
                    _fsync_directory(path.parent)

    @contextmanager
    def lock(self, folder: str, *, timeout_s: float | None = None) -> Iterator["_Folder"]:
        """Lock a folder with flock(2) on its lock file. See `LockingBlobStore.lock`."""
        with self._locked(folder, shared=False, timeout_s=timeout_s) as opened:
            yield opened

    @contextmanager
    def lock_shared(self, folder: str) -> Iterator[None]:
        """Lock a folder with a shared flock(2). See `LockingBlobStore.lock_shared`.

        Locks nothing if no writer ever locked the folder, as in a read-only store.
        """
        with ExitStack() as stack:
            with suppress(PointerNotFoundError):
                stack.enter_context(self._locked(folder, shared=True))
            yield

    @contextmanager
    def lease(self, name: str) -> Iterator[Callable[[], bool]]:
        """Hold a name with flock(2) on a file in the store's own folder. See `BlobStore.lease`."""
        lock_name = f"{_LEASE_PREFIX}{check_name(name)}"
        with self._locked(OWN_FOLDER, shared=False, name=lock_name, timeout_s=0.0) as opened:
            try:
                yield always_held
            finally:
                opened.remove_lock()

    def location(self, key: str) -> str:
        """Return the absolute path of the file."""
        check_key(key)
        return f"{self.base_dir}/{key}"

    @contextmanager
    def _open(self, folder: str, action: str, *, create: bool = False) -> Iterator["_Folder"]:
        path = f"{self.base_dir}/{check_folder(folder)}"
        with (
            translate_os_errors(action, path),
            _open(self.base_dir, folder, self._access, create) as opened,
        ):
            yield opened

    def _locked(
        self,
        folder: str,
        *,
        shared: bool,
        name: str = _LOCK_NAME,
        timeout_s: float | None = None,
    ) -> "_Folder":
        """Open a folder, and lock a file of it until the folder is closed."""
        check_folder(folder)
        if timeout_s is None:
            timeout_s = self._lock_timeout_s
        deadline = time.monotonic() + timeout_s
        with translate_os_errors("read" if shared else "write", f"{self.base_dir}/{folder}"):
            while True:
                opened = None
                try:
                    opened = _open(self.base_dir, folder, self._access, not shared)
                    if opened.lock(name, shared=shared, deadline=deadline, timeout_s=timeout_s):
                        locked, opened = opened, None
                        return locked
                except FileNotFoundError:
                    # Another process removed the folder before this one opened its lock file.
                    if shared or time.monotonic() >= deadline:
                        raise
                finally:
                    if opened is not None:
                        opened.close()


@dataclass(frozen=True, slots=True)
class _Access:
    """The options of a `FileBlobStore` for unsafe files and for durability."""

    hard_links: bool
    unsafe_dir: bool
    durable: bool
    git_ignored: bool


class _Folder:
    """An opened directory. After `lock` it is a `LockedFolder`.

    Args:
        path: Path of the directory, which must not be a link.
        owners: User ids whose files are accepted.
        access: Options of the store.

    Raises:
        FileNotFoundError: If the directory does not exist.
        UnsafePathError: If it belongs to another user.
    """

    def __init__(self, path: str, owners: tuple[int, int], access: _Access) -> None:
        self._path = path
        self._owners = owners
        self._access = access
        self._lock: int | None = None
        self._lock_name = ""
        self._descriptor = os.open(path, _DIRECTORY)
        if not access.unsafe_dir and os.fstat(self._descriptor).st_uid not in owners:
            os.close(self._descriptor)
            raise UnsafePathError(
                f"{path} belongs to another user. Set allow_unsafe_dir to accept that"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock, if it is held, and close the directory."""
        try:
            if self._lock is not None:
                _locks.release(self._lock)
        finally:
            os.close(self._descriptor)

    def lock(self, name: str, *, shared: bool, deadline: float, timeout_s: float) -> bool:
        """Lock a file of the folder until the folder is closed.

        flock(2) has no timeout, so this polls with random back-off of at most 8 ms.

        Args:
            name: Name of the lock file.
            shared: True allows other shared holders, and does not create the lock file.
            deadline: Time of `time.monotonic` at which to give up.
            timeout_s: Seconds that the caller waits in total, for the error text.

        Returns:
            False if the lock file was replaced while waiting. The caller then starts again.

        Raises:
            FileNotFoundError: If the folder was deleted, or never locked.
            LockTimeoutError: If other processes held the lock until the deadline.
            OSError: If the file system has no locks (ENOLCK, EOPNOTSUPP).
        """
        flags = _FILE if shared else _FILE | os.O_RDWR
        try:
            self._lock = _locks.open(partial(os.open, name, flags, dir_fd=self._descriptor))
        except FileNotFoundError:
            if shared:
                raise
            # The process that created the folder may have been killed before it flushed the name.
            if self._access.durable:
                _fsync_directory(Path(self._path).parent)
            make = partial(os.open, name, flags | os.O_CREAT, 0o600, dir_fd=self._descriptor)
            self._lock = _locks.open(make)
        self._lock_name = name
        status = self._checked(self._lock, name)
        operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        pause_s = 0.0005
        while True:
            try:
                fcntl.flock(self._lock, operation)
                break
            except BlockingIOError as exc:
                if time.monotonic() >= deadline:
                    raise LockTimeoutError(
                        f"Another writer held {self._path} for {timeout_s:g} s. "
                        "Raise lock_timeout_s, or end it"
                    ) from exc
            time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
            # Longer pauses would let a waiter starve behind busy writers.
            pause_s = min(pause_s * 2, 0.008)
        # `remove_folder` may have unlinked the lock file while this process waited. A lock on an
        # unlinked file excludes nobody who opens the new one.
        try:
            return os.path.samestat(
                status,
                os.stat(f"{self._path}/{name}", follow_symlinks=False),  # noqa: PTH116
            )
        except FileNotFoundError:
            return False

    def remove_lock(self) -> None:
        """Delete the lock file, unless this is a forked child, which does not hold the lock."""
        if self._lock is not None and _locks.holds(self._lock):
            self.delete(self._lock_name, fsync=False)

    def get(self, name: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes of a file, None if it does not exist. See `LockedFolder.get`."""
        with translate_os_errors("read", self._path):
            try:
                return self.read(name, max_bytes)
            except FileNotFoundError:
                return None

    def put(self, *blobs: tuple[str, bytes]) -> None:
        """Write temporary files, and rename them when all are written. See `LockedFolder.put`.

        All are flushed before the first rename. After a failure no temporary file remains. A failed
        fsync is never retried, since the kernel may have dropped the pages
        (https://lwn.net/Articles/752063/).
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
                    with suppress(OSError):  # already renamed, or never created
                        os.unlink(temporary, dir_fd=self._descriptor)
                raise
            if self._access.durable:
                _fsync(self._descriptor)  # a rename is durable once its directory is flushed

    def delete(self, *names: str, fsync: bool = True) -> None:
        """Remove files, in this order. See `LockedFolder.delete`."""
        with translate_os_errors("delete", self._path):
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._descriptor)
            if fsync and self._access.durable:
                _fsync(self._descriptor)

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a regular file.

        Raises:
            CorruptPointerError: If it exceeds `max_bytes`.
            StoreError: If it does not fit in memory, which proves nothing about the file.
        """
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        try:
            size = self._checked(descriptor, name).st_size
            if max_bytes is not None and size > max_bytes:
                raise CorruptPointerError(
                    f"{self._path}/{name} has too many bytes. Restore it from a copy"
                )
            # One byte more than the size: a full read shows that the file has grown. Linux also
            # returns at most 2 GiB at a time.
            data = os.read(descriptor, size + 1)
            if len(data) != size:
                data += b"".join(iter(partial(os.read, descriptor, size + 1), b""))
        except (MemoryError, OverflowError) as exc:
            raise StoreError(
                f"{self._path}/{name} does not fit in memory. Read it in a process with more"
            ) from exc
        else:
            return data
        finally:
            os.close(descriptor)

    def read_or_none(self, name: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes of a file, None if this file cannot be read.

        Raises:
            OSError: If the process has run out of descriptors or memory.
            StoreError: If the file does not fit in memory.
        """
        try:
            return self.read(name, max_bytes)
        except (UnsafePathError, CorruptPointerError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno in _EXHAUSTED:
                raise
            return None

    def scan(self) -> FolderScan:
        """List the content of the folder, without changing it."""
        blobs: dict[str, BlobEntry] = {}
        temporaries: dict[str, int] = {}
        unsafe: list[str] = []
        unrecognized: list[str] = []
        now_s = time.time()
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                name = entry.name
                if name == _LOCK_NAME or name.startswith(_LEASE_PREFIX):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed by another process during the walk
                    continue
                if name.startswith(_TEMPORARY_PREFIX):
                    if status.st_mtime < now_s - _TEMPORARY_LIFE_S:
                        temporaries[name] = status.st_size
                elif name.startswith("."):
                    unrecognized.append(name)
                elif self._is_accepted(status):
                    # ctime, since programs can set mtime.
                    blobs[name] = BlobEntry(status.st_size, _etag(status, now_s), status.st_ctime)
                else:
                    unsafe.append(name)
        ordered = {name: blobs[name] for name in sorted(blobs)}
        return FolderScan(ordered, temporaries, tuple(sorted(unsafe)), tuple(sorted(unrecognized)))

    def etag(self) -> object:
        """Return the folder's ETag, None if it changed just now."""
        return _etag(os.fstat(self._descriptor), time.time())

    def temporaries(self) -> list[str]:
        """Return the names of all temporary files, of any age."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries if entry.name.startswith(_TEMPORARY_PREFIX)]

    def _write(self, name: str, data: bytes) -> None:
        """Create a file with these bytes, and flush it if the store is durable."""
        descriptor = os.open(name, _NEW, 0o600, dir_fd=self._descriptor)
        try:
            remaining = memoryview(data)
            while remaining:  # a write may be partial, on Linux over 2 GiB
                remaining = remaining[os.write(descriptor, remaining) :]
            if self._access.durable:
                _fsync(descriptor)
        finally:
            os.close(descriptor)

    def _checked(self, descriptor: int, name: str) -> os.stat_result:
        """Return the status of an open file.

        Raises:
            UnsafePathError: If it is not a regular file, or others could change it.
        """
        status = os.fstat(descriptor)
        if self._is_accepted(status):
            return status
        raise UnsafePathError(
            f"{self._path}/{name} is not a regular file of this store's owner with a single hard "
            "link. Remove it, or accept it with allow_hard_links or allow_unsafe_dir"
        )

    def _is_accepted(self, status: os.stat_result) -> bool:
        return (
            stat.S_ISREG(status.st_mode)
            and (status.st_nlink <= 1 or self._access.hard_links)
            and (status.st_uid in self._owners or self._access.unsafe_dir)
        )


class _LockDescriptors:
    """The descriptors of the lock files that this process has open.

    flock(2) belongs to the open file, which a forked child shares. A child that outlives its parent
    would keep the parent's locks, so it closes the descriptors right after the fork.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        # Prevents a fork between the opening of a descriptor and its registration here.
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

    def holds(self, descriptor: int) -> bool:
        """Return whether the lock is held. A child of a fork within the block has closed it."""
        return descriptor in self._open

    def release(self, descriptor: int) -> None:
        """Unlock and close a lock file."""
        if not self.holds(descriptor):
            return
        try:
            # Closing is not enough if C code has forked, without Python's hooks.
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
    """Open a folder of a store.

    Args:
        base: Directory of the store. Its path may contain links, since its owner chose them.
        name: Name of the folder, checked by the caller.
        access: Options of the store.
        create: True creates missing directories of the path with mode 0700.

    Raises:
        FileNotFoundError: If the folder does not exist.
        StoreError: If the base is not a directory.
        UnsafePathError: If others can change the base or the folder.
    """
    path = f"{base}/{name}"
    # The owner of the base is accepted too, so that root can read a user's store.
    try:
        return _Folder(path, (os.geteuid(), _owner_of(base, access)), access)
    except FileNotFoundError:
        if not create:
            raise
    is_new_base = not base.exists()
    _make(Path(path), durable=access.durable)
    if is_new_base and access.git_ignored:
        with suppress(FileExistsError), (base / ".gitignore").open("x") as file:
            file.write("*\n")
    return _Folder(path, (os.geteuid(), _owner_of(base, access)), access)


def _etag(status: os.stat_result, now_s: float) -> object:
    """Return the ETag of a file or folder, None if it changed just now.

    Uses ctime, which no program can set. A second change within the same clock tick would not show,
    so a recent ctime proves nothing.
    """
    if now_s - status.st_ctime < _CLOCK_GRAIN_S:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def _owner_of(base: Path, access: _Access) -> int:
    status = os.stat(base)  # noqa: PTH116 - faster than Path.stat on every save and load
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(
            f"The base of the store, {base}, is not a directory. Choose another base_dir"
        )
    others_write = status.st_mode & stat.S_IWOTH and status.st_uid != os.geteuid()
    if others_write and not access.unsafe_dir:
        raise UnsafePathError(
            f"The base of the store, {base}, belongs to another user, and everybody can write to "
            "it. Choose another base_dir, or set allow_unsafe_dir to accept that"
        )
    return status.st_uid


def _make(path: Path, *, durable: bool) -> None:
    """Create a directory and its missing parents with mode 0700.

    A dangling link is left alone, and the next open refuses it.
    """
    # From the top down. Another process may create the same directories at the same time.
    missing = [path, *itertools.takewhile(lambda parent: not parent.exists(), path.parents)]
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if durable:
            _fsync_directory(directory.parent)


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    # On macOS, fsync(2) leaves the data in the drive's cache.
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)
