"""`llm-common doctor`: shows the settings in effect, and reports problems with them."""

import asyncio
import platform
import re
from contextlib import suppress
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

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

# Similarity of two variable names. The common prefix LLM_COMMON_ makes even unrelated names
# similar, and 0.9 allows one or two wrong letters after it.
_MIN_SIMILARITY = 0.9
# A requirement of an extra, such as `typer>=0.12; extra == 'cli'`.
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra\s*==\s*['\"]([A-Za-z0-9._-]+)['\"]")


@dataclass(frozen=True, slots=True)
class VariableInForce:
    """An environment variable.

    Attributes:
        name: Its name.
        value: The value in effect, or None. A secret is always None.
        default: Its default, or None.
        source: Origin of the value. `unset` means that the variable has no value.
        secret: Whether its value is never shown.
        meaning: Its effect.
    """

    name: str
    value: str | None
    default: str | None
    source: Literal["environment", "default", "unset"]
    secret: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """The store that the environment names.

    Attributes:
        path: Its folder.
        exists: Whether the folder exists.
        checked: Whether every result was compared with its SHA-256.
        queries: Number of queries.
        pointers: Number of undamaged pointers. 0 if they were not checked.
        problem: Description of the problem, or an empty text.
    """

    path: str
    exists: bool
    checked: bool
    queries: int
    pointers: int
    problem: str


@dataclass(frozen=True, slots=True)
class ExtraPackage:
    """A package of an extra, with its version if it is installed."""

    extra: str
    package: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The settings, store, endpoint and extras of this machine, and a sentence a problem."""

    version: str
    python: str
    variables: tuple[VariableInForce, ...]
    store: StoreHealth
    endpoint: "EndpointReport | None"
    extras: tuple[ExtraPackage, ...]
    problems: tuple[str, ...]


def doctor(
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Do not call the endpoint.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read every stored result.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show settings with their sources, the health of the store, the endpoint, and the extras.

    The command changes nothing, and never shows the value of a secret. It sends the endpoint five
    short questions. It ends with 1 if it finds a problem.
    """
    problems: list[str] = []
    with show_progress("Verifying the store", silent=json) as progress:
        store = _check_store(problems, quick=quick)
        progress("Calling the endpoint", 0, 0)
        endpoint = _check_endpoint(problems, offline=offline)
    diagnosis = _diagnose(store, endpoint, problems)
    if json:
        print_json(diagnosis)
    else:
        _show(diagnosis)
    if diagnosis.problems:
        raise typer.Exit(ExitCode.FAILED)


def _diagnose(
    store: StoreHealth, endpoint: "EndpointReport | None", problems: list[str]
) -> Diagnosis:
    from llm_common.redaction.redactor import DEFAULT_REDACTOR
    from llm_common.selection.results import ToolSelectionConfig

    # Both are called, so that one wrong setting does not hide another.
    for check in (ToolSelectionConfig.from_env, _check_limits):
        try:
            check()
        except ConfigError as exc:
            problems.append(exc.message)
    names = [variable.name for variable in _env.VARIABLES]
    for name in _env.undeclared():
        for similar in get_close_matches(name, names, n=1, cutoff=_MIN_SIMILARITY):
            problems.append(f"{name} is set, and nothing reads it. Did you mean {similar}?")
    if endpoint is not None:
        # A key may have been pasted into LLM_COMMON_MODEL.
        endpoint = endpoint.model_copy(update={"model": DEFAULT_REDACTOR.text(endpoint.model)})
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        variables=_variables(),
        store=store,
        endpoint=endpoint,
        extras=_extras(),
        # One wrong setting can fail several checks with the same sentence.
        problems=tuple(map(DEFAULT_REDACTOR.text, dict.fromkeys(problems))),
    )


def _check_limits() -> None:
    """Read the settings that the library reads only when it chooses an output.

    Raises:
        ConfigError: If a value is invalid.
    """
    from llm_common.decisions import HttpDecisionClient, decision_config_from_env
    from llm_common.selection.results import MAX_TIMEOUT_S, MIN_TIMEOUT_S, selection_cap

    selection_cap(None)
    _env.read_float(_env.CONTEXT_SELECTION_TIMEOUT_S, minimum=MIN_TIMEOUT_S, maximum=MAX_TIMEOUT_S)
    _env.read_flag(_env.CONTEXT_SELECTION_FAIL_CLOSED)
    if config := decision_config_from_env():
        # Its constructor checks the address, the key and the price for a cost limit.
        HttpDecisionClient(config)


