"""Which queries a store has, and which pointers a query has, found without reading their results.

`PointerIndex` serves the many lists of a running program. The functions serve a person who looks at
a store once: they keep nothing, change nothing, and read no more records than they show or search.
Only a search that is told to reads results.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import (
    MAX_RECORD_BYTES,
    PointerRecords,
    QueryFiles,
    matches_digest,
    max_result_bytes,
    meta_name,
    parse_meta,
)
from llm_common.pointers.retention import has_expired, time_text
from llm_common.ranking import StreamedScan, folded
from llm_common.storage import BlobEntry, BlobStore, folder_of, query_id_of
from llm_common.text.canonical import decode_json

_log = logging.getLogger(__name__)

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_MAX_CACHED = 200_000  # pointers of all queries, some 3 KB each
_MAX_UNSEEN_S = 1.0
_AGE = attrgetter("age")
_BATCH = 16  # records that are read together; an object store fetches as many results at once
_CALL_WEIGHT = 2.0
_PIECE_BYTES = 500_000
# the escaped backslash first, which may stand before an n
_ESCAPES = ("\\\\", "\\n", "\\r", "\\t", "\\b", "\\f")
_ESCAPED_CHAR = re.compile(r"\\u([0-9a-fA-F]{4})")


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and how many other or damaged files of its folder were skipped."""

    model_config = ConfigDict(frozen=True, defer_build=True)

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

    model_config = ConfigDict(frozen=True, defer_build=True)

    query_id: str
    pointers: int = 0
    bytes: int = 0
    changed_at: str | None = None
    problem: Literal["", "unreadable", "unsafe"] = ""


class PointerPage(BaseModel):
    """Some pointers of a query, newest first, and how many records the query has."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pointers: tuple[ContextPointer, ...]
    total: int


class PointerMatch(BaseModel):
    """A pointer that was found by words, and how well it matches.

    Scores compare within one answer.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    score: float
    pointer: ContextPointer


