"""Write docs/cli.md and docs/cli/*.md from the help of the commands.

python tools/cli_reference.py
"""

import inspect
import re
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from llm_common.apps.cli.app import app
from llm_common.apps.cli.terminal import ExitCode

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "cli.md"
FOLDER = DOCS / "cli"
MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed, or a check found something wrong",
    ExitCode.USAGE: "wrong options, arguments or settings, and nothing was done",
    ExitCode.NOTHING: "nothing found: no such pointer, no match, no file that fits",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.BROKEN_PIPE: "the reader of stdout closed it, as `| head` does",
}
HEAD = """# The command line

`python tools/cli_reference.py` generates this page and those of the commands from their help.

Results go to stdout, and progress and messages go to stderr. Lists are tables on a terminal, and
tab-separated lines in a pipe. `--json` prints one JSON document with the names that the library
uses. `NO_COLOR` turns colours off. Control characters in stored text are escaped on a terminal,
and kept in a pipe or file.

`llm-common --install-completion` adds completion of commands and options to your shell.

| Exit code | Meaning |
|---|---|
"""


def pages() -> dict[Path, str]:
    """Return the page of the program and one for each command, by their paths."""
    overview, *commands = re.split(r"^### ", reference(), flags=re.MULTILINE)
    made = {}
    for text in commands:
        heading, _, body = text.partition("\n")
        name = heading.strip("`").removeprefix("llm-common ")
        # Commands within a command are one level above where the one long page has them.
        body = re.sub(r"^##(#+ )", r"\1", body, flags=re.MULTILINE)
        # Each command within it is a section of the same page.
        body = re.sub(
            r"^\* `([a-z]+)`:", rf"* [`\1`](#llm-common-{name}-\1):", body, flags=re.MULTILINE
        )
        made[FOLDER / f"{name}.md"] = f"# {heading}\n{body.rstrip()}\n"
        overview = overview.replace(f"* `{name}`:", f"* [`{name}`](cli/{name}.md):")
    return {PAGE: overview.rstrip() + "\n", **made}


def reference() -> str:
    """Return the help of all commands as one text."""
    command = typer.main.get_command(app)
    set_short_help(command)
    context: Any = command.make_context("llm-common", [], resilient_parsing=True)
    shown = get_docs_for_click(
        obj=command, ctx=context, name="llm-common", title="Commands", indent=1
    )
    codes = "".join(f"| {code.value} | {MEANINGS[code]} |\n" for code in ExitCode)
    shown = re.sub(r" <(?:str|path|file|list\[\w+\])>`:", "`:", shown)  # types of Python
    lines = (line.rstrip() for line in shown.splitlines())
    return f"{HEAD}{codes}\n" + "\n".join(lines).strip() + "\n"


def set_short_help(command: Any) -> None:
    """List commands with the first paragraph of their help, which typer cuts to 45 characters."""
    for child in getattr(command, "commands", {}).values():
        paragraph = inspect.cleandoc(child.help).partition("\n\n")[0]
        child.short_help = " ".join(paragraph.split())
        set_short_help(child)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
