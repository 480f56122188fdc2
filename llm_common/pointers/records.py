"""`PointerRecords`: results and their pointers as pairs of blobs that are never seen half written.

For a store with a lock; `ConditionalPointerRecords` keeps the same pairs in one without.

The pointer's blob, the meta, is the commit record; it holds the digest of its result.

First save:  result, meta.
Re-save:     next (the new meta), result, meta, drop next.

Between any two steps the result on disk is described by the meta or by `next`, so a reader, and whoever comes after a
killed writer, can tell which version is whole. Each step of a re-save is on the disk before the one that relies on it;
of a first save both files are, before either has its name, and a meta without its result counts for nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeVar

from pydantic import ValidationError

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.storage import LockingBlobStore
from llm_common.text.encoding import decode_json, encode_json

__all__ = [
    "NewVersion",
    "PointerRecords",
    "RecordWriter",
    "describes",
    "meta_bytes",
    "meta_key",
    "next_key",
    "parse_meta",
    "result_key",
]

Changed = TypeVar("Changed")

_FINITE = frozenset({str, int, bool, type(None)})
_read_strictly: Callable[..., ContextPointer] = ContextPointer.__pydantic_validator__.validate_json

_TRIES = 3
"""A writer takes about a millisecond from result to meta; after so many mismatches a reader waits for the lock."""


def meta_key(query_id: str, pointer_id: str) -> str:
    """Key of the commit record."""
    return f"{query_id}/{_meta_name(pointer_id)}"


def result_key(query_id: str, pointer_id: str) -> str:
    """Key of the stored result."""
    return f"{query_id}/{_result_name(pointer_id)}"


def next_key(query_id: str, pointer_id: str) -> str:
    """Key of the record that a re-save is about to commit."""
    return f"{query_id}/{pointer_id}.next"


def parse_meta(data: bytes, *, query_id: str, pointer_id: str) -> ContextPointer:
    """The pointer that a commit record holds; fields of newer versions are passed over.

    Raises:
        CorruptPointerError: The bytes are no commit record, or that of another pointer.
    """
    try:
        pointer = _read_strictly(data, strict=True)  # each field of the very type that it should have
        if not _FINITE.issuperset(map(type, pointer.args.values())) and (b"NaN" in data or b"Infinity" in data):
            pointer = _validated(decode_json(data))  # older files may hold these, and mean None
    except ValidationError:
        pointer = _validated(decode_json(data))
    if (pointer.query_id, pointer.pointer_id) != (query_id, pointer_id):
        raise CorruptPointerError("A stored pointer is that of another place; move its file back")
    return pointer


def _validated(fields: object) -> ContextPointer:
    try:
        return ContextPointer.model_validate(fields)
    except ValidationError as exc:
        raise CorruptPointerError("A stored pointer lacks fields; restore its file from a copy") from exc


@dataclass(frozen=True)
class NewVersion:
    """A result that is to be committed, and what makes its pointer, once and when it is first asked for.

    To describe a large result by its SHA-256 takes as long as to write it; so that may be done while it is written.
    """

    query_id: str
    pointer_id: str
    payload: bytes
    describe: Callable[[], ContextPointer]

    @cached_property
    def pointer(self) -> ContextPointer:
        """The pointer."""
        return self.describe()

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """Names and bytes of the result and then of its meta, which is made when it is asked for."""
        yield _result_name(self.pointer_id), self.payload
        yield _meta_name(self.pointer_id), meta_bytes(self.pointer)


class RecordWriter(Protocol):
    """What a change of pairs may do; handed to the function that `write` of the records was given."""

    def recover(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The committed pointer, if any."""

    def commit(self, version: NewVersion, *, replaces: bool) -> None:
        """Makes the version the visible one; after `recover` of its id."""

    def update(self, pointer: ContextPointer) -> None:
        """Puts what `recover` of its id has given, with other facts about how long it stays."""

    def finish(self, query_id: str, pointer_id: str, *, before: datetime) -> None:
        """Completes or drops what a writer left that was killed before that moment."""

    def remove(self, query_id: str, pointer_id: str, *, settle: bool) -> None:
        """Removes a pair; `settle` is as for `BlobStore.delete`."""


