"""A browser, and servers of the pages. None of them is started unless a test needs it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.folders.tree import PROGRAM
from tests.pages.browsing import MISSING, PICTURES, launch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where the pictures are, or that nothing was tested."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(MISSING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"Pages were {MISSING}")
    elif "pages" in str(terminalreporter.config.getoption("markexpr")) and PICTURES.exists():
        terminalreporter.write_line(f"Pictures of the pages are in {PICTURES}")


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        if browser is None:
            pytest.skip(MISSING)
        with browser:
            yield browser


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with stores and traces, ordinary and hostile ones."""
    folder = tmp_path_factory.mktemp("samples")
    # A process, because Playwright keeps an event loop in this one.
    subprocess.run([sys.executable, "-m", "tests.pages.samples", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def demo_pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The pages of the demo's runs."""
    folder = tmp_path_factory.mktemp("demo") / "pages"
    command = [sys.executable, "-c", PROGRAM, "demo", "--output", str(folder)]
    # In another folder, so that no settings of this one are read.
    subprocess.run(command, cwd=folder.parent, check=True, stdout=subprocess.PIPE)
    return sorted(folder.rglob("*.html"))


@contextmanager
def inspecting(store: Path, traces: Path) -> Iterator[str]:
    """Run `llm-common inspect`, and yield its address with the token."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "inspect",
        "--store",
        str(store),
        "--traces",
        str(traces),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            match = re.match(r"Open (\S+)", server.stderr.readline())
            assert match
            yield match[1]
        finally:
            server.terminate()
            server.stderr.read()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        # A browser that leaves a page closes its connections.
        with suppress(ConnectionError):
            super().handle()


@pytest.fixture(scope="session")
def docs_address() -> Iterator[str]:
    """The address of the built documentation."""
    site = ROOT / "site"
    if not (site / "index.html").exists():
        pytest.fail("the documentation is not built: run `make test-pages`, or `make docs` before")
    handler = partial(_QuietHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
