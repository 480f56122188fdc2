"""The programs of `docs/how-to/durable_runs.md`, for the tests that run them."""

import re
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "durable_runs.md"


def names_of(engine: str) -> dict[str, Any]:
    """Run the page's program for an engine as a module, and return what it defines."""
    text = _PAGE.read_text(encoding="utf-8")
    section = re.split(rf"^## {engine}$", text, flags=re.MULTILINE)[1]
    source = re.split(r"^```python\n", section, flags=re.MULTILINE)[1].partition("```\n")[0]
    # Empty lines above it make the lines of a traceback those of the page.
    above = text.count("\n", 0, text.index(source))
    names: dict[str, Any] = {"__name__": "durable_runs"}
    exec(compile("\n" * above + source, _PAGE, "exec"), names)
    return names
