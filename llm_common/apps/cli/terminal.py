"""Options, exit codes and output that all commands share.

Results go to stdout, messages and progress to stderr. Control characters in stored text are
replaced before a terminal sees them, since they could move its cursor or set its title.
"""

import errno
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from llm_common.runtime import install_command
from llm_common.text import CONTROLS, inert, one_line

_MAX_CELL_CHARS = 300  # about four lines of a terminal
_MAX_LOG_CHARS = 1_000
_MAX_LISTED = 5  # names in one message
_QUIET_S = 1.0  # a bar that flashes up for less disturbs more than it informs
_FILE_COLUMNS = 160  # rich assumes 80 columns for a file, which would wrap most paths

# The extra that installs a package. Any other missing module is a bug.
_EXTRAS = {
    "jinja2": "inspect",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "pyjson5": "mcp",
    "starlette": "inspect",
    "tomlkit": "mcp",
    "uvicorn": "inspect",
}


class ExitCode(IntEnum):
    """The exit code of a command, as docs/cli.md explains it. Scripts rely on the numbers."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING = 3
    # 128 plus the number of the signal (SIGINT, SIGPIPE), as shells report it.
    INTERRUPTED = 130
    BROKEN_PIPE = 141


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing. Show what would change.")]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="NUMBER", min=1, max=1_000_000, help="Maximum number of rows."
    ),
]
Offset = Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Number of rows to skip.")]


def example(*lines: str) -> str:
    """Return the end of a command's help, with an example of its use."""
    shown = " or ".join(f"`llm-common {line}`" for line in lines)
    return f"**Example:** {shown}"


class InertLogHandler(logging.Handler):
    """Prints each log record as one line on stderr, without control characters."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record's message. See `logging.Handler`."""
        # A library may pass arguments that do not fit its format, and stderr may be closed.
        # Neither may end the command.
        with suppress(TypeError, ValueError, OSError):
            say(one_line(record.getMessage(), max_chars=_MAX_LOG_CHARS))


class InertErrorGroup(TyperGroup):
    """A group whose commands end with an `ExitCode` and quote arguments without controls.

    Without arguments it shows its help, if it has `no_args_is_help`, and ends with 0.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the help if there are no arguments. See `TyperGroup`."""
        # By default this is a usage error, which ends with 2 on stderr.
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return list(super().parse_args(ctx, args))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group. See `TyperGroup`."""
        return _without_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command of the group, or None. See `TyperGroup`."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_types(command.get_params(ctx))
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments. See `TyperGroup`."""
        with _inert_errors(), _exit_codes():
            # Only the options of the group. Those of a command are parsed in `invoke`.
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. See `TyperGroup`."""
        with _inert_errors(), _exit_codes():
            return super().invoke(ctx)


def _without_types(params: list[Any]) -> list[Any]:
    """Show flags without a type in the help, where typer would have `<bool>`."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


