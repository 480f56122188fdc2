"""The only reader of the environment.

Declares every variable once, with its default and its meaning; a test compares
`docs/how-to/settings.md` and `.env.example` with `VARIABLES`. Reads nothing at import: a variable
is read when a configuration is made.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from llm_common.errors import ConfigError

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})
_MAX_DIGITS = 18  # `int` takes quadratic time, and refuses over 4,300 digits


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable: its name, its default as it would be set or "", its meaning."""

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
DECISION_URL = Variable(
    "LLM_COMMON_DECISION_URL", "", "endpoint of a decision model, with or without `/v1`"
)
DECISION_MODEL = Variable(
    "LLM_COMMON_DECISION_MODEL", "", "decision model, such as `jev-latest` or `gpt-6-luna`"
)
DECISION_API_KEY = Variable(
    "LLM_COMMON_DECISION_API_KEY", "", "key of the decision endpoint", secret=True
)
DECISION_WIRE = Variable(
    "LLM_COMMON_DECISION_WIRE",
    "systemone",
    "wire format: `systemone` for `/v1/systemone`, `openai` for `/v1/decisions`",
)
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
    DECISION_URL,
    DECISION_MODEL,
    DECISION_API_KEY,
    DECISION_WIRE,
    GATEWAY_TOKEN,
    TRACE_DIR,
    XDG_CACHE_HOME,
)


def undeclared() -> list[str]:
    """Return the names that are set, begin with `LLM_COMMON_`, and are not in `VARIABLES`."""
    declared = {variable.name for variable in VARIABLES}
    return sorted(
        name for name in os.environ if name.startswith("LLM_COMMON_") and name not in declared
    )


def in_force(variable: Variable) -> tuple[str | None, Literal["environment", "default", "unset"]]:
    """Return the value of a variable and where it comes from, to show it.

    The value of a secret is None.
    """
    given, text = read_text(replace(variable, default="")), read_text(variable)
    return (
        None if variable.secret else text,
        "environment" if given else "default" if text else "unset",
    )


def read_text(variable: Variable) -> str | None:
    """Return the stripped value, or the declared default.

    None if both are empty. An empty variable counts as unset.
    """
    return os.environ.get(variable.name, "").strip() or variable.default or None


def read_named(name: str) -> str | None:
    """Return the value of a variable that a user's own file names; None if it is not set."""
    return os.environ.get(name)


def environment_without(*names: str) -> dict[str, str]:
    """Return the environment for a program that is started, without these variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def read_path(variable: Variable) -> Path | None:
    """Return the value as a path with `~` expanded; None without a value.

    Raises:
        ConfigError: `~` names an unknown home folder.
    """
    text = read_text(variable)
    if text is None:
        return None
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise _bad(variable, text, "a path whose home folder is known") from exc


def read_int(variable: Variable, *, minimum: int, maximum: int) -> int | None:
    """Return the value as a whole number within [minimum, maximum]; None without a value.

    Raises:
        ConfigError: The value is not a decimal number, or outside the range.
    """
    text = read_text(variable)
    if text is None:
        return None
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
    """Return the value as a finite number within [minimum, maximum]; None without a value.

    Raises:
        ConfigError: The value is not a number, not finite, or outside the range.
    """
    text = read_text(variable)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not minimum <= number <= maximum:
        raise _bad(variable, text, f"a number from {minimum:g} to {maximum:g}")
    return number


def read_flag(variable: Variable) -> bool:
    """Return the value as a flag: 1/true/t/yes/y/on or 0/false/f/no/n/off in any case.

    Unset without a default is False.

    Raises:
        ConfigError: The value is another word; a typing error must not disable a safety.
    """
    text = read_text(variable)
    if text is None:
        return False
    word = text.lower()
    if word not in _TRUE | _FALSE:
        raise _bad(variable, text, "true or false")
    return word in _TRUE


def read_choice(variable: Variable, words: tuple[str, ...]) -> str | None:
    """Return the value in lower case, which is one of these words; None without a value.

    Raises:
        ConfigError: The value is another word.
    """
    text = read_text(variable)
    if text is not None and text.lower() not in words:
        raise _bad(variable, text, " or ".join(words))
    return text and text.lower()


def _bad(variable: Variable, text: str, wanted: str) -> ConfigError:
    shown = "(hidden)" if variable.secret else repr(text[:80])
    return ConfigError(
        f"{variable.name} is {shown}; set it to {wanted}, or unset it",
        variable=variable.name,
        value=text,
    )
