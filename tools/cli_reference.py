"""Writes docs/cli.md from the help of the commands, and docs/cli.schema.json from the models of their documents.

`python tools/cli_reference.py` writes both; a test compares them.
"""

import json
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from llm_common.apps.cli.app import app
from llm_common.apps.cli.documents import documents, documents_schema
from llm_common.apps.cli.terminal import ExitCode

DOCS = Path(__file__).parent.parent / "docs"
PAGE, SCHEMA = DOCS / "cli.md", DOCS / "cli.schema.json"
HEAD = """# The command line

Made from the help by `python tools/cli_reference.py`.

Text goes to stdout, talk and progress to stderr. On a terminal lists are tables; elsewhere they are lines with tabs
between the cells. `--json` prints one document instead, which [cli.schema.json](cli.schema.json) describes: the
property of a command's name. `NO_COLOR` turns colours off. Nothing in a name or a text of others drives the terminal;
what a pipe or a file gets is as it is.

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
    told = ", ".join(f"`{name}`" for name in documents())
    lines = (line.rstrip() for line in shown.replace(" INTEGER RANGE", "").splitlines())
    return f"{HEAD}{codes}\nDocuments are printed by {told}.\n\n" + "\n".join(lines).strip() + "\n"


def schema() -> str:
    """The schema as it should be."""
    return json.dumps(documents_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
    print(f"wrote {PAGE} and {SCHEMA}")
