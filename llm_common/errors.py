"""Every error that leaves llm-common.

The tree; a name in brackets is a built-in base, a name after a dot is a fact that the error carries:

    LLMCommonError
    ├── ConfigError (ValueError)            .variable .value
    ├── LLMError                            .usage .cost_usd; a model call gave nothing usable
    │   ├── LLMTimeoutError                 .timeout_s
    │   ├── LLMConnectionError
    │   ├── LLMStatusError                  .status .body .retry_after_s
    │   │   ├── LLMAuthError
    │   │   ├── LLMRateLimitError
    │   │   ├── ModelNotFoundError
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
    │   └── ToolFailedError
    └── TokenBudgetError                    .needed_tokens .limit_tokens

Texts name what went wrong and the way out. Facts are attributes, so that callers never parse a text; what a
model, a server or a tool said (`.body`, `.reply`) is a fact only and never part of the text.
"""

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
    "PointerNotFoundError",
    "ResultTooLargeError",
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


class LLMCommonError(Exception):
    """Anything that llm-common raises; pickles and copies with its facts."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(kind: type[LLMCommonError], message: str, facts: dict[str, object]) -> LLMCommonError:
    """An error of any kind without running its constructor, whose facts differ from kind to kind."""
    error = kind.__new__(kind, message)
    error.__dict__.update(facts)
    return error


class ConfigError(LLMCommonError, ValueError):
    """A setting that cannot be used; `.variable` is its name, `.value` what it held."""

    def __init__(self, message: str, *, variable: str, value: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value


class LLMError(LLMCommonError):
    """A model call gave nothing usable; a client that knows what it was charged all the same says so.

    Attributes:
        usage: The call's `LLMUsage`, or None.
        cost_usd: Its dollars, or None.
    """

    usage: object = None
    cost_usd: float | None = None


class LLMTimeoutError(LLMError):
    """No answer within `.timeout_s` seconds."""

    def __init__(self, message: str, *, timeout_s: float) -> None:
        super().__init__(message)
        self.timeout_s = timeout_s


class LLMConnectionError(LLMError):
    """The endpoint could not be reached, or the connection broke before the answer was whole."""


class LLMStatusError(LLMError):
    """The endpoint answered with an error.

    Attributes:
        status: Of HTTP.
        body: At most 2,000 characters of what the endpoint said.
        retry_after_s: The wait in seconds that it asked for, if it named one.
    """

    def __init__(self, message: str, *, status: int, body: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


class LLMAuthError(LLMStatusError):
    """The key is missing, wrong, or not allowed to do this (401, 403)."""


class LLMRateLimitError(LLMStatusError):
    """Too many requests (429)."""


class ModelNotFoundError(LLMStatusError):
    """The endpoint does not serve this model (404)."""


class ContextTooLongError(LLMStatusError):
    """The prompt does not fit the model's window."""


class MalformedReplyError(LLMError):
    """The model answered with something else than was asked; `.reply` holds it, `.reason` is a short stable code."""

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
    """A store could not do what was asked; nothing half-done is visible."""


class InvalidIdError(StoreError, ValueError):
    """An id that is outside the allow-list; nothing was read or written."""


class UnsafePathError(StoreError):
    """A path that leaves the store, or is not a plain file or folder of ours; nothing was read or written."""


class PointerNotFoundError(StoreError, KeyError):
    """No such pointer; `.reason` says whether it expired, was erased, or was never known here."""

    def __init__(self, message: str, *, reason: Literal["expired", "erased", "unknown"] = "unknown") -> None:
        super().__init__(message)
        self.reason = reason


class CorruptPointerError(StoreError):
    """What is stored is not what was saved."""


class UnserialisableError(StoreError):
    """A value that no JSON can stand for; nothing was written."""


class ResultTooLargeError(StoreError):
    """A result over the store's limit; nothing was written."""


class StoreFullError(StoreError):
    """No room left on the device or in the quota; the old version is intact."""


class LockTimeoutError(StoreError):
    """Another process held the lock for longer than the store waits."""


class ToolError(LLMCommonError):
    """A tool call that gave no result; `.tool` is the name that was asked for."""

    def __init__(self, message: str, *, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


class UnknownToolError(ToolError):
    """No tool of that name is registered."""


class ToolArgumentsError(ToolError):
    """The arguments do not fit the tool's schema; the tool did not run."""


class ToolFailedError(ToolError):
    """The tool ran and raised."""


class TokenBudgetError(LLMCommonError):
    """What must be sent takes `.needed_tokens`, more than `.limit_tokens`."""

    def __init__(self, message: str, *, needed_tokens: int, limit_tokens: int) -> None:
        super().__init__(message)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
