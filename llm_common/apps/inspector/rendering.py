"""Renders pages from templates in which every value is escaped.

Values are never markup. Control characters and direction marks are replaced before HTML is escaped.
Both happen for every value, so a template cannot forget them.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from llm_common.agents import ContextPointer, output_label
from llm_common.apps.inspector import run_page
from llm_common.apps.inspector.run_page import IndexEntry
from llm_common.storage import folder_of
from llm_common.text import counted, inert, stable_json
from llm_common.trace import FORM_NAMES, RecordedRun, account, labels, shares

PAGE_ROWS: Final = 50
"""Number of rows on one page of a list."""

BAR_WIDTH: Final = 1_000
"""Width of a bar in its own units. The page scales it."""

_PACKAGE: Final = "llm_common.apps.inspector"
# Their heads are at the right, above the numbers.
_NUMERIC_COLUMNS: Final = frozenset(
    {
        *("Bytes", "Cost", "Not shown", "On disk", "Outputs", "Returned", "Score", "Seconds"),
        *("Shown", "Step", "Tokens", "Tokens (estimate)"),
    }
)
# A longer question would leave no room for the answer on the first screen of a phone.
_MAX_QUESTION_CHARS: Final = 240
_MAX_TEXT_CHARS: Final = 200_000  # a browser lays out longer texts slowly
_SPANS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_UNITS: Final = ("KB", "MB", "GB", "TB")
_THOUSAND: Final = 999.5  # rounds to 1,000, which the larger unit shows as 1.0
_SHORT_SECONDS: Final = 0.1  # below, two decimals of a second say little
_TEN: Final = 9.95  # rounds to 10, which needs no decimal


def render(template: str, **values: object) -> str:
    """Render a page.

    Args:
        template: File name in `templates/`.
        **values: The variables of the template. A missing one raises `jinja2.UndefinedError`.
    """
    return _environment().get_template(template).render(values)


def render_html(
    run: RecordedRun,
    *,
    evidence: Sequence[str] = (),
    index: str = "",
    returned_tokens: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Render a run as one HTML file that loads nothing and runs no script.

    The same trace gives the same page. Markup, control characters and direction marks in texts of
    the trace have no effect.

    Args:
        run: The run.
        evidence: Values to mark in the prompt as evidence. Defaults to the values with digits of
            the answer that the question does not have.
        index: File name of the page that lists all of a set, in the same folder. "" has no link.
        returned_tokens: Tokens of whole outputs by pointer id, where the caller has counted them.
            The others are estimated by their length.
    """
    page = run_page.run_page(run, evidence=evidence, returned_tokens=returned_tokens)
    return render("run_file.html", run=run, page=page, labels=labels(run), folder="", index=index)


def render_index(entries: Sequence[IndexEntry], *, title: str = "Runs", lead: str = "") -> str:
    """Render a list of runs as one HTML file that links their pages.

    Args:
        entries: The runs with the file names of their pages, in the order of the list.
        title: The heading.
        lead: A sentence below it, such as what the runs show together.
    """
    rows = []
    for entry in entries:
        page = run_page.run_page(
            entry.run, evidence=entry.evidence, returned_tokens=entry.returned_tokens
        )
        rows.append((entry, page))
    return render("run_index.html", rows=rows, title=title, lead=lead)


def content_policy() -> str:
    """Return the Content-Security-Policy, which allows only the style inside the page."""
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
        undefined=StrictUndefined,  # a misspelled variable raises and is not left out
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "distance": distance,
        # Of a file in the same folder: never another site or a script.
        "file_link": partial(quote, safe="", errors="replace"),
        "json": stable_json,
        "number": number,
        "score": score,
        "seconds": seconds,
        "size": size,
        "time": time,
    }
    environment.globals |= {
        "account": account,
        "address": _address,
        "content_policy": Markup(content_policy()),  # noqa: S704 - our own text
        "folder_of": folder_of,
        "bar_width": BAR_WIDTH,
        "form_names": FORM_NAMES,
        "max_question_chars": _MAX_QUESTION_CHARS,
        "max_text_chars": _MAX_TEXT_CHARS,
        "numeric_columns": _NUMERIC_COLUMNS,
        "output_label": output_label,
        "now": lambda: datetime.now(UTC),  # a function, since the environment is cached
        "result_shape": result_shape,
        "page_rows": PAGE_ROWS,
        "run_page": run_page,
        "shares": shares,
        "style": Markup(_style()),  # noqa: S704 - our own text
    }
    return environment


def result_shape(pointer: ContextPointer) -> str:
    """Return the form of a result without its size, which has a column of its own."""
    form = pointer.digest.partition("; ")[0]
    return form.removesuffix(f", {pointer.result_bytes or 0:,} bytes")


def _without_controls(value: object) -> object:
    """Replace control characters in a value, just before the template escapes it."""
    # Markup is the output of a macro, in which values were replaced already.
    return value if isinstance(value, Markup) else inert(str(value))


def _address(*parts: object) -> str:
    """Return the path of a page on this site."""
    # No character is safe: an id may contain slashes and question marks.
    return "".join("/" + quote(str(part), safe="", errors="replace") for part in parts)


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
            span = counted(count, unit)
            break
    return f"{span} ago" if seconds >= 0 else f"in {span}"
