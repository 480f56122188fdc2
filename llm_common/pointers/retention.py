"""`Retention`: how long a stored result stays, and which ones give way when a query is full."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from llm_common.errors import PointerNotFoundError, ResultTooLargeError, StoreFullError
from llm_common.pointers.clock import moment_of, time_text
from llm_common.pointers.pointer import ContextPointer

__all__ = ["Retention", "has_expired", "not_found"]

_MISSES = {
    "expired": "The time of this stored result is over and it is gone; go on without it",
    "erased": "This stored result was erased; go on without it",
    "unknown": "Nothing is stored under this pointer; use one that the store gave",
}


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of one store; each pointer carries its own expiry, so that every process keeps to it.

    Attributes:
        ttl_s: Seconds from its last save after which a result is gone; None and infinity keep it.
        max_bytes_per_query: Most bytes of the results of one query together; None sets no limit.

    Raises:
        ValueError: A number that is not above zero.
    """

    ttl_s: float | None = None
    max_bytes_per_query: int | None = None

    def __post_init__(self) -> None:
        if self.ttl_s is not None and not self.ttl_s > 0:  # NaN is not either
            raise ValueError("ttl_s must be above 0 seconds; use delete() for what must go now")
        if self.max_bytes_per_query is not None and self.max_bytes_per_query <= 0:
            raise ValueError("max_bytes_per_query must be above 0; None sets no limit")

    def expires_at(self, saved_at: datetime) -> str | None:
        """When a result that was saved then expires, as text; None for never."""
        if self.ttl_s is None:
            return None
        try:
            return time_text(saved_at + timedelta(seconds=self.ttl_s))
        except OverflowError:  # beyond the year 9999
            return None

    def giving_way(self, others: Iterable[ContextPointer], *, new_bytes: int, now: datetime) -> list[ContextPointer]:
        """Which of the query's other pointers must go for a result of that size: expired ones, then the oldest.

        Pinned ones never do.

        Args:
            others: The pointers that would stand beside it, oldest first.
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
                f"The result takes more than the {limit:,} bytes that a query may hold; raise max_bytes_per_query "
                "or store less"
            )
        pointers = list(others)
        beyond = new_bytes + sum(_size(pointer) for pointer in pointers) - limit
        going: list[ContextPointer] = []
        for pointer in sorted(pointers, key=lambda one: not has_expired(one, now)):
            if beyond <= 0:
                return going
            if not pointer.pinned:
                going.append(pointer)
                beyond -= _size(pointer)
        if beyond > 0:
            raise StoreFullError(
                f"Pinned results leave no room for this one in the {limit:,} bytes that a query may hold; unpin or "
                "delete some, or raise max_bytes_per_query. Nothing was changed"
            )
        return going


def has_expired(pointer: ContextPointer, now: datetime) -> bool:
    """Whether the pointer's time is over; never that of a pinned one, nor of one whose expiry is no time."""
    if pointer.expires_at is None or pointer.pinned:
        return False
    expires_at = moment_of(pointer.expires_at)
    return expires_at is not None and expires_at <= now


def not_found(reason: Literal["expired", "erased", "unknown"]) -> PointerNotFoundError:
    """The miss of a pointer, in words that make nobody run the tool again."""
    return PointerNotFoundError(_MISSES[reason], reason=reason)


def _size(pointer: ContextPointer) -> int:
    return pointer.result_bytes or 0
