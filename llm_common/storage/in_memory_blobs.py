"""`MemoryBlobStore`: blobs in a dictionary, for tests and for sessions that leave nothing behind."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from llm_common.errors import LockTimeoutError, PointerNotFoundError
from llm_common.storage.blob import OWN_FOLDER, FolderSurvey, check_folder, check_key

__all__ = ["MemoryBlobStore"]


class MemoryBlobStore:
    """A `BlobStore` that forgets everything with its process; safe among threads, not among processes.

    A shared lock is as exclusive as any other here.

    Args:
        lock_timeout_s: Seconds that a caller waits for a folder.
    """

    def __init__(self, *, lock_timeout_s: float = 10.0) -> None:
        self._lock_timeout_s = lock_timeout_s
        self._folders: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes in place of what was there."""
        folder, _ = check_key(key)
        self._folders[folder][key] = bytes(data)

    def put_all(self, folder: str, blobs: Iterable[tuple[str, bytes]]) -> None:
        """Stores one blob after another."""
        for name, data in blobs:
            self.put(f"{folder}/{name}", data)

    def get(self, key: str) -> bytes:
        """The bytes that were put last.

        Raises:
            PointerNotFoundError: Nothing is stored under the key.
        """
        folder, _ = check_key(key)
        data = self._folders.get(folder, {}).get(key)
        if data is None:
            raise PointerNotFoundError("Nothing is stored under this key; use one that the store lists")
        return data

    def get_many(self, keys: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each key in turn, None for one that is missing."""
        for key in keys:
            folder, _ = check_key(key)
            yield self._folders.get(folder, {}).get(key)

    def list(self, folder: str) -> dict[str, int]:
        """Size in bytes of every blob of a folder by its key, in key order."""
        blobs = dict(self._folders.get(check_folder(folder), {}))
        return {key: len(blobs[key]) for key in sorted(blobs)}

    def folders(self) -> Iterator[str]:
        """Every folder that has blobs."""
        return iter([folder for folder, blobs in list(self._folders.items()) if blobs and folder != OWN_FOLDER])

    def survey(self, folder: str) -> FolderSurvey:
        """As `list`: nothing else can be here."""
        return FolderSurvey(self.list(folder))

    def sweep(self, folder: str) -> None:
        """Nothing, since puts leave no temporaries."""

    def remove_folder(self, folder: str) -> None:
        """Forgets a folder that has no blobs."""
        with self.lock(folder):
            if not self._folders.get(folder):
                self._folders.pop(folder, None)

    def delete(self, key: str, *, settle: bool = True) -> None:  # noqa: ARG002 - nothing here outlives power
        """Removes a blob; no error when there is none."""
        folder, _ = check_key(key)
        self._folders.get(folder, {}).pop(key, None)

    @contextmanager
    def lock(self, folder: str, *, shared: bool = False) -> Iterator[None]:  # noqa: ARG002 - always exclusive
        """Keeps other threads out of a folder for the duration of the block.

        Raises:
            LockTimeoutError: Another thread kept it for longer than the store waits.
        """
        lock = self._locks[check_folder(folder)]
        if not lock.acquire(timeout=self._lock_timeout_s):
            raise LockTimeoutError(
                f"Another thread held the folder for {self._lock_timeout_s:g} s; raise lock_timeout_s or find out why"
            )
        try:
            yield
        finally:
            lock.release()

    def location(self, key: str) -> str:
        """`memory:` and the key."""
        check_key(key)
        return f"memory:{key}"
