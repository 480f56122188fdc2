"""The environment variables, the only code that reads them, and the user's folders.

Each variable is declared once, with its default and meaning. A test compares `VARIABLES` with
`docs/how-to/settings.md` and `.env.example`. Variables are read when a configuration is created,
never at import.
"""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from llm_common.errors import ConfigError

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})
# `int` needs quadratic time for many digits, and refuses over 4,300.
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable, its default as text ("" for none) and its meaning."""

    name: str
    default: str
    meaning: str
    secret: bool = False


POINTER_STORE_DIR = Variable(
    "LLM_COMMON_POINTER_STORE_DIR", ".llm-common/context", "folder of stored tool outputs"
)
CONTEXT_SELECTION_MODEL = Variable(
    "LLM_COMMON_CONTEXT_SELECTION_MODEL",
    "",
    "model that selects outputs. Unset: the tool selection model, else the client's",
)
CONTEXT_SELECTION_MAX_POINTERS = Variable(
    "LLM_COMMON_CONTEXT_SELECTION_MAX_POINTERS",
    "6",
    "maximum number of outputs that a selection keeps",
)
CONTEXT_SELECTION_TIMEOUT_S = Variable(
    "LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S", "30", "seconds for one attempt at selecting outputs"
)
CONTEXT_SELECTION_FAIL_CLOSED = Variable(
    "LLM_COMMON_CONTEXT_SELECTION_FAIL_CLOSED",
    "true",
    "`true`: a failed selection is empty. `false`: it falls back to the keyword ranking",
)
TOOL_SELECTION_MODEL = Variable(
    "LLM_COMMON_TOOL_SELECTION_MODEL",
    "glm-4.5-air",
    "model that selects tools. The default applies at z.ai. Elsewhere it is the client's",
)
TOOL_SELECTION_FALLBACK_MODEL = Variable(
    "LLM_COMMON_TOOL_SELECTION_FALLBACK_MODEL", "", "model of the second attempt"
)
TOOL_SELECTION_MAX_CALLS = Variable(
    "LLM_COMMON_TOOL_SELECTION_MAX_CALLS",
    "5",
    "maximum number of tool calls that a selection returns",
)
TOOL_SELECTION_TIMEOUT_S = Variable(
    "LLM_COMMON_TOOL_SELECTION_TIMEOUT_S", "30", "seconds for one attempt at selecting tools"
)
TOOL_SELECTION_FAIL_CLOSED = Variable(
    "LLM_COMMON_TOOL_SELECTION_FAIL_CLOSED",
    "true",
    "no effect. A failed tool selection is always empty",
)
BUDGET_MAX_INPUT_TOKENS = Variable(
    "LLM_COMMON_BUDGET_MAX_INPUT_TOKENS",
    "16000",
    "maximum tokens of a prompt, tool schemas included",
)
BUDGET_MAX_OUTPUT_TOKENS = Variable(
    "LLM_COMMON_BUDGET_MAX_OUTPUT_TOKENS",
    "1000",
    "maximum tokens of an answer",
)
RUN_MAX_CALLS = Variable("LLM_COMMON_RUN_MAX_CALLS", "", "maximum number of tool calls of a run")
RUN_MAX_TOKENS = Variable(
    "LLM_COMMON_RUN_MAX_TOKENS",
    "",
    "maximum tokens of the model calls that plan and choose tools in a run",
)
RUN_MAX_COST_USD = Variable("LLM_COMMON_RUN_MAX_COST_USD", "", "maximum dollars of these calls")
RUN_TIMEOUT_S = Variable("LLM_COMMON_RUN_TIMEOUT_S", "", "seconds for the tasks of a run")
RUN_MAX_ROUNDS = Variable(
    "LLM_COMMON_RUN_MAX_ROUNDS",
    "3",
    "maximum number of rounds in which a task chooses calls",
)
RUN_MAX_PARALLEL = Variable(
    "LLM_COMMON_RUN_MAX_PARALLEL",
    "8",
    "maximum number of calls of a task that run at the same time",
)
RUN_MAX_OUTPUTS_TOKENS = Variable(
    "LLM_COMMON_RUN_MAX_OUTPUTS_TOKENS",
    "2000",
    "maximum tokens of stored outputs in the prompt that chooses tools",
)
OFFLOAD_MAX_WHOLE_TOKENS = Variable(
    "LLM_COMMON_OFFLOAD_MAX_WHOLE_TOKENS",
    "2000",
    "maximum tokens of a result that stays whole",
)
OFFLOAD_MAX_PREVIEW_TOKENS = Variable(
    "LLM_COMMON_OFFLOAD_MAX_PREVIEW_TOKENS",
    "400",
    "maximum tokens of the preview of a longer result",
)
OFFLOAD_MAX_TURN_TOKENS = Variable(
    "LLM_COMMON_OFFLOAD_MAX_TURN_TOKENS",
    "8000",
    "maximum tokens of all results and previews of one turn",
)
FOLD_MAX_TOKENS = Variable(
    "LLM_COMMON_FOLD_MAX_TOKENS",
    "32000",
    "maximum tokens of a folded history",
)
FOLD_TARGET_SHARE = Variable(
    "LLM_COMMON_FOLD_TARGET_SHARE",
    "0.6",
    "share of that limit that remains after a step of folding",
)
FOLD_NOTE_SHARE = Variable(
    "LLM_COMMON_FOLD_NOTE_SHARE",
    "0.35",
    "share of that limit for the note about folded messages",
)
PROVIDER = Variable(
    "LLM_COMMON_PROVIDER",
    "",
    "`zai`, `openrouter`, `openai` or `local`. Unset: the first whose key is set",
)
BASE_URL = Variable(
    "LLM_COMMON_BASE_URL",
    "",
    "endpoint, without `/chat/completions`. Unset: the provider's",
)
API_KEY = Variable(
    "LLM_COMMON_API_KEY", "", "key of the endpoint. Unset: the provider's variable", secret=True
)
MODEL = Variable("LLM_COMMON_MODEL", "", "default model of the client. Unset: the provider's")
TIMEOUT_S = Variable("LLM_COMMON_TIMEOUT_S", "60", "seconds for one model call, retries included")
MAX_TOKENS = Variable(
    "LLM_COMMON_MAX_TOKENS", "", "maximum tokens of an answer. Unset: the endpoint's limit"
)
COST_LIMIT_USD = Variable("LLM_COMMON_COST_LIMIT_USD", "", "maximum dollars that one client spends")
UNKNOWN_PRICE = Variable(
    "LLM_COMMON_UNKNOWN_PRICE",
    "refuse",
    "models without a known price under a cost limit: `refuse`, or count as `dearest`",
)
ZAI_API_KEY = Variable("ZAI_API_KEY", "", "key for z.ai", secret=True)
OPENROUTER_API_KEY = Variable("OPENROUTER_API_KEY", "", "key for OpenRouter", secret=True)
OPENAI_API_KEY = Variable("OPENAI_API_KEY", "", "key for OpenAI", secret=True)
TRACE_DIR = Variable("LLM_COMMON_TRACE_DIR", "", "folder for traces. Unset: runs are not traced")

GATEWAY_TOKEN = Variable(
    "LLM_COMMON_GATEWAY_TOKEN",
    "",
    "tokens of `llm-common gateway --http`, separated by spaces",
    secret=True,
)
XDG_CACHE_HOME = Variable(
    "XDG_CACHE_HOME", "", "cache folder for the index of `llm-common pack`. Unset: the platform's"
)
XDG_CONFIG_HOME = Variable(
    "XDG_CONFIG_HOME",
    "",
    "configuration folder for the servers and logins of the gateway. Unset: the platform's",
)

VARIABLES: tuple[Variable, ...] = (
    POINTER_STORE_DIR,
    CONTEXT_SELECTION_MODEL,
    CONTEXT_SELECTION_MAX_POINTERS,
    CONTEXT_SELECTION_TIMEOUT_S,
    CONTEXT_SELECTION_FAIL_CLOSED,
    TOOL_SELECTION_MODEL,
    TOOL_SELECTION_FALLBACK_MODEL,
    TOOL_SELECTION_MAX_CALLS,
    TOOL_SELECTION_TIMEOUT_S,
    TOOL_SELECTION_FAIL_CLOSED,
    BUDGET_MAX_INPUT_TOKENS,
    BUDGET_MAX_OUTPUT_TOKENS,
    RUN_MAX_CALLS,
    RUN_MAX_TOKENS,
    RUN_MAX_COST_USD,
    RUN_TIMEOUT_S,
    RUN_MAX_ROUNDS,
    RUN_MAX_PARALLEL,
    RUN_MAX_OUTPUTS_TOKENS,
    OFFLOAD_MAX_WHOLE_TOKENS,
    OFFLOAD_MAX_PREVIEW_TOKENS,
    OFFLOAD_MAX_TURN_TOKENS,
    FOLD_MAX_TOKENS,
    FOLD_TARGET_SHARE,
    FOLD_NOTE_SHARE,
    PROVIDER,
    BASE_URL,
    API_KEY,
    MODEL,
    TIMEOUT_S,
    MAX_TOKENS,
    COST_LIMIT_USD,
    UNKNOWN_PRICE,
    ZAI_API_KEY,
    OPENROUTER_API_KEY,
    OPENAI_API_KEY,
    GATEWAY_TOKEN,
    TRACE_DIR,
    XDG_CACHE_HOME,
    XDG_CONFIG_HOME,
)


def undeclared() -> list[str]:
    """Return the names of set `LLM_COMMON_*` variables that are not in `VARIABLES`."""
    declared = {variable.name for variable in VARIABLES}
    return sorted(
        name for name in os.environ if name.startswith("LLM_COMMON_") and name not in declared
    )


def in_force(variable: Variable) -> tuple[str | None, Literal["environment", "default", "unset"]]:
    """Return the value of a variable for display, None for a secret, and its source."""
    text = read_text(variable)
    visible = None if variable.secret else text
    # Without the default, so that only the environment counts.
    if read_text(replace(variable, default="")) is not None:
        return visible, "environment"
    return visible, "default" if text else "unset"


def read_text(variable: Variable) -> str | None:
    """Return the stripped value, else the default, else None. An empty value is unset."""
    return os.environ.get(variable.name, "").strip() or variable.default or None


def read_named(name: str) -> str | None:
    """Return the value of a variable that a configuration file names, or None."""
    return os.environ.get(name)


def environment_without(*names: str) -> dict[str, str]:
    """Return the environment for a child process, without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def read_path(variable: Variable) -> Path | None:
    """Return the value as a path with `~` expanded, or None.

    Raises:
        ConfigError: If `~` names the home of an unknown user.
    """
    text = read_text(variable)
    if text is None:
        return None
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise _bad(variable, text, "a path whose home folder is known") from exc


