"""`run_pack`: what `llm-common pack` does, from its options to the text on stdout."""

import glob
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from llm_common.cli.pack_view import pack_as_json, show_pack
from llm_common.cli.terminal import safe_text
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter
from llm_common.errors import ConfigError
from llm_common.folders.candidates import read_file
from llm_common.folders.folder_pack import PackRequest, Tell, pack_folders, packed_places, shown_file
from llm_common.folders.index_cache import default_cache_dir
from llm_common.folders.searched_folder import FileChoice

__all__ = ["run_pack"]

_INTERRUPTED = 130
_FILE_COLUMNS = 160  # where stderr goes to a file, nothing needs to be folded


def run_pack(
    query: str,
    paths: Sequence[Path],
    *,
    budget_tokens: int,
    choice: FileChoice,
    cache_dir: Path | None,
    output: Path | None,
    explain: bool,
    json: bool,
) -> None:
    """Packs, prints the packed text or writes it to a file, and says on stderr what was chosen.

    Args:
        query: The question or task.
        paths: Folders to search, and files to pack.
        budget_tokens: Most tokens of the packed text.
        choice: Which files of the folders to look at.
        cache_dir: Where indexes are kept; None is the user's own place for them.
        output: The file to write to; None prints.
        explain: Whether to show the parts of the scores, and what was not chosen.
        json: Whether to print one JSON document instead.

    Raises:
        typer.BadParameter: Something asked for cannot be packed or written.
        typer.Exit: Nothing was packed, or the user interrupted.
    """
    try:
        request = _request(
            query,
            paths,
            budget_tokens=budget_tokens,
            choice=choice,
            output=output,
            cache_dir=cache_dir or default_cache_dir(),
        )
        with _progress(silent=json) as tell:
            packed = pack_folders(request, counter=_counter(), tell=tell)
    except KeyboardInterrupt:
        typer.echo("Interrupted; what was read so far is kept in the index.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except ConfigError as exc:
        raise typer.BadParameter(str(exc)) from exc
    _deliver(pack_as_json(packed, explain=explain) if json else packed.packed, output)
    if not json:
        console = Console(stderr=True)
        if not console.is_terminal:
            console.width = max(console.width, _FILE_COLUMNS)
        show_pack(packed, console, explain=explain)
    if not packed.packed:
        typer.echo("Nothing was packed: no file has to do with the question.", err=True)
        raise typer.Exit(1)


def _request(
    query: str,
    paths: Sequence[Path],
    *,
    budget_tokens: int,
    choice: FileChoice,
    output: Path | None,
    cache_dir: Path,
) -> PackRequest:
    if not query.strip():
        raise typer.BadParameter("the question is empty; say what the packed text is for")
    folders, files = packed_places(paths)
    if bad := [file for shown, file in files.items() if read_file(shown, file) is None]:
        raise typer.BadParameter(f"{bad[0]} is no text file of at most 1 MB; leave it out")
    if output is not None:  # it may lie in a folder that is packed, with the last answer in it
        written = "/" + glob.escape(shown_file(output.resolve(), folders))
        choice = replace(choice, exclude=(*choice.exclude, written))
    return PackRequest(query.strip(), folders, files, budget_tokens, choice, cache_dir)


def _counter() -> tuple[TokenCounter, str]:
    """What counts the tokens, and how it does."""
    try:
        return ExactCounter(), "counted exactly, as o200k_base"
    except ConfigError:
        return UpperBoundCounter(), "an upper bound; for exact counts pip install 'llm-common[tokens]'"


@contextmanager
def _progress(*, silent: bool) -> Iterator[Tell]:
    """A function that shows on a terminal's stderr what is being done; it shows nothing elsewhere."""
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

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Listing files", total=None)
        yield lambda stage, done, total: progress.update(task, description=stage, completed=done, total=total or None)


def _deliver(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(safe_text(text).plain if sys.stdout.isatty() else text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{output} cannot be written: {exc.strerror}") from exc
