"""Write docs/cli.md from the help of the commands: `python tools/cli_reference.py`."""

from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from llm_common.apps.cli.app import app
from llm_common.apps.cli.terminal import ExitCode

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "cli.md"
HEAD = """# The command line

`python tools/cli_reference.py` generates this page from the help of the commands.

Results go to stdout, and progress and messages go to stderr. Lists are tables on a terminal, and
tab-separated lines in a pipe. `--json` prints one JSON document with the names that the library
uses. `NO_COLOR` turns colours off. Control characters in stored text are escaped on a terminal,
and kept in a pipe or file.

`llm-common --install-completion` adds completion of commands, options and query ids to your shell.

| Exit code | Meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    command = typer.main.get_command(app)
    context: Any = command.make_context("llm-common", [], resilient_parsing=True)
    shown = get_docs_for_click(
        obj=command, ctx=context, name="llm-common", title="Commands", indent=1
    )
    codes = "".join(f"| {code.value} | {code.meaning} |\n" for code in ExitCode)
    lines = (line.rstrip() for line in shown.replace(" INTEGER RANGE", "").splitlines())
    return f"{HEAD}{codes}\n" + "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
