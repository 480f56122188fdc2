"""`llm-common trace`: shows, exports and compares what runs chose."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    print_json,
    print_text,
    safe_text,
    say,
    stdout_console,
)

if TYPE_CHECKING:
    from llm_common.trace.account import Node
    from llm_common.trace.differing import StepDiff
    from llm_common.trace.lines import PackingLine
    from llm_common.trace.trace_file import RecordedRun

# Commands import what only they need when they run: `--help` answers at once.
# ruff: noqa: PLC0415

_COLOURS = {
    "project": "magenta",
    "file": "blue",
    "memory": "green",
    "output": "yellow",
    "turn": "red",
    "marks": "bright_black",
    "free": "white",
}
_LETTERS = {
    "project": "P",
    "file": "F",
    "memory": "M",
    "output": "O",
    "turn": "T",
    "marks": "#",
    "free": ".",
}
_BAR_CELLS = 60
_MAX_ROWS = 40

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
    from llm_common.trace.differing import diff as compare
    from llm_common.trace.trace_file import read_trace

    steps = compare(read_trace(before), read_trace(after))
    if json:
        print_json({"steps": steps})
    else:
        show_diff(steps, stdout_console())
    if any(step.changes for step in steps):
        raise typer.Exit(ExitCode.FAILED)


def render_terminal(run: "RecordedRun", *, console: Console, max_rows: int = _MAX_ROWS) -> None:
    """Prints the run; colours only add to letters and words, and `NO_COLOR` takes them away.

    Args:
        run: What to show.
        console: Where to.
        max_rows: Most things that the model did not see.
    """
    from llm_common.trace.account import tree, verdicts

    query = run.begin.query if run.begin else None
    console.print(safe_text(f"Run {run.run_id}", style="bold"))
    if query:
        console.print(safe_text(query))
    for note in verdicts(run):
        console.print(safe_text(f"Note: {note}", style="yellow"))
    root = Tree(Text("The run", style="bold"))
    _add(root, tree(run))
    console.print(root, soft_wrap=False)
    console.print(_unseen_table(run, max_rows), soft_wrap=False)


def _add(place: Tree, nodes: "Sequence[Node]") -> None:
    from llm_common.trace.account import title
    from llm_common.trace.lines import ModelCallLine, PackingLine

    for node in nodes:
        lines: list[RenderableType] = [safe_text(f"{node.line.seq} {title(node.line)}")]
        if isinstance(node.line, PackingLine):
            lines.append(_bar(node.line))
        elif isinstance(node.line, ModelCallLine) and node.line.prompt.same_bytes is not None:
            prompt = node.line.prompt
            known = f"{prompt.same_bytes:,} of {prompt.bytes:,} bytes begin like {prompt.same_as}"
            lines.append(safe_text(known, style="dim"))
        _add(place.add(Group(*lines)), node.children)


def _bar(line: "PackingLine") -> Text:
    """The budget in sixty cells, and its legend."""
    from llm_common.trace.account import by_source

    sums = by_source(line)
    total = max(sum(sums.values()), 1)
    bar, done = Text(), 0
    for source, tokens in sums.items():
        end = round((done + tokens) * _BAR_CELLS / total)
        start = round(done * _BAR_CELLS / total)
        bar.append(_LETTERS[source] * (end - start), style=f"reverse {_COLOURS[source]}")
        done += tokens
    bar.append("\n")
    for source, tokens in sums.items():
        if tokens:
            bar.append(_LETTERS[source], style=f"reverse {_COLOURS[source]}")
            bar.append(f" {source} {tokens:,}  ")
    return bar


def _unseen_table(run: "RecordedRun", max_rows: int) -> RenderableType:
    from llm_common.trace.account import unseen

    missed = unseen(run)
    table = Table(
        title=f"What the model did not see ({len(missed):,})",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("What", no_wrap=True)
    table.add_column("Id", overflow="fold", max_width=32)
    table.add_column("Why", ratio=1)
    table.add_column("Score", justify="right", no_wrap=True)
    for one in missed[:max_rows]:
        name = f"\n{one.name}" if one.name not in {"", one.id} else ""
        why = safe_text(
            f"near miss: {one.why}" if one.is_near else one.why, style="bold" if one.is_near else ""
        )
        score = "" if one.score is None else f"{one.score:.2f}"
        table.add_row(one.source, safe_text(f"{one.id}{name}"), why, score)
    rest = len(missed) - max_rows
    more = (
        Text(f"and {rest:,} more; llm-common trace export shows them", style="dim")
        if rest > 0
        else Text()
    )
    return Group(table, more)


def show_diff(steps: "Sequence[StepDiff]", console: Console) -> None:
    """Prints what differs, step by step."""
    for step in steps:
        if step.changes:
            console.print(Text(step.name, style="bold"))
            for change in step.changes:
                console.print(safe_text(f"  {change}"))
    same = sum(not step.changes for step in steps)
    console.print(Text(f"{same:,} of {len(steps):,} steps are the same", style="dim"))
