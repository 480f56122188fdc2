"""Every error that leaves llm-common.

The tree; a name in brackets is a built-in base, a name after a dot is an attribute:

    LLMCommonError
    ├── ConfigError (ValueError)            .variable .value
    ├── LLMError                            .model .host .usage .cost_usd
    │   ├── LLMTimeoutError                 .timeout_s
    │   ├── LLMConnectionError
    │   ├── LLMStatusError                  .status .body .retry_after_s
    │   │   ├── LLMAuthError
    │   │   ├── LLMRateLimitError
    │   │   ├── ModelNotFoundError          .chosen_by
    │   │   └── ContextTooLongError
    │   ├── MalformedReplyError             .reply .reason
    │   └── CostLimitError                  .spent_usd .limit_usd
    ├── StoreError
    │   ├── InvalidIdError (ValueError)
    │   ├── UnsafePathError
    │   ├── PointerNotFoundError (KeyError) .reason
    │   ├── CorruptPointerError
    │   ├── UnserialisableError
    │   ├── ResultTooLargeError
    │   ├── StoreFullError
    │   └── LockTimeoutError
    ├── ToolError                           .tool
    │   ├── UnknownToolError
    │   ├── ToolArgumentsError
    │   └── ToolFailedError                 .reason
    │       └── ServerDownError             .server .retry_after_s
    ├── NoThreadError
    └── TokenBudgetError                    .needed_tokens .limit_tokens

A message names the problem and the remedy. Facts are attributes, so that callers never parse a
message. The words of a model, a server or a tool (`.body`, `.reply`, `.reason`) are attributes
only, because they may hold user data.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Literal

__all__ = [
    "ConfigError",
    "ContextTooLongError",
    "CorruptPointerError",
    "CostLimitError",
    "InvalidIdError",
    "LLMAuthError",
    "LLMCommonError",
    "LLMConnectionError",
    "LLMError",
    "LLMRateLimitError",
    "LLMStatusError",
    "LLMTimeoutError",
    "LockTimeoutError",
    "MalformedReplyError",
    "ModelNotFoundError",
    "NoThreadError",
    "PointerNotFoundError",
    "ResultTooLargeError",
    "ServerDownError",
    "StoreError",
    "StoreFullError",
    "TokenBudgetError",
    "ToolArgumentsError",
    "ToolError",
    "ToolFailedError",
    "UnknownToolError",
    "UnsafePathError",
    "UnserialisableError",
]


_MAX_NAME_CHARS = 100


class LLMCommonError(Exception):
    """Base of every error of llm-common; pickles and copies with its attributes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(kind: type[LLMCommonError], message: str, facts: dict[str, object]) -> LLMCommonError:
    """Return an error of any class, without its constructor, whose arguments differ."""
    error = kind.__new__(kind, message)
    error.__dict__.update(facts)
    return error


