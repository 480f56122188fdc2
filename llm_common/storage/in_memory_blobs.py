"""`MemoryBlobStore`: blobs in a dictionary, for tests and sessions that leave nothing behind."""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from llm_common.errors import CorruptPointerError, LockTimeoutError, PointerNotFoundError
from llm_common.storage.blob import (
    OWN_FOLDER,
    BlobEntry,
    FolderScan,
    check_folder,
    check_key,
    check_name,
)


class MemoryBlobStore:
    """A `LockingBlobStore` that forgets everything with its process.

    Safe among threads, not among processes. A shared lock is as exclusive as any other here.

    Args:
        lock_timeout_s: Seconds that a caller waits for a folder.
    """

    def __init__(self, *, lock_timeout_s: float = 10.0) -> None:
        self._lock_timeout_s = lock_timeout_s
        self._folders: defaultdict[str, dict[str, tuple[bytes, BlobEntry]]] = defaultdict(dict)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._puts = itertools.count()

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes in place of what was there."""
        folder, name = check_key(key)
        kept = bytes(data)
        self._folders[folder][name] = kept, BlobEntry(len(kept), next(self._puts), time.time())

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes that were put last; see `BlobStore.get`."""
        data = self._get(*check_key(key))
        if data is None:
            raise PointerNotFoundError(
                f"Nothing is stored under {key}; use a key that the store lists"
            )
        if max_bytes is not None and len(data) > max_bytes:
            raise CorruptPointerError(
                f"{key} has more than {max_bytes:,} bytes; restore it from a copy"
            )
        return data

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """The bytes of each name in turn, None for one that is missing or too large."""
        check_folder(folder)
        for name in names:
            data = self._get(folder, check_name(name))
            yield (
                None if data is None or (max_bytes is not None and len(data) > max_bytes) else data
            )

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Stores what the change makes of the bytes under the key; see `BlobStore.update`."""
        folder, name = check_key(key)
        with self.lock(folder):
            self.put(key, change(next(self.get_many(folder, [name], max_bytes=max_bytes))))

    def scan(self, folder: str) -> FolderScan:
        """Every blob; nothing else can be here."""
        blobs = dict(self._folders.get(check_folder(folder), {}))
        return FolderScan({name: blobs[name][1] for name in sorted(blobs)})

    def folder_etag(self, folder: str) -> object:
        """None: a scan costs as little."""

    def folders(self) -> Iterator[str]:
        """Every folder that has blobs."""
        return iter(
            [
                folder
                for folder, blobs in list(self._folders.items())
                if blobs and folder != OWN_FOLDER
            ]
        )

    def delete(self, key: str) -> None:
        """Removes a blob; no error when there is none."""
        folder, name = check_key(key)
        self._folders.get(folder, {}).pop(name, None)

    def sweep(self, folder: str) -> None:
        """Nothing, since puts leave no temporaries."""

    def remove_folder(self, folder: str) -> None:
        """Forgets a folder that has no blobs."""
        with self.lock(folder):
            if not self._folders.get(folder):
                self._folders.pop(folder, None)

    @contextmanager
    def lock(self, folder: str) -> Iterator["_LockedFolder"]:
        """The folder, with other threads kept out for the duration of the block.

        Raises:
            LockTimeoutError: Another thread kept it for longer than the store waits.
        """
        lock = self._locks[check_folder(folder)]
        if not lock.acquire(timeout=self._lock_timeout_s):
            raise LockTimeoutError(
                f"Another thread held {folder} for {self._lock_timeout_s:g} s; "
                "raise lock_timeout_s or find out why"
            )
        try:
            yield _LockedFolder(self, folder)
        finally:
            lock.release()

    @contextmanager
    def lock_shared(self, folder: str) -> Iterator[None]:
        """As `lock`, for a reader."""
        with self.lock(folder):
            yield

    def location(self, key: str) -> str:
        """`memory:` and the key."""
        check_key(key)
        return f"memory:{key}"

    def _get(self, folder: str, name: str) -> bytes | None:
        found = self._folders.get(folder, {}).get(name)
        return found[0] if found else None


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
