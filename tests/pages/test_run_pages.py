"""The pages of runs in a real browser, as files."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages.browsing import SCREENS, visiting

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


def test_the_first_screen_has_question_answer_and_what_was_shown(
    demo_pages: list[Path], samples: Path, chromium: "Browser"
) -> None:
    pages = [page for page in demo_pages if page.stem != "index"]
    pages += sorted((samples / "pages").glob("run-*.html"))
    with visiting(chromium) as visitor:
        for page in pages:
            visitor.open(page.as_uri(), page.stem)
            for screen in SCREENS[:2]:
                visitor.use(screen)
                for element in ("h1", ".conclusion", ".sum", ".flows li"):
                    box = visitor.page.locator(element).first.bounding_box()
                    assert box, f"{page.name} has no {element}"
                    bottom = box["y"] + box["height"]
                    assert bottom <= screen.height, f"{page.name}: {element} on {screen.name}"


def test_an_index_and_pages_with_answers_fit_and_read_well(
    samples: Path, chromium: "Browser"
) -> None:
    with visiting(chromium) as visitor:
        for page in sorted((samples / "pages").glob("*.html")):
            visitor.look(page.as_uri(), f"set-{page.stem}")
        assert visitor.problems == []
