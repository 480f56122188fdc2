"""`llm-common pack`: the parts of a folder that answer a question, within a budget of tokens."""

import glob
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from llm_common.cli.candidates import read_file
from llm_common.cli.folder_pack import PackRequest, Tell, pack_folders
from llm_common.cli.index_folder import default_cache_dir
from llm_common.cli.pack_places import packed_places, shown_file
from llm_common.cli.pack_view import pack_as_json, show_pack
from llm_common.cli.searched_folder import FileChoice
from llm_common.cli.terminal import safe_text
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter
from llm_common.errors import ConfigError

__all__ = ["pack"]

_INTERRUPTED = 130
_LEAST_BUDGET = 256
_FILE_COLUMNS = 160  # where stderr goes to a file, nothing needs to be folded


_Query = Annotated[str, typer.Argument(metavar="QUERY", help="Question or task.", show_default=False)]
_Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH]...",
        exists=True,
        readable=True,
        help="Folders to search; files among them are packed first, whatever their kind.",
        show_default="this folder",
    ),
]
_Budget = Annotated[
    int, typer.Option(metavar="TOKENS", min=_LEAST_BUDGET, max=10_000_000, help="Most tokens of the packed text.")
]
_Explain = Annotated[
    bool, typer.Option("--explain", help="Show the parts of each score, and what was weighed and not chosen.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
_Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Write to a file, not to stdout.")
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", metavar="GLOB", help="Leave out such paths, as in a .gitignore; repeatable."),
]
_Hidden = Annotated[bool, typer.Option("--hidden", help="Search hidden files and folders too.")]
_Generated = Annotated[
    bool, typer.Option("--generated", help="Search generated files too: lock files, minified and compiled sources.")
]
_CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="FOLDER",
        file_okay=False,
        help="Where the index is kept.",
        show_default="llm-common in the user's cache folder",
    ),
]


def pack(
    query: _Query,
    paths: _Paths = None,
    *,
    budget: _Budget = 8_000,
    explain: _Explain = False,
    json: _Json = False,
    output: _Output = None,
    exclude: _Exclude = None,
    hidden: _Hidden = False,
    generated: _Generated = False,
    cache_dir: _CacheDir = None,
) -> None:
    """Pack the parts of a folder that answer a question, within a hard budget of tokens.

    The best files get room first: whole where they fit, else the passages that fit the question best, else an outline
    of definitions. The packed text goes to stdout, ready for a prompt; what was chosen and why goes to stderr. Nothing
    leaves this machine, and no model is asked.

    What git ignores is left out, and so are hidden, binary and generated files and those that usually hold secrets.
    An index on disk, readable by you alone, makes the next question fast.
    """
    choice = FileChoice(hidden=hidden, generated=generated, exclude=tuple(exclude or ()))
    try:
        request = _request(
            query,
            paths or [Path()],
            budget_tokens=budget,
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
