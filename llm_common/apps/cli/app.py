"""The application `llm-common` with all commands, and the commands `demo` and `inspect`."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from llm_common import __version__
from llm_common.apps.cli.audit_commands import audit
from llm_common.apps.cli.context_commands import context
from llm_common.apps.cli.doctor_commands import doctor
from llm_common.apps.cli.gateway_commands import gateway
from llm_common.apps.cli.memory_commands import memory
from llm_common.apps.cli.pack_commands import pack
from llm_common.apps.cli.stores import WAY_TO_A_STORE, Store
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    example,
    print_json,
    say,
    show_progress,
    stdout_console,
)
from llm_common.apps.cli.tools_commands import tools
from llm_common.apps.cli.trace_commands import trace_app
from llm_common.runtime import POINTER_STORE_DIR, TRACE_DIR, read_path

# Commands import what only they need when they run, so `--help` answers quickly.
# ruff: noqa: PLC0415

app = typer.Typer(
    name="llm-common",
    cls=InertErrorGroup,
    help="Pick what goes into an agent's next model call, and show why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they can print local variables, such as keys
    rich_markup_mode="markdown",  # for docstrings, which are the help of the commands
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The groups of the help, in the order in which a newcomer uses them.
_TRY, _LOOK, _KEEP, _SERVE = "Try", "Look", "Keep", "Serve"


@app.command(rich_help_panel=_TRY, epilog=example("demo", "demo --output FOLDER --json"))
def demo(
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            file_okay=False,
            help="Folder for the pages, the stored outputs and the traces.",
        ),
    ] = Path("llm-common-demo"),
    json: AsJson = False,
) -> None:
    """Ask an agent eight questions over public data, and compare its prompts with simpler ones.

    For each question, the table says what the tools returned and what a model would see of it, and
    whether the data of the answer is in the prompt, in the beginnings of the outputs, and in their
    best records by BM25, in as many tokens. The first three questions use other words than the
    data, the next two its own, and then come a list, a count and a maximum.

    Nothing leaves this machine: word ranking chooses, and no model is asked. The command ends with
    1 if a question failed. Evidence that is not found is reported and does not count as a failure.
    """
    from llm_common.apps.cli.demo.agent import BUDGET, STORE, TRACES, ask
    from llm_common.apps.cli.demo.public_data import QUESTIONS
    from llm_common.apps.cli.demo.report import show_demo, write_pages
    from llm_common.core import counter_label

    try:
        if not output.exists():
            output.mkdir(parents=True)
            # The pages are not meant for the user's repository.
            (output / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as exc:
        raise typer.BadParameter(f"{exc.strerror}: {output}", param_hint="--output") from exc
    results = []
    with show_progress("Starting the agent", silent=json) as progress:
        for number, question in enumerate(QUESTIONS, start=1):
            progress(f"Question {number}", number - 1, len(QUESTIONS))
            results.append(asyncio.run(ask(question, number, output)))
    write_pages(results, output)
    if json:
        document = {"budget_tokens": BUDGET.max_input_tokens, "counter": counter_label()}
        folders = {"folder": output, "store": output / STORE, "traces": output / TRACES}
        print_json({**document, **folders, "questions": results})
    else:
        show_demo(results, output, stdout_console())
    if any(result.problem for result in results):
        raise typer.Exit(ExitCode.FAILED)


app.command(
    rich_help_panel=_TRY,
    epilog=example(
        'pack "where are uploads checked" src tests',
        "pack QUESTION -o prompt.txt",
        "pack QUESTION --tree --line-numbers --question",
    ),
)(pack)
app.command(
    rich_help_panel=_TRY,
    epilog=example("audit ~/.claude/projects", "audit session.jsonl --fail-on said,needed"),
)(audit)
app.command(rich_help_panel=_TRY, epilog=example("doctor", "doctor --offline --all"))(doctor)


@app.command(
    rich_help_panel=_LOOK,
    epilog=example("inspect", "inspect --store FOLDER/context --traces FOLDER/traces"),
)
def inspect(
    *,
    store: Store = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="Folder of the traces.",
            show_default="LLM_COMMON_TRACE_DIR",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65_535, help="Port on 127.0.0.1. 0 takes a free port."
        ),
    ] = 0,
) -> None:
    """Show stored outputs and recorded runs in a browser, and change nothing.

    The command prints an address on stderr and serves until Ctrl-C. The pages can be reached only
    from this machine, and only with the token in the printed address.
    """
    from llm_common.apps.inspector.application import Inspector, serve

    if store and "://" in store:
        raise typer.BadParameter(
            f"inspect reads folders, and {store} is an address. Use context list --store {store}",
            param_hint="--store",
        )
    default = read_path(POINTER_STORE_DIR) or Path(POINTER_STORE_DIR.default)
    folder = Path(store) if store else default
    if not folder.expanduser().is_dir():
        missing = f"There is no store in {folder} yet. {WAY_TO_A_STORE}"
        if store:
            raise typer.BadParameter(missing, param_hint="--store")
        say(missing)  # a program that runs later may still create it
    inspector = Inspector(folder, traces or read_path(TRACE_DIR))
    inspector.check()
    serve(
        inspector,
        # A new token for each start, so that an old address stops working.
        token=secrets.token_urlsafe(24),
        port=port,
        tell=lambda address: say(f"Open {address}\nPress Ctrl-C to stop."),
    )


app.add_typer(trace_app, rich_help_panel=_LOOK)
app.add_typer(tools, rich_help_panel=_LOOK)
app.add_typer(context, rich_help_panel=_KEEP)
app.add_typer(memory, rich_help_panel=_KEEP)
app.add_typer(gateway, name="gateway", rich_help_panel=_SERVE)


def _print_version(requested: bool) -> None:
    if requested:  # typer also calls this when the option is absent
        typer.echo(f"llm-common {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Declare the options of the program itself."""