def _variables() -> tuple[VariableInForce, ...]:
    from llm_common.redaction.redactor import DEFAULT_REDACTOR

    rows = []
    for variable in _env.VARIABLES:
        value, source = _env.in_force(variable)
        row = VariableInForce(
            name=variable.name,
            # An address is no secret, and may still contain a password.
            value=value and DEFAULT_REDACTOR.text(value),
            default=variable.default or None,
            source=source,
            secret=variable.secret,
            meaning=variable.meaning,
        )
        rows.append(row)
    return tuple(rows)


def _check_store(problems: list[str], *, quick: bool) -> StoreHealth:
    from llm_common.pointers.store import FileContextPointerStore

    # The path stays empty if the variable of the store is unusable.
    path, exists, problem = "", False, ""
    queries = pointers = 0
    try:
        store = FileContextPointerStore()
        path, exists = str(store.base_dir), store.base_dir.is_dir()
        if not exists and store.base_dir.exists():
            problem = f"{path} is not a folder. Name another in LLM_COMMON_POINTER_STORE_DIR"
        elif exists and quick:
            queries = len(store.queries())  # lists folders and reads no results
        elif exists:
            report = asyncio.run(store.verify())
            queries, pointers = report.queries, report.pointers
            if not report.is_clean:
                problem = f"{len(report.findings):,} findings. Use llm-common context verify"
    except (ConfigError, StoreError) as exc:
        problem = exc.message
    if problem:
        problems.append(f"The store: {problem}")
    return StoreHealth(
        path=path,
        exists=exists,
        checked=exists and not quick,
        queries=queries,
        pointers=pointers,
        problem=problem,
    )


def _check_endpoint(problems: list[str], *, offline: bool) -> "EndpointReport | None":
    from llm_common.core.http.probing import EndpointReport, probe_endpoint
    from llm_common.core.http.providers import config_from_env, host_of

    try:
        config = config_from_env()
        if config is None:
            return None
        if offline:  # the settings are still validated
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
    """Return the packages of every extra except `all`, sorted by extra and package."""
    try:
        requirements = metadata.requires("llm-common") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        requirements = []
    packages: dict[tuple[str, str], ExtraPackage] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        # `all` only repeats the packages of the other extras.
        if match is None or match[2] == "all":
            continue
        package, extra = match.groups()
        version = None
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(package)
        packages[extra, package] = ExtraPackage(extra, package, version)
    return tuple(packages[key] for key in sorted(packages))


def _show(diagnosis: Diagnosis) -> None:
    console = stdout_console()
    console.print(f"llm-common {diagnosis.version}, Python {diagnosis.python}", style="bold")
    console.print("\nSettings", style="bold")
    rows = []
    for variable in diagnosis.variables:
        is_hidden = variable.secret and variable.source != "unset"
        value = "(hidden)" if is_hidden else variable.value
        rows.append((variable.name, value, variable.source))
    print_rows({"Variable": str, "Value": str, "Source": str}, rows)

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
    _show_endpoint(diagnosis.endpoint)

    console.print("\nExtras", style="bold")
    extras = [
        (extra.extra, extra.package, extra.version or "not installed") for extra in diagnosis.extras
    ]
    print_rows({"Extra": str, "Package": str, "Version": str}, extras)
    for problem in diagnosis.problems:
        console.print(safe_text(f"\nProblem: {problem}", style="red"))


def _show_endpoint(endpoint: "EndpointReport | None") -> None:
    if endpoint is None:
        stdout_console().print("none is configured: selectors rank on this machine")
        return
    state = "not called"
    if endpoint.asked:
        state = "answers" if endpoint.answers else "does not answer"
    print_rows({"Host": str, "Model": str, "State": str}, [(endpoint.host, endpoint.model, state)])
    rows = []
    for entry in endpoint.formats:
        rows.append((entry.name, "works" if entry.works else "does not work", entry.note))
    print_rows({"Format": str, "State": str, "Note": str}, rows)