class ConfigError(LLMCommonError, ValueError):
    """A setting is invalid; `.variable` is its name, `.value` its text."""

    def __init__(self, message: str, *, variable: str, value: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value


def install_command(extra: str) -> str:
    """Return how to install llm-common with an extra, in a checkout and anywhere else.

    Always names the repository: `llm-common` on the public index is another project.
    """
    return f"pip install '.[{extra}]' in a checkout, or pip install 'llm-common[{extra}] @ git+…'"


def missing_extra(reason: str, extra: str) -> ConfigError:
    """Return the error for a feature whose extra is not installed.

    Args:
        reason: What needs the extra, as the first half of a sentence.
        extra: Name of the extra, which is also the error's `variable`.
    """
    return ConfigError(f"{reason}: {install_command(extra)}", variable=extra)


class LLMError(LLMCommonError):
    """A model call gave nothing usable; the text begins with the model and the host.

    A client attaches the usage and the cost if the endpoint charged the call.

    Attributes:
        model: Name of the model that was asked, or None.
        host: Host of the endpoint, with its port if the address names one; or None.
        usage: The `LLMUsage` of the call, or None.
        cost_usd: Its cost in dollars, or None.
    """

    model: str | None = None
    host: str | None = None
    usage: object = None
    cost_usd: float | None = None

    def __str__(self) -> str:
        names = (self.model and f"model {self.model}", self.host)
        where = " at ".join(repr(name)[1:-1][:_MAX_NAME_CHARS] for name in names if name)
        return f"{where}: {self.message}" if where else self.message

    def locate(self, *, model: str | None, host: str | None, chosen_by: str | None = None) -> None:
        """Attaches the names that the error does not have yet.

        Args:
            model: As in the attribute.
            host: As in the attribute.
            chosen_by: The variable or argument that named the model, for a `ModelNotFoundError`.
        """
        self.model, self.host = self.model or model, self.host or host
        if isinstance(self, ModelNotFoundError):
            self.chosen_by = self.chosen_by or chosen_by


class LLMTimeoutError(LLMError):
    """No answer within `.timeout_s` seconds."""

    def __init__(self, message: str, *, timeout_s: float) -> None:
        super().__init__(message)
        self.timeout_s = timeout_s


class LLMConnectionError(LLMError):
    """The endpoint could not be reached, or the connection broke before the answer was complete."""


class LLMStatusError(LLMError):
    """The endpoint answered with an error.

    Attributes:
        status: HTTP status code.
        body: The first characters of the response body, at most 2,000.
        retry_after_s: Seconds that the endpoint asks to wait, or None.
    """

    def __init__(
        self, message: str, *, status: int, body: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


class LLMAuthError(LLMStatusError):
    """The key is missing, invalid, or not authorised for the request (401, 403)."""


class LLMRateLimitError(LLMStatusError):
    """Too many requests (429)."""


class ModelNotFoundError(LLMStatusError):
    """The endpoint does not serve this model (404).

    `.chosen_by` is what named the model, or None.
    """

    chosen_by: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}; the model was named by {self.chosen_by}" if self.chosen_by else text


class ContextTooLongError(LLMStatusError):
    """The prompt exceeds the context window of the model."""


class MalformedReplyError(LLMError):
    """The reply is not of the form asked for.

    `.reply` is its text, `.reason` a short stable code.
    """

    def __init__(self, message: str, *, reason: str, reply: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.reply = reply


class CostLimitError(LLMError):
    """The call was not made: `.spent_usd` has reached `.limit_usd`."""

    def __init__(self, message: str, *, spent_usd: float, limit_usd: float) -> None:
        super().__init__(message)
        self.spent_usd = spent_usd
        self.limit_usd = limit_usd


class StoreError(LLMCommonError):
    """A store operation failed; no partial effect is visible."""


class InvalidIdError(StoreError, ValueError):
    """An id has characters outside the allow-list; nothing was read or written."""


class UnsafePathError(StoreError):
    """A path leaves the store, or is not a regular file or folder of the store.

    Nothing was read or written.
    """


class PointerNotFoundError(StoreError, KeyError):
    """No such pointer.

    `.reason` says whether it expired, was erased, or is unknown to the store.
    """

    def __init__(
        self, message: str, *, reason: Literal["expired", "erased", "unknown"] = "unknown"
    ) -> None:
        super().__init__(message)
        self.reason = reason


class CorruptPointerError(StoreError):
    """The stored bytes differ from those that were saved."""


class UnserialisableError(StoreError):
    """JSON cannot represent a value; nothing was written."""


class ResultTooLargeError(StoreError):
    """A result exceeds the limit of the store; nothing was written."""


class StoreFullError(StoreError):
    """No room left on the device or in the quota; the old version is intact."""


class LockTimeoutError(StoreError):
    """Another process held the lock for longer than the store waits."""


class ToolError(LLMCommonError):
    """A tool call gave no result; `.tool` is the name in the call."""

    def __init__(self, message: str, *, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


class UnknownToolError(ToolError):
    """No tool of that name is registered."""


class ToolArgumentsError(ToolError):
    """The arguments do not fit the tool's schema; the tool did not run."""


class ToolFailedError(ToolError):
    """The tool ran and raised.

    Attributes:
        reason: Class and text of what it raised; may hold user data. "" if the message says all.
    """

    reason: str = ""


class ServerDownError(ToolFailedError):
    """The server behind the tool is not there; whether the call took effect is not known.

    Attributes:
        server: Its name.
        retry_after_s: Seconds until it is started again.
    """

    def __init__(self, message: str, *, tool: str, server: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message, tool=tool)
        self.server = server
        self.retry_after_s = retry_after_s


class NoThreadError(LLMCommonError):
    """The system starts no further thread; the work did not run."""


class TokenBudgetError(LLMCommonError):
    """The required content takes `.needed_tokens`, more than `.limit_tokens`."""

    def __init__(self, message: str, *, needed_tokens: int, limit_tokens: int) -> None:
        super().__init__(message)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens


_PUBLIC_PACKAGES = (
    "llm_common.agents",
    "llm_common.core",
    "llm_common.decisions",
    "llm_common.clients",
    "llm_common.context",
    "llm_common.memory",
    "llm_common.history",
    "llm_common.tools",
    "llm_common.trace",
    "llm_common.errors",
    "llm_common.folders",
    "llm_common.prompt",
    "llm_common.testing",
)


def missing_name(package: str, name: str) -> Exception:
    """Return the error for a name that a package lacks: it says which public package has it.

    `from package import name` keeps the text of an `ImportError` and replaces that of an
    `AttributeError`.
    """
    # Before it imports a submodule, `from package import submodule` asks for the attribute.
    is_package = "__path__" in vars(import_module(package))
    is_submodule = is_package and find_spec(f"{package}.{name}") is not None
    if not name.startswith("_") and not is_submodule:
        for public in _PUBLIC_PACKAGES:
            module = import_module(public)
            if name in module.__all__ or name in getattr(module, "_MODULES", ()):
                text = (
                    f"cannot import name {name!r} from {package!r}: it is in {public}; "
                    f"write from {public} import {name}"
                )
                return ImportError(text, name=package)
    return AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
