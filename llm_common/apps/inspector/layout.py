"""What the pages share: the head with its search, ways through long lists, sizes and times as people say them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from llm_common.trace.markup import bdi, document, plain

PAGE_ROWS: Final = 50
_PLACES: Final = {"queries": "Queries", "runs": "Runs", "tools": "Tools"}
_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def page(
    title: str, *body: str, place: str = "", above: Sequence[tuple[str, str]] = (), words: str = ""
) -> str:
    """A page with the head that all have.

    Args:
        title: Its heading.
        *body: Markup.
        place: Which of the places it belongs to.
        above: Address and name of each page above it.
        words: What was searched for.
    """
    here = {place: f" aria-current={'true' if above else 'page'}"}
    links = "".join(
        f'<a href="/{name}"{here.get(name, "")}>{shown}</a>' for name, shown in _PLACES.items()
    )
    crumbs = "".join(
        f'<li><a href="{plain(address)}">{bdi(name)}</a></li>' for address, name in above
    )
    path = f'<nav class=crumbs aria-label="Pages above"><ol>{crumbs}</ol></nav>' if above else ""
    return document(
        f"{title} - llm-common",
        '<a class="skip" href="#content">To the content</a>',
        f'<header class=site><nav class=places aria-label="Places">{links}</nav>',
        '<form class=search role=search action="/search"><label for=words>Search outputs</label>',
        f'<input id=words name=words type=search value="{plain(words)}"><button>Search</button></form></header>',
        f'<main id=content tabindex="-1">{path}<h1>{bdi(title)}</h1>',
        *body,
        "</main><footer><p>Read only: nothing here changes the store or the traces.</p></footer>",
    )


def pager(address: str, number: int, total: int, rows: int = PAGE_ROWS, **parameters: str) -> str:
    """Ways to the other pages of a list; "" where there is one page.

    Args:
        address: Of the list.
        number: This page, from 1.
        total: Rows in all.
        rows: Rows on a page.
        **parameters: Of the address.
    """
    last = max(-(-total // rows), 1)
    if last == 1:
        return ""
    ways = {"First": 1, "Previous": number - 1, "Next": number + 1, "Last": last}
    links = "".join(
        f'<a href="{plain(with_parameters(address, **parameters, page=str(to)))}">{name}</a>'
        if 1 <= to <= last and to != number
        else f"<span class=off>{name}</span>"
        for name, to in ways.items()
    )
    return f'<nav class=pager aria-label="Pages of this list">{links} <span>Page {number:,} of {last:,}</span></nav>'


def with_parameters(address: str, **parameters: str) -> str:
    """The address with those parameters that say something."""
    given = urlencode(
        {name: value for name, value in parameters.items() if value}, errors="replace"
    )
    return f"{address}?{given}" if given else address


def address_of(*parts: object) -> str:
    """The address of a page of these parts."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def link(address: str, name: object) -> str:
    """A link under a text of others."""
    return f'<a href="{plain(address)}">{bdi(name)}</a>'


def note(*texts: str) -> str:
    """Texts that stand out; "" without any."""
    listed = "".join(f"<li>{bdi(text)}</li>" for text in texts if text)
    return f'<section class=notes aria-label="Notes"><ul>{listed}</ul></section>' if listed else ""


def size(count: int | None) -> str:
    """Bytes with a unit."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - what would be shown as 1,000
        value, unit = value / 1_000, unit + 1
    shown = f"{value:.0f}" if unit == 0 or value >= 9.95 else f"{value:.1f}"  # noqa: PLR2004 - two digits
    return f"<span class=num>{shown} {_UNITS[unit]}</span>"


def moment(text: str | float | None) -> str:
    """A time as the distance from now, with the time itself behind it.

    What is no time is shown as it is.
    """
    if text is None:
        return "never"
    when = _time(text)
    if when is None:
        return bdi(text)
    apart_s = (datetime.now(UTC) - when).total_seconds()
    length, unit = next(
        ((length, unit) for length, unit in _SPANS if abs(apart_s) >= length), (1, "second")
    )
    count = int(abs(apart_s) // length)
    distance = f"{count:,} {unit}{'' if count == 1 else 's'}"
    said = f"{distance} ago" if apart_s >= 0 else f"in {distance}"
    return f'<time datetime="{when:%Y-%m-%dT%H:%M:%SZ}">{said} <small>{when:%Y-%m-%d %H:%M:%S}</small></time>'


def expiry(expires_at: str | None) -> str:
    """When something expires, or that it has."""
    when = None if expires_at is None else _time(expires_at)
    has_expired = when is not None and when <= datetime.now(UTC)
    return f"{'<span class=no>expired</span> ' if has_expired else ''}{moment(expires_at)}"


def _time(text: str | float) -> datetime | None:
    try:
        when = (
            datetime.fromtimestamp(text, UTC)
            if isinstance(text, float)
            else datetime.fromisoformat(text)
        )
        return when.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
