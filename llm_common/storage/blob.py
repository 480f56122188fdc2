"""Define `BlobStore`, the seam between pointers and their bytes, and the rules for keys.

A key is `folder/name`, and each part obeys an allow-list. A key therefore means the same blob on
every operating system and object store. No part can climb, be hidden, name a device, or look like
another part. The store's own names start with a dot, so they can never be keys. One folder of such
a name, `OWN_FOLDER`, holds blobs about the store.

Query ids allow more characters than folders. This module alone checks them and maps them one-to-one
to folders.
"""

import itertools
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from llm_common._threads import ForkSafeLock
from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    LockTimeoutError,
    PointerNotFoundError,
)

OWN_FOLDER: Final = ".store"

MAX_QUERY_ID_CHARS: Final = 200

# Windows treats these names as devices, with any extension and in any case.
_DEVICE = r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])"
# A final dot is refused, because Windows drops it.
_NAME = re.compile(rf"(?!{_DEVICE}(?:\.|\Z))[A-Za-z0-9_](?:[A-Za-z0-9._-]{{0,126}}[A-Za-z0-9_-])?")
_QUERY_ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:/@+=, -]{0,198}[A-Za-z0-9_-])?")
_UNSAFE_SEGMENT = re.compile(rf"(?:\A|/)(?:{_DEVICE}(?=[./:]|\Z)|\.{{1,2}}(?=/|\Z))|  ")
# No id contains a replacement, so the mapping can be reversed.
_TO_FOLDER = str.maketrans("/: ", "~;!")
_FROM_FOLDER = str.maketrans("~;!", "/: ")
_NO_FOLDER_CHARS = re.compile("[/: ]")
_NAME_RULE = (
    "Use 1 to 128 of A-Z a-z 0-9 _ - . that start with a letter, a digit or _, "
    "do not end with a dot, and are not a device name such as nul"
)
_ID_RULE = (
    f"Use 1 to {MAX_QUERY_ID_CHARS} of A-Z a-z 0-9 _ - . and, except at its ends, : / @ + = , "
    "and single spaces, without segments such as .. or nul"
)
# Longer ids and names are cut in error texts.
_MAX_QUOTED_CHARS = 80


class BlobEntry(NamedTuple):
    """Size, version and age of one blob in a scan.

    Attributes:
        size: Size in bytes.
        etag: Compares equal while the bytes stay the same. None if that is uncertain, as for a file
            that changed just now.
        modified_s: Time of the last put, in seconds since the epoch.
    """

    size: int
    etag: object
    modified_s: float


@dataclass(frozen=True, slots=True)
class FolderScan:
    """The content of a folder.

    Attributes:
        blobs: The blobs by name, sorted by name.
        temporaries: Sizes by name of the temporary files that killed writers left over an hour ago.
        unsafe: Names of links, directories and devices, and of files with several hard links or
            another owner.
        unrecognized: Names that no blob of this store can have.
    """

    blobs: Mapping[str, BlobEntry] = field(default_factory=dict)
    temporaries: Mapping[str, int] = field(default_factory=dict)
    unsafe: tuple[str, ...] = ()
    unrecognized: tuple[str, ...] = ()


