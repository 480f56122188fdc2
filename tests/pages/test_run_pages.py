"""The pages of runs in a real browser, as files."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages.browsing import visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.pages


def test_pages_of_the_demo_fit_read_well_and_have_no_error(
    demo_pages: list[Path], chromium: "Browser"
) -> None:
    assert len(demo_pages) > 1
    with visiting(chromium) as visitor:
        for page in demo_pages:
            visitor.look(page.as_uri(), f"demo-{page.stem}")
        assert visitor.problems == []
