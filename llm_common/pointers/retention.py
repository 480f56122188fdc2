"""Decides how long a stored result stays, and remembers why one is gone."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.errors import PointerNotFoundError, ResultTooLargeError, StoreError, StoreFullError
from llm_common.pointers.pointer import ContextPointer
from llm_common.storage import BlobStore
from llm_common.storage.blob import OWN_FOLDER

Reason = Literal["expired", "erased"]

_MISSES = {
    "expired": "The time of the result {pointer} is over and it is gone; go on without it",
    "erased": "The result {pointer} was erased; go on without it",
    "unknown": "Nothing is stored under the pointer {pointer}; use one that the store gave",
}
_TICK: Final = timedelta(microseconds=1)
_MAX_STEP_BACK: Final = timedelta(seconds=5)
_MAX_SHARD_BYTES: Final = 1_000_000  # a full one has 60 KB
_MAX_ENTRIES_PER_SHARD: Final = 1_024
_KEPT: Final = timedelta(days=30)

_log = logging.getLogger(__name__)


class SteadyClock:
    """Tells the time in UTC, and never goes back by up to 5 seconds.

    While the system corrects its clock, each time is a microsecond after the one before, so what
    has expired stays expired. A clock that goes back further is believed: it was wrong before, as
    after a virtual machine resumes. Takes no lock, which a forked child could inherit held, so two
    threads can get the same time.

    Args:
        read: The clock underneath. None uses the system's.
    """

    def __init__(self, read: Callable[[], datetime] | None = None) -> None:
        self._read = read or partial(datetime.now, UTC)
        self._last = datetime.min.replace(tzinfo=UTC)

    def now(self) -> datetime:
        """The time, in UTC."""
        now = self.read()
        if timedelta(0) < self._last + _TICK - now <= _MAX_STEP_BACK:
            now = self._last + _TICK
        self._last = now
        return now

    def read(self) -> datetime:
        """The time of the clock underneath, in UTC, whatever it told before."""
        return self._read().astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of one store; each pointer carries its own expiry, which every process obeys.

    Attributes:
        ttl_s: Seconds from its last save after which a result is gone; None and infinity keep it.
        max_bytes_per_query: Most bytes of the results of one query together; None sets no limit.

    Raises:
        ValueError: A number that is not above zero.
    """

    ttl_s: float | None = None
    max_bytes_per_query: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (
            ("ttl_s", self.ttl_s),
            ("max_bytes_per_query", self.max_bytes_per_query),
        ):
            if limit is not None and not isinstance(limit, int | float):
                raise TypeError(
                    f"{name} is a {type(limit).__name__}; pass a number, or None for no limit"
                )
        if self.ttl_s is not None and not self.ttl_s > 0:  # `<= 0` would let NaN pass
            raise ValueError(
                f"ttl_s is {self.ttl_s}; "
                "pass more than 0 seconds, or use delete() for what must go now"
            )
        if self.max_bytes_per_query is not None and self.max_bytes_per_query <= 0:
            raise ValueError(
                f"max_bytes_per_query is {self.max_bytes_per_query}; "
                "pass more than 0, or None for no limit"
            )

    def expires_at(self, saved_at: datetime) -> str | None:
        """Return when a result saved at a moment expires, None for never."""
        if self.ttl_s is None:
            return None
        try:
            return time_text(saved_at + timedelta(seconds=self.ttl_s))
        except OverflowError:  # beyond the year 9999
            return None

    def select_evictions(
        self, others: Iterable[ContextPointer], *, new_bytes: int, now: datetime
    ) -> list[ContextPointer]:
        """Select the pointers of a query to evict for a new result: expired ones, then the oldest.

        Pinned ones stay.

        Args:
            others: The pointers that would remain beside it.
            new_bytes: Size of the result.
            now: Tells which have expired.

        Raises:
            ResultTooLargeError: The result alone is over the limit.
            StoreFullError: What is pinned leaves no room for it.
        """
        limit = self.max_bytes_per_query
        if limit is None:
            return []
        if new_bytes > limit:
            raise ResultTooLargeError(
                f"The result takes more than the {limit:,} bytes that a query may hold; "
                "raise max_bytes_per_query or store less"
            )
        pointers = list(others)
        pointers.sort(key=lambda p: (not has_expired(p, now), p.created_at, p.pointer_id))
        excess = new_bytes + sum(pointer.result_bytes or 0 for pointer in pointers) - limit
        evicted: list[ContextPointer] = []
        for pointer in pointers:
            if excess > 0 and not pointer.pinned:
                evicted.append(pointer)
                excess -= pointer.result_bytes or 0
        if excess > 0:
            raise StoreFullError(
                f"Pinned results leave no room for this one in the {limit:,} bytes that a query "
                "may hold; unpin or delete some, or raise max_bytes_per_query. Nothing was changed"
            )
        return evicted


def has_expired(pointer: ContextPointer, now: datetime) -> bool:
    """Return whether a pointer's time is over. One that is pinned, or has no expiry, stays."""
    if pointer.expires_at is None or pointer.pinned:
        return False
    try:
        return datetime.fromisoformat(pointer.expires_at).astimezone(UTC) <= now
    except (ValueError, OverflowError):
        return False


def time_text(moment: datetime) -> str:
    """Format a moment as pointers hold it: UTC, ISO 8601 with microseconds, which sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


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
