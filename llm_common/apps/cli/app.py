"""The application `llm-common` with all commands, and those that have no subcommands."""

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llm_common import __version__
from llm_common.apps.cli.context_commands import context
from llm_common.apps.cli.gateway_commands import gateway
from llm_common.apps.cli.memory_commands import memory
from llm_common.apps.cli.pack_commands import pack
from llm_common.apps.cli.stores import WAY_TO_A_STORE, Store
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    InertErrorGroup,
    end,
    example,
    print_json,
    print_rows,
    print_text,
    safe_text,
    say,
    show_progress,
    stdout_console,
)
from llm_common.apps.cli.tools_commands import tools
from llm_common.apps.cli.trace_commands import trace_app
from llm_common.runtime import POINTER_STORE_DIR, TRACE_DIR, read_path

if TYPE_CHECKING:
    from llm_common.agents import Diagnosis

# Commands import what only they need when they run, so `--help` answers quickly.
# ruff: noqa: PLC0415

_NOT_SET = frozenset({"default", "unset"})  # sources of settings

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


@app.command(
    rich_help_panel=_TRY,
    epilog=example("audit ~/.claude/projects", "audit session.jsonl --fail-on said,needed"),
)
def audit(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            exists=True,
            readable=True,
            help="Recorded sessions, or folders of them, such as ~/.claude/projects.",
            show_default=False,
        ),
    ],
    *,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all sessions, outputs, calls and losses.")
    ] = False,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            metavar="TOKENS",
            min=2_000,
            help="Limit of a folded prompt in the comparison.",
        ),
    ] = 32_000,
    fail_on: Annotated[
        Literal["said", "needed", "said,needed"] | None,
        typer.Option("--fail-on", help="End with 1 if a compaction dropped any of these."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Tell what compactions dropped in sessions of Claude Code, Codex and others.

    Reads transcripts of Claude Code (JSONL), Codex (rollouts) and chat completions (JSON or JSONL),
    recognized by their content. Changes nothing and sends nothing.

    For each session: the tokens by kind and tool, the outputs that cost most, the calls that were
    made again, what each compaction dropped of what the user said for the conversation and of the
    ids, paths and numbers that later calls needed, and what the prompts would be behind llm-common.
    Secrets are redacted.
    """
    from llm_common.agents import SessionConfig
    from llm_common.apps.audit import findings_of, replay, report, transcripts_in
    from llm_common.core import counter_label
    from llm_common.history import FoldPolicy

    config = SessionConfig(fold=FoldPolicy(max_tokens=max_tokens))
    audited = []
    others = []
    with show_progress("Reading the sessions", silent=json):
        for path in paths:
            for transcript in transcripts_in(path):
                if not transcript.host:
                    others.append(transcript.name)
                    continue
                findings = findings_of(transcript, config.counter)
                turns = asyncio.run(replay(transcript, findings.prompt_tokens, config))
                audited.append((findings, turns))
    if json:
        sessions = [{**dict(findings), "turns": turns} for findings, turns in audited]
        print_json({"counter": counter_label(), "sessions": sessions, "other_files": others})
    if not audited:
        end(f"There is no session in {', '.join(map(str, paths))}.", ExitCode.NOTHING)
    if not json:
        print_text(report(audited, config, show_all=show_all, other_files=len(others)).rstrip())
    dropped = {kind for findings, _ in audited for kind in findings.losses}
    if fail_on and not dropped.isdisjoint(fail_on.split(",")):
        raise typer.Exit(ExitCode.FAILED)


@app.command(rich_help_panel=_TRY, epilog=example("doctor", "doctor --offline --all"))
def doctor(
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the endpoint.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read every stored result.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show settings with their defaults too.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show problems, the store, the endpoint, and the settings with their sources.

    The command changes nothing, and never shows the value of a secret. It sends the endpoint one
    short question. It ends with 1 if it finds a problem.
    """
    from llm_common.agents import doctor as diagnose

    with show_progress("Verifying the store", silent=json) as show:
        steps = diagnose(offline=offline, quick=quick, progress=lambda step: show(step, 0, 0))
        diagnosis = asyncio.run(steps)
    if json:
        print_json(diagnosis)
    else:
        _show_diagnosis(diagnosis, every=every)
    if diagnosis.problems:
        raise typer.Exit(ExitCode.FAILED)


def _show_diagnosis(diagnosis: "Diagnosis", *, every: bool) -> None:
    console = stdout_console()
    console.print(f"llm-common {diagnosis.version}, Python {diagnosis.python}", style="bold")
    for problem in diagnosis.problems:
        console.print(safe_text(f"\nProblem: {problem}", style="red"))

    console.print("\nStore", style="bold")
    store = diagnosis.store
    counts = f"{store.queries:,} queries"
    if store.checked:
        counts += f", {store.pointers:,} whole pointers"
    if store.problem:
        state = store.problem
    elif not store.exists:
        state = "does not exist yet"
    else:
        state = "whole" if store.checked else "not checked"
    print_rows({"Path": str, "State": str, "Contains": str}, [(store.path, state, counts)])

    console.print("\nEndpoint", style="bold")
    endpoint = diagnosis.endpoint
    if endpoint is None:
        console.print("none is configured: selectors rank on this machine")
    else:
        state = "not called"
        if endpoint.asked:
            state = "answers" if endpoint.answers else "does not answer"
        row = (endpoint.host, endpoint.model, state)
        print_rows({"Host": str, "Model": str, "State": str}, [row])

    console.print("\nSettings", style="bold")
    rows = []
    for variable in diagnosis.variables:
        if every or variable.source not in _NOT_SET:
            is_hidden = variable.secret and variable.source != "unset"
            value = "(hidden)" if is_hidden else variable.value
            rows.append((variable.name, value, variable.source))
    print_rows({"Variable": str, "Value": str, "Source": str}, rows)
    others = len(diagnosis.variables) - len(rows)
    if others:
        console.print(f"{others} more have their defaults or are not set. --all shows them.")


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
