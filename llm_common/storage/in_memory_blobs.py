"""`MemoryBlobStore`: blobs in a dictionary, for tests and short sessions."""

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from llm_common._threads import ForkSafeLock
from llm_common.errors import CorruptPointerError, LockTimeoutError, PointerNotFoundError
from llm_common.storage.blob import (
    OWN_FOLDER,
    BlobEntry,
    FolderScan,
    always_held,
    check_folder,
    check_key,
    check_name,
)


class MemoryBlobStore:
    """A `LockingBlobStore` in the memory of its process.

    Safe for threads, not for processes. A shared lock is exclusive here.

    Args:
        lock_timeout_s: Seconds to wait for the lock of a folder.
    """

    def __init__(self, *, lock_timeout_s: float = 10.0) -> None:
        self._lock_timeout_s = lock_timeout_s
        self._folders: defaultdict[str, dict[str, tuple[bytes, BlobEntry]]] = defaultdict(dict)
        self._locks: defaultdict[str, ForkSafeLock] = defaultdict(ForkSafeLock)
        # Numbers serve as ETags: a clock could give two puts the same time.
        self._puts = itertools.count()
        # The process of each lease, since a forked child has a copy of this dict.
        self._leases: dict[str, int] = {}
        self._leasing = ForkSafeLock()

    def put(self, key: str, data: bytes) -> None:
        """Store a blob, or replace it."""
        folder, name = check_key(key)
        entry = BlobEntry(len(data), next(self._puts), time.time())
        # A copy: the caller may pass a bytearray and change it later.
        self._folders[folder][name] = bytes(data), entry

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a blob. See `BlobStore.get`."""
        data = self._get(*check_key(key))
        if data is None:
            raise PointerNotFoundError(
                f"Nothing is stored under {key}. Use a key that the store lists"
            )
        if max_bytes is not None and len(data) > max_bytes:
            raise CorruptPointerError(
                f"{key} has more than {max_bytes:,} bytes. Restore it from a copy"
            )
        return data

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for a missing or oversized blob."""
        check_folder(folder)
        for name in names:
            data = self._get(folder, check_name(name))
            if data is not None and max_bytes is not None and len(data) > max_bytes:
                data = None
            yield data

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Replace a blob by a function of its bytes, under the lock of its folder."""
        folder, name = check_key(key)
        with self.lock(folder):
            self.put(key, change(next(self.get_many(folder, [name], max_bytes=max_bytes))))

    def scan(self, folder: str) -> FolderScan:
        """List the blobs of a folder, which has no other content."""
        # A copy, since other threads put blobs during the walk.
        blobs = dict(self._folders.get(check_folder(folder), {}))
        return FolderScan({name: blobs[name][1] for name in sorted(blobs)})

    def folder_etag(self, folder: str) -> object:
        """Return None, since a scan costs as little."""

    def folders(self) -> Iterator[str]:
        """Yield every folder that has blobs."""
        for folder, blobs in list(self._folders.items()):
            if blobs and folder != OWN_FOLDER:
                yield folder

    def delete(self, key: str) -> None:
        """Remove a blob, if it exists."""
        folder, name = check_key(key)
        self._folders.get(folder, {}).pop(name, None)

    def sweep(self, folder: str) -> None:
        """Do nothing, since puts leave no temporaries."""

    def remove_folder(self, folder: str) -> None:
        """Forget a folder that has no blobs."""
        with self.lock(folder):
            if not self._folders.get(folder):
                self._folders.pop(folder, None)

    @contextmanager
    def lock(self, folder: str, *, timeout_s: float | None = None) -> Iterator["_LockedFolder"]:
        """Lock a folder against other threads for the duration of the block.

        Args:
            folder: The folder.
            timeout_s: Seconds to wait for another thread. None waits as long as the store does.

        Raises:
            LockTimeoutError: If another thread held it for longer than the store waits.
        """
        lock = self._locks[check_folder(folder)]
        # Locks are never removed, because a waiter may hold a reference to one.
        wait_s = self._lock_timeout_s if timeout_s is None else timeout_s
        if not lock.acquire(timeout_s=wait_s):
            raise LockTimeoutError(
                f"Another thread held {folder} for {wait_s:g} s. "
                "Raise lock_timeout_s or find out why"
            )
        try:
            yield _LockedFolder(self, folder)
        finally:
            lock.release()

    @contextmanager
    def lock_shared(self, folder: str) -> Iterator[None]:
        """Lock a folder as `lock` does."""
        with self.lock(folder):
            yield

    @contextmanager
    def lease(self, name: str) -> Iterator[Callable[[], bool]]:
        """Hold a name in this process. See `BlobStore.lease`."""
        process = os.getpid()
        with self._leasing:
            if self._leases.get(check_name(name)) == process:
                raise LockTimeoutError(f"{name} is held. Wait until its holder has ended")
            self._leases[name] = process
        try:
            yield always_held
        finally:
            if process == os.getpid():
                del self._leases[name]

    def location(self, key: str) -> str:
        """Return `memory:` and the key."""
        check_key(key)
        return f"memory:{key}"

    def _get(self, folder: str, name: str) -> bytes | None:
        # Not indexed, since a defaultdict would create the folder.
        data, _ = self._folders.get(folder, {}).get(name, (None, None))
        return data


class _LockedFolder:
    def __init__(self, blobs: MemoryBlobStore, folder: str) -> None:
        self._blobs = blobs
        self._folder = folder

    def get(self, name: str, *, max_bytes: int | None = None) -> bytes | None:
        with suppress(PointerNotFoundError):
            return self._blobs.get(f"{self._folder}/{name}", max_bytes=max_bytes)
        return None

    def put(self, *blobs: tuple[str, bytes]) -> None:
        for name, data in blobs:
            self._blobs.put(f"{self._folder}/{name}", data)

    def delete(self, *names: str, fsync: bool = True) -> None:  # noqa: ARG002 - nothing here outlives power
        for name in names:
            self._blobs.delete(f"{self._folder}/{name}")
