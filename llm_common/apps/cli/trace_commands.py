"""`llm-common trace`: shows and exports recorded runs."""

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
    InertErrorGroup,
    example,
    print_json,
    print_text,
    rows_table,
    safe_text,
    say,
    stdout_console,
)
from llm_common.errors import StoreError

if TYPE_CHECKING:
    from llm_common.trace import PackingLine, RecordedRun, account

# Commands import what only they need when they run, so `--help` answers quickly.
# ruff: noqa: PLC0415

# Each source has a letter too, since `NO_COLOR`, a pipe or a reader may not show colours.
_MARKS = {
    "project": ("P", "magenta"),
    "file": ("F", "blue"),
    "memory": ("M", "green"),
    "output": ("O", "yellow"),
    "turn": ("T", "red"),
    "marks": ("#", "bright_black"),
    "free": (".", "white"),
}
_BAR_CELLS = 60  # of 80 columns, which leaves 20 for the lines of the tree
_MAX_ROWS = 40  # about one screen

trace_app = typer.Typer(
    name="trace",
    cls=InertErrorGroup,
    help="Show what a recorded run chose, and why.",
    no_args_is_help=True,
)
_Run = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        exists=True,
        readable=True,
        help="A .jsonl file, or a folder, whose newest run is used.",
        show_default=False,
    ),
]


def _read(path: Path) -> "RecordedRun":
    from llm_common.trace import read_trace

    try:
        return read_trace(path)
    except StoreError as exc:
        raise typer.BadParameter(str(exc)) from exc


@trace_app.command(epilog=example("trace show traces"))
def show(run: _Run, *, json: AsJson = False) -> None:
    """Show the steps of a run, the budget of each prompt, and why items were left out."""
    from llm_common.trace import account

    recorded = _read(run)
    if json:
        lines = [line.model_dump(mode="json", exclude_none=True) for line in recorded.lines]
        document = {"run": recorded.run_id, "notes": account.verdicts(recorded)}
        print_json({**document, "unseen": account.unseen(recorded), "lines": lines})
    else:
        show_run(recorded, console=stdout_console())


@trace_app.command(epilog=example("trace export RUN run.html"))
def export(
    run: _Run,
    output: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="The page to write.")
    ],
) -> None:
    """Write a run as one HTML page that loads nothing and runs no script."""
    from llm_common.apps.inspector import render_html

    # `print_text` adds the last line end.
    print_text(render_html(_read(run)).rstrip("\n"), output)
    say(f"Wrote {output}.")


def show_run(run: "RecordedRun", *, console: Console) -> None:
    """Print a run as a tree, with each budget as a bar, and a table of what was left out.

    Colours repeat what letters and words say already.

    Args:
        run: The run.
        console: Where to print.
    """
    from llm_common.trace import account

    console.print(safe_text(f"Run {run.run_id}", style="bold"))
    if run.question:
        console.print(safe_text(run.question))
    for note in account.verdicts(run):
        console.print(safe_text(f"Note: {note}", style="yellow"))
    root = Tree(Text("The run", style="bold"))
    _add_nodes(root, account.tree(run))
    # With the console's soft wrap, rich would cut a long title and not wrap it.
    console.print(root, soft_wrap=False)
    items = account.unseen(run)
    console.print(_unseen_table(items), soft_wrap=False)
    if len(items) > _MAX_ROWS:
        more = f"and {len(items) - _MAX_ROWS:,} more, which llm-common trace export shows"
        console.print(Text(more, style="dim"))


def _add_nodes(branch: Tree, nodes: "Sequence[account.Node]") -> None:
    from llm_common.trace import PackingLine, account

    for node in nodes:
        rows: list[RenderableType] = [safe_text(f"{node.line.seq} {account.title(node.line)}")]
        if isinstance(node.line, PackingLine):
            rows.append(_budget_bar(node.line))
        _add_nodes(branch.add(Group(*rows)), node.children)


def _budget_bar(line: "PackingLine") -> Text:
    """Return the budget as a bar of sixty cells, with its legend below."""
    from llm_common.trace import shares

    bar, legend = Text(), Text("\n")
    for share in shares(line, _BAR_CELLS):
        letter, colour = _MARKS[share.source]
        # Reversed, so that the colour fills each cell behind its letter.
        bar.append(letter * share.width, style=f"reverse {colour}")
        legend.append(letter, style=f"reverse {colour}")
        legend.append(f" {share.source} {share.tokens:,}  ")
    return bar + legend


def _unseen_table(items: "Sequence[account.Unseen]") -> Table:
    rows = []
    for item in items[:_MAX_ROWS]:
        name = f"\n{item.name}" if item.name not in {"", item.id} else ""
        why = safe_text(item.why)
        if item.is_near:
            why = safe_text(f"near miss: {item.why}", style="bold")
        score = "" if item.score is None else f"{item.score:.2f}"
        rows.append((item.source, safe_text(f"{item.id}{name}"), why, score))
    columns = {"What": str, "Id": str, "Why": str, "Score": int}
    return rows_table(columns, rows, title=f"What the model did not see ({len(items):,})")
