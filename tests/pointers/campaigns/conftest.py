"""The figures of a campaign, which `make torture` prints."""

from collections.abc import Callable
from typing import Any

import pytest

ShowFigures = Callable[..., None]


@pytest.fixture
def show_figures(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> ShowFigures:
    """Write measurements by name after the test's name, except in a short run."""
    full = request.node.get_closest_marker("torture") is not None
    terminal = request.config.get_terminal_writer()

    def show(**figures: Any) -> None:
        if full:
            with capsys.disabled():
                text = ", ".join(f"{name} {value}" for name, value in figures.items())
                terminal.line(f"\n{request.node.name}: {text}")

    return show
