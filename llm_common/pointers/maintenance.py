"""Maintenance of stored results: deletion, garbage collection and verification.

Each scans a query without a lock first, and changes it only if something must be removed. A walk
through many healthy queries therefore blocks no writer. The decision is repeated under the lock.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
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
"""The problem of a file.

- `bad_meta`: the record of a pointer is damaged, or belongs to another pointer.
- `digest_mismatch`: a result differs from the saved one.
- `missing_result`: a pointer has lost its result.
- `orphan_result`: a result has no pointer, since its save was killed.
- `leftover_next`: a repeated save was killed and is unfinished.
- `stale_temporary`: a temporary file of a killed writer is over an hour old.
- `unsafe`: a link, directory or device, or a file with several hard links or another owner.
- `unreadable`: the query's folder cannot be read, or a file does not fit in memory. Not repaired.
- `unrecognized`: no store writes files of this name.
"""

# Problems by file name, by pointer id.
_Faults = dict[str, dict[str, FindingKind]]

_log = logging.getLogger(__name__)


class GcReport(BaseModel):
    """The counts of a run of `gc`.

    Attributes:
        queries: Queries examined.
        passed_over: Queries skipped because of an error, such as the lock of a writer. The next run
            tries again.
        expired: Expired pointers removed.
        orphans: Results without a pointer removed.
        leftovers: Unfinished saves of killed writers finished or removed.
        temporaries: Temporary files of killed writers removed.
        freed_bytes: Total size of the removed files.
    """

    model_config = ConfigDict(frozen=True)

    queries: int = 0
    passed_over: int = 0
    expired: int = 0
    orphans: int = 0
    leftovers: int = 0
    temporaries: int = 0
    freed_bytes: int = 0


class StoreFinding(BaseModel):
    """A problem with one file of a query.

    Attributes:
        query_id: The query.
        name: Name of the file in the query's folder. Empty for the folder itself.
        pointer_id: The pointer that the file belongs to, if any.
        kind: The problem.
        repaired: Whether the problem was repaired.
    """

    model_config = ConfigDict(frozen=True)

    query_id: str
    name: str
    pointer_id: str | None
    kind: FindingKind
    repaired: bool = False


class StoreReport(BaseModel):
    """The result of `verify`.

    Attributes:
        queries: Number of queries examined.
        pointers: Number of pointers with an intact record and result.
        findings: The problems.
    """

    model_config = ConfigDict(frozen=True)

    queries: int
    pointers: int
    findings: tuple[StoreFinding, ...]

    @property
    def is_clean(self) -> bool:
        """Return whether all problems were repaired, apart from files of other programs."""
        return all(finding.repaired or finding.kind == "unrecognized" for finding in self.findings)


class Maintenance:
    """Walks through a store, with one query and one result in memory at a time.

    Args:
        records: The pairs of the store.
        tombstones: Records the removed pointers.
    """

    def __init__(self, records: PointerRecords, tombstones: Tombstones) -> None:
        self._records = records
        self._tombstones = tombstones

    def delete(
        self,
        query_id: str,
        pointer_ids: Collection[str] | None,
        *,
        remember: bool,
        saver: str | None,
        now: datetime,
    ) -> int:
        """Delete pointers, and return their number. See `ContextPointerStore.delete`."""

        def select() -> list[str]:
            files = self._scan(query_id)
            ids = files.by_pointer.keys() | files.unreadable
            if pointer_ids is not None:
                ids &= set(pointer_ids)
            return sorted(ids)

        def remove(transaction: Transaction) -> int:
            # Listed again under the lock, since another writer may have changed the folder.
            removed = select()
            if saver is not None:
                removed = [id_ for id_ in removed if not _is_kept(transaction, id_, saver)]
            # Recorded first, or a crash between the two would turn "erased" into "unknown".
            noted = not remember or self._tombstones.mark(query_id, removed, "erased", now=now)
            transaction.remove(*removed)
            if not noted:  # a full device, which now has space
                self._tombstones.mark(query_id, removed, "erased", now=now)
            return len(removed)

        count = 0
        if select():  # locking would create the folder of an unknown query
            count = self._records.change(query_id, remove)
        # An unknown query too, since a killed writer can have left only temporaries or a lock.
        if pointer_ids is None or self._scan(query_id).is_empty:
            self._records.blobs.remove_folder(folder_of(query_id))
        return count

    def gc(self, *, now: datetime, dry_run: bool, stopped: Callable[[], bool]) -> GcReport:
        """Remove the garbage of all queries, and count it. See `ContextPointerStore.gc`.

        Args:
            now: Time by which pointers have expired.
            dry_run: True changes nothing.
            stopped: Called before each query. True ends the walk.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        counts = Counter[str]()
        for query_id in self._queries(stopped):
            counts["queries"] += 1
            try:
                counts += self._collect_query(query_id, now, dry_run=dry_run)
            except StoreError as exc:
                counts["passed_over"] += 1
                _log.warning("skipped a query while collecting garbage: %s", type(exc).__name__)
        return GcReport(**counts)

    def _queries(self, stopped: Callable[[], bool]) -> Iterator[str]:
        for folder in self._records.blobs.folders():
            if stopped():
                return
            yield query_id_of(folder)

    def verify(self, *, repair: bool, now: datetime, stopped: Callable[[], bool]) -> StoreReport:
        """Report the problems of all queries. See `ContextPointerStore.verify`.

        Args:
            repair: True finishes unfinished saves, and removes pairs that can never be loaded.
            now: Current time, by which unfinished saves have lost their writer.
            stopped: Called before each query. True ends the walk.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        queries = pointers = 0
        findings: list[StoreFinding] = []
        for query_id in self._queries(stopped):
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

    def _collect_query(self, query_id: str, now: datetime, *, dry_run: bool) -> Counter[str]:
        files = self._scan(query_id)
        temporaries = files.temporaries
        counts = Counter[str]()
        if temporaries:
            counts.update(temporaries=len(temporaries), freed_bytes=sum(temporaries.values()))
        has_garbage = bool(self._records.leftovers(files, now=now) or self._expired(files, now))
        if has_garbage and dry_run:
            with self._records.quiet(query_id):  # it may be a writer's unfinished work
                counts += self._collect(None, query_id, now)
        elif has_garbage:
            counts += self._records.change(
                query_id, lambda transaction: self._collect(transaction, query_id, now)
            )
        if not dry_run:
            if temporaries:
                self._records.blobs.sweep(folder_of(query_id))
            if self._scan(query_id).is_empty:
                self._records.blobs.remove_folder(folder_of(query_id))
        return counts

    def _collect(
        self, transaction: Transaction | None, query_id: str, now: datetime
    ) -> Counter[str]:
        """Count the garbage of a query, and remove it in a transaction."""
        files = self._scan(query_id)
        leftovers = self._records.leftovers(files, now=now)
        if transaction is not None and leftovers:
            transaction.clean(leftovers)
        # Finishing a save can have replaced an expired record by one that has not expired.
        expired = self._expired(self._scan(query_id), now)
        if transaction is not None:
            self._tombstones.mark(query_id, expired, "expired", now=now)
            transaction.remove(*expired)
        # By name, since a file of an expired pointer can also be a leftover.
        sizes: dict[str, int] = {}
        for pointer_id, entries in files.by_pointer.items():
            for name, entry in entries.items():
                if pointer_id in expired or name in leftovers:
                    sizes[name] = entry.size
        kinds = Counter(leftovers.values())
        return Counter(
            leftovers=kinds["leftover_next"],
            orphans=kinds["orphan_result"],
            expired=len(expired),
            freed_bytes=sum(sizes.values()),
        )

    def _expired(self, files: QueryFiles, now: datetime) -> list[str]:
        expired = []
        for pointer in read_pointers(self._records.blobs, files):
            if has_expired(pointer, now):
                expired.append(pointer.pointer_id)
        return expired

    def _verify_query(
        self, query_id: str, *, repair: bool, now: datetime
    ) -> tuple[list[StoreFinding], int]:
        """Return the problems of a query, and the number of its intact pointers."""
        files = self._scan(query_id)
        faults = self._faults(files, files.by_pointer, now)
        whole = len(files.by_pointer.keys() - faults.keys() - files.unreadable)
        if repair and files.temporaries:
            self._records.blobs.sweep(folder_of(query_id))
        if faults and repair:
            faults = self._records.change(
                query_id, lambda txn: self._repair(txn, query_id, list(faults), now)
            )
        elif faults:  # these may be a writer's unfinished work
            with self._records.quiet(query_id):
                faults = self._faults(self._scan(query_id), faults, now)
        return _findings(files, faults, repaired=repair), whole

    def _faults(self, files: QueryFiles, pointer_ids: Collection[str], now: datetime) -> _Faults:
        """Return the problems of some pointers, without the intact ones."""
        faults: _Faults = {}
        for name, kind in self._records.leftovers(files, now=now).items():
            owner = owner_of(name) or ""
            if owner in pointer_ids:
                faults.setdefault(owner, {})[name] = kind
        for pointer_id in (files.recorded - files.unreadable).intersection(pointer_ids):
            problem = self._load_problem(files.query_id, pointer_id)
            if problem:
                faults.setdefault(pointer_id, {}).update(problem)
        return faults

    def _load_problem(self, query_id: str, pointer_id: str) -> dict[str, FindingKind]:
        """Return the problem that prevents loading a pointer, by the name of the file."""
        try:
            # `load` would wait for the lock, which `_repair` holds.
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
        """Repair some pointers of a query, and return their former problems."""
        files = self._scan(query_id)
        # Looked at again under the lock, since a writer may have finished in between.
        faults = self._faults(files, suspects, now)
        transaction.clean(
            [name for name in self._records.leftovers(files, now=now) if owner_of(name) in faults]
        )
        # Only what is still damaged after the cleaning is lost.
        lost = list(self._faults(self._scan(query_id), list(faults), now))
        orphans = faults.keys() - files.recorded
        self._tombstones.mark(query_id, orphans.union(lost), "erased", now=now)
        transaction.remove(*lost)
        return faults


def _is_kept(transaction: Transaction, pointer_id: str, saver: str) -> bool:
    """Return whether others have saved a result too, without the mark of this saver from now on."""
    pointer = transaction.current(pointer_id)
    if pointer is None or pointer.savers == [saver]:
        return False
    others = [mark for mark in pointer.savers if mark != saver]
    transaction.update(pointer.model_copy(update={"savers": others}))
    return True


def _findings(files: QueryFiles, faults: _Faults, *, repaired: bool) -> list[StoreFinding]:
    """Return the problems of a query, first of files without a pointer."""
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
    for problems in faults.values():
        for name, kind in problems.items():
            add(name, kind, repaired=repaired)
    return findings
