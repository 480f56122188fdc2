"""Fail if a built page loads a script, style, font, image or frame from another host.

    python tools/site_check.py site

Run by `make docs`. Links that a reader clicks may lead anywhere.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADING = {"src", "srcset", "poster", "data", "action"}
LOADS_BY_LINK = {
    "stylesheet",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "icon",
    "manifest",
}
REMOTE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
REMOTE_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?\s*(?:https?:)?//[^\"')\s]*", re.IGNORECASE)
# What the theme fetches from elsewhere for a page that has such an element.
FETCHING_CLASSES = {"mermaid", "glightbox", "pyodide"}


class Loads(HTMLParser):
    """Collect what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        loads = {value for name, value in values.items() if name in LOADING}
        if tag == "link" and LOADS_BY_LINK.intersection(values.get("rel", "").lower().split()):
            loads.add(values.get("href", ""))
        self.found += [value for value in loads if any(map(REMOTE.match, value.split(",")))]
        self.found += REMOTE_STYLE.findall(values.get("style", ""))
        self.found += FETCHING_CLASSES.intersection(values.get("class", "").split())

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.found += REMOTE_STYLE.findall(data)


def foreign_loads(html: str) -> list[str]:
    """Return what a page loads from other hosts."""
    page = Loads()
    page.feed(html)
    return page.found


def problems(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.html")):
        yield from (f"{path}: {load}" for load in foreign_loads(path.read_text(encoding="utf-8")))
    for path in sorted(folder.rglob("*.css")):
        yield from (
            f"{path}: {load}" for load in REMOTE_STYLE.findall(path.read_text(encoding="utf-8"))
        )


if __name__ == "__main__":
    site = Path(sys.argv[1])
    if not (site / "index.html").is_file():
        sys.exit(f"{site} holds no site")
    if found := [*problems(site)]:
        sys.exit("\n".join(["these load from other hosts:", *found]))
