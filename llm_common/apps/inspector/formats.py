"""Filters of the templates, which format numbers, sizes and times."""

from datetime import UTC, datetime
from typing import Final

_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_UNITS: Final = ("KB", "MB", "GB", "TB")
_THOUSAND: Final = 999.5  # rounds to 1,000, which the larger unit shows as 1.0
_SHORT_SECONDS: Final = 0.1  # below, two decimals of a second say little
_TEN: Final = 9.95  # rounds to 10, which needs no decimal


def number(value: int | None) -> str:
    """Format a count with commas, or "-" without one."""
    return "-" if value is None else f"{value:,}"


def score(value: float | None) -> str:
    """Format a score with two decimals, or "-" without one."""
    return "-" if value is None else f"{value:.2f}"


def seconds(value: float) -> str:
    """Format a duration in seconds or milliseconds."""
    return f"{value:.2f} s" if value >= _SHORT_SECONDS else f"{value * 1_000:.0f} ms"


def size(count: int | None) -> str:
    """Format a number of bytes with a unit and at most three digits."""
    if count is None:
        return "-"
    value, unit = float(count), "bytes"
    for larger in _UNITS:
        if value < _THOUSAND:
            break
        value, unit = value / 1_000, larger
    if unit != "bytes" and value < _TEN:
        return f"{value:.1f} {unit}"
    return f"{value:.0f} {unit}"


def time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, or return None for a text that is not one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def distance(moment: datetime) -> str:
    """Return the distance of a time from now, such as "2 hours ago"."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    span = "0 seconds"
    for length, unit in _SPANS:
        count = int(abs(seconds) // length)
        if count:
            span = f"1 {unit}" if count == 1 else f"{count:,} {unit}s"
            break
    return f"{span} ago" if seconds >= 0 else f"in {span}"
