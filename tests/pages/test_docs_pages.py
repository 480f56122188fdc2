"""The pages of the documentation in a real browser."""

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
