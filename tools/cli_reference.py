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

Made from the help by `python tools/cli_reference.py`.

Text goes to stdout, talk and progress to stderr. On a terminal lists are tables; elsewhere they
are lines with tabs between the cells. `--json` prints one JSON document instead: the values of the
library that the command shows, under the names that they have there. `NO_COLOR` turns colours off.
Nothing in a name or a text of others drives the terminal; what a pipe or a file gets is as it is.

`llm-common --install-completion` teaches your shell the commands, options and ids of queries.

| exit code | meaning |
|---|---|
"""


def page() -> str:
    """The page as it should be."""
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