class BlobStore(Protocol):
    """A store of bytes under keys.

    The methods are synchronous. Any number of threads and processes may call them in parallel.
    A put is atomic: a reader sees the old bytes or the new ones. Every method can raise:

    - `InvalidIdError` if a key breaks the rules.
    - `UnsafePathError` if something other than a plain blob of this store has the key.
    - `StoreError` if the system fails in any other way.
    """

    def put(self, key: str, data: bytes) -> None:
        """Store a blob, or replace it.

        Args:
            key: `folder/name`. The folder appears with its first blob.
            data: The bytes to store.

        Raises:
            StoreFullError: If the device is full. The old bytes are intact.
        """

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the bytes of a blob.

        Args:
            key: `folder/name`.
            max_bytes: Maximum size. A larger blob is not read. None sets no limit.

        Raises:
            PointerNotFoundError: If the blob does not exist.
            CorruptPointerError: If the blob exceeds `max_bytes`.
            StoreError: If it does not fit in memory.
        """

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for a missing, unreadable or oversized blob."""

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Replace a blob by a function of its bytes, without losing concurrent updates.

        Args:
            key: `folder/name`.
            change: Computes the new bytes from the old bytes, or from None if the blob does not
                exist. Called again if another writer was faster.
            max_bytes: Maximum size. A larger blob is passed to `change` as None.

        Raises:
            LockTimeoutError: If other writers held the key for longer than the store waits.
        """

    def scan(self, folder: str) -> FolderScan:
        """List the content of a folder, without changing it. Empty if it does not exist."""

    def folder_etag(self, folder: str) -> object:
        """Return a value that compares equal until a blob of the folder is put or deleted.

        Returns None if that is uncertain.
        """

    def folders(self) -> Iterator[str]:
        """Yield every folder that may belong to a query, in no order.

        A folder that appears or vanishes during the walk may be missing. `query_id_of` returns the
        query of a folder.
        """

    def delete(self, key: str) -> None:
        """Remove a blob, if it exists."""

    def sweep(self, folder: str) -> None:
        """Remove the temporaries that `scan` lists."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder that has no blobs, with its lock and temporaries.

        Leaves any other content, and does nothing if the folder does not exist.

        Raises:
            LockTimeoutError: If a writer held the folder for longer than the store waits.
        """

    def location(self, key: str) -> str:
        """Return the address of a blob for people. The store never reads it back."""

    def lease(self, name: str) -> AbstractContextManager[Callable[[], bool]]:
        """Hold a name for the duration of the block, against all users of the store.

        A lease ends with its process at the latest. A child that is forked within the block does
        not hold it. Blobs are not locked.

        Args:
            name: 1 to 100 characters as in the second part of a key.

        Yields:
            A function that returns whether the name is still held. A holder that was paused for
            longer than its lease has lost it. The function may ask the store.

        Raises:
            LockTimeoutError: At once, if the name is held.
        """


def always_held() -> bool:
    """Return True, for a lease that no pause of its holder ends."""
    return True


class LockedFolder(Protocol):
    """A folder of a `LockingBlobStore` whose lock the caller holds."""

    def get(self, name: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes of a blob, None if it does not exist.

        Raises:
            CorruptPointerError: If the blob exceeds `max_bytes`.
            StoreError: If it does not fit in memory.
            UnsafePathError: If the name belongs to a link, a device or another user's file.
        """

    def put(self, *blobs: tuple[str, bytes]) -> None:
        """Store blobs, each visible only after the blobs before it.

        A power failure before the return may lose any of them. Each remaining one is whole.

        Raises:
            StoreFullError: If the device is full. The first blobs may be stored.
        """

    def delete(self, *names: str, fsync: bool = True) -> None:
        """Remove blobs, in this order.

        Args:
            names: Names of the blobs. Names without a blob are skipped.
            fsync: False skips the most expensive step. The blobs can then come back after a power
                failure, until the next put or flushed deletion in the folder.
        """


class LockingBlobStore(BlobStore, Protocol):
    """A `BlobStore` whose folders can be locked."""

    def lock(
        self, folder: str, *, timeout_s: float | None = None
    ) -> AbstractContextManager[LockedFolder]:
        """Lock a folder for the duration of the block. Creates a missing folder.

        The lock is not reentrant. Readers do not need it. It ends with its process at the latest.

        Args:
            folder: The folder.
            timeout_s: Seconds to wait for another writer. None waits as long as the store does.

        Raises:
            LockTimeoutError: If another writer held it for longer than the store waits.
        """

    def lock_shared(self, folder: str) -> AbstractContextManager[None]:
        """Keep writers out of a folder for the duration of the block. Creates nothing.

        Raises:
            LockTimeoutError: If a writer held it for longer than the store waits.
        """


