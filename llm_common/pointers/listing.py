"""`PointerListing`: which pointers a query has, found without reading their results."""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import PointerRecords, QueryFiles, meta_name, parse_meta
from llm_common.storage import BlobStore

__all__ = ["PointerIndex", "PointerListing", "read_pointers"]

_log = logging.getLogger(__name__)

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_MAX_CACHED = 200_000  # pointers of all queries, some 3 KB each
_CLOCK_GRAIN_S = 0.05


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and how many other or damaged files of its folder were skipped."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class _Parsed:
    etag: object
    pointer: ContextPointer | None


class PointerIndex:
    """Lists the pointers of a query that can be loaded; parses a meta again only when its ETag has changed.

    Args:
        records: Where the pairs are.
    """

    def __init__(self, records: PointerRecords) -> None:
        self._records = records
        self._cache: dict[str, dict[str, _Parsed]] = {}
        self._cached_pointers = 0

    def read(self, query_id: str) -> PointerListing:
        """The pointers that are there now.

        Raises:
            StoreError: The folder cannot be read.
        """
        files = QueryFiles.of(self._records.blobs, query_id)
        if files.temporaries:
            self._records.blobs.sweep(query_id)
        skipped = len(files.unrecognized) + len(files.unsafe)
        found: list[ContextPointer] = []
        for pointer_id, parsed in self._parsed(files).items():
            pointer = parsed.pointer
            if pointer is None or not self._is_whole(files, pointer):
                pointer = self._loaded(query_id, pointer_id)  # a writer may be at work, or a file is damaged
            if pointer is None:
                skipped += 1
            else:
                found.append(pointer)
        if skipped:
            _log.warning("skipped %d unrecognized or damaged files of a query", skipped)
        return PointerListing(pointers=tuple(sorted(found, key=_age)), skipped=skipped)

    def _parsed(self, files: QueryFiles) -> dict[str, _Parsed]:
        """What the meta of each pointer says."""
        known = self._cache.get(files.query_id, {})
        metas = {one: names[meta_name(one)] for one, names in files.by_pointer.items() if meta_name(one) in names}
        changed = [one for one, meta in metas.items() if one not in known or known[one].etag != meta.etag]
        read = dict(zip(changed, _read_metas(self._records.blobs, files.query_id, changed), strict=True))
        parsed = {one: known[one] if one not in read else _Parsed(meta.etag, read[one]) for one, meta in metas.items()}
        # Two puts within one tick of the file system's clock may look alike, so what is that new is not cached.
        before_s = time.time() - _CLOCK_GRAIN_S
        kept = {one: parsed[one] for one, meta in metas.items() if meta.modified_s < before_s}
        self._cached_pointers += len(kept) - len(known)
        if self._cached_pointers > _MAX_CACHED:
            self._cache, self._cached_pointers = {}, len(kept)
        if kept:
            self._cache[files.query_id] = kept
        else:
            self._cache.pop(files.query_id, None)
        return parsed

    def _is_whole(self, files: QueryFiles, pointer: ContextPointer) -> bool:
        """Whether the names and sizes alone tell that the pointer loads."""
        names = files.by_pointer[pointer.pointer_id]
        result = next((names[one] for one in self._records.result_names(pointer) if one in names), None)
        is_pending = any(name.endswith(".next") for name in names)
        return result is not None and pointer.result_bytes in (None, result.size) and not is_pending

    def _loaded(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        with suppress(PointerNotFoundError, CorruptPointerError, UnsafePathError):
            return self._records.load(query_id, pointer_id)[0]
        return None


def read_pointers(blobs: BlobStore, files: QueryFiles) -> list[ContextPointer]:
    """The pointers of a query whose meta can be read, in no order; none of them is verified."""
    pointer_ids = [one for one, names in files.by_pointer.items() if meta_name(one) in names]
    return [pointer for pointer in _read_metas(blobs, files.query_id, pointer_ids) if pointer]


def _read_metas(blobs: BlobStore, query_id: str, pointer_ids: list[str]) -> Iterator[ContextPointer | None]:
    """The pointer of each id, None for a meta that is damaged or gone."""
    metas = blobs.get_many(query_id, [meta_name(one) for one in pointer_ids])
    for pointer_id, meta in zip(pointer_ids, metas, strict=True):
        try:
            yield parse_meta(meta or b"", query_id=query_id, pointer_id=pointer_id)
        except CorruptPointerError:
            yield None


def _age(pointer: ContextPointer) -> tuple[str, str]:
    """What sorts pointers by time, whichever way an older version wrote it, then by id."""
    moment = pointer.created_at
    if not _CANONICAL_TIME.fullmatch(moment):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="microseconds")
    return moment, pointer.pointer_id
