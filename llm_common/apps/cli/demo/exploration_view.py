"""An exploration for people and for programs: the same facts as tables and as one document."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.apps.cli.demo.exploration import Exploration
from llm_common.apps.cli.terminal import safe_text, stdout_console

_MAX_ARG_CHARS = 60


class DemoDocument(Exploration):
    """`demo`: what a run on a folder did; the fields are those of `Exploration`.

    Attributes:
        store: Folder of the stored outputs when they are kept, else None.
    """

    store: str | None


def demo_document(exploration: Exploration, *, store: Path | None) -> DemoDocument:
    """The whole exploration as the document of the command.

    Args:
        exploration: What to print.
        store: Folder of the stored outputs when they are kept.
    """
    return DemoDocument(**dict(exploration), store=str(store) if store else None)


def show(exploration: Exploration, *, store: Path | None) -> None:
    """Prints the exploration on stdout: what was asked, done, kept and dropped, then the packed context.

    Args:
        exploration: What to print.
        store: Folder of the stored outputs when they are kept.
    """
    console = stdout_console()
    _show_head(console, exploration)
    _show_plan(console, exploration)
    _show_pointers(console, exploration)
    size = f"{len(exploration.packed):,} of at most {exploration.budget_chars:,} characters"
    console.print(f"\nPacked context, {size}", style="bold")
    console.print(safe_text(exploration.packed or "(nothing was selected)"))
    times = ", ".join(
        f"{name} {seconds * 1000:,.0f} ms" for name, seconds in exploration.seconds.items()
    )
    console.print(f"\nTime: {times}", style="dim")
    if store:
        console.print(f"Stored outputs: {store}")


def _show_head(console: Console, exploration: Exploration) -> None:
    rows = {
        "Folder": f"{exploration.folder} ({exploration.files:,} text files, {exploration.skipped:,} others left out)",
        "Question": exploration.question,
        "Tools chosen by": exploration.tool_selector,
        "Outputs chosen by": exploration.context_selector,
    }
    for name, value in rows.items():
        console.print(Text.assemble((f"{name}: ", "bold"), safe_text(value)))


def _show_plan(console: Console, exploration: Exploration) -> None:
    console.print("\nPlan and calls", style="bold")
    for task in exploration.plan.tasks:
        console.print(safe_text(f"{task.id}. {task.description}"))
        calls = [call for call in exploration.calls if call.task == task.id]
        for call in calls:
            outcome = f"failed: {call.error}" if call.error else f"pointer {call.pointer_id}"
            values = (f"{name}={value!r}" for name, value in call.args.items())
            args = ", ".join(
                each if len(each) <= _MAX_ARG_CHARS else f"{each[:_MAX_ARG_CHARS]}…"
                for each in values
            )
            console.print(
                safe_text(f"   {call.tool}({args}) -> {outcome}"), style="red" if call.error else ""
            )
        if not calls:
            console.print("   no calls", style="dim")
    for problem in exploration.problems:
        console.print(safe_text(f"Problem: {problem}"), style="red")


def _show_pointers(console: Console, exploration: Exploration) -> None:
    table = Table(
        title=f"\nOutputs (selection: {exploration.selection})",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("Pointer", no_wrap=True)
    table.add_column("Output", overflow="fold")
    table.add_column("Bytes", justify="right", no_wrap=True)
    table.add_column("Kept", no_wrap=True)
    table.add_column("Why")
    for pointer in exploration.pointers:
        kept = safe_text("yes" if pointer.kept else "no", style="green" if pointer.kept else "dim")
        size = f"{pointer.bytes:,}" if pointer.bytes is not None else "?"
        why = f"{pointer.why}; {pointer.shown}" if pointer.shown else pointer.why
        table.add_row(pointer.pointer_id, safe_text(pointer.summary), size, kept, safe_text(why))
    console.print(table)
