"""The pages of the documentation in a real browser."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages.browsing import visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.pages

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md"))
# A script of the theme puts the button that copies into a `nav` without a name.
RULES_OF_THE_THEME = ("landmark-unique",)
# A longer page of names cannot be looked through.
GENERATED = [page for page in PAGES if page.parts[0] in {"cli", "reference"}]
MAX_HEIGHT_PX = 12_000


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_fits_reads_well_and_has_no_error(
    page: Path, docs_address: str, chromium: "Browser"
) -> None:
    with visiting(chromium) as visitor:
        visitor.look(
            f"{docs_address}/{page}.html",
            f"docs-{page}",
            unaudited_rules=RULES_OF_THE_THEME,
        )
        assert visitor.problems == []


@pytest.mark.parametrize("page", GENERATED, ids=str)
def test_a_page_of_names_or_commands_is_short(
    page: Path, docs_address: str, chromium: "Browser"
) -> None:
    with closing(chromium.new_page(viewport={"width": 1280, "height": 900})) as tab:
        tab.goto(f"{docs_address}/{page}.html")
        height_px = tab.evaluate("document.documentElement.scrollHeight")
    assert height_px <= MAX_HEIGHT_PX
