"""Tombstones: why a result was removed, recorded for a month and more."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.errors import MissReason, PointerNotFoundError, StoreError
from llm_common.storage import BlobStore
from llm_common.storage.blob import OWN_FOLDER

Reason = Literal["expired", "erased"]

_MISSES = {
    "expired": "The result {pointer} has expired. Go on without it",
    "erased": "The result {pointer} was erased. Go on without it",
    "elsewhere": "Another session of this user has the result {pointer}. Go on without it",
    "unknown": "Nothing is stored under the pointer {pointer}. Use a pointer from the store",
}
# A full shard has 60 KB. A larger one is damaged.
_MAX_SHARD_BYTES: Final = 1_000_000
_MAX_ENTRIES_PER_SHARD: Final = 1_024
_KEPT: Final = timedelta(days=30)

_log = logging.getLogger(__name__)


def not_found(reason: MissReason, query_id: str, pointer_id: str) -> PointerNotFoundError:
    """Build the error for a missing pointer."""
    # A model reads the text, which must not tempt it to repeat an expensive tool call.
    text = _MISSES[reason].format(pointer=f"{pointer_id} of query {query_id!r}")
    return PointerNotFoundError(text, reason=reason)


class _Shard(BaseModel):
    """One blob of tombstones: reason and day of removal by salted hash, oldest first."""

    model_config = ConfigDict(frozen=True)

    # Without a salt, anyone who knows the ids could check whether a pointer was erased.
    salt: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] = Field(
        default_factory=lambda: secrets.token_hex(16)
    )
    gone: dict[str, tuple[Reason, date]] = Field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes | None) -> "_Shard":
        """Decode a shard. Returns a new one for damaged bytes."""
        try:
            return cls.model_validate_json(data or b"{}")
        except ValidationError:
            return cls()

    def tag(self, query_id: str, pointer_id: str) -> str:
        name = f"{query_id}/{pointer_id}".encode()
        return hashlib.blake2b(name, key=bytes.fromhex(self.salt), digest_size=8).hexdigest()


class Tombstones:
    """Records for a month at least, for all processes, that pointers expired or were erased.

    Stores salted 8-byte hashes and days in the store's own folder, but no name, id or content of an
    erased query. Limited to 256 blobs of the newest 1,024 pointers each, at most 14 MB. One blob
    has all pointers of a query, and each save of a repeated call reads it. An older pointer is
    unknown, and a repeat of its call can take its id again. A blob that is damaged or unwritable
    raises no error, because erasing must not depend on it.

    Args:
        blobs: The store of the blobs.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def reason(self, query_id: str, pointer_id: str) -> Literal["expired", "erased", "unknown"]:
        """Return why a pointer is missing."""
        shard = self._shard(query_id)
        return shard.gone.get(shard.tag(query_id, pointer_id), ("unknown", None))[0]

    def removed(self, query_id: str) -> Callable[[str], bool]:
        """Return a function that tells whether a pointer of a query was removed."""
        shard = self._shard(query_id)
        return lambda pointer_id: shard.tag(query_id, pointer_id) in shard.gone

    def _shard(self, query_id: str) -> "_Shard":
        folder, _, name = _shard_key(query_id).partition("/")
        data = None
        with suppress(StoreError):
            [data] = self._blobs.get_many(folder, [name], max_bytes=_MAX_SHARD_BYTES)
        return _Shard.read(data)

    def mark(
        self, query_id: str, pointer_ids: Collection[str], reason: Reason, *, now: datetime
    ) -> bool:
        """Record why pointers will be removed, and forget those of over a month ago.

        Returns False if that failed.
        """

        def add(data: bytes | None) -> bytes:
            shard = _Shard.read(data)
            oldest = (now - _KEPT).date()
            gone = {tag: entry for tag, entry in shard.gone.items() if entry[1] >= oldest}
            for pointer_id in pointer_ids:
                tag = shard.tag(query_id, pointer_id)
                gone.pop(tag, None)  # moves the tag to the end, where the newest are
                gone[tag] = reason, now.date()
            newest = dict(list(gone.items())[-_MAX_ENTRIES_PER_SHARD:])
            return shard.model_copy(update={"gone": newest}).model_dump_json().encode()

        try:
            if pointer_ids:
                self._blobs.update(_shard_key(query_id), add, max_bytes=_MAX_SHARD_BYTES)
        except StoreError as exc:
            _log.warning(
                "could not record why %d pointers are removed: %s",
                len(pointer_ids),
                type(exc).__name__,
            )
            return False
        return True


def _shard_key(query_id: str) -> str:
    return f"{OWN_FOLDER}/gone-{hashlib.sha256(query_id.encode()).hexdigest()[:2]}"
