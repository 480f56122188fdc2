"""Remembers, for a month, why a stored result is gone."""

import hashlib
import logging
import secrets
from collections.abc import Collection
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.storage import BlobStore
from llm_common.storage.blob import OWN_FOLDER

Reason = Literal["expired", "erased"]

_MISSES = {
    "expired": "The time of the result {pointer} is over and it is gone; go on without it",
    "erased": "The result {pointer} was erased; go on without it",
    "unknown": "Nothing is stored under the pointer {pointer}; use one that the store gave",
}
_MAX_SHARD_BYTES: Final = 1_000_000  # a full one has 60 KB
_MAX_ENTRIES_PER_SHARD: Final = 1_024
_KEPT: Final = timedelta(days=30)

_log = logging.getLogger(__name__)


def not_found(
    reason: Literal["expired", "erased", "unknown"], query_id: str, pointer_id: str
) -> PointerNotFoundError:
    """Make the error for a missing pointer, which does not invite a model to run a tool again."""
    text = _MISSES[reason].format(pointer=f"{pointer_id} of query {query_id!r}")
    return PointerNotFoundError(text, reason=reason)


class _Shard(BaseModel):
    """One blob of tombstones: which tags were removed, why and when; the oldest first."""

    model_config = ConfigDict(frozen=True)

    salt: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] = Field(
        default_factory=lambda: secrets.token_hex(16)
    )
    gone: dict[str, tuple[Reason, date]] = Field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes | None) -> "_Shard":
        """The shard of these bytes, a new one for damaged ones."""
        try:
            return cls.model_validate_json(data or b"{}")
        except ValidationError:
            return cls()

    def tag(self, query_id: str, pointer_id: str) -> str:
        name = f"{query_id}/{pointer_id}".encode()
        return hashlib.blake2b(name, key=bytes.fromhex(self.salt), digest_size=8).hexdigest()


class Tombstones:
    """Remembers for a month, for every process, that a pointer expired or was erased.

    Kept in the store's own folder. An erased query leaves no name, id or content, only salted
    8-byte hashes and the day. Bounded: 256 blobs, chosen by a hash of the query, of the newest
    1,024 pointers each, 14 MB at most. A blob that is damaged or cannot be written is not an error,
    because erasing must not depend on it.

    Args:
        blobs: Where the blobs are.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def reason(self, query_id: str, pointer_id: str) -> Literal["expired", "erased", "unknown"]:
        """Return why a pointer is not there."""
        with suppress(StoreError):
            shard = _Shard.read(self._blobs.get(_shard_key(query_id), max_bytes=_MAX_SHARD_BYTES))
            return shard.gone.get(shard.tag(query_id, pointer_id), ("unknown", None))[0]
        return "unknown"

    def mark(
        self, query_id: str, pointer_ids: Collection[str], reason: Reason, *, now: datetime
    ) -> bool:
        """Note why pointers are removed, before they are. Returns False if that failed."""

        def add(data: bytes | None) -> bytes:
            shard = _Shard.read(data)
            gone = dict(shard.gone)
            for pointer_id in pointer_ids:
                tag = shard.tag(query_id, pointer_id)
                gone.pop(tag, None)  # the newest come last
                gone[tag] = reason, now.date()
            newest = dict(list(gone.items())[-_MAX_ENTRIES_PER_SHARD:])
            return shard.model_copy(update={"gone": newest}).model_dump_json().encode()

        try:
            if pointer_ids:
                self._blobs.update(_shard_key(query_id), add, max_bytes=_MAX_SHARD_BYTES)
        except StoreError as exc:
            _log.warning(
                "why %d pointers are gone could not be noted: %s",
                len(pointer_ids),
                type(exc).__name__,
            )
            return False
        return True

    def prune(self, *, now: datetime) -> int:
        """Forget the pointers that went over a month ago. Returns how many."""
        oldest, pruned = (now - _KEPT).date(), 0

        def drop(data: bytes | None) -> bytes:
            shard = _Shard.read(data)
            young = {tag: entry for tag, entry in shard.gone.items() if entry[1] >= oldest}
            return shard.model_copy(update={"gone": young}).model_dump_json().encode()

        shards: Collection[str] = ()
        with suppress(StoreError):
            shards = self._blobs.scan(OWN_FOLDER).blobs
        for name in shards:
            with suppress(StoreError):
                key = f"{OWN_FOLDER}/{name}"
                shard = _Shard.read(self._blobs.get(key, max_bytes=_MAX_SHARD_BYTES))
                old = sum(day < oldest for _, day in shard.gone.values())
                if old:
                    self._blobs.update(key, drop, max_bytes=_MAX_SHARD_BYTES)
                pruned += old
        return pruned


def _shard_key(query_id: str) -> str:
    return f"{OWN_FOLDER}/gone-{hashlib.sha256(query_id.encode()).hexdigest()[:2]}"