def check_query_id(
    query_id: object,
    *,
    shorten: Callable[[str], str] = lambda text: text[:_MAX_QUOTED_CHARS],
    name: str = "query_id",
) -> str:
    """Check a query id, and return it unchanged.

    It has 1 to 200 of `A-Za-z0-9_-.`, and inside also `:/@+=,` and single spaces. It starts with a
    letter, a digit or `_`, and may also end with a hyphen. No segment between slashes is `.`, `..`
    or the name of a device.

    Args:
        query_id: The value to check, of any type.
        shorten: Prepares an invalid id for the error text. A store also redacts its secrets.
        name: The parameter that the error text names.

    Raises:
        InvalidIdError: If the value is not an id. The text names it.
    """
    if (
        isinstance(query_id, str)
        and _QUERY_ID.fullmatch(query_id)
        and not _UNSAFE_SEGMENT.search(query_id)
    ):
        return str.__str__(query_id)  # an enum member that is a str becomes its value
    value = f"of type {type(query_id).__name__}"
    if isinstance(query_id, str):
        value = repr(shorten(query_id))
    # No session may have the hash of a text, which is the id of a run.
    hint = ". ToolContextManager.hash_query makes an id from any text" if name == "query_id" else ""
    raise InvalidIdError(f"The {name} {value} is not allowed. {_ID_RULE}{hint}")


def folder_of(query_id: object) -> str:
    """Return the folder of a query: the id with `~` for `/`, `;` for `:`, `!` for a space.

    Different ids have different folders, and a folder is a safe name on every operating system and
    object store. A file system that ignores case keeps `a` and `A` in the same folder.

    Raises:
        InvalidIdError: If `check_query_id` refuses the id.
    """
    return check_query_id(query_id).translate(_TO_FOLDER)


def query_id_of(folder: str) -> str:
    """Return the query that a folder belongs to.

    Raises:
        InvalidIdError: If no query has such a folder.
    """
    if _NO_FOLDER_CHARS.search(folder):
        raise InvalidIdError(
            f"{folder[:_MAX_QUOTED_CHARS]!r} is not the folder of a query. "
            "Use a name that folder_of returns"
        )
    return check_query_id(folder.translate(_FROM_FOLDER))


def check_folder(folder: object) -> str:
    """Check the name of a query's folder or of `OWN_FOLDER`, and return it unchanged.

    Raises:
        InvalidIdError: If it is neither.
    """
    if folder != OWN_FOLDER:  # starts with a dot, which no query's folder does
        query_id_of(folder if isinstance(folder, str) else "")
    return str(folder)


def check_name(name: object) -> str:
    """Check the second part of a key, 1 to 128 of `A-Za-z0-9_-.`, and return it unchanged.

    Raises:
        InvalidIdError: If it is not such a name.
    """
    if isinstance(name, str):
        if _NAME.fullmatch(name):
            return name
        description = repr(name[:_MAX_QUOTED_CHARS])
    else:
        description = f"of type {type(name).__name__}"
    raise InvalidIdError(f"The name {description} of a blob is not allowed. {_NAME_RULE}")


def check_key(key: object) -> tuple[str, str]:
    """Split a key into its folder and name.

    Raises:
        InvalidIdError: If it has not exactly two parts, or a part is not allowed.
    """
    if not isinstance(key, str) or key.count("/") != 1:
        raise InvalidIdError("A blob key is not allowed. Use a str of the form folder/name")
    folder, _, name = key.partition("/")
    return check_folder(folder), check_name(name)


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
        folder, name = check_key(key)
        # Not indexed, since a defaultdict would create the folder.
        data, _ = self._folders.get(folder, {}).get(name, (None, None))
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
        for name in names:
            data = None
            with suppress(PointerNotFoundError, CorruptPointerError):
                data = self.get(f"{folder}/{name}", max_bytes=max_bytes)
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
