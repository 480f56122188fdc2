"""Text and progress on a terminal: no text of a file, a path or an argument can drive it."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from llm_common.text.display import CONTROLS, inert


def safe_text(value: str, *, style: str = "") -> Text:
    """The text with its control characters replaced, those of its direction too, and nothing read as markup."""
    return Text(inert(value), style=style)


def as_inert_json(document: Mapping[str, object]) -> str:
    """The document as indented JSON, in which every character that could drive a terminal is escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_text(text: str, output: Path | None) -> None:
    """Prints the text on stdout, or writes it to a file; control characters reach a file or a pipe, no terminal.

    Args:
        text: What to print, without the last line end.
        output: The file to write; None prints.

    Raises:
        typer.BadParameter: The file or stdout cannot be written.
        BrokenPipeError: The reader of stdout is gone.
    """
    try:
        if output:
            output.write_text(f"{text}\n", encoding="utf-8", errors="replace")
        else:
            typer.echo(safe_text(text).plain if sys.stdout.isatty() else text)
    except BrokenPipeError:
        raise  # the reader has what it wanted
    except OSError as exc:
        raise typer.BadParameter(
            f"{output or 'stdout'} cannot be written ({exc.strerror}); write to another file with --output"
        ) from exc


class InertErrorGroup(TyperGroup):
    """Commands whose usage errors quote arguments and paths by `safe_text`."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """The context of a call; see `TyperGroup`."""
        with _inert_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """The result of a command; see `TyperGroup`."""
        with _inert_errors():
            return super().invoke(ctx)


@contextmanager
def _inert_errors() -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        if hasattr(exc, "format_message"):  # a usage error; its class is click's or typer's, by the version of typer
            vars(exc)["message"] = safe_text(str(vars(exc).get("message") or "")).plain
        raise


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
