"""`Verifier`: names whatever in a store is not as a save leaves it, and puts right what can be."""

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict

from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.pointers.gravestones import Gravestones
from llm_common.pointers.housekeeping import ABANDONED_AFTER
from llm_common.pointers.inventory import Inventory, take_inventory
from llm_common.pointers.listing import parse_key
from llm_common.pointers.object_records import ConditionalPointerRecords
from llm_common.pointers.records import PointerRecords, RecordWriter, meta_key, parse_meta, result_key
from llm_common.storage import BlobStore

__all__ = ["FindingKind", "StoreFinding", "StoreReport", "Verifier"]

FindingKind = Literal[
    "bad_meta",
    "digest_mismatch",
    "foreign",
    "leftover_next",
    "missing_result",
    "orphan_result",
    "stale_temporary",
    "unreadable",
    "unsafe",
]
"""What can be wrong with a file.

`bad_meta`: a pointer's record is damaged, or that of another place. `digest_mismatch`: a result is not what was saved.
`missing_result`: a pointer has lost its result. `orphan_result`: no pointer stands for the result of a killed first
save. `leftover_next`: a killed save of a known call is unfinished. `stale_temporary`: a killed writer's, over an hour
old. `unsafe`: a link, a file with several names or of another owner, a directory or a device under a name of ours.
`unreadable`: the whole query cannot be looked at. `foreign`: a file that is none of the store's.
"""

_LEFT_ALONE: frozenset[FindingKind] = frozenset({"foreign", "unreadable", "unsafe"})

_log = logging.getLogger(__name__)


class StoreFinding(BaseModel):
    """One thing that is not as a save leaves it.

    Attributes:
        query_id: The query.
        name: The file, or last part of the key, in the query's folder; empty for the folder itself.
        pointer_id: The pointer that owns it, if any.
        kind: What is wrong with it.
        repaired: Whether it has been put right since.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

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

    model_config = ConfigDict(frozen=True, defer_build=True)

    queries: int
    pointers: int
    findings: tuple[StoreFinding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong, or all of it has been put right; foreign files are nobody's fault."""
        return all(finding.repaired or finding.kind == "foreign" for finding in self.findings)


