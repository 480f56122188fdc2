"""Results and their pointers as pairs of blobs, written atomically.

A store of pointers needs `PointerRecords`. `LockedRecords` writes under the lock of a folder, and
`ObjectRecords` (`object_records.py`) with conditional puts.

The blob of the pointer, called meta, is the commit record. It contains the SHA-256 of the result.
Under a lock, a save writes in this order:

    first save:  result, meta
    re-save:     next (the new meta), result, meta, remove next

Between any two steps, either meta or next describes the result on disk. Readers, and the writer
after a killed one, can therefore find the complete version. Each step of a re-save is flushed
before the next one. A first save flushes both files before it renames them, and a result without a
meta is ignored.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypeVar

from pydantic import ValidationError

from llm_common.errors import CorruptPointerError, StoreError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer, time_text
from llm_common.storage import BlobEntry, BlobStore, LockedFolder, LockingBlobStore
from llm_common.storage.blob import folder_of
from llm_common.text.canonical import decode_json, encode_json

T = TypeVar("T")
LeftoverKind = Literal["leftover_next", "orphan_result"]

ABANDONED_AFTER: Final = timedelta(hours=1)
"""An unfinished save of this age has lost its writer, since no healthy save takes an hour."""

MAX_RECORD_BYTES: Final = 10_000_000
"""Maximum size of a record, far above its usual few KB. A larger one is damaged and not read."""

# Older versions did not record the size of a result.
_MAX_UNRECORDED_BYTES: Final = 500_000_000

_NAME = re.compile(
    r"([0-9a-f]{12,16})\.(?:meta\.json|next|result\.json"
    # on an object store, where version 1.0.0 wrote the last one
    r"|[0-9a-f]{12}\.result\.json|[0-9a-f]{16}\.next"
    # the time of the last read by an earlier version, which is only removed
    r"|read)"
)
# Between result and meta, a writer takes about a millisecond. After this many mismatches a reader
# waits for the lock.
_MAX_READS = 3
# A read costs a write only so often. The life after the last read is shorter by at most this time.
_RENEW_EVERY: Final = timedelta(hours=1)


@dataclass(frozen=True)
class QueryFiles:
    """The files of a query, grouped by pointer.

    Attributes:
        query_id: The query.
        by_pointer: Blobs by name, by the id of their pointer.
        unrecognized: Names that belong to no pointer.
        temporaries: Sizes by name of the temporary files that killed writers left.
        unsafe: Names of links, directories and other things that are not regular files.
    """

    query_id: str
    by_pointer: Mapping[str, Mapping[str, BlobEntry]]
    unrecognized: tuple[str, ...]
    temporaries: Mapping[str, int]
    unsafe: tuple[str, ...]

    @classmethod
    def of(cls, blobs: BlobStore, query_id: str) -> "QueryFiles":
        """Scan the folder of a query. The result is empty for an unknown query.

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
        """Return whether the folder contains only temporary files or nothing."""
        return not (self.by_pointer or self.unrecognized or self.unsafe)

    @property
    def recorded(self) -> set[str]:
        """Return the ids of the pointers that have a commit record, readable or not."""
        recorded = set()
        for pointer_id, entries in self.by_pointer.items():
            if meta_name(pointer_id) in entries:
                recorded.add(pointer_id)
        return recorded

    @property
    def unreadable(self) -> set[str]:
        """Return the ids of pointers with an unsafe file, whose other files prove nothing."""
        owners = {owner_of(name) for name in self.unsafe}
        return {owner for owner in owners if owner}

    def size(self, pointer_id: str) -> int:
        """Sum the bytes of a pointer's files."""
        return sum(entry.size for entry in self.by_pointer.get(pointer_id, {}).values())


class Transaction(Protocol):
    """Changes the pairs of a query, in the function passed to `PointerRecords.change`."""

    def current(self, pointer_id: str) -> ContextPointer | None:
        """Return the committed pointer, after finishing or removing a killed writer's save."""

    def commit_new(self, pointer: ContextPointer, payload: bytes) -> bool:
        """Commit a pointer under an unused id.

        Returns:
            False if the id is used. Nothing was changed then.
        """

    def commit(self, pointer: ContextPointer, payload: bytes) -> None:
        """Replace the version that `current` returned for this id.

        Raises:
            StoreError: If a write fails. A failed first save leaves nothing. A failed re-save
                leaves the old version, or the new one if its result was already in place.
        """

    def update(self, pointer: ContextPointer) -> None:
        """Replace the record that `current` returned for this id, and keep its result."""

    def clean(self, leftovers: Collection[str]) -> None:
        """Finish or remove the unfinished saves that `PointerRecords.leftovers` listed."""

    def remove(self, *pointer_ids: str) -> None:
        """Remove pointers with all of their files."""


