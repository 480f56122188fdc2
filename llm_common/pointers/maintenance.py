"""What is done with results that are stored already: erasing, collecting garbage, verifying.

All three scan a query without a lock first, and change it only if something is to go: a walk
through many healthy queries disturbs no writer. What goes is decided again inside the change.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.pointers.pointer import has_expired
from llm_common.pointers.records import (
    MAX_RECORD_BYTES,
    LeftoverKind,
    PointerRecords,
    QueryFiles,
    Transaction,
    blob_key,
    meta_name,
    owner_of,
    parse_meta,
    read_pointers,
)
from llm_common.pointers.tombstones import Tombstones
from llm_common.storage.blob import folder_of, query_id_of

FindingKind = Literal[
    LeftoverKind,
    "bad_meta",
    "digest_mismatch",
    "unrecognized",
    "missing_result",
    "stale_temporary",
    "unreadable",
    "unsafe",
]
"""What can be wrong with a file.

`bad_meta`: a pointer's record is damaged, or that of another place. `digest_mismatch`: a result is
not what was saved. `missing_result`: a pointer has lost its result. `orphan_result`: no pointer
names the result of a killed save. `leftover_next`: a killed save of a known call is unfinished.
`stale_temporary`: a killed writer's, over an hour old. `unsafe`: a link, a file with several names
or of another owner, a directory or a device under a name of ours. `unreadable`: the whole query
cannot be looked at. `unrecognized`: a file that no store writes.
"""

# what is wrong with the files, by name, by the pointer that owns them
_Faults = dict[str, dict[str, FindingKind]]

_log = logging.getLogger(__name__)


class GcReport(BaseModel):
    """What a run of `gc` found and removed.

    Attributes:
        queries: Queries looked at.
        passed_over: Queries that could not be worked on, such as one that a writer held; the next
            run tries again.
        expired: Pointers removed since their time was over.
        orphans: Results removed that no pointer named.
        leftovers: Unfinished saves of killed writers, completed or dropped.
        temporaries: Temporary files of killed writers removed.
        freed_bytes: Bytes of all that was removed.
        forgotten: Pointers of which it is no longer known that they expired or were erased.
    """

    model_config = ConfigDict(frozen=True)

    queries: int = 0
    passed_over: int = 0
    expired: int = 0
    orphans: int = 0
    leftovers: int = 0
    temporaries: int = 0
    freed_bytes: int = 0
    forgotten: int = 0


class StoreFinding(BaseModel):
    """One thing that is not as a save leaves it.

    Attributes:
        query_id: The query.
        name: The file, or last part of the key, in the query's folder; empty for the folder itself.
        pointer_id: The pointer that owns it, if any.
        kind: What is wrong with it.
        repaired: Whether it has been put right since.
    """

    model_config = ConfigDict(frozen=True)

    query_id: str
    name: str
    pointer_id: str | None
    kind: FindingKind
    repaired: bool = False


class StoreReport(BaseModel):
    """What `verify` found.

    Attributes:
        queries: Queries looked at.
        pointers: Pointers whose record and result are whole.
        findings: Everything else.
    """

    model_config = ConfigDict(frozen=True)

    queries: int
    pointers: int
    findings: tuple[StoreFinding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong, or all of it has been put right.

        Files of other programs do not count.
        """
        return all(finding.repaired or finding.kind == "unrecognized" for finding in self.findings)


