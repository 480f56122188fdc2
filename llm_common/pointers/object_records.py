"""`ObjectContextPointerStore`: results in an object store, for agents on many machines.

An object store has no locks, but conditional puts. A save is two requests:

    1. put     `{id}.{12 digits}.result.json`, the result
    2. put-if  `{id}.meta.json`, the commit record, if its version has not changed

The 12 digits are a hash of the result's SHA-256 and time, which meta also contains. A reader
therefore sees the old pair or the new one, and two writers of a pointer cannot mix their pairs.
Step 1 is invisible to readers. A result that no meta refers to is garbage after an hour, because no
healthy save takes so long. The name contains the time because deletions are unconditional. A later
save of the same bytes must not depend on an object that `gc` is about to remove.

Results of version 1.0.0, named `{id}.result.json`, can still be loaded.
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

# Each further read means that the pointer was saved again during the read before.
_MAX_READS: Final = 8


class ObjectRecords:
    """`PointerRecords` without locks, for writers on any number of machines.

    Args:
        blobs: The store of the bytes.

    Attributes:
        blobs: The store of the bytes.
    """

    def __init__(self, blobs: ObjectBlobStore) -> None:
        self.blobs: Final = blobs

    def change(
        self,
        query_id: str,
        work: Callable[[Transaction], T],
        *,
        timeout_s: float | None = None,  # noqa: ARG002 - there is no lock to wait for
    ) -> T:
        """Run some work until no other writer was faster. See `PointerRecords.change`."""
        return retry_overtaken(lambda: work(_ObjectTransaction(self, self.blobs, query_id)))

    def quiet(self, query_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - pairs are complete at any time
        """Return a context that does nothing, since readers see only complete pairs."""
        return nullcontext()

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load a pointer and its verified result. See `PointerRecords.load`."""
        key = blob_key(query_id, meta_name(pointer_id))
        last = None
        for _ in range(_MAX_READS):
            # Meta before result: a writer uploads the result first, and `gc` keeps it an hour.
            data, version = self.blobs.get_version(key, max_bytes=MAX_RECORD_BYTES)
            pointer = parse_meta(data or b"", query_id=query_id, pointer_id=pointer_id)
            payload = self._result(pointer)
            if payload is not None and matches_digest(pointer, payload):
                return pointer, payload
            if version == last:  # not saved again in between, so the pair is damaged
                break
            last = version
        if payload is None:
            raise PointerNotFoundError(
                f"The result of {pointer_id} is missing. Use a pointer that the store lists"
            )
        raise CorruptPointerError(
            f"The result of {pointer_id} differs from the saved one. Restore its object from a copy"
        )

    # Readers never wait for a writer, so both are the same.
    load_once = load

    def result_names(self, pointer: ContextPointer) -> tuple[str, ...]:
        """Return the name with the hash, then the name of version 1.0.0."""
        old = f"{pointer.pointer_id}.result.json"
        if pointer.result_sha256 is None:
            return (old,)
        digits = text_digest(f"{pointer.result_sha256} {pointer.created_at}")[:12]
        return f"{pointer.pointer_id}.{digits}.result.json", old

    def leftovers(self, files: QueryFiles, *, now: datetime) -> dict[str, LeftoverKind]:
        """List results without a meta and unfinished saves of version 1.0.0, an hour old."""
        before_s = (now - ABANDONED_AFTER).timestamp()
        leftovers: dict[str, LeftoverKind] = {}
        for pointer_id, entries in files.by_pointer.items():
            # A young result may belong to a save whose meta is still on its way.
            old = {name for name, entry in entries.items() if entry.modified_s < before_s}
            # An earlier version wrote `read` beside the record, with which it is removed.
            old -= {meta_name(pointer_id), f"{pointer_id}.read"}
            if not old:  # saves a request for each healthy pointer
                continue
            for name in old.difference(self._named(files, pointer_id)):
                leftovers[name] = "leftover_next" if name.endswith(".next") else "orphan_result"
        return leftovers

    def _named(self, files: QueryFiles, pointer_id: str) -> Collection[str]:
        """Return the result that a pointer names, or every blob if its meta is damaged."""
        entries = files.by_pointer[pointer_id]
        if meta_name(pointer_id) not in entries:
            return ()
        [pointer] = read_records(self.blobs, files.query_id, [pointer_id])
        if pointer is None:
            return entries
        return [name for name in self.result_names(pointer) if name in entries][:1]

    def _result(self, pointer: ContextPointer) -> bytes | None:
        for name in self.result_names(pointer):
            with suppress(PointerNotFoundError):
                data, _ = self.blobs.get_version(
                    blob_key(pointer.query_id, name), max_bytes=max_result_bytes(pointer)
                )
                return data or b""  # an oversized result is None, and b"" fails the digest
        return None


