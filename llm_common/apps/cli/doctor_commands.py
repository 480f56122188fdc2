"""`llm-common doctor`: what is in force on this machine, and what is wrong with it."""

import asyncio
import platform
import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llm_common import __version__, _env
from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    print_json,
    print_rows,
    safe_text,
    show_progress,
    stdout_console,
)
from llm_common.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from llm_common.core.http.probing import EndpointReport

# A command imports what only it needs when it runs: `--help` and completion answer at once.
# ruff: noqa: PLC0415

_SAME_NAME = 0.9  # of a name with its prefix: a letter or two
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra\s*==\s*['\"]([A-Za-z0-9._-]+)['\"]")


@dataclass(frozen=True, slots=True)
class VariableInForce:
    """A variable of the environment.

    Attributes:
        name: Its name.
        value: The value in force; None without one, and for every secret.
        default: Its default; None without one.
        source: Whether the value is set, or is the default; `unset` without either.
        secret: Whether its value is never shown.
        meaning: What it does.
    """

    name: str
    value: str | None
    default: str | None
    source: Literal["environment", "default", "unset"]
    secret: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The store of the environment.

    Attributes:
        path: Where it is.
        exists: Whether there is one yet.
        checked: Whether every result was compared with its digest.
        queries: Queries in it.
        pointers: Pointers that are whole, if they were checked.
        problem: What is wrong with it; "" if nothing is.
    """

    path: str
    exists: bool
    checked: bool
    queries: int
    pointers: int
    problem: str


@dataclass(frozen=True, slots=True)
class ExtraPackage:
    """A package of an extra, and its version if it is installed."""

    extra: str
    package: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is in force here, and what is wrong: in sentences, none if nothing is."""

    version: str
    python: str
    variables: tuple[VariableInForce, ...]
    store: StoreHealth
    endpoint: "EndpointReport | None"
    extras: tuple[ExtraPackage, ...]
    problems: tuple[str, ...]


