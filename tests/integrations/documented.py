"""The blocks of the pages in `docs/integrations`, for the tests that run them."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "integrations"


def blocks_of(page: str) -> list[str]:
    """The Python of a page, which continues from block to block, as one program."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    return ["\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))]
