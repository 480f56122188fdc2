"""`llm-common doctor`: shows the settings in effect, and reports problems with them."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    print_json,
    print_rows,
    safe_text,
    show_progress,
    stdout_console,
)

if TYPE_CHECKING:
    from llm_common.agents import Diagnosis

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

_NOT_SET = frozenset({"default", "unset"})


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
        _show(diagnosis, every=every)
    if diagnosis.problems:
        raise typer.Exit(ExitCode.FAILED)


def _show(diagnosis: "Diagnosis", *, every: bool) -> None:
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
