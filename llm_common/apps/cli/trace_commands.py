"""`llm-common trace`: shows, exports and compares what runs chose."""

from pathlib import Path
from typing import Annotated

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    print_json,
    print_text,
    say,
    stdout_console,
)

# Commands import what only they need when they run: `--help` answers at once.
# ruff: noqa: PLC0415

trace_app = typer.Typer(
    name="trace",
    cls=InertErrorGroup,
    help="What a run chose and why, from its trace.",
    no_args_is_help=True,
)
_Run = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        exists=True,
        readable=True,
        help="A .jsonl file, or a folder: its newest run.",
        show_default=False,
    ),
]


@trace_app.command()
def show(run: _Run, *, json: AsJson = False) -> None:
    """Show a run: its steps, the budget of each prompt, and what the model did not see and why."""
    from llm_common.apps.cli.trace_view import render_terminal
    from llm_common.trace.account import unseen, verdicts
    from llm_common.trace.trace_file import read_trace

    read = read_trace(run)
    if json:
        lines = [line.model_dump(mode="json", exclude_none=True) for line in read.lines]
        notes, missed = verdicts(read), unseen(read)
        print_json({"run": read.run_id, "notes": notes, "unseen": missed, "lines": lines})
        return
    render_terminal(read, console=stdout_console())


@trace_app.command()
def export(
    run: _Run,
    output: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The page to write.")
    ],
) -> None:
    """Write a run as one HTML page that loads nothing and runs nothing."""
    from llm_common.apps.inspector import render_html
    from llm_common.trace.trace_file import read_trace

    print_text(render_html(read_trace(run)).rstrip("\n"), output)
    say(f"Wrote {output}.")


@trace_app.command()
def diff(before: _Run, after: _Run, *, json: AsJson = False) -> None:
    """Show what two runs chose differently; ends with 1 if anything differs."""
    from llm_common.apps.cli.trace_view import show_diff
    from llm_common.trace.differing import diff as compare
    from llm_common.trace.trace_file import read_trace

    steps = compare(read_trace(before), read_trace(after))
    if json:
        print_json({"steps": steps})
    else:
        show_diff(steps, stdout_console())
    if any(step.changes for step in steps):
        raise typer.Exit(ExitCode.FAILED)