class Maintenance:
    """Walks through a store, one query at a time.

    The memory that it takes is that of the largest query and result.

    Args:
        records: The store's pairs.
        tombstones: Where removed pointers are noted.
    """

    def __init__(self, records: PointerRecords, tombstones: Tombstones) -> None:
        self._records = records
        self._tombstones = tombstones

    def delete(
        self, query_id: str, pointer_ids: Collection[str] | None, *, remember: bool, now: datetime
    ) -> int:
        """How many pointers were removed; see `ContextPointerStore.delete`."""

        def chosen() -> list[str]:
            files = self._scan(query_id)
            ids = files.by_pointer.keys() | files.unreadable
            if pointer_ids is not None:
                ids &= set(pointer_ids)
            return sorted(ids)

        def remove(transaction: Transaction) -> int:
            removed = chosen()
            noted = not remember or self._tombstones.mark(query_id, removed, "erased", now=now)
            transaction.remove(*removed)
            if not noted:  # for want of room, which there is now
                self._tombstones.mark(query_id, removed, "erased", now=now)
            return len(removed)

        count = 0
        if chosen():  # a lock would make the folder of an unknown query
            count = self._records.change(query_id, remove)
        if pointer_ids is None or self._scan(query_id).is_empty:
            self._records.blobs.remove_folder(folder_of(query_id))
        return count

    def gc(self, *, now: datetime, stopped: Callable[[], bool]) -> GcReport:
        """What was removed.

        Args:
            now: What expired by then is removed.
            stopped: Asked before each query; True ends the walk.

        Raises:
            StoreError: The queries cannot be listed.
        """
        counts = self._walk(lambda query_id: self._collect_query(query_id, now), stopped)
        counts["forgotten"] = self._tombstones.prune(now=now)
        return GcReport(**counts)

    def garbage(self, *, now: datetime, stopped: Callable[[], bool]) -> GcReport:
        """What `gc` would remove; changes nothing, and does not look at what is to be forgotten.

        Args:
            now: As for `gc`.
            stopped: As for `gc`.

        Raises:
            StoreError: The queries cannot be listed.
        """
        return GcReport(**self._walk(lambda query_id: self._garbage_of(query_id, now), stopped))

    def _walk(
        self, count: Callable[[str], Counter[str]], stopped: Callable[[], bool]
    ) -> Counter[str]:
        counts = Counter[str]()
        for query_id in map(query_id_of, self._records.blobs.folders()):
            if stopped():
                break
            counts["queries"] += 1
            try:
                counts += count(query_id)
            except StoreError as exc:
                counts["passed_over"] += 1
                _log.warning(
                    "a query was passed over while collecting garbage: %s", type(exc).__name__
                )
        return counts

    def verify(self, *, repair: bool, now: datetime, stopped: Callable[[], bool]) -> StoreReport:
        """What is wrong.

        Args:
            repair: True completes what can be completed and removes what can never be loaded.
            now: Tells which unfinished saves have lost their writer.
            stopped: Asked before each query; True ends the walk.

        Raises:
            StoreError: The queries cannot be listed.
        """
        queries = pointers = 0
        findings: list[StoreFinding] = []
        for query_id in map(query_id_of, self._records.blobs.folders()):
            if stopped():
                break
            queries += 1
            try:
                query_findings, whole = self._verify_query(query_id, repair=repair, now=now)
                findings += query_findings
                pointers += whole
            except StoreError as exc:
                _log.warning("a query could not be verified: %s", type(exc).__name__)
                kind: FindingKind = "unreadable"
                if isinstance(exc, UnsafePathError):
                    kind = "unsafe"
                findings.append(
                    StoreFinding(query_id=query_id, name="", pointer_id=None, kind=kind)
                )
        return StoreReport(queries=queries, pointers=pointers, findings=tuple(findings))

    def _scan(self, query_id: str) -> QueryFiles:
        return QueryFiles.of(self._records.blobs, query_id)

    def _collect_query(self, query_id: str, now: datetime) -> Counter[str]:
        files = self._scan(query_id)
        counts = Counter[str]()
        if files.temporaries:
            self._records.blobs.sweep(folder_of(query_id))
            counts.update(
                temporaries=len(files.temporaries), freed_bytes=sum(files.temporaries.values())
            )
        if self._records.leftovers(files, now=now) or self._expired(files, now):
            counts += self._records.change(
                query_id, lambda transaction: self._collect(transaction, query_id, now)
            )
            files = self._scan(query_id)
        if files.is_empty:
            self._records.blobs.remove_folder(folder_of(query_id))
        return counts

    def _garbage_of(self, query_id: str, now: datetime) -> Counter[str]:
        """What `_collect_query` would count."""
        files = self._scan(query_id)
        leftovers = self._records.leftovers(files, now=now)
        if leftovers:  # or a writer at work
            with self._records.quiet(query_id):
                files = self._scan(query_id)
                leftovers = self._records.leftovers(files, now=now)
        kinds, expired = Counter(leftovers.values()), self._expired(files, now)
        sizes = dict(files.temporaries)  # by name: what an expired pointer left counts once
        for pointer_id, entries in files.by_pointer.items():
            for name, entry in entries.items():
                if pointer_id in expired or name in leftovers:
                    sizes[name] = entry.size
        return Counter(
            leftovers=kinds["leftover_next"],
            orphans=kinds["orphan_result"],
            expired=len(expired),
            temporaries=len(files.temporaries),
            freed_bytes=sum(sizes.values()),
        )

    def _collect(self, transaction: Transaction, query_id: str, now: datetime) -> Counter[str]:
        """Removes the garbage of a query; counts what goes."""
        files = self._scan(query_id)
        leftovers = self._records.leftovers(files, now=now)
        kinds = Counter(leftovers.values())
        counts = Counter(leftovers=kinds["leftover_next"], orphans=kinds["orphan_result"])
        for name in leftovers:
            counts["freed_bytes"] += files.by_pointer[owner_of(name) or ""][name].size
        transaction.clean(leftovers)
        files = self._scan(query_id)
        expired = self._expired(files, now)
        self._tombstones.mark(query_id, expired, "expired", now=now)
        transaction.remove(*expired)
        counts.update(expired=len(expired), freed_bytes=sum(map(files.size, expired)))
        return counts

    def _expired(self, files: QueryFiles, now: datetime) -> list[str]:
        expired = []
        for pointer in read_pointers(self._records.blobs, files):
            if has_expired(pointer, now):
                expired.append(pointer.pointer_id)
        return expired

    def _verify_query(
        self, query_id: str, *, repair: bool, now: datetime
    ) -> tuple[list[StoreFinding], int]:
        """The findings of a query, and how many of its pointers are whole."""
        files = self._scan(query_id)
        faults = self._faults(files, files.by_pointer, now)
        whole = len(files.by_pointer.keys() - faults.keys() - files.unreadable)
        if repair and files.temporaries:
            self._records.blobs.sweep(folder_of(query_id))
        if faults and repair:
            faults = self._records.change(
                query_id, lambda txn: self._repair(txn, query_id, list(faults), now)
            )
        elif faults:  # a writer may have been at work
            with self._records.quiet(query_id):
                faults = self._faults(self._scan(query_id), faults, now)
        return _findings(files, faults, repaired=repair), whole

    def _faults(self, files: QueryFiles, pointer_ids: Collection[str], now: datetime) -> _Faults:
        """What is wrong with these pointers; those that are whole are left out."""
        faults: _Faults = {}
        for name, kind in self._records.leftovers(files, now=now).items():
            owner = owner_of(name) or ""
            if owner in pointer_ids:
                faults.setdefault(owner, {})[name] = kind
        for pointer_id in (files.recorded - files.unreadable).intersection(pointer_ids):
            wrong = self._what_is_wrong(files.query_id, pointer_id)
            if wrong:
                faults.setdefault(pointer_id, {}).update(wrong)
        return faults

    def _what_is_wrong(self, query_id: str, pointer_id: str) -> dict[str, FindingKind]:
        """What keeps a pointer from being loaded, by the name of the file."""
        try:
            self._records.load_once(query_id, pointer_id)
        except (PointerNotFoundError, CorruptPointerError) as exc:
            meta = meta_name(pointer_id)
            try:
                data = self._records.blobs.get(blob_key(query_id, meta), max_bytes=MAX_RECORD_BYTES)
                pointer = parse_meta(data, query_id=query_id, pointer_id=pointer_id)
            except StoreError:
                return {meta: "bad_meta"}
            result = self._records.result_names(pointer)[0]
            if isinstance(exc, PointerNotFoundError):
                return {result: "missing_result"}
            return {result: "digest_mismatch"}
        return {}

    def _repair(
        self, transaction: Transaction, query_id: str, suspects: list[str], now: datetime
    ) -> _Faults:
        """What was wrong with the pointers, and no longer is."""
        files = self._scan(query_id)
        faults = self._faults(files, suspects, now)
        transaction.clean(
            [name for name in self._records.leftovers(files, now=now) if owner_of(name) in faults]
        )
        lost = list(self._faults(self._scan(query_id), list(faults), now))
        orphans = faults.keys() - files.recorded
        self._tombstones.mark(query_id, orphans.union(lost), "erased", now=now)
        transaction.remove(*lost)
        return faults


def _findings(files: QueryFiles, faults: _Faults, *, repaired: bool) -> list[StoreFinding]:
    """Return the findings of a query: those about single files, then those about pointers."""
    findings: list[StoreFinding] = []

    def add(name: str, kind: FindingKind, *, repaired: bool) -> None:
        findings.append(
            StoreFinding(
                query_id=files.query_id,
                name=name,
                pointer_id=owner_of(name),
                kind=kind,
                repaired=repaired,
            )
        )

    for name in files.temporaries:
        add(name, "stale_temporary", repaired=repaired)
    for name in files.unrecognized:
        add(name, "unrecognized", repaired=False)
    for name in files.unsafe:
        add(name, "unsafe", repaired=False)
    for wrong in faults.values():
        for name, kind in wrong.items():
            add(name, kind, repaired=repaired)
    return findings
