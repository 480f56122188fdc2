"""`BlobStore`, the seam between pointers and what keeps their bytes, and the one place that says which keys exist.

A key is `folder/name`. Both parts obey the same allow-list: a key means the same blob on every operating system and
object store, and no part can climb, hide, be a device, or look like another part. Names that a store needs for itself
start with a dot and can therefore never be keys. One folder of such a name, `OWN_FOLDER`, holds blobs about the store.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from llm_common.errors import InvalidIdError

OWN_FOLDER: Final = ".store"

_PART = re.compile(
    r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|\Z))[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?"
)
_RULE = (
    "use 1 to 128 of A-Z a-z 0-9 _ - . that start with a letter, a digit or _, do not end with a dot, "
    "and are no device name such as nul"
)


class BlobEntry(NamedTuple):
    """What a scan says of one blob.

    Attributes:
        size: Bytes.
        etag: Compares equal while the bytes are the same, and differs after a put of other bytes; None while that
            cannot be told.
        modified_s: Seconds since the epoch of the last put.
    """

    size: int
    etag: object
    modified_s: float


@dataclass(frozen=True, slots=True)
class FolderScan:
    """Everything in a folder.

    Attributes:
        blobs: Every blob by its name, in the order of the names.
        temporaries: Size by name of what a writer left that was killed over an hour ago.
        unsafe: Names of links, of files with several names or of another owner, of directories and devices.
        unrecognized: Names that no blob of this store can have.
    """

    blobs: Mapping[str, BlobEntry] = field(default_factory=dict)
    temporaries: Mapping[str, int] = field(default_factory=dict)
    unsafe: tuple[str, ...] = ()
    unrecognized: tuple[str, ...] = ()


class BlobStore(Protocol):
    """Bytes under keys; every method is synchronous and may be called from several threads and processes at once.

    A put is atomic: a reader sees the old bytes or the new ones. Each method raises `InvalidIdError` for a key outside
    the rules, `UnsafePathError` for something that is not a plain blob of this store, and `StoreError` for any other
    failure of the system.
    """

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes whole, in place of what was there.

        Args:
            key: `folder/name`; the folder appears with its first blob.
            data: What to keep.

        Raises:
            StoreFullError: No room; the old bytes are intact.
        """

    def get(self, key: str) -> bytes:
        """The bytes that were put last.

        Raises:
            PointerNotFoundError: Nothing is stored under the key.
        """

    def get_many(self, folder: str, names: list[str]) -> Iterator[bytes | None]:
        """The bytes of each name in turn, None for one that is missing or unreadable."""

    def update(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        """Stores what the change makes of the bytes under the key, None for no blob; no other update is lost.

        Args:
            key: `folder/name`.
            change: Called again if another writer was faster.

        Raises:
            LockTimeoutError: Other writers kept the key for longer than the store waits.
        """

    def scan(self, folder: str) -> FolderScan:
        """Everything in a folder; nothing is changed. Empty when there is no such folder."""

    def folder_etag(self, folder: str) -> object:
        """Compares equal until a blob of the folder is put or deleted; None while that cannot be told."""

    def folders(self) -> Iterator[str]:
        """Every folder in which a query may be, in no order; one that appears or vanishes meanwhile may be left out."""

    def delete(self, key: str) -> None:
        """Removes a blob; no error when there is none."""

    def sweep(self, folder: str) -> None:
        """Removes the temporaries that `scan` lists."""

    def remove_folder(self, folder: str) -> None:
        """Removes a folder without blobs: its lock, its temporaries, its directory.

        No error when it holds more, which stays, or when there is no such folder.

        Raises:
            LockTimeoutError: A writer held the folder for longer than the store waits.
        """

    def location(self, key: str) -> str:
        """Where a person finds the blob; information only, never read back."""


class LockedFolder(Protocol):
    """One folder of a `LockingBlobStore`, while its lock is held."""

    def get(self, name: str) -> bytes | None:
        """The bytes of a blob, None when there is none.

        Raises:
            UnsafePathError: The name is that of a link, a device or another's file.
        """

    def put(self, *blobs: tuple[str, bytes]) -> None:
        """Stores blobs, none of them visible before those ahead of it.

        They share one power failure: one that strikes before the return may leave any of them, each whole.

        Raises:
            StoreFullError: No room; some of the first may be stored.
        """

    def delete(self, *names: str, fsync: bool = True) -> None:
        """Removes blobs, in this order.

        Args:
            names: What to remove; no error for what is not there.
            fsync: False skips the most expensive step: after a power failure the blobs may be back, until the next put
                or flushed deletion in the folder.
        """


class LockingBlobStore(BlobStore, Protocol):
    """A `BlobStore` whose folders can be locked."""

    def lock(self, folder: str) -> AbstractContextManager[LockedFolder]:
        """The folder, which is made if it is missing, with other holders kept out for the duration of the block.

        Not reentrant. Reading stays possible without it. The lock ends with its process at the latest.

        Raises:
            LockTimeoutError: Another holder kept it for longer than the store waits.
        """

    def lock_shared(self, folder: str) -> AbstractContextManager[None]:
        """Keeps exclusive holders out of a folder for the duration of the block; makes nothing.

        Raises:
            LockTimeoutError: An exclusive holder kept it for longer than the store waits.
        """


def check_query_id(query_id: object) -> str:
    """The id itself when it may name a folder: 1 to 128 of `A-Za-z0-9_-.`, starting with neither dot nor hyphen.

    Raises:
        InvalidIdError: Anything else, whatever its type; the text does not repeat the id.
    """
    return _check_part(query_id, "query_id")


def check_folder(folder: object) -> str:
    """The name itself when it may be that of a folder: what a `query_id` may be, or the store's own folder.

    Raises:
        InvalidIdError: Anything else.
    """
    return OWN_FOLDER if folder == OWN_FOLDER else _check_part(folder, "The folder of a key")


def check_name(name: object) -> str:
    """The name itself when it may be the second part of a key.

    Raises:
        InvalidIdError: Anything else.
    """
    return _check_part(name, "The name of a key")


def check_key(key: object) -> tuple[str, str]:
    """Folder and name of a key.

    Raises:
        InvalidIdError: Not exactly two parts, or a part that is outside the allow-list.
    """
    if not isinstance(key, str) or key.count("/") != 1:
        raise InvalidIdError("A blob key is not allowed; use text of the form folder/name")
    folder, _, name = key.partition("/")
    return check_folder(folder), check_name(name)


def _check_part(part: object, what: str) -> str:
    if not isinstance(part, str) or not _PART.fullmatch(part):
        raise InvalidIdError(f"{what} is not allowed; {_RULE}")
    return part
