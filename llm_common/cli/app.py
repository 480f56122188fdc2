"""`app`: the commands of `llm-common`."""

from typing import Annotated

import typer

from llm_common import __version__
from llm_common.cli.demo import demo
from llm_common.cli.pack import pack

__all__ = ["app"]

app = typer.Typer(
    name="llm-common",
    help="Decides what an agent's next model call gets to see.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(pack)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llm-common {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What comes before a command."""