class Verifier:
    """Reads every pointer and every result of a store, one at a time.

    Args:
        blobs: The store's bytes.
        records: The store's pairs.
        gravestones: What is noted of those that a repair removes.
    """

    def __init__(
        self, blobs: BlobStore, records: PointerRecords | ConditionalPointerRecords, gravestones: Gravestones
    ) -> None:
        self._blobs = blobs
        self._records = records
        self._gravestones = gravestones

    def run(self, *, repair: bool, now: datetime, stopped: Callable[[], bool]) -> StoreReport:
        """What is wrong; the memory that it takes is that of the largest query and of the largest result.

        Args:
            repair: True completes what can be completed and removes what can never be loaded.
            now: Tells which unfinished saves have lost their writer.
            stopped: Asked before each query; True ends the walk.

        Raises:
            StoreError: The queries cannot be listed.
        """
        queries = pointers = 0
        findings: list[StoreFinding] = []
        for query_id in self._blobs.folders():
            if stopped():
                break
            queries += 1
            try:
                found, whole = self._verify(query_id, repair=repair, now=now)
            except StoreError as exc:
                _log.warning("a query could not be verified: %s", type(exc).__name__)
                kind: FindingKind = "unsafe" if isinstance(exc, UnsafePathError) else "unreadable"
                found, whole = [StoreFinding(query_id=query_id, name="", pointer_id=None, kind=kind)], 0
            findings += found
            pointers += whole
        return StoreReport(queries=queries, pointers=pointers, findings=tuple(findings))

    def _verify(self, query_id: str, *, repair: bool, now: datetime) -> tuple[list[StoreFinding], int]:
        """The findings of a query, and how many of its pointers are whole."""
        found = take_inventory(self._blobs, query_id)
        suspects = self._examine(found, list(found.owned), now)
        whole = len(found.owned.keys() - suspects.keys() - found.impeded)
        if repair and found.temporaries:
            self._blobs.sweep(query_id)
        findings = _others(found, repaired=repair)
        if suspects and repair:
            suspects = self._records.write(query_id, partial(self._repair, query_id, set(suspects), now))
        elif suspects:  # a writer may have been at work
            with self._records.still(query_id):
                suspects = self._examine(take_inventory(self._blobs, query_id), suspects, now)
        return [*findings, *_findings(query_id, suspects, repaired=repair)], whole

    def _examine(
        self, found: Inventory, pointer_ids: Collection[str], now: datetime
    ) -> dict[str, dict[str, FindingKind]]:
        """What is wrong with the blobs of these pointers, by key, by pointer; those that are whole are left out."""
        wrong = {one: self._faults(found, one, now) for one in pointer_ids if one not in found.impeded}
        return {pointer_id: faults for pointer_id, faults in wrong.items() if faults}

    def _faults(self, found: Inventory, pointer_id: str, now: datetime) -> dict[str, FindingKind]:
        query_id, faults = found.query_id, dict[str, FindingKind]()
        meta, result = meta_key(query_id, pointer_id), result_key(query_id, pointer_id)
        pending = found.pending(pointer_id)
        for key in self._records.abandoned(pending, before=now - ABANDONED_AFTER):
            faults[key] = "leftover_next"
        if meta in found.owned.get(pointer_id, ()):
            try:
                self._records.load_still(query_id, pointer_id)
            except PointerNotFoundError:
                faults[result] = "missing_result"
            except CorruptPointerError:
                faults |= self._what_is_corrupt(query_id, pointer_id)
        elif result in found.owned.get(pointer_id, ()) and not pending:
            faults[result] = "orphan_result"
        return faults

    def _what_is_corrupt(self, query_id: str, pointer_id: str) -> dict[str, FindingKind]:
        meta = meta_key(query_id, pointer_id)
        try:
            parse_meta(self._blobs.get(meta), query_id=query_id, pointer_id=pointer_id)
        except StoreError:
            return {meta: "bad_meta"}
        return {result_key(query_id, pointer_id): "digest_mismatch"}

    def _repair(
        self, query_id: str, suspects: set[str], now: datetime, records: RecordWriter
    ) -> dict[str, dict[str, FindingKind]]:
        """What is wrong with the pointers, and no longer is."""
        before = now - ABANDONED_AFTER
        wrong = self._examine(take_inventory(self._blobs, query_id), suspects, now)
        for pointer_id, faults in wrong.items():
            if "leftover_next" in faults.values():
                records.finish(query_id, pointer_id, before=before)
        lost = list(self._examine(take_inventory(self._blobs, query_id), wrong, now))
        self._gravestones.mark(query_id, lost, "erased", now=now)
        for pointer_id in lost:
            records.remove(query_id, pointer_id, settle=pointer_id == lost[-1])
        return wrong


def _findings(query_id: str, wrong: dict[str, dict[str, FindingKind]], *, repaired: bool) -> list[StoreFinding]:
    return [
        StoreFinding(query_id=query_id, name=key.partition("/")[2], pointer_id=pointer_id, kind=kind, repaired=repaired)
        for pointer_id, faults in wrong.items()
        for key, kind in faults.items()
    ]


def _others(found: Inventory, *, repaired: bool) -> list[StoreFinding]:
    """What no pointer owns, or what stands in the place of a pointer's."""
    kinds: dict[FindingKind, Collection[str]] = {
        "stale_temporary": found.temporaries,
        "foreign": found.foreign,
        "unsafe": found.unsafe,
    }
    findings = []
    for kind, names in kinds.items():
        for name in names:
            owner = parse_key(f"{found.query_id}/{name}")
            findings.append(
                StoreFinding(
                    query_id=found.query_id,
                    name=name,
                    pointer_id=owner[0] if owner else None,
                    kind=kind,
                    repaired=repaired and kind not in _LEFT_ALONE,
                )
            )
    return findings
