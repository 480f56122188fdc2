"""The blocks of the pages in `docs/integrations`, for the tests that run them."""

import linecache
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "integrations"


def program_of(page: str) -> str:
    """The Python of a page, which continues from block to block, as one program."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def run_page(page: str, *, model: str = "", names: Mapping[str, object]) -> dict[str, Any]:
    """Run the blocks of a page and return the names that they define.

    Args:
        page: Its name, without the ending.
        model: How the page names a model; replaced by the name `model`. "" replaces nothing.
        names: What the blocks find.
    """
    program = program_of(page)
    assert model in program
    found: dict[str, Any] = {"__name__": page, **names}
    if model:
        program = program.replace(model, "model")
    file = f"<{page}.md>"
    # For frameworks that read the source of a function, and for tracebacks.
    linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
    exec(compile(program, file, "exec"), found)
    return found
