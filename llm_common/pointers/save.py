"""`Saver`: gives a draft its id, its time and its room, and commits it."""

import logging
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Final, TypeAlias

from llm_common.errors import StoreError
from llm_common.pointers.clock import SteadyClock, time_text
from llm_common.pointers.commit_batch import CommitBatch
from llm_common.pointers.draft import Draft
from llm_common.pointers.gravestones import Gravestones
from llm_common.pointers.listing import PointerIndex
from llm_common.pointers.object_records import ConditionalPointerRecords
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import NewVersion, PointerRecords, RecordWriter, result_key
from llm_common.pointers.retention import Retention, has_expired
from llm_common.storage import BlobStore

__all__ = ["Saver", "Saving"]

_MAX_REPEATS: Final = 0xFFFF

Saving: TypeAlias = Callable[[RecordWriter], NewVersion]
"""Saves a draft, given what writes the pairs of its query."""

_log = logging.getLogger(__name__)


class Saver:
    """Commits drafts.

    What must give way for a result goes after it is committed, so that a save that fails costs nothing; a process that
    dies in between leaves a query over its limit until the next save.

    Args:
        blobs: The store's bytes.
        records: The store's pairs.
        gravestones: What is noted of those that give way.
        clock: The store's time.
    """

    def __init__(
        self,
        blobs: BlobStore,
        records: PointerRecords | ConditionalPointerRecords,
        gravestones: Gravestones,
        clock: SteadyClock,
    ) -> None:
        self._blobs = blobs
        self._records = records
        self._gravestones = gravestones
        self._clock = clock
        self._index = PointerIndex(blobs, records.load_still)  # used under the lock

    def save(self, draft: Draft, *, keep_repeats: bool, retention: Retention) -> ContextPointer:
        """The pointer to the draft's result, which is now stored; see `ContextPointerStore.save`."""
        saving = self.saving(draft, keep_repeats=keep_repeats, retention=retention)
        return self._records.write(draft.query_id, saving).pointer

    def saving(self, draft: Draft, *, keep_repeats: bool, retention: Retention) -> Saving:
        """What saves the draft, for `make_all`."""
        return partial(self._commit, draft=draft, keep_repeats=keep_repeats, retention=retention)

    def make_all(self, query_id: str, savings: Sequence[Saving]) -> Sequence[ContextPointer | StoreError]:
        """The pointer that each of the savings of a query leads to, or its error; all under one lock.

        For a store with locks and without a limit of bytes, which each saving would have to see the others for.
        """
        records = self._records
        assert isinstance(records, PointerRecords)
        try:
            made = records.write(query_id, lambda _: CommitBatch(query_id, records).make(savings))
        except StoreError as exc:  # the lock, or the folder itself: none was made
            return [_same(exc) for _ in savings]
        return [version if isinstance(version, StoreError) else version.pointer for version in made]

    def _commit(self, records: RecordWriter, *, draft: Draft, keep_repeats: bool, retention: Retention) -> NewVersion:
        pointer_id, owner = _choose_id(records, draft, keep_repeats=keep_repeats)
        now = self._clock.now()
        describe = partial(
            draft.pointer,
            pointer_id=pointer_id,
            created_at=time_text(now),
            result_path=self._blobs.location(result_key(draft.query_id, pointer_id)),
            expires_at=retention.expires_at(now),
            pinned=owner is not None and owner.pinned,
        )
        version = NewVersion(draft.query_id, pointer_id, draft.payload, describe)
        going = self._giving_way(version, retention)
        records.commit(version, replaces=owner is not None)
        if going:
            self._remove(records, going)
        return version

    def _giving_way(self, version: NewVersion, retention: Retention) -> list[ContextPointer]:
        """Which others of the query must go for this one; their records are read only when any must."""
        limit, new_bytes = retention.max_bytes_per_query, len(version.payload)
        if limit is None:
            return []
        own = result_key(version.query_id, version.pointer_id)
        sizes = self._blobs.list(version.query_id)
        held = sum(size for key, size in sizes.items() if key.endswith(".result.json") and key != own)
        if held + new_bytes <= limit:
            return []
        listed = self._index.read(version.query_id).pointers
        others = [other for other in listed if other.pointer_id != version.pointer_id]
        return retention.giving_way(others, new_bytes=new_bytes, now=self._clock.now())

    def _remove(self, records: RecordWriter, going: list[ContextPointer]) -> None:
        """Removes what gives way; what refuses to is left to the next save, since this one is committed."""
        now, query_id = self._clock.now(), going[0].query_id
        expired = {pointer.pointer_id for pointer in going if has_expired(pointer, now)}
        self._gravestones.mark(query_id, expired, "expired", now=now)
        erased = [pointer.pointer_id for pointer in going if pointer.pointer_id not in expired]
        self._gravestones.mark(query_id, erased, "erased", now=now)
        try:
            for pointer in going:
                records.remove(query_id, pointer.pointer_id, settle=pointer is going[-1])
        except StoreError as exc:
            _log.warning("a query stays over its limit for now: %s", type(exc).__name__)


def _choose_id(records: RecordWriter, draft: Draft, *, keep_repeats: bool) -> tuple[str, ContextPointer | None]:
    """The id to save under, and the pointer that this replaces."""
    for pointer_id in (draft.short_id, draft.long_id):
        owner = records.recover(draft.query_id, pointer_id)
        if owner is None or draft.is_of(owner):
            break
    else:
        raise StoreError("Two other calls own both ids of this call; save it under another query_id")
    if not keep_repeats or owner is None or pointer_id == draft.long_id:
        return pointer_id, owner
    return _choose_repeat(records, draft, owner)


def _choose_repeat(records: RecordWriter, draft: Draft, first: ContextPointer) -> tuple[str, ContextPointer | None]:
    def repeat(ordinal: int) -> ContextPointer | None:
        return records.recover(draft.query_id, _repeat_id(draft, ordinal))

    last, beyond = 0, 1
    while repeat(beyond) is not None:
        last, beyond = beyond, beyond * 2
    while beyond - last > 1:
        middle = (last + beyond) // 2
        last, beyond = (last, middle) if repeat(middle) is None else (middle, beyond)
    newest = repeat(last) if last else first
    if newest is not None and draft.is_of(newest) and newest.result_sha256 == draft.payload_sha256:
        return newest.pointer_id, newest
    if beyond > _MAX_REPEATS:
        raise StoreError(f"One call has been saved {_MAX_REPEATS:,} times; use another query_id")
    return _repeat_id(draft, beyond), None


def _repeat_id(draft: Draft, ordinal: int) -> str:
    return f"{draft.short_id}{ordinal:04x}"


def _same(error: StoreError) -> StoreError:
    """The error for one of several who wait, whose traceback shows nothing of the others."""
    same = copy(error)
    same.__cause__ = error.__cause__
    return same
