"""`app`: the commands of `llm-common` and their options."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common import __version__
from llm_common._env import POINTER_STORE_DIR, TRACE_DIR, read_path
from llm_common.apps.cli.context_commands import context
from llm_common.apps.cli.doctor_commands import doctor
from llm_common.apps.cli.gateway_commands import gateway
from llm_common.apps.cli.memory_commands import memory
from llm_common.apps.cli.pack_commands import pack
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    print_json,
    say,
    show_progress,
    stdout_console,
)
from llm_common.apps.cli.tools_commands import tools
from llm_common.apps.cli.trace_commands import trace_app
from llm_common.errors import missing_extra

if TYPE_CHECKING:
    from llm_common.apps.cli.demo.five_questions import QuestionsDocument

# Commands import what only they need when they run: `--help` answers at once.
# ruff: noqa: PLC0415

_INSPECT_PACKAGES = frozenset({"jinja2", "starlette", "uvicorn"})

app = typer.Typer(
    name="llm-common",
    cls=InertErrorGroup,
    help="Decides what an agent's next model call gets to see.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(context)
app.add_typer(memory)
app.add_typer(tools)
app.add_typer(trace_app)
app.add_typer(gateway, name="gateway")
app.command()(doctor)
app.command()(pack)


@app.command()
def demo(
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            file_okay=False,
            help="Where the pages and traces of the questions go.",
        ),
    ] = Path("llm-common-demo"),
    json: AsJson = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the stored outputs and say where they are.")
    ] = False,
) -> None:
    """Ask an agent five questions over public data, and show what a prompt needs of it.

    Each question shows the tokens of the prompt with and without this library, whether the data
    that the answer rests on is in the prompt, and a page that says why. The command ends with 1 if
    something failed or is not in the prompt.

    Without a configured endpoint nothing leaves this machine: full-text ranking chooses, and
    nothing answers. With LLM_COMMON_PROVIDER, LLM_COMMON_BASE_URL or a provider's key set, the
    model chooses and answers. Outputs go to a temporary folder that is removed at the end.
    """
    from llm_common.apps.cli.demo.five_questions import (
        agent_from_env,
        ask_questions,
        questions_document,
        show_questions,
    )
    from llm_common.apps.cli.demo.public_data import QUESTIONS

    async def ask(store: Path) -> "QuestionsDocument":
        async with agent_from_env() as agent:
            asked = await ask_questions(
                QUESTIONS, agent, folder=output, work_dir=store, progress=progress
            )
            kept_store = store if keep else None
            return questions_document(asked, model=agent.label, folder=output, store=kept_store)

    with (
        _store_folder(keep=keep) as store,
        show_progress("Starting the agent", silent=json) as progress,
    ):
        document = asyncio.run(ask(store))
    if json:
        print_json(document)
    else:
        show_questions(document, stdout_console())
    if any(question.failed for question in document.questions):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def inspect(
    *,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="The store.",
            show_default="LLM_COMMON_POINTER_STORE_DIR, else .llm-common/context",
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="Traces of runs.",
            show_default="LLM_COMMON_TRACE_DIR",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="Where to listen on 127.0.0.1; 0 takes a free port."),
    ] = 0,
) -> None:
    """Look at stored outputs and recorded runs in a browser; changes nothing.

    Prints an address with a token on stderr and serves until Ctrl-C. Only this machine can reach
    it, and only who opens that address.
    """
    try:
        from llm_common.apps.inspector.application import Inspector, serve
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _INSPECT_PACKAGES:
            raise
        raise missing_extra(f"inspect needs {exc.name}", "inspect") from exc
    place = store or read_path(POINTER_STORE_DIR) or Path(POINTER_STORE_DIR.default)
    if not place.expanduser().is_dir():
        say(f"There is no store in {place} yet; --store names another.")

    def tell(address: str) -> None:
        say(f"Open {address}")
        say("Ctrl-C ends it.")

    inspector = Inspector(place, traces or read_path(TRACE_DIR))
    serve(inspector, token=secrets.token_urlsafe(24), port=port, tell=tell)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"llm-common {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What comes before a command."""


@contextmanager
def _store_folder(*, keep: bool) -> Iterator[Path]:
    """A new temporary folder, removed at the end in every case unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="llm-common-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
