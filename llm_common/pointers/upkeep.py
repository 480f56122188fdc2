"""`StoreUpkeep`: what is done with results that are stored already: keeping, erasing, clearing up, checking."""

import asyncio
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from llm_common.errors import PointerNotFoundError, UnsafePathError
from llm_common.pointers.clock import SteadyClock
from llm_common.pointers.gravestones import Gravestones
from llm_common.pointers.housekeeping import GcReport, Housekeeper
from llm_common.pointers.inventory import take_inventory
from llm_common.pointers.maintenance import StoreReport, Verifier
from llm_common.pointers.object_records import ConditionalPointerRecords
from llm_common.pointers.pointer import ContextPointer, check_pointer_id
from llm_common.pointers.records import PointerRecords, RecordWriter
from llm_common.pointers.retention import has_expired, not_found
from llm_common.storage import ConditionalBlobStore, LockingBlobStore, check_query_id

__all__ = ["StoreUpkeep"]

Report = TypeVar("Report")


class StoreUpkeep:
    """The half of a `ContextPointerStore` that needs no call and no result.

    Args:
        blobs: Where the bytes are kept.
        clock: Tells what has expired.
    """

    def __init__(self, blobs: LockingBlobStore | ConditionalBlobStore, clock: SteadyClock) -> None:
        self._blobs = blobs
        self._clock = clock
        self._gravestones = Gravestones(blobs)
        self._records = (
            PointerRecords(blobs) if isinstance(blobs, LockingBlobStore) else ConditionalPointerRecords(blobs)
        )

    def delete(self, *, query_id: str, pointer_ids: Collection[str] | None = None, remember: bool = True) -> int:
        """How many pointers of a query were removed, with their results; foreign files stay.

        A query that is deleted whole leaves no byte: no damaged or unfinished file, no lock, no folder. That its
        pointers were erased is remembered apart and for a month, as salted hashes; see `Gravestones`.

        Safe beside readers and writers, and idempotent: what is not there is no error. When it is interrupted, what it
        has removed is gone and the rest is whole. Pins do not keep anything from it.

        Args:
            query_id: The query.
            pointer_ids: Which pointers; None removes all that are there.
            remember: False leaves nothing at all: a miss of theirs will not say `erased`, but `unknown`.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreError: The files cannot be removed.
        """
        check_query_id(query_id)

        def going() -> list[str]:
            found = take_inventory(self._blobs, query_id)
            there = found.owned.keys() | found.impeded
            return sorted(there if pointer_ids is None else there & set(pointer_ids))

        def remove(records: RecordWriter) -> int:
            removed = going()
            noted = not remember or self._gravestones.mark(query_id, removed, "erased", now=self._clock.now())
            for pointer_id in removed:
                with suppress(UnsafePathError):  # a directory under a name of ours
                    records.remove(query_id, pointer_id, settle=pointer_id == removed[-1])
            if not noted:  # for want of room, which there is now
                self._gravestones.mark(query_id, removed, "erased", now=self._clock.now())
            return len(removed)

        count = self._records.write(query_id, remove) if going() else 0
        if pointer_ids is None or take_inventory(self._blobs, query_id).is_empty:
            self._blobs.remove_folder(query_id)
        return count

    def pin(self, pointer: ContextPointer) -> ContextPointer:
        """The pointer as it is stored now: it neither expires nor gives way to others until it is unpinned.

        Kept by the store, for every process and across saves of the same call; idempotent. It can still be deleted.

        Raises:
            PointerNotFoundError: There is no such pointer, or it has expired.
            InvalidIdError: The pointer's `query_id` is not allowed.
            LockTimeoutError: Another writer held the query for too long.
            StoreError: The store could not be written; the pin is what it was.
        """
        return self._set_pinned(pointer, pinned=True)

    def unpin(self, pointer: ContextPointer) -> ContextPointer:
        """The pointer as it is stored now, without a pin; its time counts from its last save. Otherwise as `pin`."""
        return self._set_pinned(pointer, pinned=False)

    async def gc(self, *, now: datetime | None = None) -> GcReport:
        """What was removed: expired pointers, and what killed writers left behind, in every query.

        Reading needs none of it: what has expired is not there for any reader. Safe beside savers, on any number of
        machines, and to be called again at any time: once an hour is often enough. One query is locked at a time, and
        only when something in it is to go; one that cannot be worked on is counted and passed over. On a store
        without locks, a result that is saved again at the very moment in which its expired one goes may go with it.

        Args:
            now: Removes what has expired by then; None takes the time.

        Raises:
            StoreError: The queries cannot be listed.
        """
        housekeeper = Housekeeper(self._blobs, self._records, self._gravestones)
        moment = (now or self._clock.now()).astimezone(UTC)
        return await _in_thread(lambda stopped: housekeeper.run(now=moment, stopped=stopped))

    async def verify(self, *, repair: bool = False) -> StoreReport:
        """Everything in the store that is not as a save leaves it, each result read and held against its digest.

        Args:
            repair: True completes the saves that killed writers began, and removes what can never be loaded: look at
                the report without it first, if a copy could still heal it. Foreign files, and links or the like under
                names of ours, are named and never touched. Idempotent: the next report is clean.

        Raises:
            StoreError: The queries cannot be listed.
        """
        verifier = Verifier(self._blobs, self._records, self._gravestones)
        now = self._clock.now()
        return await _in_thread(lambda stopped: verifier.run(repair=repair, now=now, stopped=stopped))

    def _set_pinned(self, pointer: ContextPointer, *, pinned: bool) -> ContextPointer:
        query_id, pointer_id = check_query_id(pointer.query_id), check_pointer_id(pointer.pointer_id)

        def change(records: RecordWriter) -> ContextPointer:
            stored = records.recover(query_id, pointer_id)
            if stored is None:
                raise self._miss(query_id, pointer_id)
            if has_expired(stored, self._clock.now()):
                raise not_found("expired")
            if stored.pinned != pinned:
                stored = stored.model_copy(update={"pinned": pinned})
                records.update(stored)
            return stored

        if self._blobs.list(query_id):
            return self._records.write(query_id, change)
        raise self._miss(query_id, pointer_id)

    def _miss(self, query_id: str, pointer_id: str) -> PointerNotFoundError:
        return not_found(self._gravestones.reason(query_id, pointer_id))


async def _in_thread(run: Callable[[Callable[[], bool]], Report]) -> Report:
    """What the walk returns; it ends at the next query when its caller is cancelled."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(run, stop.is_set)
    finally:
        stop.set()