@contextmanager
def _inert_errors() -> Iterator[None]:
    """Print a usage error or a missing extra on one line, without the controls that it quotes."""
    try:
        yield
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        end(f"Error: this needs {package}: {install_command(_EXTRAS[package])}", ExitCode.USAGE)
    except Exception as exc:
        # Usage errors are click's or typer's own class, depending on typer's version.
        # Both have this method.
        if hasattr(exc, "format_message"):
            # pydantic begins the text of a ValueError with the second one.
            text = exc.format_message().removeprefix("Invalid value: ").replace("Value error, ", "")
            context = getattr(exc, "ctx", None)
            help_hint = f" (see {context.command_path} --help)" if context else ""
            # Not in typer's box, which breaks paths that one copies.
            end(f"Error: {text}{help_hint}", ExitCode.USAGE)
        raise


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn an error into its exit code and one line on stderr, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        end("Interrupted.", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _end_without_reader()
    except SystemExit as exc:
        # The console that prints a help ends with 1 when its reader is gone.
        if isinstance(exc.__context__, BrokenPipeError):
            _end_without_reader()
        raise
    # Before their base class LLMCommonError, since these are mistakes of the command line.
    except (ConfigError, InvalidIdError, ToolArgumentsError) as exc:
        end(f"Error: {exc}", ExitCode.USAGE)
    except PointerNotFoundError as exc:
        end(exc.message, ExitCode.NOTHING)
    except LLMCommonError as exc:
        end(str(exc), ExitCode.FAILED)
    except OSError as exc:
        # A failed write to stdout names no file. Any other OSError keeps its traceback.
        if exc.filename is not None or exc.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        end(f"stdout cannot be written ({exc.strerror}).", ExitCode.FAILED)


def _end_without_reader() -> NoReturn:
    """End the command after the reader of stdout closed it."""
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        # At exit Python flushes what stdout still buffers, and would fail once more.
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def end(message: str, code: ExitCode) -> NoReturn:
    """Print the reason on stderr, and end the command with a code.

    Raises:
        typer.Exit: Always, with the code.
    """
    say(message)
    raise typer.Exit(code) from None


def say(message: str) -> None:
    """Print a message on stderr, where it does not mix with the result."""
    typer.echo(safe_text(message).plain, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr before something is erased.

    Args:
        question: What is about to happen.
        yes: Whether the command line already agreed. Then nothing is asked.

    Raises:
        click.exceptions.Abort: If the answer is not yes. The command ends with 1.
    """
    if not yes:
        typer.confirm(safe_text(question).plain, abort=True, err=True)


def safe_text(value: str, *, style: str = "") -> Text:
    """Return a text for rich, without control characters and with its markup switched off."""
    return Text(inert(value), style=style)


def safe_line(text: str, *, max_chars: int = _MAX_CELL_CHARS) -> str:
    """Return a text of a server as one line, without control characters."""
    return safe_text(one_line(text, max_chars=max_chars)).plain


def listed(names: Sequence[str]) -> str:
    """Return names for one message: the first five, and how many more there are."""
    text = ", ".join(names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        text += f" and {len(names) - _MAX_LISTED:,} more"
    return text


def as_inert_json(document: object) -> str:
    """Return a pydantic model, or values that contain models, as indented JSON.

    Control characters are escaped, so a terminal does not obey them and no text is lost.
    """
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - `--help` needs no pydantic

    # JSON has no infinities.
    plain = to_jsonable_python(document, fallback=str, inf_nan_mode="null")
    # Texts in other scripts stay readable. Control characters are escaped below.
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(document: object, output: Path | None = None) -> None:
    """Print the document of `--json`, or write it to a file. See `print_text`."""
    print_text(as_inert_json(document), output)


def print_text(text: str, output: Path | None = None) -> None:
    """Print a text on stdout, or write it to a file.

    Control characters are replaced on a terminal, and kept in a file or a pipe.

    Args:
        text: The text without its last line end.
        output: The file to write. Defaults to stdout.

    Raises:
        typer.BadParameter: If the file cannot be written.
        OSError: If stdout cannot be written.
    """
    if output is None:
        typer.echo(safe_text(text).plain if sys.stdout.isatty() else text)
        return
    try:
        # A lone surrogate, which UTF-8 cannot encode, is written as `?`.
        output.write_text(f"{text}\n", encoding="utf-8", errors="replace")
    except OSError as exc:
        reason = f"{output} cannot be written ({exc.strerror}). Name another file"
        raise typer.BadParameter(reason) from exc


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1, and `_exit_codes` ends with 141


def stdout_console() -> Console:
    """Return a console on stdout that does not wrap lines.

    It prints no colours if `NO_COLOR` is set or stdout is not a terminal.
    """
    # Stored texts contain brackets and numbers, which are neither markup nor highlights.
    return _Console(highlight=False, soft_wrap=True, markup=False)


def stderr_console() -> Console:
    """Return a console on stderr, at least 160 columns wide if that is not a terminal."""
    console = _Console(stderr=True)
    if not console.is_terminal:
        console.width = max(console.width, _FILE_COLUMNS)
    return console


def print_rows(columns: Mapping[str, type], rows: Iterable[Iterable[object]]) -> None:
    """Print rows on stdout: a table on a terminal, otherwise lines with tabs and no header.

    Args:
        columns: The type of the cells by column name. Columns of `int` are aligned right.
        rows: The cells. None is printed as an empty cell, and each is cut to 300 characters.
    """
    console = stdout_console()
    if console.is_terminal:
        console.print(rows_table(columns, rows), soft_wrap=False)
        return
    for row in rows:
        # `one_line` replaced the tabs of the cells, so each tab is between two cells.
        typer.echo("\t".join(_cell(value).plain for value in row))


def rows_table(
    columns: Mapping[str, type], rows: Iterable[Iterable[object]], *, title: str | None = None
) -> Table:
    """Return rows as a table for a terminal. See `print_rows`. A `Text` is a cell as it is."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, kind in columns.items():
        is_number = kind is int
        # Folded and not cut, since an id in the table may be copied into the next command.
        table.add_column(
            name,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
        )
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return safe_text("" if value is None else one_line(str(value), max_chars=_MAX_CELL_CHARS))


def print_result(
    document: object,
    columns: Mapping[str, type],
    rows: Iterable[Iterable[object]],
    *,
    as_json: bool,
) -> None:
    """Print the document of `--json`, or its rows. See `print_rows`."""
    if as_json:
        print_json(document)
    else:
        print_rows(columns, rows)


def end_list(total: int, limit: int, offset: int, noun: str, *, nothing: str, silent: bool) -> None:
    """Say on stderr how many rows of a list were printed, and how to see more.

    Args:
        total: Number of all rows.
        limit: Maximum number of rows that were printed.
        offset: Number of rows that were skipped.
        noun: What the rows are.
        nothing: Sentence about an empty list, also with `--json`.
        silent: Whether to say nothing about more rows.

    Raises:
        typer.Exit: If the list is empty, with the code for nothing.
    """
    if not total:
        # After the output, so that a script gets a JSON document of an empty list too.
        end(nothing, ExitCode.NOTHING)
    # Not the printed rows: a page lacks what expired, and the next offset must skip it.
    count = min(limit, max(total - offset, 0))
    if silent or count >= total:
        return
    message = f"{count:,} of {total:,} {noun}"
    if offset + count < total:
        message += f". Use --offset {offset + count} for more."
    say(message)


@contextmanager
def show_progress(
    first_step: str, *, silent: bool = False
) -> Iterator[Callable[[str, int, int], object]]:
    """Yield a callback that shows progress on a terminal's stderr, beginning after a second.

    Args:
        first_step: Description of the step until the callback is first called.
        silent: Whether to show nothing.

    Yields:
        The callback. It takes a description, the count that is done, and the total or 0.
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
        timer.join()  # otherwise a bar that is just starting would never be stopped
        bar.stop()
