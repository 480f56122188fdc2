"""`llm-common trace`: shows, exports, compares and replays what a run chose."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    as_inert_json,
    print_text,
    safe_text,
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
        missed = [asdict(one) for one in unseen(read)]
        print_text(
            as_inert_json(
                {"run": read.run_id, "notes": verdicts(read), "unseen": missed, "lines": lines}
            )
        )
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
    from llm_common.trace.page import render_html
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
        print_text(as_inert_json({"steps": [asdict(step) for step in steps]}))
    else:
        show_diff(steps, stdout_console())
    if any(step.changes for step in steps):
        raise typer.Exit(ExitCode.FAILED)


@trace_app.command()
def replay(
    run: _Run,
    *,
    store: Annotated[
        Path,
        typer.Option(metavar="FOLDER", file_okay=False, exists=True, help="The run's outputs."),
    ],
    query: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The question, for a trace without texts.", show_default=False
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Make the choices of a run again from its trace.

    Ends with 1 if one comes out differently. Asks no model.
    """
    from llm_common.pointers.store import FileContextPointerStore
    from llm_common.trace.replaying import replay as do_again

    done = asyncio.run(do_again(run, FileContextPointerStore(store), query=query))
    if json:
        print_text(as_inert_json({"choices": [asdict(one) for one in done]}))
    else:
        console = stdout_console()
        for one in done:
            said = "; ".join(one.changes)
            console.print(
                safe_text(
                    f"line {one.seq}: {one.status.replace('_', ' ')}{f': {said}' if said else ''}"
                )
            )
    if any(one.status == "changed" for one in done):
        raise typer.Exit(ExitCode.FAILED)