def doctor(
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no endpoint.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read every stored result.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show settings with their sources, the store's health, the endpoint, and the extras installed.

    Changes nothing. The endpoint is asked five short questions. The values of secrets are never
    shown. Ends with 1 if something is wrong.
    """
    problems: list[str] = []
    with show_progress("Verifying the store", silent=json) as progress:
        store = _store_health(problems, quick=quick)
        progress("Calling the endpoint", 0, 0)
        endpoint = _endpoint(problems, offline=offline)
    found = _diagnosis(store, endpoint, problems)
    if json:
        print_json(found)
    else:
        _show(found)
    if found.problems:
        raise typer.Exit(ExitCode.FAILED)


def _diagnosis(
    store: StoreHealth, endpoint: "EndpointReport | None", problems: list[str]
) -> Diagnosis:
    from llm_common.redaction.redactor import DEFAULT_REDACTOR
    from llm_common.selection.results import ToolSelectionConfig

    for read in (ToolSelectionConfig.from_env, _check_limits):
        try:
            read()
        except ConfigError as exc:
            problems.append(exc.message)
    problems.extend(_misspelled())
    if endpoint is not None:  # a key may stand in the wrong place
        endpoint = endpoint.model_copy(update={"model": DEFAULT_REDACTOR.text(endpoint.model)})
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        variables=_variables(),
        store=store,
        endpoint=endpoint,
        extras=_extras(),
        problems=tuple(map(DEFAULT_REDACTOR.text, dict.fromkeys(problems))),
    )


def _check_limits() -> None:
    """Reads what is read otherwise only when an output is chosen.

    Raises:
        ConfigError: A value cannot be used.
    """
    from llm_common.decisions import HttpDecisionClient, decision_config_from_env
    from llm_common.selection.results import MAX_TIMEOUT_S, MIN_TIMEOUT_S, selection_cap

    selection_cap(None)
    _env.read_float(_env.CONTEXT_SELECTION_TIMEOUT_S, minimum=MIN_TIMEOUT_S, maximum=MAX_TIMEOUT_S)
    _env.read_flag(_env.CONTEXT_SELECTION_FAIL_CLOSED)
    if config := decision_config_from_env():
        HttpDecisionClient(config)


def _misspelled() -> list[str]:
    names = [variable.name for variable in _env.VARIABLES]
    near = {
        name: get_close_matches(name, names, n=1, cutoff=_SAME_NAME) for name in _env.undeclared()
    }
    return [
        f"{name} is set, and nothing reads it; did you mean {found[0]}?"
        for name, found in near.items()
        if found
    ]


def _variables() -> tuple[VariableInForce, ...]:
    from llm_common.redaction.redactor import DEFAULT_REDACTOR

    rows = []
    for variable in _env.VARIABLES:
        value, source = _env.in_force(variable)
        row = VariableInForce(
            name=variable.name,
            value=value and DEFAULT_REDACTOR.text(value),
            default=variable.default or None,
            source=source,
            secret=variable.secret,
            meaning=variable.meaning,
        )
        rows.append(row)
    return tuple(rows)


def _store_health(problems: list[str], *, quick: bool) -> StoreHealth:
    from llm_common.pointers.store import FileContextPointerStore

    path, exists, problem = "", False, ""
    queries = pointers = 0
    try:
        store = FileContextPointerStore()
        path, exists = str(store.base_dir), store.base_dir.is_dir()
        if not exists and store.base_dir.exists():
            problem = f"{path} is no folder; name another in LLM_COMMON_POINTER_STORE_DIR"
        elif exists and quick:
            queries = len(store.queries())
        elif exists:
            report = asyncio.run(store.verify())
            queries, pointers = report.queries, report.pointers
            if not report.is_clean:
                problem = f"{len(report.findings):,} findings; llm-common context verify names them"
    except (ConfigError, StoreError) as exc:
        problem = exc.message
    if problem:
        problems.append(f"The store: {problem}")
    checked = exists and not quick
    return StoreHealth(
        path=path,
        exists=exists,
        checked=checked,
        queries=queries,
        pointers=pointers,
        problem=problem,
    )


def _endpoint(problems: list[str], *, offline: bool) -> "EndpointReport | None":
    from llm_common.core.http.probing import EndpointReport, probe_endpoint
    from llm_common.core.http.providers import config_from_env, host_of

    try:
        config = config_from_env()
        if config is None:
            return None
        if offline:
            host = host_of(config.base_url)
            return EndpointReport(
                provider=config.provider, host=host, model=config.default_model, asked=False
            )
        report = asyncio.run(probe_endpoint(config))
    except ConfigError as exc:
        problems.append(exc.message)
        return None
    if not report.answers:
        problems.append(f"The endpoint {report.host} did not answer: {report.problem}")
    return report


def _extras() -> tuple[ExtraPackage, ...]:
    """The packages of every extra but `all`, in the order of the extras."""
    try:
        requirements = metadata.requires("llm-common") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        requirements = []
    matches = filter(None, map(_REQUIREMENT.match, requirements))
    pairs = sorted({(match[2], match[1]) for match in matches if match[2] != "all"})
    return tuple(
        ExtraPackage(extra=extra, package=package, version=_version(package))
        for extra, package in pairs
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _show(found: Diagnosis) -> None:
    console = stdout_console()
    console.print(f"llm-common {found.version}, Python {found.python}", style="bold")
    console.print("\nSettings", style="bold")
    rows = (
        (row.name, "(hidden)" if row.secret and row.source != "unset" else row.value, row.source)
        for row in found.variables
    )
    print_rows({"Variable": str, "Value": str, "Source": str}, rows)
    console.print("\nStore", style="bold")
    state = (
        "not made yet"
        if not found.store.exists
        else "whole"
        if found.store.checked
        else "not checked"
    )
    counts = f"{found.store.queries:,} queries" + (
        f", {found.store.pointers:,} whole pointers" if found.store.checked else ""
    )
    print_rows(
        {"Path": str, "State": str, "Holds": str},
        [(found.store.path, found.store.problem or state, counts)],
    )
    console.print("\nEndpoint", style="bold")
    _show_endpoint(found.endpoint)
    console.print("\nExtras", style="bold")
    extras = ((row.extra, row.package, row.version or "not installed") for row in found.extras)
    print_rows({"Extra": str, "Package": str, "Version": str}, extras)
    for problem in found.problems:
        console.print(safe_text(f"\nProblem: {problem}", style="red"))


def _show_endpoint(endpoint: "EndpointReport | None") -> None:
    if endpoint is None:
        stdout_console().print("none is configured: selectors rank on this machine")
        return
    state = (
        "not asked" if not endpoint.asked else "answers" if endpoint.answers else "does not answer"
    )
    print_rows({"Host": str, "Model": str, "State": str}, [(endpoint.host, endpoint.model, state)])
    formats = (
        (one.name, "works" if one.works else "does not work", one.note) for one in endpoint.formats
    )
    print_rows({"Format": str, "State": str, "Note": str}, formats)