def read_int(variable: Variable, *, minimum: int, maximum: int) -> int | None:
    """Return the value as an integer within [minimum, maximum], or None.

    Raises:
        ConfigError: If the value is not a decimal integer, or outside the range.
    """
    text = read_text(variable)
    if text is None:
        return None
    # `int` also accepts underscores and the digits of other scripts, most likely by mistake.
    digits = text.removeprefix("-").removeprefix("+")
    if not (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= _MAX_DIGITS
        and minimum <= int(text) <= maximum
    ):
        raise _bad(variable, text, f"a whole number from {minimum:,} to {maximum:,}")
    return int(text)


def read_float(variable: Variable, *, minimum: float, maximum: float) -> float | None:
    """Return the value as a finite number within [minimum, maximum], or None.

    Raises:
        ConfigError: If the value is not a finite number, or outside the range.
    """
    text = read_text(variable)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan  # outside every range
    if not minimum <= value <= maximum:
        raise _bad(variable, text, f"a number from {minimum:g} to {maximum:g}")
    return value


def read_flag(variable: Variable) -> bool:
    """Return the value as a bool: 1/true/t/yes/y/on or 0/false/f/no/n/off in any case.

    An unset variable without a default is False.

    Raises:
        ConfigError: If the value is another word. A typing error must not disable a safeguard.
    """
    text = read_text(variable)
    if text is None:
        return False
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise _bad(variable, text, "true or false")
    return word in _TRUE


