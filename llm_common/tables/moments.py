"""`moment_in`: a day or a time as it is written, in ISO 8601 or English, or with bare numbers."""

import re
from typing import Final

from llm_common.ranking.question_dates import MONTHS

_MAX_CHARS: Final = 40
_HAS_YEAR: Final = re.compile(r"(?<!\d)\d{4}(?!\d)")
_CLOCK: Final = (
    r"(?:,?[T :]\s?(?P<hour>[01]?\d|2[0-3])(?P<rest>:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?)"
    r"\s?(?P<half>[AaPp][Mm])?\s?(?:Z|UTC|GMT|[-+]\d\d:?\d\d)?)?"
)
_WEEKDAY: Final = r"(?:[A-Za-z]{3,9},? )?"
_DAY: Final = r"(?P<day>\d\d?)(?:st|nd|rd|th)?"
_MONTH: Final = r"(?P<month>[A-Za-z]{3,9})\.?"
_FORMS: Final = tuple(
    re.compile(day + _CLOCK)
    for day in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)",
        r"(?P<year>\d{4})-(?P<month>\d\d)",
        r"(?P<month>\d\d?)(?P<mark>[/-])(?P<day>\d\d?)(?P=mark)(?P<year>\d{4})",
        r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})",
        rf"{_WEEKDAY}(?:{_DAY}[ /-])?{_MONTH},?[ /-](?P<year>\d{{4}})",
        rf"{_WEEKDAY}{_MONTH} {_DAY},? (?P<year>\d{{4}})",
    )
)
_MONTHS_OF_YEAR: Final = 12
_DAYS_OF_MONTH: Final = 31


def moment_in(text: str, *, is_day_first: bool = False) -> str | None:
    """Return a moment as `2026-01-31`, `2026-01` or `2026-01-31 10:00:00`, or None.

    Args:
        text: The moment, such as `Jan 31, 2026 10:00`. An offset from UTC is left out.
        is_day_first: Whether `1/2/2026` is in February.
    """
    if len(text) > _MAX_CHARS or _HAS_YEAR.search(text) is None:
        return None
    match = next(filter(None, (form.fullmatch(text) for form in _FORMS)), None)
    if match is None:
        return None
    parts = match.groupdict()
    day = int(parts.get("day") or 0)
    month = MONTHS.get(parts["month"].lower(), 0)
    if parts["month"].isdigit():
        month = int(parts["month"])
        if is_day_first and match.start("month") == 0:
            month, day = day, month
    if not 1 <= month <= _MONTHS_OF_YEAR or day > _DAYS_OF_MONTH:
        return None
    moment = f"{parts['year']}-{month:02}" + (f"-{day:02}" if day else "")
    if not parts["hour"]:
        return moment
    hour = int(parts["hour"])
    if parts["half"]:
        hour = hour % 12 + (12 if parts["half"].lower() == "pm" else 0)
    return f"{moment} {hour:02}{parts['rest'].replace(',', '.')}"
