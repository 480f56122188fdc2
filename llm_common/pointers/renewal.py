"""Renewal: reading a result that was saved with `renew_on_read` extends its life.

The time of the last read is in a small file beside the record, `{id}.read`:

    {"read_at":"2026-01-01T12:00:00.000000+00:00"}

The result expires `renew_s` seconds after that time, or at the record's own expiry if that is
later. A reader never rewrites the record, so it cannot undo a save. The file is written at most
once an hour. A missing or damaged one counts as no read.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from llm_common.pointers.pointer import ContextPointer, time_text
from llm_common.text.canonical import encode_json

MAX_READ_BYTES: Final = 1_000
"""Maximum size of a file with a read, far above its usual 50 bytes."""

# A read costs a write only so often. The life after the last read is shorter by at most this time.
_RENEW_EVERY: Final = timedelta(hours=1)


class _LastRead(BaseModel):
    """The content of `{id}.read`."""

    model_config = ConfigDict(frozen=True)

    read_at: datetime


def read_bytes(read_at: datetime) -> bytes:
    """Encode the time of a read, which `renewed` decodes."""
    return encode_json({"read_at": time_text(read_at)}).data


def renewed(pointer: ContextPointer, last_read: bytes | None) -> ContextPointer:
    """Return a pointer with the expiry that its last read gave it.

    Args:
        pointer: The pointer as its record has it.
        last_read: The bytes of its `{id}.read`, or None.
    """
    if last_read is None or pointer.renew_s is None or pointer.expires_at is None:
        return pointer
    try:
        read_at = _LastRead.model_validate_json(last_read).read_at
        expires_at = read_at + timedelta(seconds=pointer.renew_s)
        # A later save may have given it more time than the read did.
        if expires_at <= _time(pointer.expires_at):
            return pointer
    except (ValidationError, ValueError, TypeError, OverflowError):  # damaged, or edited by hand
        return pointer
    return pointer.model_copy(update={"expires_at": time_text(expires_at)})


def is_due(pointer: ContextPointer, now: datetime) -> bool:
    """Return whether a read should extend the life of a pointer, as `renewed` returns it."""
    if pointer.renew_s is None or pointer.expires_at is None:
        return False
    try:
        life = timedelta(seconds=pointer.renew_s)
        started_at = _time(pointer.expires_at) - life
    except (ValueError, OverflowError):  # edited by hand
        return False
    # A life under two hours is extended after half of it, or it would never be.
    return now >= started_at + min(_RENEW_EVERY, life / 2)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