class PointerRecords(Protocol):
    """Pairs of results and pointers. Readers see only complete versions."""

    @property
    def blobs(self) -> BlobStore:
        """Return the store of the bytes."""

    def change(
        self, query_id: str, work: Callable[[Transaction], T], *, timeout_s: float | None = None
    ) -> T:
        """Run some work in a transaction, and return its result.

        The work may be called again if another writer was faster.

        Args:
            query_id: The query.
            work: The work.
            timeout_s: Seconds to wait for a lock, where there is one. None waits as long as a save.

        Raises:
            LockTimeoutError: If other writers were faster for as long as the store waits.
        """

    def quiet(self, query_id: str) -> AbstractContextManager[None]:
        """Keep writers out for the duration of the block, where that is needed to read pairs."""

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load a pointer and its verified result, both of the same version.

        Raises:
            PointerNotFoundError: If the pointer or its result is missing.
            CorruptPointerError: If the result differs from the saved one.
        """

    def load_once(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load without waiting for a writer, whose work can look like a `CorruptPointerError`."""

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """Return the possible names of a pointer's result, first the name that saves use now.

        The first name with a blob counts.
        """

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:
        """List the files of unfinished saves. Only reliable within a `quiet` block."""


class LockedRecords:
    """`PointerRecords` in a store with locks.

    Args:
        blobs: The store of the bytes.

    Attributes:
        blobs: The store of the bytes.
    """

    def __init__(self, blobs: LockingBlobStore) -> None:
        self.blobs: Final = blobs

    def change(
        self, query_id: str, work: Callable[[Transaction], T], *, timeout_s: float | None = None
    ) -> T:
        """Run some work once, under the lock of the query. See `PointerRecords.change`."""
        # Saves of one query wait for each other here, those of different queries do not.
        with self.blobs.lock(folder_of(query_id), timeout_s=timeout_s) as folder:
            return work(_LockedTransaction(folder, query_id))

    def quiet(self, query_id: str) -> AbstractContextManager[None]:
        """Keep writers out with a shared lock. See `PointerRecords.quiet`."""
        return self.blobs.lock_shared(folder_of(query_id))

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load a pointer and its verified result. See `PointerRecords.load`."""
        for _ in range(_MAX_READS):
            with suppress(CorruptPointerError):
                return self.load_once(query_id, pointer_id)
        with self.quiet(query_id):
            return self.load_once(query_id, pointer_id)

    def load_once(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load without waiting for a writer. See `PointerRecords.load_once`."""
        # Record before result, the reverse of the order in which a save writes them.
        meta = self.blobs.get(blob_key(query_id, meta_name(pointer_id)), max_bytes=MAX_RECORD_BYTES)
        pair = self._described(meta, query_id, pointer_id)
        # A record of an older version has no digest and matches any result, so `next` decides.
        if pair is None or pair[0].result_sha256 is None:
            names = [_next_name(pointer_id)]
            [pending] = self.blobs.get_many(folder_of(query_id), names, max_bytes=MAX_RECORD_BYTES)
            pair = self._described(pending, query_id, pointer_id) or pair
        if pair is None:
            # Raises its own error if the record is damaged.
            parse_meta(meta, query_id=query_id, pointer_id=pointer_id)
            raise CorruptPointerError(
                f"The result of {pointer_id} differs from the saved one. Restore its file from a "
                "copy"
            )
        return pair

    def _described(
        self, record: bytes | None, query_id: str, pointer_id: str
    ) -> tuple[ContextPointer, bytes] | None:
        """Return a record's pointer with its result, None if they do not match."""
        with suppress(CorruptPointerError):
            pointer = parse_meta(record or b"", query_id=query_id, pointer_id=pointer_id)
            key = blob_key(query_id, _result_name(pointer_id))
            payload = self.blobs.get(key, max_bytes=max_result_bytes(pointer))
            if matches_digest(pointer, payload):
                return pointer, payload
        return None

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """Return the only name of a pointer's result."""
        return (_result_name(pointer.pointer_id),)

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:  # noqa: ARG002 - a lock needs no age
        """List every pending record, and every result without a record."""
        leftovers: dict[str, LeftoverKind] = {}
        unreadable = files.unreadable
        for pointer_id, names in files.by_pointer.items():
            if pointer_id in unreadable:  # a link may hide the record
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

    def current(self, pointer_id: str) -> ContextPointer | None:
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
            # The killed writer had replaced the result already, so only its meta is missing.
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
        except BaseException:  # a Ctrl-C too must leave nothing behind
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
        # Not flushed: a `next` that a crash brings back describes the committed version.
        self._folder.delete(_next_name(pointer.pointer_id), fsync=False)

    def update(self, pointer: ContextPointer) -> None:
        self._folder.put((meta_name(pointer.pointer_id), meta_bytes(pointer)))

    def clean(self, leftovers: Collection[str]) -> None:
        for name in leftovers:
            owner = owner_of(name)
            if owner and name.endswith(".next"):
                # Finishes the save if its result is in place, before its `next` is deleted.
                self.current(owner)
            self._folder.delete(name, fsync=False)

    def remove(self, *pointer_ids: str) -> None:
        for pointer_id in pointer_ids:
            # `next` is removed first, because `current` could restore the pair from it.
            names = (
                _next_name(pointer_id),
                meta_name(pointer_id),
                _result_name(pointer_id),
                f"{pointer_id}.read",  # of an earlier version
            )
            with suppress(UnsafePathError):  # a directory that has the name of a file
                # All are in one folder, so one flush at the end is enough.
                self._folder.delete(*names, fsync=pointer_id == pointer_ids[-1])

    def _read(self, name: str, pointer_id: str) -> ContextPointer | None:
        """Return the pointer of a record, None if it is missing or damaged."""
        with suppress(CorruptPointerError):
            data = self._folder.get(name, max_bytes=MAX_RECORD_BYTES)
            if data is not None:
                return parse_meta(data, query_id=self._query_id, pointer_id=pointer_id)
        return None


