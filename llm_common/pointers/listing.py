"""Lists the queries of a store and the pointers of a query, without reading results.

`PointerIndex` caches, for a program that lists often. The functions serve a person who looks at a
store once. They cache nothing, change nothing, and read only the records that they return.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer, check_pointer_id, has_expired, time_text
from llm_common.pointers.records import (
    MAX_RECORD_BYTES,
    PointerRecords,
    QueryFiles,
    meta_name,
    parse_meta,
    read_records,
)
from llm_common.storage import BlobEntry, BlobStore
from llm_common.storage.blob import folder_of, query_id_of

_log = logging.getLogger(__name__)

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
# Pointers of all queries together, at about 2.5 KB each. A process that lists every query of a
# large store stays below 300 MB.
_MAX_CACHED = 60_000
# A program that edits a file in place changes the file's ETag, but not the folder's.
_MAX_UNSEEN_S = 1.0


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and the number of files that were skipped."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    skipped: int


class QuerySummary(BaseModel):
    """A query, summarized from the names and sizes in its folder.

    Attributes:
        query_id: The query.
        pointers: Number of records, including those of expired pointers that await collection.
        bytes: Total size of the records and results.
        changed_at: Time of the last change of a file, in the form of `created_at`. None for an
            empty query.
        problem: `unreadable` or `unsafe` if the folder could not be read, else "".
    """

    model_config = ConfigDict(frozen=True)

    query_id: str
    pointers: int = 0
    bytes: int = 0
    changed_at: str | None = None
    problem: Literal["", "unreadable", "unsafe"] = ""


class QueryPage(BaseModel):
    """A page of a store's queries, last changed first, and the number of all of them."""

    model_config = ConfigDict(frozen=True)

    queries: tuple[QuerySummary, ...]
    total: int


