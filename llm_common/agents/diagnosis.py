"""`doctor`: reports the settings in effect, the store, the endpoint, and problems with them."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from llm_common import __version__, _env
from llm_common._threads import in_thread
from llm_common.agents.settings import Settings
from llm_common.errors import ConfigError, LLMError, StoreError
from llm_common.pointers.store import FileContextPointerStore
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.selection.relevance import check_relevance_settings
from llm_common.selection.results import ToolSelectionConfig

# What needs httpx is imported when it is used, since importing httpx takes a tenth of a second.
# ruff: noqa: PLC0415

# Similarity of two variable names. The common prefix LLM_COMMON_ makes even unrelated names
# similar, and 0.9 allows one or two wrong letters after it.
_MIN_SIMILARITY: Final = 0.9
_QUESTION: Final = [{"role": "user", "content": "Is water wet? Answer with one word, yes or no."}]
_MAX_ANSWER_TOKENS: Final = 200  # for models that think before they answer


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
class EndpointReport:
    """The endpoint that the environment names, without its key and without any of its text.

    Attributes:
        provider: Name of the provider.
        host: Host of the endpoint, or None if its address has none.
        model: Name of the model.
        asked: Whether a question was sent.
        answers: Whether the question was answered.
        latency_ms: Milliseconds of that answer, or None without one.
        problem: Why there was no answer, or "".
    """

    provider: str
    host: str | None
    model: str
    asked: bool
    answers: bool = False
    latency_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The settings, store and endpoint of this machine, and what is wrong with them.

    Attributes:
        version: Version of llm-common.
        python: Version of Python.
        variables: All environment variables, without the values of secrets.
        store: The store that the environment names.
        endpoint: The endpoint, or None if the environment names none.
        problems: A sentence for each problem. Empty if there is none.
    """

    version: str
    python: str
    variables: tuple[VariableInForce, ...]
    store: StoreHealth
    endpoint: EndpointReport | None
    problems: tuple[str, ...]


async def doctor(
    *,
    offline: bool = False,
    quick: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> Diagnosis:
    """Check the settings, the store and the endpoint that the environment names.

    Changes nothing, and reports no value of a secret. Never raises for a wrong setting.

    Args:
        offline: Whether to leave out the short question to the endpoint.
        quick: Whether to leave out reading every stored result.
        progress: Called with the name of each step before it begins. Defaults to nothing.

    Returns:
        The report. Its `problems` are empty if nothing is wrong.
    """
    problems: list[str] = []
    progress("Verifying the store")
    store = await _check_store(problems, quick=quick)
    progress("Calling the endpoint")
    endpoint = await _check_endpoint(problems, offline=offline)
    # All are called, so that one wrong setting does not hide another.
    checks: tuple[Callable[[], object], ...] = (
        ToolSelectionConfig.from_env,
        check_relevance_settings,
        Settings.from_env,
    )
    for check in checks:
        try:
            check()
        except ConfigError as exc:
            problems.append(exc.message)
    names = [variable.name for variable in _env.VARIABLES]
    for name in _env.undeclared():
        for similar in get_close_matches(name, names, n=1, cutoff=_MIN_SIMILARITY):
            problems.append(f"{name} is set, and nothing reads it. Did you mean {similar}?")
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        variables=_variables(),
        store=store,
        endpoint=endpoint,
        # One wrong setting can fail several checks with the same sentence.
        problems=tuple(map(DEFAULT_REDACTOR.text, dict.fromkeys(problems))),
    )


def _variables() -> tuple[VariableInForce, ...]:
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


def _can_write(folder: Path) -> bool:
    """Return whether this process may write in a folder, or may create it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


async def _check_store(problems: list[str], *, quick: bool) -> StoreHealth:
    # The path stays empty if the variable of the store is unusable.
    path, exists, problem = "", False, ""
    queries = pointers = 0
    try:
        store = FileContextPointerStore()
        path, exists = str(store.base_dir), store.base_dir.is_dir()
        if not exists and store.base_dir.exists():
            problem = f"{path} is not a folder. Name another in LLM_COMMON_POINTER_STORE_DIR"
        elif not _can_write(store.base_dir):
            problem = f"Nothing can be written in {path}. Name a folder of yours"
            problem += " in LLM_COMMON_POINTER_STORE_DIR"
        elif exists and quick:
            queries = len(await in_thread(store.queries))  # lists folders and reads no results
        elif exists:
            report = await store.verify()
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


async def _check_endpoint(problems: list[str], *, offline: bool) -> EndpointReport | None:
    from llm_common.core.http.openai_compatible import OpenAICompatibleClient
    from llm_common.core.http.providers import config_from_env, host_of

    try:
        config = config_from_env()
        if config is None:
            return None
        report = EndpointReport(
            provider=config.provider,
            host=host_of(config.base_url),
            # A key may have been pasted into LLM_COMMON_MODEL.
            model=DEFAULT_REDACTOR.text(config.default_model),
            asked=not offline,
        )
        if offline:  # the settings were still validated
            return report
        async with OpenAICompatibleClient(config) as client:
            answer = await client.chat_completion(_QUESTION, max_tokens=_MAX_ANSWER_TOKENS)
    except ConfigError as exc:
        problems.append(exc.message)
        return None
    except LLMError as exc:
        problems.append(f"The endpoint {report.host} did not answer: {exc.message}")
        return replace(report, problem=exc.message)
    return replace(report, answers=True, latency_ms=answer.latency_ms)