def blob_key(query_id: str, name: str) -> str:
    """Return the key of a blob of a query.

    Raises:
        InvalidIdError: If `query_id` is not an id.
    """
    return f"{folder_of(query_id)}/{name}"


def meta_name(pointer_id: str) -> str:
    """Return the name of a pointer's commit record."""
    return f"{pointer_id}.meta.json"


def _result_name(pointer_id: str) -> str:
    return f"{pointer_id}.result.json"


def _next_name(pointer_id: str) -> str:
    return f"{pointer_id}.next"


def owner_of(name: str) -> str | None:
    """Return the id of the pointer that a blob belongs to, None if it has no valid name."""
    match = _NAME.fullmatch(name)
    return None if match is None else match[1]


def meta_bytes(pointer: ContextPointer) -> bytes:
    """Encode the commit record of a pointer, which `parse_meta` decodes."""
    # All values are plain, so `model_dump` would only copy them.
    return encode_json(pointer.__dict__).data


def parse_meta(data: bytes, *, query_id: str, pointer_id: str) -> ContextPointer:
    """Decode a commit record. Ignores fields of other versions.

    Raises:
        CorruptPointerError: If the bytes are not a commit record, or belong to another pointer.
    """
    pointer = None
    # Older files may contain NaN or Infinity for None, and lone surrogates, which pydantic's JSON
    # parser refuses. `decode_json` reads both.
    if b"NaN" not in data and b"Infinity" not in data:
        with suppress(ValidationError):
            pointer = ContextPointer.model_validate_json(data)
    try:
        pointer = pointer or ContextPointer.model_validate(decode_json(data))
    except (ValidationError, CorruptPointerError) as exc:
        raise CorruptPointerError(
            f"The record of {pointer_id} is damaged. Restore its file from a copy"
        ) from exc
    if (pointer.query_id, pointer.pointer_id) != (query_id, pointer_id):
        raise CorruptPointerError(
            f"The record of {pointer_id} belongs to another pointer. Move its file back"
        )
    return pointer


def read_records(
    blobs: BlobStore, query_id: str, pointer_ids: Collection[str]
) -> Iterator[ContextPointer | None]:
    """Yield the pointer of each id, None if its record is missing or damaged."""
    names = [meta_name(pointer_id) for pointer_id in pointer_ids]
    records = blobs.get_many(folder_of(query_id), names, max_bytes=MAX_RECORD_BYTES)
    for pointer_id, record in zip(pointer_ids, records, strict=True):
        pointer = None
        with suppress(CorruptPointerError):
            pointer = parse_meta(record or b"", query_id=query_id, pointer_id=pointer_id)
        yield pointer


def read_pointers(blobs: BlobStore, files: QueryFiles) -> list[ContextPointer]:
    """Return the pointers of a query with readable records, in no order.

    Does not verify their results.
    """
    records = read_records(blobs, files.query_id, files.recorded)
    return [pointer for pointer in records if pointer is not None]


def max_result_bytes(pointer: ContextPointer) -> int:
    """Return the maximum size of a pointer's result. A larger one is damaged and not read."""
    if pointer.result_bytes is None:
        return _MAX_UNRECORDED_BYTES
    return pointer.result_bytes


def matches_digest(pointer: ContextPointer, payload: bytes) -> bool:
    """Return whether the bytes are a pointer's saved result. True if it has no digest."""
    if pointer.result_sha256 is None:
        return True
    return (
        pointer.result_bytes == len(payload)
        and pointer.result_sha256 == hashlib.sha256(payload).hexdigest()
    )


def renewed(pointer: ContextPointer, read_at: datetime) -> ContextPointer | None:
    """Return a pointer with the life that a read gives it, or None if that is not due.

    Args:
        pointer: The pointer, which has not expired.
        read_at: Time of the read.
    """
    if pointer.renew_s is None or pointer.expires_at is None:
        return None
    try:
        life = timedelta(seconds=pointer.renew_s)
        started_at = datetime.fromisoformat(pointer.expires_at).astimezone(UTC) - life
        # A life under two hours is extended after half of it, or it would never be.
        if read_at < started_at + min(_RENEW_EVERY, life / 2):
            return None
        return pointer.model_copy(update={"expires_at": time_text(read_at + life)})
    except (ValueError, OverflowError):  # edited by hand
        return None
