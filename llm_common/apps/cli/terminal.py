"""What every command shares: its options, its exit codes, and what it may write to a terminal.

Text goes to stdout, talk and progress to stderr. Names and texts of others are written so that
nothing in them drives the terminal.
"""

import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from llm_common.errors import (
    ConfigError,
    InvalidIdError,
    LLMCommonError,
    PointerNotFoundError,
    ToolArgumentsError,
)
from llm_common.text.display import CONTROLS, inert, one_line

_MAX_CELL_CHARS = 300
_MAX_LOG_CHARS = 1_000
_QUIET_S = 1.0
_FILE_COLUMNS = 160  # where stderr goes to a file, no line needs to be folded


class ExitCode(IntEnum):
    """How a command ended; `meaning` is what the documentation says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @property
    def meaning(self) -> str:
        """What the code tells a script."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed, or a check found something wrong",
    ExitCode.USAGE: "wrong options, arguments or settings; nothing was done",
    ExitCode.NOTHING: "nothing was found: no such pointer, no match, no file that fits",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
    ExitCode.BROKEN_PIPE: "the reader of stdout was gone, as behind `| head`",
}

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would go.")]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="NUMBER", min=1, max=1_000_000, help="Most rows to show."
    ),
]
Offset = Annotated[
    int, typer.Option(metavar="NUMBER", min=0, help="How many rows to leave out before them.")
]


class InertLogHandler(logging.Handler):
    """Prints warnings of the libraries on stderr, each as one line that drives no terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints the record's message; see `logging.Handler`."""
        # a message whose arguments do not fit, or stderr is gone
        with suppress(TypeError, ValueError, OSError):
            say(one_line(record.getMessage(), max_chars=_MAX_LOG_CHARS))


class InertErrorGroup(TyperGroup):
    """Commands that end with an `ExitCode`, and whose usage errors quote by `safe_text`."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """The context of a call; see `TyperGroup`."""
        with _inert_errors(), _exit_codes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """The result of a command; see `TyperGroup`."""
        with _inert_errors(), _exit_codes():
            return super().invoke(ctx)


@contextmanager
def _inert_errors() -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        # a usage error; its class is click's or typer's, by the version of typer
        if hasattr(exc, "format_message"):
            # pydantic's, from typer
            said = str(vars(exc).get("message") or "").removeprefix("Value error, ")
            vars(exc)["message"] = safe_text(said).plain
        raise


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Ends the command with the code of its error and one line on stderr, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        end("Interrupted.", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
            # the interpreter flushes what is left at its end
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None
    except (ConfigError, InvalidIdError, ToolArgumentsError) as exc:
        raise typer.BadParameter(str(exc)) from exc
    except PointerNotFoundError as exc:
        end(exc.message, ExitCode.NOTHING)
    except LLMCommonError as exc:
        end(str(exc), ExitCode.FAILED)
    except OSError as exc:
        if exc.filename is not None or exc.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        end(f"stdout cannot be written ({exc.strerror}).", ExitCode.FAILED)


def end(message: str, code: ExitCode) -> NoReturn:
    """Ends the command with a code, and a line on stderr that says why."""
    say(message)
    raise typer.Exit(code) from None


def say(message: str) -> None:
    """Prints a line on stderr, where it is in nobody's way."""
    typer.echo(safe_text(message).plain, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Asks on stderr before something is erased; ends the command with 1 unless the answer is yes.

    Args:
        question: What is about to happen.
        yes: The answer was given with the command.
    """
    if not yes:
        typer.confirm(safe_text(question).plain, abort=True, err=True)


def safe_text(value: str, *, style: str = "") -> Text:
    """Return a text without control characters, of which nothing is read as markup."""
    return Text(inert(value), style=style)


def as_inert_json(document: object) -> str:
    """Return a model, or values that hold models, as indented JSON.

    Every character that could drive a terminal is escaped.
    """
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - `--help` needs no pydantic

    text = json.dumps(to_jsonable_python(document, fallback=str), indent=2, ensure_ascii=False)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(document: object, output: Path | None = None) -> None:
    """Print what a command has to say with `--json`, or write it to a file."""
    print_text(as_inert_json(document), output)


def print_text(text: str, output: Path | None = None) -> None:
    """Prints the text on stdout, or writes it to a file.

    Control characters reach a file or a pipe, no terminal.

    Args:
        text: What to print, without the last line end.
        output: The file to write; None prints.

    Raises:
        typer.BadParameter: The file cannot be written.
        OSError: Stdout cannot be written.
    """
    if output is None:
        typer.echo(safe_text(text).plain if sys.stdout.isatty() else text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8", errors="replace")
    except OSError as exc:
        reason = f"{output} cannot be written ({exc.strerror}); name another file"
        raise typer.BadParameter(reason) from exc


class _Console(Console):
    """A console whose broken pipe is told to the command."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout_console() -> Console:
    """A console on stdout, which folds no line.

    It has no colours where `NO_COLOR` is set or stdout is no terminal.
    """
    return _Console(highlight=False, soft_wrap=True, markup=False)


def stderr_console() -> Console:
    """A console on stderr, at least 160 columns wide where that is no terminal."""
    console = _Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, _FILE_COLUMNS)
    return console


def print_rows(columns: Mapping[str, type], rows: Iterable[Iterable[object]]) -> None:
    """Print rows on stdout: a table on a terminal, else a line each with tabs and no head.

    Args:
        columns: The heads, each with what its cells hold: `int` is set to the right, `str` may be
            folded.
        rows: The cells; None is an empty one. Each is cut to one line of 300 characters.
    """
    console = stdout_console()
    cells = [
        ["" if cell is None else one_line(str(cell), max_chars=_MAX_CELL_CHARS) for cell in row]
        for row in rows
    ]
    if not console.is_terminal:
        for line in cells:
            typer.echo("\t".join(safe_text(cell).plain for cell in line))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, kind in columns.items():
        table.add_column(name, justify="right" if kind is int else "left", overflow="fold")
    for line in cells:
        table.add_row(*map(safe_text, line))
    console.print(table, soft_wrap=False)


def say_more(shown: int, total: int, offset: int, noun: str) -> None:
    """Says on stderr how many rows a page left out, and how to see them."""
    if shown < total:
        say(
            f"{shown:,} of {total:,} {noun}"
            + (f"; --offset {offset + shown} shows more" if offset + shown < total else "")
        )


@contextmanager
def show_progress(
    first_step: str, *, silent: bool = False
) -> Iterator[Callable[[str, int, int], object]]:
    """Yield a progress callback that shows each step on a terminal's stderr after a second.

    Elsewhere it shows nothing.

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

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(first_step, total=None)
    timer = Timer(_QUIET_S, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda step, done, total: bar.update(
            task, description=safe_text(step).plain, completed=done, total=total or None
        )
    finally:
        timer.cancel()
        timer.join()  # a bar that is just starting would never be stopped
        bar.stop()