class _ObjectTransaction:
    """A `Transaction` that replaces only the versions that it has read."""

    def __init__(self, records: ObjectRecords, blobs: ObjectBlobStore, query_id: str) -> None:
        self._records = records
        self._blobs = blobs
        self._query_id = query_id
        self._versions: dict[str, BlobVersion | None] = {}
        # `commit_new` uploads the result even if the id is used. `commit` then need not repeat it.
        self._uploaded: set[str] = set()

    def current(self, pointer_id: str) -> ContextPointer | None:
        self._versions[pointer_id] = None
        with suppress(PointerNotFoundError, CorruptPointerError):
            key = blob_key(self._query_id, meta_name(pointer_id))
            data, self._versions[pointer_id] = self._blobs.get_version(
                key, max_bytes=MAX_RECORD_BYTES
            )
            # A damaged meta keeps its version, so that a save can replace it.
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
            # The meta is deleted first, since results without a meta are ignored.
            self._blobs.delete(blob_key(self._query_id, meta_name(pointer_id)))
            for name in files.by_pointer.get(pointer_id, ()):
                self._blobs.delete(blob_key(self._query_id, name))

    def _put(
        self, pointer: ContextPointer, payload: bytes, *, replaces: BlobVersion | None
    ) -> bool:
        name = self._records.result_names(pointer)[0]
        if name not in self._uploaded:
            # Checked first, or the result would stay without a meta.
            self._blobs.check_conditions()
            self._blobs.put(blob_key(self._query_id, name), payload)
            self._uploaded.add(name)
        return self._put_meta(pointer, replaces=replaces)

    def _put_meta(self, pointer: ContextPointer, *, replaces: BlobVersion | None) -> bool:
        key = blob_key(self._query_id, meta_name(pointer.pointer_id))
        return self._blobs.put_if(key, meta_bytes(pointer), replaces=replaces) is not None


class ObjectContextPointerStore(ContextPointerStore):
    """Keeps results as objects in a bucket, for agents on many machines.

    Any number of processes and machines save and read in parallel without locks. A pair is
    `{id}.meta.json` and `{id}.{digits}.result.json` under a prefix.

    Needs a store with conditional puts: S3 and most compatible servers, Google Cloud Storage,
    Azure, or obstore's memory. On any other, such as a local directory, the first save raises. A
    first save takes two requests, a repeated one four, and a load two. A replaced result remains
    until `gc` runs an hour later. A deletion can also remove a concurrent save of the pointer. A
    meta without its result is neither listed nor loaded.

    Args:
        store: An obstore store. Its prefix is the root of the keys.
        **options: Limits, redaction, expiry and clock. See `ContextPointerStore`.
    """

    def __init__(self, store: "ObjectStore", **options: Unpack[StoreOptions]) -> None:
        super().__init__(ObjectRecords(ObjectBlobStore(store)), **options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Open the store at an address such as `s3://bucket/prefix`.

        Args:
            url: See `open_object_store`.
            **options: Options of `ContextPointerStore` and of `open_object_store`.

        Raises:
            StoreError: If obstore does not support the store or an option.
        """
        ours = {name: options.pop(name) for name in StoreOptions.__annotations__ if name in options}
        return cls(open_object_store(url, **options), **cast("StoreOptions", ours))