class PointerSearch(BaseModel):
    """What a search by words found.

    Attributes:
        matches: The best, best first.
        total: How many pointers share a word with the text.
        searched: How many were searched; one that has expired and is not yet collected may count.
        unreadable: How many were not, because their record or result is damaged or cannot be read.
        unreadable_queries: Queries whose folder cannot be read, in whole or from some place on.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    matches: tuple[PointerMatch, ...]
    total: int
    searched: int
    unreadable: int = 0
    unreadable_queries: tuple[str, ...] = ()


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
        parsed = _read_metas(self._records.blobs, files.query_id, pointer_ids)
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


def read_pointers(blobs: BlobStore, files: QueryFiles) -> list[ContextPointer]:
    """The pointers of a query whose meta can be read, in no order; none of them is verified."""
    pointer_ids = [one for one, names in files.by_pointer.items() if meta_name(one) in names]
    return [pointer for pointer in _read_metas(blobs, files.query_id, pointer_ids) if pointer]


def _read_metas(
    blobs: BlobStore, query_id: str, pointer_ids: list[str]
) -> Iterator[ContextPointer | None]:
    """The pointer of each id, None for a meta that is damaged or gone."""
    metas = blobs.get_many(
        folder_of(query_id), [*map(meta_name, pointer_ids)], max_bytes=MAX_RECORD_BYTES
    )
    for pointer_id, meta in zip(pointer_ids, metas, strict=True):
        try:
            yield parse_meta(meta or b"", query_id=query_id, pointer_id=pointer_id)
        except CorruptPointerError:
            yield None


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
    read = _read_metas(blobs, query_id, ordered[offset : offset + limit])
    shown = [pointer for pointer in read if pointer and not has_expired(pointer, now)]
    return PointerPage(pointers=tuple(sorted(shown, key=_age, reverse=True)), total=len(ordered))


def find_pointers(
    records: PointerRecords,
    words: str,
    query_ids: Iterable[str],
    *,
    limit: int,
    in_results: bool,
    now: datetime,
    progress: Callable[[int], object],
) -> PointerSearch:
    """The pointers that share a word with a text, best first, and what could not be searched.

    Memory holds counts of words, a few results and a piece of one as text. Most records are passed
    over by their bytes: a record is parsed only if it may hold a word.

    Args:
        records: Where the pointers are.
        words: What to look for, in any form and case.
        query_ids: Where to look.
        limit: Most matches.
        in_results: True reads all of each stored result; False the record, whose digest holds the
            first 500 characters.
        now: Leaves out what has expired by then.
        progress: Told how many were searched so far, after each few.
    """
    search = _Search(records, StreamedScan(words), in_results=in_results, now=now)
    searched = unreadable = 0
    unreadable_queries: list[str] = []
    for query_id in query_ids:
        try:
            files = QueryFiles.of(records.blobs, query_id)
            ids = [one for one, names in files.by_pointer.items() if meta_name(one) in names]
            unreadable += len(files.unreadable.difference(ids))
            for start in range(0, len(ids), _BATCH):
                batch = ids[start : start + _BATCH]
                missed = search.read(files, batch)
                searched, unreadable = searched + len(batch) - missed, unreadable + missed
                progress(searched)
        except StoreError:
            unreadable_queries.append(query_id)
    hits, total = search.words.best(limit, among=searched)
    matches = []
    for hit in hits:
        query_id, _, pointer_id = hit.key.partition("\n")
        matches += [
            PointerMatch(score=hit.score, pointer=one)
            for one in _read_metas(records.blobs, query_id, [pointer_id])
            if one
        ]
    return PointerSearch(
        matches=tuple(matches),
        total=total,
        searched=searched,
        unreadable=unreadable,
        unreadable_queries=tuple(unreadable_queries),
    )


class _Search:
    """Counts words in records, and in results."""

    def __init__(
        self, records: PointerRecords, words: StreamedScan, *, in_results: bool, now: datetime
    ) -> None:
        self.words = words
        self._records = records
        self._in_results = in_results
        self._now = now

    def read(self, files: QueryFiles, pointer_ids: list[str]) -> int:
        """Counts the words of some pointers of a query; how many of them cannot be read."""
        blobs, folder, missed = self._records.blobs, folder_of(files.query_id), 0
        found: list[ContextPointer] = []
        metas = blobs.get_many(folder, [*map(meta_name, pointer_ids)], max_bytes=MAX_RECORD_BYTES)
        for pointer_id, meta in zip(pointer_ids, metas, strict=True):
            is_whole = meta is not None and meta.startswith(b"{") and meta.endswith(b"}")
            if (
                meta
                and is_whole
                and not self._in_results
                and not self.words.may_hold(_as_words(meta))
            ):
                continue
            try:
                pointer = parse_meta(meta or b"", query_id=files.query_id, pointer_id=pointer_id)
            except CorruptPointerError:
                missed += 1
            else:
                if not has_expired(pointer, self._now):
                    found.append(pointer)
        if self._in_results:
            return missed + self._read_results(files, found)
        for pointer in found:
            self._count(pointer, b"")
        return missed

    def _read_results(self, files: QueryFiles, pointers: list[ContextPointer]) -> int:
        names = [
            next(
                (
                    name
                    for name in self._records.result_names(one)
                    if name in files.by_pointer[one.pointer_id]
                ),
                None,
            )
            for one in pointers
        ]
        limit = max(map(max_result_bytes, pointers), default=0)
        payloads = self._records.blobs.get_many(
            folder_of(files.query_id), [*filter(None, names)], max_bytes=limit
        )
        missed = 0
        for pointer, name in zip(pointers, names, strict=True):
            payload = next(payloads) if name else None
            # damaged, or a writer is at work
            if payload is None or not matches_digest(pointer, payload):
                try:
                    pointer, payload = self._records.load(files.query_id, pointer.pointer_id)  # noqa: PLW2901
                except StoreError:
                    missed += 1
                    continue
            self._count(pointer, payload)
        return missed

    def _count(self, pointer: ContextPointer, payload: bytes) -> None:
        call = f"{pointer.summary} {pointer.args} {' '.join(pointer.source_urls)}"
        record = (folded(call), _CALL_WEIGHT), (folded(pointer.digest), 1.0)
        pieces = ((piece, 1.0) for piece in _pieces(payload))
        self.words.add(f"{pointer.query_id}\n{pointer.pointer_id}", chain(record, pieces))


def _pieces(payload: bytes) -> Iterator[str]:
    """The words of a stored result in pieces, cut between words where there is a space, a comma or a quotation mark."""
    is_json = True
    if payload.startswith(b'"'):
        with suppress(CorruptPointerError):
            text = str(decode_json(payload))
            is_json = text.lstrip().startswith(("{", "["))  # as many tools answer
            payload = text.encode("utf-8", "surrogatepass")
    start = 0
    while start < len(payload):
        end = start + _PIECE_BYTES
        if end < len(payload):
            last = max(payload.rfind(mark, start, end) for mark in (b" ", b",", b'"'))
            end = last if last > start else end
        yield _as_words(payload[start:end], is_json=is_json)
        start = end


def _as_words(data: bytes, *, is_json: bool = True) -> str:
    """Stored bytes as text to compare; an escape of JSON that stands between words is a space."""
    text = data.decode("utf-8", "replace")
    if is_json and "\\" in text:
        for escape in _ESCAPES:
            text = text.replace(escape, " ")
        text = _ESCAPED_CHAR.sub(lambda found: chr(int(found[1], 16)), text)
    return folded(text)


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
