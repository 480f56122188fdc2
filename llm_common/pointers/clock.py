"""`SteadyClock`: a time in UTC that only ever moves on."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["SteadyClock", "moment_of", "time_text"]

_STEP = timedelta(microseconds=1)


class SteadyClock:
    """Tells the time so that each answer is later than the one before, by a microsecond when the clock goes back.

    So what has expired stays expired, and what was saved later is later, as long as the process lives. Safe among
    threads.

    Args:
        read: The clock underneath; None takes the system's.
    """

    def __init__(self, read: Callable[[], datetime] | None = None) -> None:
        self._read = read or _system_time
        self._last = datetime.min.replace(tzinfo=UTC)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The time, in UTC."""
        moment = self._read().astimezone(UTC)
        with self._lock:
            self._last = max(moment, self._last + _STEP)
            return self._last


def time_text(moment: datetime) -> str:
    """The moment as pointers hold it: UTC, ISO 8601 with microseconds, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def moment_of(text: str | None) -> datetime | None:
    """The moment that a text of a pointer tells, None when it tells none."""
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _system_time() -> datetime:
    return datetime.now(UTC)
