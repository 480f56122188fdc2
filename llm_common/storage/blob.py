"""`BlobStore`, the seam between pointers and whatever keeps their bytes, and the one place that says which keys exist.

Whoever must change several blobs as one needs more, and a home offers one of two things: a lock (`LockingBlobStore`:
files, memory) or puts that depend on what is there (`ConditionalBlobStore`: object stores, which have no locks).

A key is `folder/name`. Both parts obey the same allow-list, so that a key means the same blob on every operating
system and object store: no part can climb, hide, be a device, or look like another part. Names that a store needs for
itself start with a dot and can therefore never be keys; one folder of such a name, `OWN_FOLDER`, holds blobs that are
about the store, and no query can have its name.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Final, Protocol, TypeAlias, runtime_checkable

from llm_common.errors import InvalidIdError

__all__ = [
    "OWN_FOLDER",
    "BlobStore",
    "BlobVersion",
    "ConditionalBlobStore",
    "FolderSurvey",
    "LockingBlobStore",
    "StampedFile",
    "StampingBlobStore",
    "check_folder",
    "check_key",
    "check_name",
    "check_names",
    "check_query_id",
]

OWN_FOLDER: Final = ".store"

_PART = re.compile(
    r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|\Z))[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?"
)
_RULE = (
    "use 1 to 128 of A-Z a-z 0-9 _ - . that start with a letter, a digit or _, do not end with a dot, "
    "and are no device name such as nul"
)


@dataclass(frozen=True, slots=True)
class FolderSurvey:
    """Everything that stands in a folder.

    Attributes:
        sizes: Size in bytes of every blob by its key, in key order.
        temporaries: Size by name of what a writer left that was killed over an hour ago.
        unsafe: Names of links, of files with several names or of another owner, of directories and devices.
        foreign: Names that no blob of this store can have.
    """

    sizes: dict[str, int]
    temporaries: dict[str, int] = field(default_factory=dict)
    unsafe: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


StampedFile: TypeAlias = tuple[str, int, int]
"""Name, size in bytes, and a number that is another one after every change, 0 for a blob that changed just now."""


class BlobStore(Protocol):
    """Bytes under keys; every method is synchronous and may be called from several threads and processes at once.

    A put is atomic: a reader sees the old bytes or the new ones. Each method raises `InvalidIdError` for a key outside
    the rules, `UnsafePathError` for something that is not a plain blob of this store, and `StoreError` for whatever
    else the system refuses.
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

    def get_many(self, keys: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each key in turn, None for one that is missing or unreadable; cheap for a run in one folder."""

    def list(self, folder: str) -> dict[str, int]:
        """Size in bytes of every blob of a folder by its key, in key order; empty when there is no such folder."""

    def folders(self) -> Iterator[str]:
        """Every folder in which a query may be, in no order; one that appears or vanishes meanwhile may be left out."""

    def survey(self, folder: str) -> FolderSurvey:
        """Everything that stands in a folder; as `list`, but also tells what is no blob, and changes nothing."""

    def sweep(self, folder: str) -> None:
        """Removes the temporaries that `survey` tells."""

    def delete(self, key: str, *, settle: bool = True) -> None:
        """Removes a blob; no error when there is none.

        Args:
            key: `folder/name`.
            settle: False lets it come back after a power failure, until the next put or settling deletion in the same
                folder, for a caller that is about to make one: it saves the dearest step.
        """

    def remove_folder(self, folder: str) -> None:
        """Removes what a folder without blobs is itself made of: locks, temporaries, the directory.

        No error when there is more in it, which stays, or no such folder.

        Raises:
            LockTimeoutError: A writer held the folder for longer than the store waits.
        """

    def location(self, key: str) -> str:
        """Where a person finds the blob; information only, never read back."""


@runtime_checkable
class LockingBlobStore(BlobStore, Protocol):
    """A `BlobStore` whose folders can be locked, and take several blobs in less time than one by one."""

    def put_all(self, folder: str, blobs: Iterable[tuple[str, bytes]]) -> None:
        """Stores blobs of one folder, none of them visible before those that stand before it.

        Args:
            folder: The folder.
            blobs: Names and what to keep. The next is asked for while those before it are on their way to the disk, so
                what it takes to make it may cost no time. They have one power failure together: one that strikes before
                the return may leave any of them, each whole.

        Raises:
            StoreFullError: No room; some of the first may be stored.
        """

    def lock(self, folder: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Keeps other exclusive holders out of a folder for the duration of the block; not reentrant.

        Reading and putting stay possible without it. The lock ends with its process at the latest.

        Args:
            folder: What to lock; an exclusive lock creates it.
            shared: True lets other shared holders in and exclusive ones wait.

        Raises:
            LockTimeoutError: Another holder kept it for longer than the store waits.
        """


@runtime_checkable
class StampingBlobStore(BlobStore, Protocol):
    """A `BlobStore` that tells cheaply what has changed since one looked last."""

    def stamp(self, folder: str) -> int | None:
        """A number that is another one after any blob of the folder was put or deleted, by whomever.

        None when that cannot be told: there is no such folder, or it has changed this very moment. A change that is no
        put, such as another program's writing into a file, may leave the number as it is; `files` tells those too.
        """

    def files(self, folder: str, *, unseen: str | None = None) -> Iterator[StampedFile]:
        """Every blob of a folder, in no order.

        Args:
            folder: The folder.
            unseen: Of whatever has a name with this ending the name alone is told, with a size of 0, and no blob gets
                a stamp; for a caller that goes on to `get_stamped`, and in a fraction of the time.
        """

    def get_stamped(self, folder: str, names: Iterable[str]) -> Iterator[tuple[str, bytes, int]]:
        """Name, bytes and stamp of each blob of a folder in turn; what is gone, or is no blob, is left out.

        The stamp is that of the bytes or of older ones, never of newer ones.
        """


@dataclass(frozen=True, slots=True)
class BlobVersion:
    """What the bytes under a key are known by; opaque, one of the two may be missing.

    Different bytes have different versions. Two puts of the same bytes may share one, as they do on S3, so an equal
    version tells that the bytes are the same, and not that nobody has put others in between.
    """

    e_tag: str | None
    version: str | None


class ConditionalBlobStore(BlobStore, Protocol):
    """A `BlobStore` in which a put can be made to depend on the version that it replaces, among all machines."""

    def put_if(self, key: str, data: bytes, *, replaces: BlobVersion | None) -> BlobVersion | None:
        """Stores the bytes if the key still has the version that the caller knows; one of several callers wins.

        Args:
            key: `folder/name`.
            data: What to keep.
            replaces: The version that is there, None for no blob at all.

        Returns:
            The new version, or None when another one is there and nothing was changed. A store that lost its own
            answer and asked again may say None though the bytes were put: look before giving up what they need.
        """

    def get_version(self, key: str) -> tuple[bytes, BlobVersion]:
        """The bytes and their version.

        Raises:
            PointerNotFoundError: Nothing is stored under the key.
        """

    def version(self, key: str) -> BlobVersion | None:
        """The version that is there, None for no blob."""


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


def check_names(names: Iterable[str]) -> list[str]:
    """The names themselves, as `check_name` of each, but quicker.

    Raises:
        InvalidIdError: One of them may not be a name.
    """
    names = list(names)
    try:
        doubtful = list(filterfalse(_PART.fullmatch, names))
    except TypeError:  # one is no text
        doubtful = names
    for name in doubtful:
        check_name(name)
    return names


def check_key(key: object) -> tuple[str, str]:
    """Folder and name of a key.

    Raises:
        InvalidIdError: Not exactly two parts, or a part that is outside the allow-list.
    """
    folder, _, name = key.partition("/") if isinstance(key, str) else ("", "", "")
    if _PART.fullmatch(folder) and _PART.fullmatch(name):
        return folder, name
    if not isinstance(key, str) or key.count("/") != 1:
        raise InvalidIdError("A blob key is not allowed; use text of the form folder/name")
    return check_folder(folder), check_name(name)


def _check_part(part: object, what: str) -> str:
    if not isinstance(part, str) or not _PART.fullmatch(part):
        raise InvalidIdError(f"{what} is not allowed; {_RULE}")
    return part
