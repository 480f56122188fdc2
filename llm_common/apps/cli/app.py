"""`app`: the commands of `llm-common` and their options."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common import __version__
from llm_common.apps.cli.context_commands import context
from llm_common.apps.cli.doctor_commands import doctor
from llm_common.apps.cli.gateway_commands import gateway
from llm_common.apps.cli.inspect_commands import inspect
from llm_common.apps.cli.memory_commands import memory
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    end,
    print_json,
    print_text,
    show_progress,
    stderr_console,
    stdout_console,
)
from llm_common.apps.cli.tools_commands import tools
from llm_common.apps.cli.trace_commands import trace_app

if TYPE_CHECKING:
    from llm_common.apps.cli.demo.five_questions_view import QuestionsDocument

# Commands import what only they need when they run: `--help` answers at once.
# ruff: noqa: PLC0415

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
app.command()(inspect)
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
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", dir_okay=False, help="Write to a file, not to stdout."
    ),
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        "-x",
        metavar="GLOB",
        help="Leave out such paths, as in a .gitignore; repeatable.",
    ),
]
_Generated = Annotated[
    bool,
    typer.Option(
        "--generated", help="Search generated files too: lock files, minified and compiled sources."
    ),
]
_CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        help="Where the index is kept.",
        show_default="llm-common in the user's cache folder",
    ),
]
_MaxFiles = Annotated[
    int | None,
    typer.Option(
        "--max-files",
        metavar="NUMBER",
        min=1,
        help="Most files to show.",
        show_default="as many as fit",
    ),
]
_MinScore = Annotated[
    float,
    typer.Option(
        "--min-score",
        metavar="SCORE",
        help="Leave out files that score less; the best match by words is 1.",
    ),
]


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
    from llm_common.apps.cli.demo.five_questions import agent_from_env, ask_questions
    from llm_common.apps.cli.demo.five_questions_view import questions_document, show_questions
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
def pack(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Question or task.", show_default=False)
    ],
    paths: _Paths = None,
    *,
    budget: Annotated[
        int,
        typer.Option(
            metavar="TOKENS", max=10_000_000, help="Most tokens of the packed text, at least 256."
        ),
    ] = 8_000,
    max_files: _MaxFiles = None,
    min_score: _MinScore = 0.0,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show the parts of each score, and what was weighed and not chosen."
        ),
    ] = False,
    json: AsJson = False,
    output: _Output = None,
    exclude: _Exclude = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Search hidden files and folders too.")
    ] = False,
    generated: _Generated = False,
    cache_dir: _CacheDir = None,
) -> None:
    """Pack the parts of a folder that answer a question, within a hard budget of tokens.

    The files share the budget in proportion to their lead, and show the functions that match best
    first. A larger budget shows the same and more. The packed text goes to stdout, ready for a
    prompt; what was chosen and why goes to stderr. Nothing leaves this machine, and no model is
    asked. Where no file matches, nothing is packed and the command ends with 3.

    What git ignores is left out, and so are hidden, binary and generated files and those that
    usually hold secrets. Keys and tokens that their shape gives away are redacted in the rest.

    An index on disk, readable by you alone, makes the next question fast.
    """
    from llm_common.apps.cli.pack_view import pack_document, show_pack, why_nothing
    from llm_common.folders import pack_folder

    with _kept_index(), show_progress("Listing files", silent=json) as progress:
        packed = pack_folder(
            query,
            *paths or [],
            budget_tokens=budget,
            hidden=hidden,
            generated=generated,
            max_files=max_files,
            min_score=min_score,
            # it may hold the last answer
            exclude=[*(exclude or []), *([output] if output else [])],
            cache_dir=cache_dir,
            progress=progress,
        )
    if json:
        print_json(pack_document(packed, explain=explain), output)
    else:
        print_text(packed.text, output)
        show_pack(packed, stderr_console(), explain=explain)
    if not packed.text:
        end(f"Nothing was packed: {why_nothing(packed)}.", ExitCode.NOTHING)


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
def _kept_index() -> Iterator[None]:
    """Says on Ctrl-C that the work so far is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        end("Interrupted; what was read so far is kept in the index.", ExitCode.INTERRUPTED)


@contextmanager
def _store_folder(*, keep: bool) -> Iterator[Path]:
    """A new temporary folder, removed at the end in every case unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix="llm-common-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
