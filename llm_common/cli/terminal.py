"""Text and progress on a terminal: the text of files cannot drive it."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def safe_text(value: str, *, style: str = "") -> Text:
    """The text with its control characters replaced, and nothing in it read as markup."""
    return Text(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", value), style=style)


def print_text(text: str, output: Path | None) -> None:
    """Prints the text on stdout, or writes it to a file; control characters reach a file or a pipe, no terminal.

    Args:
        text: What to print, without the last line end.
        output: The file to write; None prints.

    Raises:
        typer.BadParameter: The file cannot be written.
    """
    if output is None:
        typer.echo(safe_text(text).plain if sys.stdout.isatty() else text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{output} cannot be written: {exc.strerror}") from exc


@contextmanager
def show_progress(first_step: str, *, silent: bool) -> Iterator[Callable[[str, int, int], object]]:
    """A progress callback that shows each step on a terminal's stderr, and shows nothing elsewhere.

    Args:
        first_step: What is done until the callback is first called.
        silent: True shows nothing.
    """
    console = Console(stderr=True)
    if silent or not console.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import (  # noqa: PLC0415 - slow to import
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
    )

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(first_step, total=None)
        yield lambda step, done, total: bar.update(
            task, description=safe_text(step).plain, completed=done, total=total or None
        )