def read_choice(variable: Variable, words: tuple[str, ...]) -> str | None:
    """Return the value in lower case, one of some words, or None.

    Raises:
        ConfigError: If the value is another word.
    """
    text = read_text(variable)
    if text is not None and text.lower() not in words:
        raise _bad(variable, text, " or ".join(words))
    return text and text.lower()


def _bad(variable: Variable, text: str, expected: str) -> ConfigError:
    value = "(hidden)" if variable.secret else repr(text[:80])
    return ConfigError(
        f"{variable.name} is {value}. Set it to {expected}, or unset it",
        variable=variable.name,
        value=text,
    )


# In the home folder, by `sys.platform`. The empty name stands for every other platform.
_CACHE: Final = {
    "darwin": "Library/Caches/llm-common",
    "win32": "AppData/Local/llm-common/Cache",
    "": ".cache/llm-common",
}
_CONFIG: Final = {
    "darwin": "Library/Application Support/llm-common",
    "win32": "AppData/Roaming/llm-common",
    "": ".config/llm-common",
}


def default_cache_dir() -> Path:
    """Return the user's cache folder for this library, by the platform's convention.

    The folder may not exist.

    Raises:
        ConfigError: If the user has no home folder, as in some containers.
    """
    return _folder_of(XDG_CACHE_HOME, _CACHE)


def default_config_dir() -> Path:
    """Return the user's configuration folder for this library, by the platform's convention.

    The folder may not exist.

    Raises:
        ConfigError: If the user has no home folder, as in some containers.
    """
    return _folder_of(XDG_CONFIG_HOME, _CONFIG)


def _folder_of(variable: Variable, by_platform: Mapping[str, str]) -> Path:
    if chosen := read_path(variable):
        return chosen / "llm-common"
    try:
        home = Path.home()
    except RuntimeError as exc:
        reason = (
            f"this user has no home folder; set {variable.name} to a folder that may be written"
        )
        raise ConfigError(reason, variable=variable.name, value="") from exc
    return home / by_platform.get(sys.platform, by_platform[""])
