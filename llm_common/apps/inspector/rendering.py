"""Renders pages from templates that escape every value and make it inert.

A value of a template is never markup. Control characters and marks that change the direction of
text are replaced before HTML escapes are added, so no template can forget either.
"""

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from llm_common.apps.inspector import run_values
from llm_common.storage import folder_of
from llm_common.text.canonical import stable_json
from llm_common.text.display import inert
from llm_common.trace import account, differing
from llm_common.trace.trace_file import RecordedRun

PAGE_ROWS: Final = 50
"""Rows on one page of a list."""

_PACKAGE: Final = "llm_common.apps.inspector"
_MAX_TEXT_CHARS: Final = 200_000  # a browser lays out longer texts slowly
_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_UNITS: Final = ("KB", "MB", "GB", "TB")
_THOUSAND: Final = 999.5  # what would be rounded to 1,000
_TEN: Final = 9.95  # what would be rounded to 10 and needs no decimal


def render(template: str, **values: object) -> str:
    """Render a page.

    Args:
        template: Its file in `templates/`.
        **values: What the template names. A missing value raises `jinja2.UndefinedError`.
    """
    return _environment().get_template(template).render(values)


def render_html(run: RecordedRun) -> str:
    """Render a run as one HTML file that loads nothing and runs nothing.

    The same trace gives the same page. Texts of the trace are shown as text: markup, control
    characters and marks that change the direction of text have no effect.
    """
    return render("run_file.html", run=run, folder="")


def content_policy() -> str:
    """Return the Content-Security-Policy of every page: no resource but the page's own style."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'"


@cache
def _style() -> str:
    return (files(_PACKAGE) / "templates" / "page.css").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": _number,
        "score": _score,
        "size": _size,
        "time": _time,
        "distance": _distance,
        "json": stable_json,
    }
    environment.globals |= {
        "account": account,
        "address": _address,
        "content_policy": Markup(content_policy()),  # noqa: S704 - our own text
        "differing": differing,
        "folder_of": folder_of,
        "max_text_chars": _MAX_TEXT_CHARS,
        "now": lambda: datetime.now(UTC),
        "page_rows": PAGE_ROWS,
        "run_values": run_values,
        "style": Markup(_style()),  # noqa: S704 - our own text
    }
    return environment


def _without_controls(value: object) -> object:
    """Make a value inert just before the template escapes it."""
    return value if isinstance(value, Markup) else inert(str(value))


def _address(*parts: object) -> str:
    """Return the path of a page on this site."""
    return "".join("/" + quote(str(part), safe="", errors="replace") for part in parts)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _size(count: int | None) -> str:
    """Format bytes with a unit and at least two digits."""
    if count is None:
        return "-"
    value, unit = float(count), "bytes"
    for larger in _UNITS:
        if value < _THOUSAND:
            break
        value, unit = value / 1_000, larger
    decimals = 1 if unit != "bytes" and value < _TEN else 0
    return f"{value:.{decimals}f} {unit}"


def _time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, or return None for a text that is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _distance(moment: datetime) -> str:
    """Return how far a moment is from now, as in "2 hours ago"."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    distance = "0 seconds"
    for length, unit in _SPANS:
        count = int(abs(seconds) // length)
        if count:
            distance = f"1 {unit}" if count == 1 else f"{count:,} {unit}s"
            break
    return f"{distance} ago" if seconds >= 0 else f"in {distance}"
