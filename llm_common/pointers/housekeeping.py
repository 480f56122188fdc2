"""`Housekeeper`: removes what nobody can read any more, from every query of a store."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict

from llm_common.errors import StoreError
from llm_common.pointers.gravestones import Gravestones
from llm_common.pointers.inventory import Inventory, take_inventory
from llm_common.pointers.object_records import ConditionalPointerRecords
from llm_common.pointers.records import PointerRecords, RecordWriter
from llm_common.pointers.retention import has_expired
from llm_common.storage import BlobStore

__all__ = ["ABANDONED_AFTER", "GcReport", "Housekeeper"]

ABANDONED_AFTER: Final = timedelta(hours=1)
"""No healthy save takes as long, so what is unfinished by then has lost its writer."""

_log = logging.getLogger(__name__)


class GcReport(BaseModel):
    """What a run of `gc` found and removed.

    Attributes:
        queries: Queries looked at.
        passed_over: Queries that could not be worked on, such as one that a writer held; the next run tries again.
        expired: Pointers removed since their time was over.
        orphans: Results removed that no pointer stood for.
        leftovers: Unfinished saves of killed writers, completed or dropped.
        temporaries: Temporary files of killed writers removed.
        freed_bytes: Bytes of all that was removed.
        forgotten: Pointers of which it is no longer known that they expired or were erased.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    queries: int = 0
    passed_over: int = 0
    expired: int = 0
    orphans: int = 0
    leftovers: int = 0
    temporaries: int = 0
    freed_bytes: int = 0
    forgotten: int = 0


class Housekeeper:
    """Walks through a store, one query at a time.

    A query is first looked at without a lock, and locked only when there is something to do, so a walk through many
    healthy ones disturbs no writer. What is to go is decided anew under the lock.

    Args:
        blobs: The store's bytes.
        records: The store's pairs.
        gravestones: What is noted of those that expired.
    """

    def __init__(
        self, blobs: BlobStore, records: PointerRecords | ConditionalPointerRecords, gravestones: Gravestones
    ) -> None:
        self._blobs = blobs
        self._records = records
        self._gravestones = gravestones

    def run(self, *, now: datetime, stopped: Callable[[], bool]) -> GcReport:
        """What was removed; the memory that it takes is that of the largest query.

        Args:
            now: What expired by then is removed.
            stopped: Asked before each query; True ends the walk.

        Raises:
            StoreError: The queries cannot be listed.
        """
        counts = Counter[str]()
        for query_id in self._blobs.folders():
            if stopped():
                break
            counts["queries"] += 1
            try:
                counts += self._tidy(query_id, now)
            except StoreError as exc:
                counts["passed_over"] += 1
                _log.warning("a query was passed over while collecting garbage: %s", type(exc).__name__)
        counts["forgotten"] = self._gravestones.forget(now=now)
        return GcReport(**counts)

    def _tidy(self, query_id: str, now: datetime) -> Counter[str]:
        found = take_inventory(self._blobs, query_id)
        counts = Counter[str]()
        if found.temporaries:
            self._blobs.sweep(query_id)
            counts.update(temporaries=len(found.temporaries), freed_bytes=sum(found.temporaries.values()))
        if found.orphans or self._expired(found, now) or self._abandoned(found, now):
            counts += self._records.write(query_id, partial(self._tidy_pairs, query_id, now))
            found = take_inventory(self._blobs, query_id)
        if found.is_empty:
            self._blobs.remove_folder(query_id)
        return counts

    def _tidy_pairs(self, query_id: str, now: datetime, records: RecordWriter) -> Counter[str]:
        """Counts what goes; the changes are made through `records`, so they fit what is found here."""
        counts = Counter[str]()
        found = take_inventory(self._blobs, query_id)
        abandoned = self._abandoned(found, now)
        for pointer_id, keys in abandoned.items():
            records.finish(query_id, pointer_id, before=now - ABANDONED_AFTER)
            counts.update(leftovers=len(keys), freed_bytes=sum(found.owned[pointer_id][key] for key in keys))
        if abandoned:
            found = take_inventory(self._blobs, query_id)
        expired = [
            pointer_id for pointer_id in self._expired(found, now) if _is_over(records, query_id, pointer_id, now)
        ]
        self._gravestones.mark(query_id, expired, "expired", now=now)
        counts.update(expired=len(expired), orphans=len(found.orphans))
        going = [*expired, *found.orphans]
        for pointer_id in going:
            counts["freed_bytes"] += found.size(pointer_id)
            records.remove(query_id, pointer_id, settle=pointer_id == going[-1])
        return counts

    def _expired(self, found: Inventory, now: datetime) -> list[str]:
        return [pointer.pointer_id for pointer in found.read_pointers(self._blobs) if has_expired(pointer, now)]

    def _abandoned(self, found: Inventory, now: datetime) -> dict[str, list[str]]:
        """Unfinished records by pointer."""
        before = now - ABANDONED_AFTER
        pending = {pointer_id: found.pending(pointer_id) for pointer_id in found.owned if found.pending(pointer_id)}
        kept = {one: self._records.abandoned(keys, before=before) for one, keys in pending.items()}
        return {pointer_id: keys for pointer_id, keys in kept.items() if keys}


def _is_over(records: RecordWriter, query_id: str, pointer_id: str, now: datetime) -> bool:
    pointer = records.recover(query_id, pointer_id)
    return pointer is not None and has_expired(pointer, now)
