"""`ObjectContextPointerStore`: results in an object store, for agents on many machines.

An object store has no lock but conditional puts. A save is two requests:

    1. result  put     `{id}.{12 digits of a SHA-256 of its digest and its time}.result.json`
    2. meta    put-if  `{id}.meta.json`, if it is still the version that the writer has seen, or
    still missing

The meta is the commit record and holds digest and time: a reader has the old pair or the new one,
and two writers of one pointer cannot mix theirs. Step 1 changes nothing that a reader sees. What no
meta names is garbage once it is an hour old, which no healthy save is; `gc` removes it. The time is
part of the name because deletions have no condition: a later save of the same bytes must not rely
on an object that `gc` is about to remove.

Objects of version 1.0.0, `{id}.result.json` under the same meta, still load.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast

from llm_common.errors import CorruptPointerError, PointerNotFoundError
from llm_common.pointers.pointer import ContextPointer, text_digest
from llm_common.pointers.records import (
    ABANDONED_AFTER,
    MAX_RECORD_BYTES,
    LeftoverKind,
    QueryFiles,
    Transaction,
    blob_key,
    matches_digest,
    max_result_bytes,
    meta_bytes,
    meta_name,
    parse_meta,
    read_records,
)
from llm_common.pointers.store import ContextPointerStore, StoreOptions
from llm_common.storage import BlobStore
from llm_common.storage.object_store import (
    BlobVersion,
    ObjectBlobStore,
    OvertakenError,
    open_object_store,
    retry_overtaken,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

_MAX_READS: Final = 8  # each but the first follows a save of the same pointer within one reading


class ObjectRecords:
    """`PointerRecords` without a lock, beside writers on any number of machines.

    Args:
        blobs: Where the bytes are.
    """

    def __init__(self, blobs: ObjectBlobStore) -> None:
        self._blobs = blobs

    @property
    def blobs(self) -> BlobStore:
        """Where the bytes are."""
        return self._blobs

    def change(self, query_id: str, work: Callable[[Transaction], T]) -> T:
        """What the work returns, called again whenever another writer was faster.

        See `PointerRecords.change`.
        """
        return retry_overtaken(lambda: work(_ObjectTransaction(self, self._blobs, query_id)))

    def quiet(self, query_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - pairs are whole at any instant
        """A block that does nothing; see `PointerRecords.quiet`."""
        return nullcontext()

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its verified result; see `PointerRecords.load`."""
        key = blob_key(query_id, meta_name(pointer_id))
        last = None
        for _ in range(_MAX_READS):
            data, version = self._blobs.get_version(key, max_bytes=MAX_RECORD_BYTES)
            pointer = parse_meta(data or b"", query_id=query_id, pointer_id=pointer_id)
            payload = self._result(pointer)
            if payload is not None and matches_digest(pointer, payload):
                return pointer, payload
            if version == last:  # nobody has saved it again since it was read
                break
            last = version
        if payload is None:
            raise PointerNotFoundError(
                f"The result of {pointer_id} is gone; use a pointer that the store lists"
            )
        raise CorruptPointerError(
            f"The result of {pointer_id} is not what was saved; restore its object from a copy"
        )

    load_once = load

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """The name by digest and time, then that of version 1.0.0.

        See `PointerRecords.result_names`.
        """
        old = f"{pointer.pointer_id}.result.json"
        if pointer.result_sha256 is None:
            return (old,)
        digits = text_digest(f"{pointer.result_sha256} {pointer.created_at}")[:12]
        return f"{pointer.pointer_id}.{digits}.result.json", old

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:
        """Return results that no meta names, and unfinished saves of version 1.0.0, an hour old."""
        before_s = (now - ABANDONED_AFTER).timestamp()
        leftovers: dict[str, LeftoverKind] = {}
        for pointer_id, entries in files.by_pointer.items():
            old = {name for name, entry in entries.items() if entry.modified_s < before_s}
            old.discard(meta_name(pointer_id))
            if not old:  # spares a request for each healthy pointer
                continue
            for name in old.difference(self._named(files, pointer_id)):
                leftovers[name] = "leftover_next" if name.endswith(".next") else "orphan_result"
        return leftovers

    def _named(self, files: QueryFiles, pointer_id: str) -> Collection[str]:
        """Return the result that the meta names, or every blob if the meta is damaged."""
        entries = files.by_pointer[pointer_id]
        if meta_name(pointer_id) not in entries:
            return ()
        [pointer] = read_records(self._blobs, files.query_id, [pointer_id])
        if pointer is None:
            return entries
        for name in self.result_names(pointer):
            if name in entries:
                return (name,)
        return ()

    def _result(self, pointer: ContextPointer) -> bytes | None:
        for name in self.result_names(pointer):
            with suppress(PointerNotFoundError):
                data, _ = self._blobs.get_version(
                    blob_key(pointer.query_id, name), max_bytes=max_result_bytes(pointer)
                )
                return data or b""
        return None


