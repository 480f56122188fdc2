"""`llm-common demo`: the library's whole way, on a real folder."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from llm_common.errors import ConfigError

if TYPE_CHECKING:
    from llm_common.cli.exploration import Exploration

__all__ = ["demo"]

_INTERRUPTED = 130


def demo(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            exists=True,
            file_okay=False,
            readable=True,
            help="Folder to explore.",
            show_default="this one",
        ),
    ] = Path(),
    *,
    query: Annotated[
        str, typer.Option(metavar="TEXT", help="Question about the folder.", show_default="what it is about")
    ] = "",
    budget: Annotated[
        int, typer.Option(metavar="CHARS", min=0, max=1_000_000, help="Most characters of packed context.")
    ] = 6_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stored outputs and say where they are.")] = False,
) -> None:
    """Explore a folder: choose tools, keep their outputs behind pointers, pack what answers the question.

    Without a configured endpoint nothing leaves this machine: full-text ranking chooses. With LLM_COMMON_PROVIDER,
    LLM_COMMON_BASE_URL or a provider's key set, the model chooses. Files are only read; outputs go to a temporary
    folder that is removed at the end.
    """
    from llm_common.cli.exploration import explore  # noqa: PLC0415 - clients and tools, which no other command needs

    try:
        with _store_folder(keep=keep) as store, _progress(silent=json) as tell:
            exploration = asyncio.run(
                explore(folder, question=query.strip(), budget_chars=budget, store_dir=store, tell=tell)
            )
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except ConfigError as exc:
        raise typer.BadParameter(str(exc)) from exc
    _print(exploration, store=store if keep else None, json=json)
    if exploration.failed:
        raise typer.Exit(1)


def _print(exploration: "Exploration", *, store: Path | None, json: bool) -> None:
    from llm_common.cli.exploration_view import as_json, show  # noqa: PLC0415

    if json:
        typer.echo(as_json(exploration, store=store))
    else:
        show(exploration, store=store)


@contextmanager
def _store_folder(*, keep: bool) -> Iterator[Path]:
    """A new temporary folder, removed at the end however that comes unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="llm-common-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _progress(*, silent: bool) -> Iterator[Callable[[str], object]]:
    """A function that says on a terminal's stderr what is being done; it says nothing elsewhere."""
    console = Console(stderr=True)
    if silent or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("Reading the folder") as status:
        yield status.update
