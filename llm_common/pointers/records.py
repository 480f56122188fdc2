"""Results and their pointers as pairs of blobs that are never seen half written.

`PointerRecords` is the seam: what a store of pointers needs, whatever keeps the bytes.
`LockedRecords` writes under the folder's lock; `ObjectRecords` (`object_records.py`) by conditional
puts.

The pointer's blob, the meta, is the commit record; it holds the digest of its result. Under a lock:

    first save:  result, meta
    re-save:     next (the new meta), result, meta, drop next

Between any two steps the result on disk is described by the meta or by `next`: a reader, and the
writer that follows a killed one, can tell which version is whole. Each step of a re-save is on the
disk before the one that relies on it. Of a first save both files are flushed before either has its
name, and a result without a meta counts for nothing.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, TypeVar

from pydantic import ValidationError

from llm_common.errors import CorruptPointerError, StoreError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer
from llm_common.storage import BlobEntry, BlobStore, LockedFolder, LockingBlobStore
from llm_common.storage.blob import folder_of
from llm_common.text.canonical import decode_json, encode_json

T = TypeVar("T")
LeftoverKind = Literal["leftover_next", "orphan_result"]

ABANDONED_AFTER: Final = timedelta(hours=1)
"""No healthy save takes as long: what is unfinished by then has lost its writer."""

MAX_RECORD_BYTES: Final = 10_000_000
"""Far over any record of a pointer, a few KB; a larger one is damaged, and not read."""

_MAX_UNRECORDED_BYTES: Final = 500_000_000
"""Most bytes of a result whose size no record tells, as those of older versions."""

_NAME = re.compile(
    r"([0-9a-f]{12,16})\.(?:meta\.json|next|result\.json"
    # on an object store; the last by version 1.0.0
    r"|[0-9a-f]{12}\.result\.json|[0-9a-f]{16}\.next)"
)
_MAX_READS = 3
"""A writer takes about a millisecond from result to meta.

