"""`PointerIndex`: which pointers a query has, found without reading their results."""

import logging
import re
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, UnsafePathError
from llm_common.pointers.pointer import ContextPointer, share_names
from llm_common.pointers.records import parse_meta
from llm_common.storage import BlobStore, StampedFile, StampingBlobStore

__all__ = ["PointerIndex", "PointerListing", "parse_key"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"([0-9a-f]{12,16})\.(?:[0-9a-f]{16}\.(?=next))?(meta\.json|result\.json|next)")
_META = ".meta.json"
_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_MAX_KNOWN = 100_000  # pointers that are remembered, but those of the query that was listed last in any case
_ALWAYS_CHECKED = 256
_CHECKED_EVERY_S = 1.0
_CHECK_SHARE = 10


_Record: TypeAlias = tuple[str, ContextPointer | None, int]
"""An id, its pointer, None for a damaged record, and the record's stamp."""


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and how many foreign or damaged files of its folder were passed over."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    skipped: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A listing and what it was made of: the folder's stamp, and those of the records, in the listing's order."""

    listing: PointerListing
    folder_stamp: int | None
    stamps: "array[int]"
    checked_s: float
    took_s: float


class PointerIndex:
    """Lists the pointers of a query that can be loaded, and remembers what it has read.

    Where the store of the blobs can tell what has changed, a listing costs as much as what is new. A save, in whatever
    process, shows at once. So does a file that another program has written into, in a query of up to 256 pointers; in
    a larger one such a change shows within a second, or within ten times the time that looking at all files takes.

    Args:
        blobs: Where the pairs are.
        load: `load` of their records, for pairs that a glance cannot settle.
    """

    def __init__(self, blobs: BlobStore, load: Callable[[str, str], tuple[ContextPointer, bytes]]) -> None:
        self._blobs = blobs
        self._stamping = blobs if isinstance(blobs, StampingBlobStore) else None
        self._load = load
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._guard = threading.Lock()

    def read(self, query_id: str) -> PointerListing:
        """The pointers that are there now.

        Raises:
            StoreError: The folder cannot be read.
        """
        if self._stamping is None:
            sizes = self._blobs.list(query_id)
            return _told(self._look(query_id, None, ((key.partition("/")[2], size, 0) for key, size in sizes.items())))
        known = self._known.get(query_id)
        stamp = self._stamping.stamp(query_id)
        if known is None or stamp is None or stamp != known.folder_stamp or _is_due(known):
            files = self._stamping.files(query_id, unseen=_META if known is None else None)
            known = self._look(query_id, known, files, stamp)
            self._remember(query_id, known)
        return _told(known)

    def _look(
        self, query_id: str, known: _Known | None, files: Iterable[StampedFile], folder_stamp: int | None = None
    ) -> _Known:
        """What the files say; a record that has still the stamp that is known is not read again."""
        began = time.monotonic()
        records, results, pending, skipped = _sorted_out(files)
        settled: list[ContextPointer] = []
        ages: list[str] = []
        stamps: list[int] = []
        same = {} if known is None else _unchanged(known, records)
        changed = [pointer_id for pointer_id in records if pointer_id not in same]
        for pointer_id, found, stamp in chain(same.values(), self._read(query_id, changed)):
            size = results.get(pointer_id)
            whole = found is not None and size and found.result_bytes in (None, size) and pointer_id not in pending
            pointer = found if whole else self._examine(query_id, pointer_id)
            if not whole:
                folder_stamp = None
            if pointer is None:
                skipped += 1
                continue
            settled.append(pointer)
            ages.append(_age(pointer))
            stamps.append(stamp if whole else 0)
        order = sorted(range(len(ages)), key=ages.__getitem__)
        listing = PointerListing(pointers=tuple([settled[place] for place in order]), skipped=skipped)
        kept = array("q", [stamps[place] for place in order])
        now = time.monotonic()
        return _Known(listing, folder_stamp, kept, checked_s=now, took_s=now - began)

    def _read(self, query_id: str, pointer_ids: Iterable[str]) -> Iterator[_Record]:
        for name, meta, stamp in self._metas(query_id, (pointer_id + _META for pointer_id in pointer_ids)):
            pointer_id = name[: -len(_META)]
            try:
                pointer = share_names(parse_meta(meta, query_id=query_id, pointer_id=pointer_id))
            except CorruptPointerError:
                yield pointer_id, None, stamp
            else:
                yield pointer_id, pointer, stamp

    def _metas(self, query_id: str, names: Iterable[str]) -> Iterable[tuple[str, bytes, int]]:
        """Name, bytes and stamp of each record."""
        if self._stamping is not None:
            return self._stamping.get_stamped(query_id, names)
        names = list(names)
        metas = self._blobs.get_many(f"{query_id}/{name}" for name in names)
        return ((name, meta or b"", 0) for name, meta in zip(names, metas, strict=True))  # none is no good one either

    def _remember(self, query_id: str, known: _Known) -> None:
        with self._guard:
            self._known.pop(query_id, None)
            self._known[query_id] = known
            room = _MAX_KNOWN - len(known.stamps)
            for other in list(reversed(self._known))[1:]:
                room -= len(self._known[other].stamps) + 1
                if room < 0:
                    del self._known[other]

    def _examine(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The pointer when it loads; for those that a glance could not settle."""
        with suppress(PointerNotFoundError, CorruptPointerError, UnsafePathError):
            return self._load(query_id, pointer_id)[0]
        return None


def parse_key(key: str) -> tuple[str, str] | None:
    """The pointer that owns a blob, and what of it the blob is: `meta.json`, `result.json` or `next`; else None."""
    match = _NAME.fullmatch(key.partition("/")[2])
    return (match[1], match[2]) if match else None


def _sorted_out(files: Iterable[StampedFile]) -> tuple[dict[str, int], dict[str, int], set[str], int]:
    """The stamp of each record, the size of each result, the ids with a pending record, and how many are foreign."""
    records: dict[str, int] = {}
    results: dict[str, int] = {}
    pending = set()
    skipped = 0
    named = _NAME.fullmatch
    for name, size, stamp in files:
        pointer_id, _, kind = name.partition(".")
        if kind == "result.json":
            results[pointer_id] = size
        elif not named(name):
            skipped += 1
        elif kind == "meta.json":
            records[pointer_id] = stamp
        else:
            pending.add(pointer_id)
    skipped += sum(1 for pointer_id in results.keys() - records.keys() if not named(f"{pointer_id}.result.json"))
    return records, results, pending, skipped


def _unchanged(known: _Known, records: Mapping[str, int]) -> dict[str, _Record]:
    """The records that have the stamps that they had, by id."""
    return {
        pointer.pointer_id: (pointer.pointer_id, pointer, stamp)
        for pointer, stamp in zip(known.listing.pointers, known.stamps, strict=True)
        if stamp and records.get(pointer.pointer_id) == stamp
    }


def _is_due(known: _Known) -> bool:
    """Whether it is time to look for what other programs have written into files."""
    age_s = time.monotonic() - known.checked_s
    return len(known.stamps) <= _ALWAYS_CHECKED or age_s > max(_CHECKED_EVERY_S, known.took_s * _CHECK_SHARE)


def _told(known: _Known) -> PointerListing:
    if known.listing.skipped:
        _log.warning("passed over %d foreign or damaged files of a query", known.listing.skipped)
    return known.listing


def _age(pointer: ContextPointer) -> str:
    """What sorts pointers by time, whichever way an older version wrote it, then by id."""
    moment = pointer.created_at
    if not _CANONICAL.fullmatch(moment):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="microseconds")
    return f"{moment}\0{pointer.pointer_id}"
