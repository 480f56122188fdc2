"""Formats numbers, sizes and times for a reader. The filters of the templates."""

from datetime import UTC, datetime
from typing import Final

_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_UNITS: Final = ("KB", "MB", "GB", "TB")
_THOUSAND: Final = 999.5  # what would be rounded to 1,000
_TEN: Final = 9.95  # what would be rounded to 10 and needs no decimal


def number(value: int | None) -> str:
    """Format a count with commas, or "-" without one."""
    return "-" if value is None else f"{value:,}"


def score(value: float | None) -> str:
    """Format a score with two decimals, or "-" without one."""
    return "-" if value is None else f"{value:.2f}"


def size(count: int | None) -> str:
    """Format bytes with a unit, with two digits where they have a fraction."""
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
    """Return how far a moment is from now, as in "2 hours ago"."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    span = "0 seconds"
    for length, unit in _SPANS:
        count = int(abs(seconds) // length)
        if count:
            span = f"1 {unit}" if count == 1 else f"{count:,} {unit}s"
            break
    return f"{span} ago" if seconds >= 0 else f"in {span}"