class PointerRecords:
    """Reads pairs at any time, and writes them under the folder's lock.

    Args:
        blobs: Where the bytes are.
    """

    def __init__(self, blobs: LockingBlobStore) -> None:
        self._blobs = blobs

    def write(self, query_id: str, change: Callable[[RecordWriter], Changed]) -> Changed:
        """What the change returns, which sees the pairs of the query and writes them as one with what it saw.

        Raises:
            LockTimeoutError: Others wrote all the time that the store waits.
        """
        with self._blobs.lock(query_id):
            return change(self)

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its verified result, both of one version, while others write.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: The result is not what was saved.
        """
        for _ in range(_TRIES):
            try:
                return self.load_still(query_id, pointer_id)
            except CorruptPointerError:
                continue
        with self.still(query_id):
            return self.load_still(query_id, pointer_id)

    def still(self, query_id: str) -> AbstractContextManager[None]:
        """A block during which nobody writes the query's pairs."""
        return self._blobs.lock(query_id, shared=True)

    def abandoned(self, keys: Iterable[str], *, before: datetime) -> list[str]:  # noqa: ARG002 - the lock tells
        """Which of these pending records no writer will finish: all, for a caller under the lock."""
        return list(keys)

    def recover(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The committed pointer, if any, after what a killed writer left is finished or dropped; under the lock."""
        committed = self._read(meta_key, query_id, pointer_id)
        pending = self._read(next_key, query_id, pointer_id)
        if pending is None:
            return committed
        with suppress(PointerNotFoundError):
            if describes(pending, self._blobs.get(result_key(query_id, pointer_id))):
                self._blobs.put(meta_key(query_id, pointer_id), meta_bytes(pending))
                committed = pending
        self._blobs.delete(next_key(query_id, pointer_id), settle=False)
        return committed

    def commit(self, version: NewVersion, *, replaces: bool) -> None:
        """Makes the version the visible one; under the lock, after `recover`.

        Args:
            version: What to commit; of a first one the pointer is made while its result is on its way to the disk.
            replaces: Whether `recover` found a pointer under this id.

        Raises:
            StoreError: Not committed: the old version is still there, or, once the new result has replaced the old
                one, the new version. A first save leaves nothing.
        """
        keys = (version.query_id, version.pointer_id)
        if replaces:
            meta = meta_bytes(version.pointer)
            self._blobs.put(next_key(*keys), meta)
            self._blobs.put(result_key(*keys), version.payload)
            self._blobs.put(meta_key(*keys), meta)
            self._blobs.delete(next_key(*keys), settle=False)
            return
        self.commit_first(version.query_id, [version])

    def commit_first(self, query_id: str, versions: Sequence[NewVersion]) -> None:
        """Makes first versions of pointers of one query visible, in less time than one after another; under the lock.

        Raises:
            StoreError: None is committed.
        """
        try:
            self._blobs.put_all(query_id, chain.from_iterable(version.blobs() for version in versions))
        except BaseException:
            for version in versions:
                with suppress(StoreError):
                    self._blobs.delete(meta_key(query_id, version.pointer_id), settle=False)
                    self._blobs.delete(result_key(query_id, version.pointer_id), settle=False)
            raise

    def update(self, pointer: ContextPointer) -> None:
        """Puts the record of a pair anew; under the lock, after `recover` of its id."""
        self._blobs.put(meta_key(pointer.query_id, pointer.pointer_id), meta_bytes(pointer))

    def finish(self, query_id: str, pointer_id: str, *, before: datetime) -> None:  # noqa: ARG002 - the lock tells
        """Completes or drops what a killed writer left; under the lock."""
        self.recover(query_id, pointer_id)
        self._blobs.delete(next_key(query_id, pointer_id), settle=False)

    def remove(self, query_id: str, pointer_id: str, *, settle: bool) -> None:
        """Removes a pair; under the lock. What is pending goes first, so that `recover` cannot bring it back."""
        for key in (next_key, meta_key):
            self._blobs.delete(key(query_id, pointer_id), settle=False)
        self._blobs.delete(result_key(query_id, pointer_id), settle=settle)

    def load_still(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """As `load`, for a caller that keeps writers out, or does not mind a false `CorruptPointerError`."""
        keys = meta_key(query_id, pointer_id), result_key(query_id, pointer_id)
        meta, payload = self._blobs.get_many(keys)  # in this order, which that of the steps relies on
        if meta is None or payload is None:
            meta, payload = self._blobs.get(keys[0]), self._blobs.get(keys[1])
        pointer = _describing(payload, meta, query_id, pointer_id)
        if pointer is None or pointer.result_sha256 is None:  # one of an older version describes whatever is there
            [pending] = self._blobs.get_many([next_key(query_id, pointer_id)])
            pointer = _describing(payload, pending, query_id, pointer_id) or pointer
        if pointer is None:
            parse_meta(meta, query_id=query_id, pointer_id=pointer_id)  # tells what is wrong with it, if it is that
            raise CorruptPointerError("A stored result is not what was saved; restore its file from a copy")
        return pointer, payload

    def _read(self, key: Callable[[str, str], str], query_id: str, pointer_id: str) -> ContextPointer | None:
        """The pointer under the key, None when it is missing or damaged."""
        with suppress(PointerNotFoundError, CorruptPointerError):
            return parse_meta(self._blobs.get(key(query_id, pointer_id)), query_id=query_id, pointer_id=pointer_id)
        return None


def _describing(payload: bytes, record: bytes | None, query_id: str, pointer_id: str) -> ContextPointer | None:
    """The pointer of a record that describes the payload, None for a damaged record, or that of another result."""
    if record is None:
        return None
    try:
        pointer = parse_meta(record, query_id=query_id, pointer_id=pointer_id)
    except CorruptPointerError:
        return None
    return pointer if describes(pointer, payload) else None


def describes(pointer: ContextPointer, payload: bytes) -> bool:
    """Whether the pointer was saved with these bytes; one of an older version, without a digest, is believed."""
    if pointer.result_sha256 is None:
        return True
    return pointer.result_bytes == len(payload) and pointer.result_sha256 == hashlib.sha256(payload).hexdigest()


def _meta_name(pointer_id: str) -> str:
    return f"{pointer_id}.meta.json"


def _result_name(pointer_id: str) -> str:
    return f"{pointer_id}.result.json"


def meta_bytes(pointer: ContextPointer) -> bytes:
    """The commit record of a pointer, which `parse_meta` reads."""
    return encode_json(pointer.__dict__, small=True).data  # all plain, in the order of the class
