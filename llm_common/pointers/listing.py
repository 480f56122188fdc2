"""Which queries a store has, and which pointers a query has, found without reading their results.

`PointerIndex` serves the many lists of a running program. The functions serve a person who looks at
a store once: they keep nothing, change nothing, and read no more records than they show.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import (
    PointerRecords,
    QueryFiles,
    meta_name,
    read_records,
)
from llm_common.pointers.retention import has_expired, time_text
from llm_common.storage import BlobEntry, BlobStore, folder_of, query_id_of

_log = logging.getLogger(__name__)

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_MAX_CACHED = 200_000  # pointers of all queries, some 3 KB each
_MAX_UNSEEN_S = 1.0
_AGE = attrgetter("age")


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and how many other or damaged files of its folder were skipped."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    skipped: int


class QuerySummary(BaseModel):
    """A query as its folder shows it; no record is read.

    Attributes:
        query_id: The query.
        pointers: Pointers with a record, expired ones too until they are collected.
        bytes: Of their records and results.
        changed_at: When one of their files changed last, in the form of `created_at`; None without
            any.
        problem: `unreadable` or `unsafe` for a folder that could not be read, else "".
    """

    model_config = ConfigDict(frozen=True)

    query_id: str
    pointers: int = 0
    bytes: int = 0
    changed_at: str | None = None
    problem: Literal["", "unreadable", "unsafe"] = ""


class PointerPage(BaseModel):
    """Some pointers of a query, newest first, and how many records the query has."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    total: int


class _Listed(NamedTuple):
    """A pointer that loads, its place in the order, and a hash of the names and ETags from which that was told."""

    age: tuple[str, str]
    pointer: ContextPointer
    fingerprint: int | None


class _Cached(NamedTuple):
    """A listing, the ETag of its folder, when to look into the folder again at the latest, and what it holds."""

    listing: PointerListing
    folder_etag: object
    until_s: float
    by_id: dict[str, _Listed]


class PointerIndex:
    """Lists the pointers of a query that can be loaded.

    Parses a meta again only when an ETag of its pair has changed.
    A save or a deletion, in any process, shows at once. A file that another program writes into
    shows within a second.

    Args:
        records: Where the pairs are.
    """

    def __init__(self, records: PointerRecords) -> None:
        self._records = records
        self._cache: dict[str, _Cached] = {}
        self._cached_pointers = 0

    def read(self, query_id: str) -> PointerListing:
        """The pointers that are there now.

        Raises:
            StoreError: The folder cannot be read.
        """
        cached = self._cache.get(query_id)
        folder_etag = self._records.blobs.folder_etag(
            folder_of(query_id)
        )  # before the scan, which may see later changes
        is_fresh = cached and folder_etag is not None and folder_etag == cached.folder_etag
        if cached and is_fresh and time.monotonic() < cached.until_s:
            listing = cached.listing
        else:
            listing = self._scan(query_id, cached, folder_etag)
        if listing.skipped:
            _log.warning("skipped %d unrecognized or damaged files of a query", listing.skipped)
        return listing

    def _scan(self, query_id: str, cached: _Cached | None, folder_etag: object) -> PointerListing:
        files = QueryFiles.of(self._records.blobs, query_id)
        if files.temporaries:
            self._records.blobs.sweep(folder_of(query_id))
        known = cached.by_id if cached else {}
        listed: list[_Listed] = []
        changed: list[str] = []
        for pointer_id, entries in files.by_pointer.items():
            last = known.get(pointer_id)
            if last is not None and last.fingerprint == _fingerprint(entries):
                listed.append(last)
            elif meta_name(pointer_id) in entries:
                changed.append(pointer_id)
        read = [*self._read(files, changed)]
        skipped = len(files.unrecognized) + len(files.unsafe) + len(changed) - len(read)
        pointers = tuple([one.pointer for one in sorted(listed + read, key=_AGE)])
        listing = PointerListing(pointers=pointers, skipped=skipped)
        listed += [one for one in read if one.fingerprint is not None]
        self._cached_pointers += len(listed) - len(known)
        if self._cached_pointers > _MAX_CACHED:
            self._cache, self._cached_pointers = {}, len(listed)
        if pointers:
            by_id = {one.pointer.pointer_id: one for one in listed}
            self._cache[query_id] = _Cached(
                listing, folder_etag, time.monotonic() + _MAX_UNSEEN_S, by_id
            )
        else:
            self._cache.pop(query_id, None)
        return listing

    def _read(self, files: QueryFiles, pointer_ids: list[str]) -> Iterator[_Listed]:
        """Those of the pointers that load."""
        parsed = read_records(self._records.blobs, files.query_id, pointer_ids)
        for pointer_id, found in zip(pointer_ids, parsed, strict=True):
            entries = files.by_pointer[pointer_id]
            if found is not None and self._is_whole(found, entries):
                yield _Listed(_age(found), found, _fingerprint(entries))
            else:  # damaged, or a writer is at work
                with suppress(PointerNotFoundError, CorruptPointerError, UnsafePathError):
                    pointer = self._records.load(files.query_id, pointer_id)[0]
                    yield _Listed(_age(pointer), pointer, None)

    def _is_whole(self, pointer: ContextPointer, entries: Mapping[str, BlobEntry]) -> bool:
        """Whether the names and sizes alone tell that the pointer loads."""
        result = next(
            (entries[name] for name in self._records.result_names(pointer) if name in entries), None
        )
        is_pending = any(name.endswith(".next") for name in entries)
        return result is not None and pointer.result_bytes in (None, result.size) and not is_pending


