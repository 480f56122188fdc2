"""The pages of `llm-common inspect` in a real browser."""

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from tests.pages.browsing import Visitor, visiting
from tests.pages.conftest import inspecting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.pages

PLACES: Final = ("/queries", "/runs", "/search?words=database", "/queries/absent")
_PER_KIND: Final = 2
_STEPS: Final = 12  # each kind of step has a template of its own
_MAX_PAGES: Final = 70


def kind_of(address: str) -> str:
    """Return the kind of a page: its address without ids and values."""
    parts = urlsplit(address)
    section, *ids = parts.path.strip("/").split("/")
    names = sorted({name.partition("=")[0] for name in parts.query.split("&")} - {"", "page"})
    return "/".join([section, *("ID" for _ in ids), *names])


def crawl(visitor: Visitor, address: str, *, check: bool) -> Counter[str]:
    """Open some pages of each kind, and return how many of each there were."""
    start = urlsplit(address)
    root = f"{start.scheme}://{start.netloc}"
    visitor.open(address, "inspect")
    todo = [root + place for place in PLACES]
    seen, kinds = set(todo), Counter[str]()
    while todo and kinds.total() < _MAX_PAGES:
        link = todo.pop(0)
        kind = kind_of(link)
        limit = _STEPS if kind == "runs/ID/ID/ID" else _PER_KIND
        if kinds[kind] >= limit:
            continue
        kinds[kind] += 1
        name = re.sub(r"/", "-", f"inspect-{kind}-{kinds[kind]}")
        if check:
            visitor.look(link, name)
        else:
            visitor.open(link, name)
        for found in visitor.links():
            plain = found.partition("#")[0]
            is_page = plain.startswith(root) and not plain.endswith("/download")
            if is_page and plain not in seen:
                seen.add(plain)
                todo.append(plain)
    return kinds


def without_expected(problems: list[str]) -> list[str]:
    """Return the problems without those of a page that must not be found."""
    return [problem for problem in problems if "404" not in problem]


def test_pages_of_a_store_fit_read_well_and_have_no_error(
    samples: Path, chromium: "Browser"
) -> None:
    with (
        inspecting(samples / "store", samples / "traces") as address,
        visiting(chromium) as visitor,
    ):
        kinds = crawl(visitor, address, check=True)
        assert without_expected(visitor.problems) == []
    assert kinds["queries/ID/ID"] == _PER_KIND
    assert kinds["runs/ID/ID/ID"] > _PER_KIND


def test_hostile_texts_run_nothing_even_without_the_policy(
    samples: Path, chromium: "Browser"
) -> None:
    folder = samples / "hostile"
    with (
        inspecting(folder / "store", folder / "trace") as address,
        visiting(chromium, without_policy=True) as visitor,
    ):
        kinds = crawl(visitor, address, check=False)
        assert without_expected(visitor.problems) == []
    assert kinds["queries/ID/ID"] == _PER_KIND


def test_pages_of_hostile_texts_fit_and_read_well(samples: Path, chromium: "Browser") -> None:
    folder = samples / "hostile"
    with inspecting(folder / "store", folder / "trace") as address, visiting(chromium) as visitor:
        visitor.open(address, "hostile")
        root = address.partition("/?")[0]
        for place in ("/queries/q", "/runs", "/search?words=tool"):
            visitor.look(root + place, f"hostile-{place}")
        [page] = samples.glob("hostile/*.html")
        visitor.look(page.as_uri(), "hostile-run")
        assert visitor.problems == []


def test_a_hostile_result_is_saved_and_not_shown(samples: Path, chromium: "Browser") -> None:
    folder = samples / "hostile"
    with inspecting(folder / "store", folder / "trace") as address, visiting(chromium) as visitor:
        visitor.open(address, "download")
        visitor.open(f"{address.partition('/?')[0]}/queries/q", "download")
        visitor.page.locator("td a").first.click()
        with visitor.page.expect_download() as download:
            visitor.page.get_by_text("Download").click()
        assert re.fullmatch(r"[\w-]+\.(json|txt)", download.value.suggested_filename)
        assert visitor.problems == []


def test_a_script_would_be_noticed(samples: Path, chromium: "Browser") -> None:
    page = samples / "script.html"
    page.write_text("<title>x</title><script>alert(1); undefined_name()</script>")
    with visiting(chromium) as visitor:
        visitor.open(page.as_uri(), "script")
    assert any("dialog" in problem for problem in visitor.problems)
    assert any("script error" in problem for problem in visitor.problems)