class _ObjectTransaction:
    """A `Transaction` that replaces the very versions which it has read, or nothing."""

    def __init__(self, records: ObjectRecords, blobs: ObjectBlobStore, query_id: str) -> None:
        self._records = records
        self._blobs = blobs
        self._query_id = query_id
        self._versions: dict[str, BlobVersion | None] = {}
        self._uploaded: set[str] = set()

    def current(self, pointer_id: str) -> ContextPointer | None:
        self._versions[pointer_id] = None
        with suppress(PointerNotFoundError, CorruptPointerError):
            key = blob_key(self._query_id, meta_name(pointer_id))
            data, self._versions[pointer_id] = self._blobs.get_version(
                key, max_bytes=MAX_RECORD_BYTES
            )
            return parse_meta(data or b"", query_id=self._query_id, pointer_id=pointer_id)
        return None

    def commit_new(self, pointer: ContextPointer, payload: bytes) -> bool:
        return self._put(pointer, payload, replaces=None)

    def commit(self, pointer: ContextPointer, payload: bytes) -> None:
        if not self._put(pointer, payload, replaces=self._versions[pointer.pointer_id]):
            raise OvertakenError

    def update(self, pointer: ContextPointer) -> None:
        if not self._put_meta(pointer, replaces=self._versions[pointer.pointer_id]):
            raise OvertakenError

    def clean(self, leftovers: Collection[str]) -> None:
        for name in leftovers:
            self._blobs.delete(blob_key(self._query_id, name))

    def remove(self, *pointer_ids: str) -> None:
        if not pointer_ids:
            return
        files = QueryFiles.of(self._blobs, self._query_id)
        for pointer_id in pointer_ids:
            # The meta goes first: without it the rest counts for nothing.
            self._blobs.delete(blob_key(self._query_id, meta_name(pointer_id)))
            for name in files.by_pointer.get(pointer_id, ()):
                self._blobs.delete(blob_key(self._query_id, name))

    def _put(
        self, pointer: ContextPointer, payload: bytes, *, replaces: BlobVersion | None
    ) -> bool:
        name = self._records.result_names(pointer)[0]
        if name not in self._uploaded:
            self._blobs.check_conditions()  # before anything is stored that no meta could ever name
            self._blobs.put(blob_key(self._query_id, name), payload)
            self._uploaded.add(name)
        return self._put_meta(pointer, replaces=replaces)

    def _put_meta(self, pointer: ContextPointer, *, replaces: BlobVersion | None) -> bool:
        key = blob_key(self._query_id, meta_name(pointer.pointer_id))
        return self._blobs.put_if(key, meta_bytes(pointer), replaces=replaces) is not None


class ObjectContextPointerStore(ContextPointerStore):
    """Keeps results as objects: `{id}.meta.json` and `{id}.{digits}.result.json` under a prefix.

    Any number of processes on any number of machines save and read at the same time without a lock.
    The top of this module says how. Needs a store that keeps conditional puts: S3, Google Cloud
    Storage, Azure, most of what speaks S3, and obstore's memory; the first save fails on one that
    does not, such as a local directory. A first save takes two requests, a later one four, a load
    two. A replaced result is garbage until `gc` has run an hour later. A save in flight may go with
    a deletion of its pointer; a meta that stays then neither loads nor is listed.

    Args:
        store: An obstore store; its prefix is the root of the keys.
        **options: Limits, redaction, lifetime and clock; see `ContextPointerStore`.
    """

    def __init__(self, store: "ObjectStore", **options: Unpack[StoreOptions]) -> None:
        super().__init__(ObjectRecords(ObjectBlobStore(store)), **options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """The store at an address such as `s3://bucket/prefix`.

        Args:
            url: See `open_object_store`.
            **options: Those of `ContextPointerStore`, and those of `open_object_store`.

        Raises:
            StoreError: No store that obstore knows, or an option that it does not.
        """
        ours = {name: options.pop(name) for name in StoreOptions.__annotations__ if name in options}
        return cls(open_object_store(url, **options), **cast("StoreOptions", ours))