def query_summaries(blobs: BlobStore) -> Iterator[QuerySummary]:
    """Every query of a store, in no order; a folder that cannot be read is one with a problem.

    Raises:
        StoreError: The queries cannot be listed.
    """
    for folder in blobs.folders():
        query_id = query_id_of(folder)
        try:
            files = QueryFiles.of(blobs, query_id)
        except StoreError as exc:
            yield QuerySummary(
                query_id=query_id,
                problem="unsafe" if isinstance(exc, UnsafePathError) else "unreadable",
            )
            continue
        changed_s = max(
            (entry.modified_s for names in files.by_pointer.values() for entry in names.values()),
            default=None,
        )
        yield QuerySummary(
            query_id=query_id,
            pointers=sum(meta_name(one) in names for one, names in files.by_pointer.items()),
            bytes=sum(map(files.size, files.by_pointer)),
            changed_at=None
            if changed_s is None
            else time_text(datetime.fromtimestamp(changed_s, UTC)),
        )


def newest_pointers(
    blobs: BlobStore, query_id: str, *, limit: int, offset: int, now: datetime
) -> PointerPage:
    """The pointers of a query whose files changed last; reads `limit` records.

    A record that is damaged or expired is left out, so a page may be shorter than `limit` before
    the end.
    """
    files = QueryFiles.of(blobs, query_id)
    changed = {
        one: names[meta_name(one)].modified_s
        for one, names in files.by_pointer.items()
        if meta_name(one) in names
    }
    ordered = sorted(changed, key=lambda one: (-changed[one], one))
    read = read_records(blobs, query_id, ordered[offset : offset + limit])
    shown = [pointer for pointer in read if pointer and not has_expired(pointer, now)]
    return PointerPage(pointers=tuple(sorted(shown, key=_age, reverse=True)), total=len(ordered))


def _fingerprint(entries: Mapping[str, BlobEntry]) -> int | None:
    """A hash of names and ETags, a twentieth of their size; None while an ETag cannot be told."""
    etags = tuple([(name, entry.etag) for name, entry in entries.items()])
    return None if any(etag is None for _, etag in etags) else hash(etags)


def _age(pointer: ContextPointer) -> tuple[str, str]:
    """What sorts pointers by time, whichever way an older version wrote it, then by id."""
    moment = pointer.created_at
    if not _CANONICAL_TIME.fullmatch(moment):
        with suppress(ValueError, OverflowError):
            moment = (
                datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="microseconds")
            )
    return moment, pointer.pointer_id
