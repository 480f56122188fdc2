"""Open pages in a real Chromium, in two widths and both themes, and collect what is wrong."""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

PICTURES: Final = Path(__file__).parents[2] / ".pages"
"""Folder of the pictures, one folder inside for each screen."""

MISSING: Final = (
    "not tested: there is no Chromium (apt-get install chromium, "
    "or .pages-venv/bin/playwright install chromium)"
)
_COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium would otherwise call its maker's hosts on its own.
_QUIET: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)
_LOADED_MACHINE_MS: Final = 180_000
_MAX_PICTURE_HEIGHT: Final = 6_000  # Chromium cannot paint the longest pages of the reference
_LOCAL_SCHEMES: Final = frozenset({"file", "data", "blob", "about"})
_ADDRESSES: Final = """
() => {
  const addresses = [...document.querySelectorAll("a[href]")].map((link) => link.href);
  for (const form of document.forms)
    addresses.push(form.action + "?" + new URLSearchParams(new FormData(form)));
  return addresses;
}
"""
# Elements that end right of the window, unless a parent scrolls them.
_WIDE_ELEMENTS: Final = """
() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = (element) => {
    for (let node = element.parentElement; node; node = node.parentElement)
      if (getComputedStyle(node).overflowX !== "visible") return true;
    return false;
  };
  const wide = [];
  for (const element of document.body.querySelectorAll("*"))
    if (element.getBoundingClientRect().right > width + 1 && !scrolls(element))
      wide.push(element.outerHTML.slice(0, 120));
  return wide.slice(0, 3).concat(["scrolls sideways"]);
}
"""


# Whether the page is darker than a middle grey where it has no text.
_IS_DARK: Final = """
() => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g);
  return red * 0.3 + green * 0.6 + blue * 0.1 < 128;
}
"""
# The theme of the documentation keeps the reader's choice of colours.
_FORGET_CHOICES: Final = "try { localStorage.clear() } catch { /* a page without storage */ }"


class Screen(NamedTuple):
    """A window and the reader's theme."""

    width: int
    height: int
    theme: str

    @property
    def name(self) -> str:
        """Return the name of its folder of pictures."""
        return f"{self.width}-{self.theme}"


SCREENS: Final = tuple(
    Screen(width, height, theme)
    for theme in ("light", "dark")
    for width, height in ((1280, 800), (390, 844))
)

AUDITED: Final = (SCREENS[0], SCREENS[3])
"""Each width and each theme once. Axe takes seconds for a long page."""


def chromium_path(downloaded: str) -> str | None:
    """Return the path of a Chromium, or None if there is none.

    Args:
        downloaded: Where Playwright keeps a browser that it downloaded.
    """
    for command in _COMMANDS:
        if path := shutil.which(command):
            return path
    return downloaded if Path(downloaded).exists() else None


def launch(chromium: Any) -> "Browser | None":
    """Start a headless browser, or return None if there is none."""
    path = chromium_path(chromium.executable_path)
    if path is None:
        return None
    browser: Browser = chromium.launch(
        executable_path=path, args=[*_QUIET], timeout=_LOADED_MACHINE_MS
    )
    return browser


class Visitor:
    """A window that opens one page after the other, and notes what goes wrong.

    Attributes:
        problems: What went wrong, each with the name of the page.
    """

    def __init__(self, context: "BrowserContext") -> None:
        self.problems: list[str] = []
        self.page: Page = context.new_page()
        self._name = ""
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self._note(f"script error: {error}"))
        self.page.on("dialog", self._note_dialog)
        self.page.on("request", self._note_request)

    def open(self, address: str, name: str) -> None:
        """Open a page. `name` is the name of its pictures and in problems."""
        self._name = name
        response = self.page.goto(address)
        if response is not None and not response.ok:
            self._note(f"status {response.status}")

    def look(
        self,
        address: str,
        name: str,
        *,
        unaudited_rules: Sequence[str] = (),
    ) -> None:
        """Open a page, check it on each screen, and take a picture of each.

        Args:
            address: The address of the page.
            name: See `open`.
            unaudited_rules: Rules of axe that do not apply.
        """
        theme = ""
        for screen in SCREENS:
            self.use(screen)
            if screen.theme != theme:  # loaded anew, since scripts of a page may set its colours
                theme = screen.theme
                self.open(address, name)
            if self.page.evaluate(_IS_DARK) != (theme == "dark"):
                self._note(f"{screen.name}: has the colours of the other theme")
            for element in self.page.evaluate(_WIDE_ELEMENTS):
                self._note(f"{screen.name}: {element}")
            if screen in AUDITED:
                self._audit(screen, unaudited_rules)
            self._take_picture(screen)

    def use(self, screen: Screen) -> None:
        """Change the size of the window and the theme."""
        self.page.set_viewport_size({"width": screen.width, "height": screen.height})
        self.page.emulate_media(color_scheme=screen.theme)

    def links(self) -> list[str]:
        """Return the addresses of the page's links, and of its forms as they stand."""
        addresses: list[str] = self.page.evaluate(_ADDRESSES)
        return addresses

    def _audit(self, screen: Screen, unaudited_rules: Sequence[str]) -> None:
        """Note violations of axe, such as a low contrast or a wrong role."""
        from axe_playwright_python.sync_playwright import Axe

        options = {
            "resultTypes": ["violations"],
            "rules": {rule: {"enabled": False} for rule in unaudited_rules},
        }
        for violation in Axe().run(self.page, options=options).response["violations"]:
            for node in violation["nodes"][:3]:
                element = " ".join(node["html"].split())[:160]
                self._note(f"{screen.name}: {violation['id']}: {violation['help']}: {element}")

    def _take_picture(self, screen: Screen) -> None:
        folder = PICTURES / screen.name
        folder.mkdir(parents=True, exist_ok=True)
        height = self.page.evaluate("document.documentElement.scrollHeight")
        shown = {"x": 0, "y": 0, "width": screen.width, "height": min(height, _MAX_PICTURE_HEIGHT)}
        file_name = re.sub(r"[^\w.-]+", "_", self._name)[:100]
        self.page.screenshot(path=folder / f"{file_name}.png", clip=shown, full_page=True)

    def _note(self, problem: str) -> None:
        self.problems.append(f"{self._name}: {problem}")

    def _note_message(self, message: Any) -> None:
        if message.type == "error":
            self._note(f"console: {message.text}")

    def _note_dialog(self, dialog: Any) -> None:
        self._note(f"a script opened a dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: "Request") -> None:
        address = urlsplit(request.url)
        if address.scheme not in _LOCAL_SCHEMES and address.hostname != "127.0.0.1":
            self._note(f"request to another host: {request.url}")


@contextmanager
def visiting(browser: "Browser", *, without_policy: bool = False) -> Iterator[Visitor]:
    """Open a window, and close it at the end.

    Args:
        browser: The browser.
        without_policy: Ignore the pages' content security policies, so that only the escaping of
            texts keeps a script from running.
    """
    with browser.new_context(bypass_csp=without_policy, reduced_motion="reduce") as context:
        context.set_default_timeout(_LOADED_MACHINE_MS)
        context.add_init_script(_FORGET_CHOICES)
        yield Visitor(context)
