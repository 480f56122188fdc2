"""Defines `BlobStore`, the seam between pointers and their bytes, and which keys exist.

A key is `folder/name`. Each part obeys an allow-list: a key means the same blob on every operating
system and object store, and no part can climb, hide, be a device, or look like another part. Names
that a store needs for itself start with a dot and can therefore never be keys. One folder of such a
name, `OWN_FOLDER`, holds blobs about the store.

The ids of queries are freer than folders. Here, and nowhere else, they are checked and mapped
one-to-one to folders.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from llm_common.errors import InvalidIdError

OWN_FOLDER: Final = ".store"

MAX_QUERY_ID_CHARS: Final = 200

_DEVICE = r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])"
_NAME = re.compile(rf"(?!{_DEVICE}(?:\.|\Z))[A-Za-z0-9_](?:[A-Za-z0-9._-]{{0,126}}[A-Za-z0-9_-])?")
_QUERY_ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:/@+=, -]{0,198}[A-Za-z0-9_-])?")
_UNSAFE_SEGMENT = re.compile(rf"(?:\A|/)(?:{_DEVICE}(?=[./:]|\Z)|\.{{1,2}}(?=/|\Z))|  ")
_TO_FOLDER = str.maketrans("/: ", "~;!")
_FROM_FOLDER = str.maketrans("~;!", "/: ")
_NO_FOLDER_CHARS = re.compile("[/: ]")
_NAME_RULE = (
    "use 1 to 128 of A-Z a-z 0-9 _ - . that start with a letter, a digit or _, "
    "do not end with a dot, and are no device name such as nul"
)
_QUERY_ID_RULE = (
    f"use 1 to {MAX_QUERY_ID_CHARS} of A-Z a-z 0-9 _ - . and, but at its ends, : / @ + = , "
    "and single spaces, without segments such as .. or nul; "
    "ToolContextManager.hash_query makes an id of any text"
)
_SHOWN_CHARS = 80


class BlobEntry(NamedTuple):
    """What a scan says of one blob.

    Attributes:
        size: Bytes.
        etag: Compares equal while the bytes are the same, and differs after a put of other bytes;
            None while that cannot be told.
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
        unsafe: Names of links, of files with several names or of another owner, of directories and
            devices.
        unrecognized: Names that no blob of this store can have.
    """

    blobs: Mapping[str, BlobEntry] = field(default_factory=dict)
    temporaries: Mapping[str, int] = field(default_factory=dict)
    unsafe: tuple[str, ...] = ()
    unrecognized: tuple[str, ...] = ()


class BlobStore(Protocol):
    """Bytes under keys.

    Every method is synchronous and may be called from several threads and processes at once.
    A put is atomic: a reader sees the old bytes or the new ones. Each method raises
    `InvalidIdError` for a key outside the rules, `UnsafePathError` for something that is not a
    plain blob of this store, and `StoreError` for any other failure of the system.
    """

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes whole, in place of what was there.

        Args:
            key: `folder/name`; the folder appears with its first blob.
            data: What to keep.

        Raises:
            StoreFullError: No room; the old bytes are intact.
        """

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes that were put last.

        Args:
            key: `folder/name`.
            max_bytes: A larger blob is not read.

        Raises:
            PointerNotFoundError: Nothing is stored under the key.
            CorruptPointerError: The blob has more than `max_bytes`, or more than the memory holds.
        """

    def get_many(
        self, folder: str, names: list[str], *, max_bytes: int | None = None
    ) -> Iterator[bytes | None]:
        """Yield the bytes of each name, None for one that is missing, unreadable or too large."""

    def update(
        self, key: str, change: Callable[[bytes | None], bytes], *, max_bytes: int | None = None
    ) -> None:
        """Stores what the change makes of the bytes under the key; no other update is lost.

        Args:
            key: `folder/name`.
            change: Takes the bytes, None for no blob; called again if another writer was faster.
            max_bytes: A larger blob counts as none.

        Raises:
            LockTimeoutError: Other writers kept the key for longer than the store waits.
        """

    def scan(self, folder: str) -> FolderScan:
        """Everything in a folder; nothing is changed. Empty when there is no such folder."""

    def folder_etag(self, folder: str) -> object:
        """Compares equal until a blob of the folder is put or deleted.

        None while that cannot be told.
        """

    def folders(self) -> Iterator[str]:
        """Every folder in which a query may be, in no order.

        One that appears or vanishes meanwhile may be left out. `query_id_of` tells the query.
        """

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

    def get(self, name: str, *, max_bytes: int | None = None) -> bytes | None:
        """The bytes of a blob, None when there is none.

        Raises:
            CorruptPointerError: The blob has more than `max_bytes`, or more than the memory holds.
            UnsafePathError: The name is that of a link, a device or another's file.
        """

    def put(self, *blobs: tuple[str, bytes]) -> None:
        """Stores blobs, none of them visible before those ahead of it.

        They share one power failure: one that strikes before the return may leave any of them, each
        whole.

        Raises:
            StoreFullError: No room; some of the first may be stored.
        """

    def delete(self, *names: str, fsync: bool = True) -> None:
        """Removes blobs, in this order.

        Args:
            names: What to remove; no error for what is not there.
            fsync: False skips the most expensive step: after a power failure the blobs may be back,
                until the next put or flushed deletion in the folder.
        """


class LockingBlobStore(BlobStore, Protocol):
    """A `BlobStore` whose folders can be locked."""

    def lock(self, folder: str) -> AbstractContextManager[LockedFolder]:
        """Lock a folder for the duration of the block. Makes the folder if it is missing.

        Not reentrant. Reading stays possible without it. The lock ends with its process at the
        latest.

        Raises:
            LockTimeoutError: Another holder kept it for longer than the store waits.
        """

    def lock_shared(self, folder: str) -> AbstractContextManager[None]:
        """Keeps exclusive holders out of a folder for the duration of the block; makes nothing.

        Raises:
            LockTimeoutError: An exclusive holder kept it for longer than the store waits.
        """


def check_query_id(
    query_id: object, *, shown: Callable[[str], str] = lambda text: text[:_SHOWN_CHARS]
) -> str:
    """Return a query id that the store accepts, unchanged.

    It has 1 to 200 of `A-Za-z0-9_-.`, and inside also `:/@+=,` and single spaces. It starts with a
    letter, a digit or `_`, and ends with one of these or a hyphen. None of the segments between its
    slashes is `.`, `..` or the name of a device.

    Args:
        query_id: What may be an id.
        shown: How the error shows a text that is none; a store takes secrets out of it.

    Raises:
        InvalidIdError: Anything else, whatever its type; the text names the id.
    """
    if (
        isinstance(query_id, str)
        and _QUERY_ID.fullmatch(query_id)
        and not _UNSAFE_SEGMENT.search(query_id)
    ):
        return str.__str__(query_id)
    name = (
        repr(shown(query_id)) if isinstance(query_id, str) else f"of type {type(query_id).__name__}"
    )
    raise InvalidIdError(f"The query_id {name} is not allowed; {_QUERY_ID_RULE}")


def folder_of(query_id: object) -> str:
    """The folder of a query: the id itself, with `/` as `~`, `:` as `;` and a space as `!`.

    Different ids have different folders, since an id holds none of these three. A folder is a safe
    name on every operating system and object store. One that ignores case keeps `a` and `A` in one
    folder.

    Raises:
        InvalidIdError: `check_query_id` does not take the id.
    """
    return check_query_id(query_id).translate(_TO_FOLDER)


def query_id_of(folder: str) -> str:
    """The query whose folder has this name.

    Raises:
        InvalidIdError: It is no query's.
    """
    if _NO_FOLDER_CHARS.search(folder):
        raise InvalidIdError(
            f"{folder[:_SHOWN_CHARS]!r} is the folder of no query; use what folder_of gives"
        )
    return check_query_id(folder.translate(_FROM_FOLDER))


def check_folder(folder: object) -> str:
    """Return a folder's name, unchanged: one that `folder_of` returns, or the store's own folder.

    Raises:
        InvalidIdError: Anything else.
    """
    if folder != OWN_FOLDER:
        query_id_of(folder if isinstance(folder, str) else "")
    return str(folder)


def check_name(name: object) -> str:
    """The name itself when it may be the second part of a key: 1 to 128 of `A-Za-z0-9_-.`.

    Raises:
        InvalidIdError: Anything else.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = (
            repr(name[:_SHOWN_CHARS]) if isinstance(name, str) else f"of type {type(name).__name__}"
        )
        raise InvalidIdError(f"The name {shown} of a blob is not allowed; {_NAME_RULE}")
    return name


def check_key(key: object) -> tuple[str, str]:
    """Folder and name of a key.

    Raises:
        InvalidIdError: Not exactly two parts, or a part that is outside the allow-list.
    """
    if not isinstance(key, str) or key.count("/") != 1:
        raise InvalidIdError("A blob key is not allowed; use text of the form folder/name")
    folder, _, name = key.partition("/")
    return check_folder(folder), check_name(name)