After so many mismatches a reader waits for the lock.
"""


@dataclass(frozen=True)
class QueryFiles:
    """What a scan finds under one query.

    Attributes:
        query_id: The query.
        by_pointer: The blobs by name, by the pointer that owns them.
        unrecognized: Names that no pointer owns.
        temporaries: Size by name of what killed writers left.
        unsafe: Names under which there is no regular file.
    """

    query_id: str
    by_pointer: Mapping[str, Mapping[str, BlobEntry]]
    unrecognized: tuple[str, ...]
    temporaries: Mapping[str, int]
    unsafe: tuple[str, ...]

    @classmethod
    def of(cls, blobs: BlobStore, query_id: str) -> "QueryFiles":
        """Scan a query's folder. The result is empty for an unknown query.

        Raises:
            UnsafePathError: If the query's folder is a link or belongs to another user.
            StoreError: If it cannot be read.
        """
        scan = blobs.scan(folder_of(query_id))
        by_pointer: dict[str, dict[str, BlobEntry]] = {}
        unrecognized = list(scan.unrecognized)
        for name, entry in scan.blobs.items():
            owner = owner_of(name)
            if owner is None:
                unrecognized.append(name)
            else:
                by_pointer.setdefault(owner, {})[name] = entry
        return cls(query_id, by_pointer, tuple(unrecognized), scan.temporaries, scan.unsafe)

    @property
    def is_empty(self) -> bool:
        """Whether the folder holds nothing worth keeping."""
        return not (self.by_pointer or self.unrecognized or self.unsafe)

    @property
    def recorded(self) -> set[str]:
        """The pointers that have a commit record, whether it can be read or not."""
        recorded = set()
        for pointer_id, entries in self.by_pointer.items():
            if meta_name(pointer_id) in entries:
                recorded.add(pointer_id)
        return recorded

    @property
    def unreadable(self) -> set[str]:
        """The pointers of which a part is not a regular file: the rest proves nothing."""
        owners = {owner_of(name) for name in self.unsafe}
        return {owner for owner in owners if owner}

    def size(self, pointer_id: str) -> int:
        """Bytes of a pointer and its results."""
        return sum(entry.size for entry in self.by_pointer.get(pointer_id, {}).values())


class Transaction(Protocol):
    """Changes of one query's pairs.

    Handed to the function that `PointerRecords.change` was given.
    """

    def current(self, pointer_id: str) -> ContextPointer | None:
        """Return the committed pointer, after completing or dropping what a killed writer left.

        Call it before writing: a transaction may answer from its first look.
        """

    def commit_new(self, pointer: ContextPointer, payload: bytes) -> bool:
        """Commits a pointer whose id nothing has.

        False when something has it, and nothing was changed.
        """

    def commit(self, pointer: ContextPointer, payload: bytes) -> None:
        """Replaces the version that `current` of this id gave.

        Raises:
            StoreError: Not committed: the old version is still there, or, once the new result has
                replaced the old one, the new version. A first save leaves nothing.
        """

    def update(self, pointer: ContextPointer) -> None:
        """Replace the record that `current` of this id returned, and keep its result."""

    def clean(self, leftovers: Collection[str]) -> None:
        """Finishes or removes what `PointerRecords.leftovers` names."""

    def remove(self, *pointer_ids: str) -> None:
        """Removes pairs, and whatever else their pointers own."""


class PointerRecords(Protocol):
    """Pairs of results and pointers, of which readers see whole versions only."""

    @property
    def blobs(self) -> BlobStore:
        """Where the bytes are."""

    def change(self, query_id: str, work: Callable[[Transaction], T]) -> T:
        """What the work returns; it may be called again if another writer was faster.

        Raises:
            LockTimeoutError: Other writers were at work all the time that the store waits.
        """

    def quiet(self, query_id: str) -> AbstractContextManager[None]:
        """A block during which pairs can be looked at as if no writer were at work."""

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its verified result, both of one version, while others write.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: The result is not what was saved.
        """

    def load_once(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load without waiting for a writer, whose work can look like a `CorruptPointerError`."""

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """The names that the pointer's result may have, the one of a new save first.

        The first that is there counts.
        """

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:
        """The names of what killed writers left; certain in a quiet block only."""


class LockedRecords:
    """`PointerRecords` in a store whose folders can be locked.

    Args:
        blobs: Where the bytes are.
    """

    def __init__(self, blobs: LockingBlobStore) -> None:
        self._blobs = blobs

    @property
    def blobs(self) -> BlobStore:
        """Where the bytes are."""
        return self._blobs

    def change(self, query_id: str, work: Callable[[Transaction], T]) -> T:
        """What the work returns, called once under the query's lock.

        See `PointerRecords.change`.
        """
        with self._blobs.lock(folder_of(query_id)) as folder:
            return work(_LockedTransaction(folder, query_id))

    def quiet(self, query_id: str) -> AbstractContextManager[None]:
        """A block under a shared lock; see `PointerRecords.quiet`."""
        return self._blobs.lock_shared(folder_of(query_id))

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its verified result; see `PointerRecords.load`."""
        for _ in range(_MAX_READS):
            with suppress(CorruptPointerError):
                return self.load_once(query_id, pointer_id)
        with self.quiet(query_id):
            return self.load_once(query_id, pointer_id)

    def load_once(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """As `load`, without waiting for a writer; see `PointerRecords.load_once`."""
        # The record comes before the result, which the order of the steps relies on.
        meta = self._blobs.get(
            blob_key(query_id, meta_name(pointer_id)), max_bytes=MAX_RECORD_BYTES
        )
        pair = self._described(meta, query_id, pointer_id)
        # one of an older version describes whatever is there
        if pair is None or pair[0].result_sha256 is None:
            names = [_next_name(pointer_id)]
            [pending] = self._blobs.get_many(folder_of(query_id), names, max_bytes=MAX_RECORD_BYTES)
            pair = self._described(pending, query_id, pointer_id) or pair
        if pair is None:
            # raises if it is the record that is damaged
            parse_meta(meta, query_id=query_id, pointer_id=pointer_id)
            raise CorruptPointerError(
                f"The result of {pointer_id} is not what was saved; restore its file from a copy"
            )
        return pair

    def _described(
        self, record: bytes | None, query_id: str, pointer_id: str
    ) -> tuple[ContextPointer, bytes] | None:
        """Return a record's pointer with its result, None if it is damaged or of another result."""
        with suppress(CorruptPointerError):
            pointer = parse_meta(record or b"", query_id=query_id, pointer_id=pointer_id)
            key = blob_key(query_id, _result_name(pointer_id))
            payload = self._blobs.get(key, max_bytes=max_result_bytes(pointer))
            if matches_digest(pointer, payload):
                return pointer, payload
        return None

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """The one name of the pointer's result."""
        return (_result_name(pointer.pointer_id),)

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:  # noqa: ARG002 - a lock needs no age
        """Every pending record, and every result without a record.

        See `PointerRecords.leftovers`.
        """
        leftovers: dict[str, LeftoverKind] = {}
        unreadable = files.unreadable
        for pointer_id, names in files.by_pointer.items():
            if pointer_id in unreadable:
                continue
            pending = [name for name in names if name.endswith(".next")]
            if pending:
                leftovers |= dict.fromkeys(pending, "leftover_next")
            elif meta_name(pointer_id) not in names:
                leftovers |= dict.fromkeys(names, "orphan_result")
        return leftovers


class _LockedTransaction:
    """A `Transaction` of a folder whose lock is held."""

    def __init__(self, folder: LockedFolder, query_id: str) -> None:
        self._folder = folder
        self._query_id = query_id
        # no other writer changes it while the lock is held
        self._seen: dict[str, ContextPointer | None] = {}

    def current(self, pointer_id: str) -> ContextPointer | None:
        if pointer_id not in self._seen:
            self._seen[pointer_id] = self._rolled_forward(pointer_id)
        return self._seen[pointer_id]

    def _rolled_forward(self, pointer_id: str) -> ContextPointer | None:
        committed = self._read(meta_name(pointer_id), pointer_id)
        pending = self._read(_next_name(pointer_id), pointer_id)
        if pending is None:
            return committed
        payload = None
        with suppress(CorruptPointerError):
            payload = self._folder.get(
                _result_name(pointer_id), max_bytes=max_result_bytes(pending)
            )
        if payload is not None and matches_digest(pending, payload):
            self._folder.put((meta_name(pointer_id), meta_bytes(pending)))
            committed = pending
        self._folder.delete(_next_name(pointer_id), fsync=False)
        return committed

    def commit_new(self, pointer: ContextPointer, payload: bytes) -> bool:
        if self.current(pointer.pointer_id) is not None:
            return False
        meta, result = meta_name(pointer.pointer_id), _result_name(pointer.pointer_id)
        try:
            self._folder.put((result, payload), (meta, meta_bytes(pointer)))
        except BaseException:
            with suppress(StoreError):
                self._folder.delete(meta, result, fsync=False)
            raise
        return True

    def commit(self, pointer: ContextPointer, payload: bytes) -> None:
        if self.commit_new(pointer, payload):
            return
        meta = meta_bytes(pointer)
        self._folder.put((_next_name(pointer.pointer_id), meta))
        self._folder.put((_result_name(pointer.pointer_id), payload))
        self._folder.put((meta_name(pointer.pointer_id), meta))
        self._folder.delete(_next_name(pointer.pointer_id), fsync=False)

    def update(self, pointer: ContextPointer) -> None:
        self._folder.put((meta_name(pointer.pointer_id), meta_bytes(pointer)))

    def clean(self, leftovers: Collection[str]) -> None:
        for name in leftovers:
            owner = owner_of(name)
            if owner and name.endswith(".next"):
                self.current(owner)
            self._folder.delete(name, fsync=False)

    def remove(self, *pointer_ids: str) -> None:
        for pointer_id in pointer_ids:
            # What is pending goes first: `current` could bring the pair back from it.
            names = _next_name(pointer_id), meta_name(pointer_id), _result_name(pointer_id)
            with suppress(UnsafePathError):  # a directory under a name of ours
                self._folder.delete(*names, fsync=pointer_id == pointer_ids[-1])

    def _read(self, name: str, pointer_id: str) -> ContextPointer | None:
        """Return the pointer of a record, None if it is missing or damaged."""
        with suppress(CorruptPointerError):
            data = self._folder.get(name, max_bytes=MAX_RECORD_BYTES)
            if data is not None:
                return parse_meta(data, query_id=self._query_id, pointer_id=pointer_id)
        return None


def blob_key(query_id: str, name: str) -> str:
    """The key of a blob of a query.

    Raises:
        InvalidIdError: `query_id` is not allowed.
    """
    return f"{folder_of(query_id)}/{name}"


def meta_name(pointer_id: str) -> str:
    """Name of the commit record."""
    return f"{pointer_id}.meta.json"


def _result_name(pointer_id: str) -> str:
    return f"{pointer_id}.result.json"


def _next_name(pointer_id: str) -> str:
    return f"{pointer_id}.next"


def owner_of(name: str) -> str | None:
    """Return the pointer that owns a blob of this name, None if no pointer does."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


def meta_bytes(pointer: ContextPointer) -> bytes:
    """The commit record of a pointer, which `parse_meta` reads."""
    return encode_json(pointer.__dict__).data  # all plain, in the order of the class


def parse_meta(data: bytes, *, query_id: str, pointer_id: str) -> ContextPointer:
    """Parse a commit record, and ignore the fields of other versions.

    Raises:
        CorruptPointerError: If the bytes are not a commit record, or are that of another pointer.
    """
    pointer = None
    if b"NaN" not in data and b"Infinity" not in data:  # older files may hold these, and mean None
        with suppress(ValidationError):  # of half a surrogate pair, which pydantic's reader refuses
            pointer = ContextPointer.model_validate_json(data)
    try:
        pointer = pointer or ContextPointer.model_validate(decode_json(data))
    except (ValidationError, CorruptPointerError) as exc:
        raise CorruptPointerError(
            f"The record of {pointer_id} is damaged; restore its file from a copy"
        ) from exc
    if (pointer.query_id, pointer.pointer_id) != (query_id, pointer_id):
        raise CorruptPointerError(
            f"The record of {pointer_id} is that of another place; move its file back"
        )
    return pointer


def read_records(
    blobs: BlobStore, query_id: str, pointer_ids: Collection[str]
) -> Iterator[ContextPointer | None]:
    """Yield the pointer of each id, None for one whose record is damaged or gone."""
    names = [meta_name(pointer_id) for pointer_id in pointer_ids]
    records = blobs.get_many(folder_of(query_id), names, max_bytes=MAX_RECORD_BYTES)
    for pointer_id, record in zip(pointer_ids, records, strict=True):
        try:
            yield parse_meta(record or b"", query_id=query_id, pointer_id=pointer_id)
        except CorruptPointerError:
            yield None


def read_pointers(blobs: BlobStore, files: QueryFiles) -> list[ContextPointer]:
    """Return the pointers of a query whose records can be read, in no order, unverified."""
    records = read_records(blobs, files.query_id, files.recorded)
    return [pointer for pointer in records if pointer is not None]


def max_result_bytes(pointer: ContextPointer) -> int:
    """Return the size over which a result is damaged, and not read."""
    if pointer.result_bytes is None:
        return _MAX_UNRECORDED_BYTES
    return pointer.result_bytes


def matches_digest(pointer: ContextPointer, payload: bytes) -> bool:
    """Return whether a pointer was saved with these bytes. One without a digest is believed."""
    if pointer.result_sha256 is None:
        return True
    return (
        pointer.result_bytes == len(payload)
        and pointer.result_sha256 == hashlib.sha256(payload).hexdigest()
    )
