"""Renewal: reading a result that was saved with `renew_on_read` extends its life."""

from datetime import UTC, datetime, timedelta
from typing import Final

from llm_common.pointers.pointer import ContextPointer, time_text

# A read costs a write only so often. The life after the last read is shorter by at most this time.
_RENEW_EVERY: Final = timedelta(hours=1)


def renewed(pointer: ContextPointer, read_at: datetime) -> ContextPointer | None:
    """Return a pointer with the life that a read gives it, or None if that is not due.

    Args:
        pointer: The pointer, which has not expired.
        read_at: Time of the read.
    """
    if pointer.renew_s is None or pointer.expires_at is None:
        return None
    try:
        life = timedelta(seconds=pointer.renew_s)
        started_at = datetime.fromisoformat(pointer.expires_at).astimezone(UTC) - life
        # A life under two hours is extended after half of it, or it would never be.
        if read_at < started_at + min(_RENEW_EVERY, life / 2):
            return None
        return pointer.model_copy(update={"expires_at": time_text(read_at + life)})
    except (ValueError, OverflowError):  # edited by hand
        return None