class PointerPage(BaseModel):
    """A page of a query's pointers, newest first, and the number of all of its records."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    total: int


class _Listed(NamedTuple):
    """A pointer that can be loaded.

    Attributes:
        fingerprint: Hash of the pointer's blobs. None if they may be changing.
    """

    pointer: ContextPointer
    fingerprint: int | None


class _Cached(NamedTuple):
    """A listing, and the ETag of its folder.

    Attributes:
        until_s: Time of `time.monotonic` after which the folder is scanned in any case.
    """

    listing: PointerListing
    folder_etag: object
    until_s: float
    by_id: dict[str, _Listed]

    def is_fresh(self, folder_etag: object) -> bool:
        if folder_etag is None or folder_etag != self.folder_etag:
            return False
        return time.monotonic() < self.until_s


class PointerIndex:
    """Lists the pointers of a query that can be loaded.

    Decodes a record again only if an ETag of its pair has changed. The next read shows the saves
    and deletions of all processes. It shows a file that another program edits within a second.

    Args:
        records: The pairs of the store.
    """

    def __init__(self, records: PointerRecords) -> None:
        self._records = records
        self._cache: dict[str, _Cached] = {}
        self._cached_pointers = 0

    def read(self, query_id: str) -> PointerListing:
        """Return the pointers of a query.

        Raises:
            StoreError: If the folder cannot be read.
        """
        cached = self._cache.get(query_id)
        # Read before the scan. A change between the two then differs from this ETag, and the next
        # read scans again.
        folder_etag = self._records.blobs.folder_etag(folder_of(query_id))
        if cached is not None and cached.is_fresh(folder_etag):
            listing = cached.listing
        else:
            listing = self._scan(query_id, cached, folder_etag)
        if listing.skipped:
            _log.warning("skipped %d unrecognized or damaged files of a query", listing.skipped)
        return listing

    def _scan(self, query_id: str, cached: _Cached | None, folder_etag: object) -> PointerListing:
        files = QueryFiles.of(self._records.blobs, query_id)
        if files.temporaries:  # removed here too, for stores on which `gc` never runs
            self._records.blobs.sweep(folder_of(query_id))
        cached_by_id: dict[str, _Listed] = {}
        if cached is not None:
            cached_by_id = cached.by_id
        listed: list[_Listed] = []
        changed: list[str] = []
        for pointer_id, entries in files.by_pointer.items():
            last = cached_by_id.get(pointer_id)
            if last is not None and last.fingerprint == _fingerprint(entries):
                listed.append(last)
            elif meta_name(pointer_id) in entries:
                changed.append(pointer_id)
        loaded = list(self._load_changed(files, changed))
        skipped = len(files.unrecognized) + len(files.unsafe) + len(changed) - len(loaded)
        ordered = sorted(listed + loaded, key=lambda entry: _age(entry.pointer))
        listing = PointerListing(
            pointers=tuple([entry.pointer for entry in ordered]), skipped=skipped
        )

        by_id: dict[str, _Listed] = {}
        for entry in ordered:
            if entry.fingerprint is not None:
                by_id[entry.pointer.pointer_id] = entry
        self._cached_pointers += len(by_id) - len(cached_by_id)
        if self._cached_pointers > _MAX_CACHED:  # rare, so a new cache is enough
            self._cache, self._cached_pointers = {}, len(by_id)
        if ordered:
            until_s = time.monotonic() + _MAX_UNSEEN_S
            self._cache[query_id] = _Cached(listing, folder_etag, until_s, by_id)
        else:
            self._cache.pop(query_id, None)
        return listing

    def _load_changed(self, files: QueryFiles, pointer_ids: list[str]) -> Iterator[_Listed]:
        """Yield the pointers that can be loaded."""
        records = read_records(self._records.blobs, files.query_id, pointer_ids)
        for pointer_id, pointer in zip(pointer_ids, records, strict=True):
            entries = files.by_pointer[pointer_id]
            if pointer is not None and self._is_whole(pointer, entries):
                yield _Listed(pointer, _fingerprint(entries))
                continue
            # Either damaged or being written. Only a verified load can distinguish the two.
            with suppress(PointerNotFoundError, CorruptPointerError, UnsafePathError):
                current, _ = self._records.load(files.query_id, pointer_id)
                # Without a fingerprint, so that the next read looks again.
                yield _Listed(current, None)

    def _is_whole(self, pointer: ContextPointer, entries: Mapping[str, BlobEntry]) -> bool:
        """Return whether names and sizes prove that the pointer can be loaded."""
        if any(name.endswith(".next") for name in entries):
            return False  # during a re-save, the result can be newer than the record
        for name in self._records.result_names(pointer):
            if name in entries:
                # Older versions recorded no size.
                return pointer.result_bytes in (None, entries[name].size)
        return False


def query_summaries(blobs: BlobStore, folders: Iterable[str]) -> list[QuerySummary]:
    """Summarize the queries of some folders, last changed first."""
    summaries: list[QuerySummary] = []
    for folder in folders:
        query_id = query_id_of(folder)
        try:
            summaries.append(_summary(QueryFiles.of(blobs, query_id)))
        except UnsafePathError:
            summaries.append(QuerySummary(query_id=query_id, problem="unsafe"))
        except StoreError:
            summaries.append(QuerySummary(query_id=query_id, problem="unreadable"))
    summaries.sort(key=lambda query: (query.changed_at or "", query.query_id), reverse=True)
    return summaries


def _summary(files: QueryFiles) -> QuerySummary:
    entries = [entry for by_name in files.by_pointer.values() for entry in by_name.values()]
    changed_at = None
    if entries:
        changed_s = max(entry.modified_s for entry in entries)
        changed_at = time_text(datetime.fromtimestamp(changed_s, UTC))
    return QuerySummary(
        query_id=files.query_id,
        pointers=len(files.recorded),
        bytes=sum(entry.size for entry in entries),
        changed_at=changed_at,
    )


def newest_pointers(
    blobs: BlobStore, query_id: str, *, limit: int, offset: int, now: datetime
) -> PointerPage:
    """Return one page of a query's pointers, most recently changed first.

    Reads at most `limit` records, and skips damaged and expired ones. Any page can therefore be
    shorter than `limit`.
    """
    changed_at: dict[str, float] = {}
    for pointer_id, entries in QueryFiles.of(blobs, query_id).by_pointer.items():
        meta = entries.get(meta_name(pointer_id))
        if meta is not None:  # a result without its record is a save that never finished
            changed_at[pointer_id] = meta.modified_s

    newest_first = sorted(changed_at, key=lambda pointer_id: (-changed_at[pointer_id], pointer_id))
    page_ids = newest_first[offset : offset + limit]

    pointers: list[ContextPointer] = []
    for pointer in read_records(blobs, query_id, page_ids):
        if pointer is not None and not has_expired(pointer, now):
            pointers.append(pointer)
    pointers.sort(key=_age, reverse=True)
    return PointerPage(pointers=tuple(pointers), total=len(newest_first))


def read_pointer(blobs: BlobStore, query_id: str, pointer_id: str) -> ContextPointer | None:
    """Return the record of a pointer, whose result may be missing, damaged or expired.

    Raises:
        InvalidIdError: If an id is not valid.
        CorruptPointerError: If the record is damaged.
        StoreError: If it cannot be read.
    """
    names = [meta_name(check_pointer_id(pointer_id))]
    [record] = blobs.get_many(folder_of(query_id), names, max_bytes=MAX_RECORD_BYTES)
    if record is None:
        return None
    return parse_meta(record, query_id=query_id, pointer_id=pointer_id)


def _fingerprint(entries: Mapping[str, BlobEntry]) -> int | None:
    """Hash the names and ETags of some blobs. None if one of them may be changing."""
    etags: list[object] = []
    for name, entry in entries.items():
        if entry.etag is None:
            return None
        etags += (name, entry.etag)
    return hash(tuple(etags))


def _age(pointer: ContextPointer) -> tuple[str, str]:
    """Return a key that sorts pointers by time, in any ISO 8601 form, then by id."""
    moment = pointer.created_at
    if not _CANONICAL_TIME.fullmatch(moment):
        with suppress(ValueError, OverflowError):
            moment = (
                datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="microseconds")
            )
    return moment, pointer.pointer_id
