"""Every error that leaves llm-common.

A name in brackets is a built-in base class, a name after a dot an attribute:

    LLMCommonError
    ├── ConfigError (ValueError)            .variable .value
    ├── LLMError                            .model .host .usage .cost_usd
    │   ├── LLMTimeoutError                 .timeout_s
    │   ├── LLMConnectionError
    │   ├── LLMStatusError                  .status .body .retry_after_s .endpoint_message
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
    ├── RunBusyError
    └── TokenBudgetError                    .needed_tokens .limit_tokens

A message names the problem and the remedy. Details are attributes, so that callers never parse a
message. The text of a model, a server or a tool (`.body`, `.reply`, `.reason`) is an attribute
only, because it may contain user data. What an endpoint wrote about an error follows its message
in `str(error)`, redacted, in one line. Logs leave it out, because an endpoint may quote a prompt.
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
    "NoThreadError",
    "PointerNotFoundError",
    "ResultTooLargeError",
    "RunBusyError",
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

MissReason = Literal["expired", "erased", "elsewhere", "unknown"]
"""Why a pointer is missing. See `PointerNotFoundError.reason`."""

# Begins the part of an error's text that no log may have.
ENDPOINT_WROTE = "The endpoint wrote: "


class LLMCommonError(Exception):
    """Base class of the errors of llm-common. Pickling and copying keep the attributes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    # `KeyError`, the base of a subclass, would put the message in quotes.
    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is normally rebuilt from `args`, but subclasses need keyword arguments.
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(
    kind: type[LLMCommonError], message: str, attributes: dict[str, object]
) -> LLMCommonError:
    """Create an error of any class without its constructor, whose arguments differ."""
    # An exception's `__new__` sets `args`, so no constructor is needed.
    error = kind.__new__(kind, message)
    error.__dict__.update(attributes)
    return error


class ConfigError(LLMCommonError, ValueError):
    """A setting is invalid.

    Attributes:
        variable: Name of the setting.
        value: Its text, or None.
    """

    def __init__(self, message: str, *, variable: str, value: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value


def install_command(extra: str) -> str:
    """Return the command that installs llm-common with an extra."""
    # Names the repository, because `llm-common` on the public index is another project.
    return f"pip install '.[{extra}]' in a checkout, or pip install 'llm-common[{extra}] @ git+…'"


def missing_extra(reason: str, extra: str) -> ConfigError:
    """Return the error for a feature whose extra is not installed.

    Args:
        reason: The feature that needs the extra, as the first half of a sentence.
        extra: Name of the extra, which becomes the error's `variable`.
    """
    return ConfigError(f"{reason}: {install_command(extra)}", variable=extra)


class LLMError(LLMCommonError):
    """A model call failed. The text starts with the model and the host.

    A client sets the usage and the cost if the endpoint charged the call.

    Attributes:
        model: Name of the requested model, or None.
        host: Host of the endpoint, with the port if the address contains one, or None.
        usage: The `LLMUsage` of the call, or None.
        cost_usd: Cost of the call in dollars, or None.
    """

    model: str | None = None
    host: str | None = None
    usage: object = None
    cost_usd: float | None = None

    def __str__(self) -> str:
        names = (self.model and f"model {self.model}", self.host)
        # A control character in a name could forge a line of a log, so names are escaped.
        where = " at ".join(repr(name)[1:-1][:100] for name in names if name)
        return f"{where}: {self.message}" if where else self.message

    def locate(self, *, model: str | None, host: str | None, chosen_by: str | None = None) -> None:
        """Set the names that the error does not have yet.

        Args:
            model: Name of the requested model.
            host: Host of the endpoint.
            chosen_by: Variable or argument that named the model, for a `ModelNotFoundError`.
        """
        # The innermost client sets the names first, and the clients around it keep them.
        self.model, self.host = self.model or model, self.host or host
        if isinstance(self, ModelNotFoundError):
            self.chosen_by = self.chosen_by or chosen_by


class LLMTimeoutError(LLMError):
    """The model did not answer within `.timeout_s` seconds."""

    def __init__(self, message: str, *, timeout_s: float) -> None:
        super().__init__(message)
        self.timeout_s = timeout_s


class LLMConnectionError(LLMError):
    """The endpoint is unreachable, or the connection broke before the end of the answer."""


class LLMStatusError(LLMError):
    """The endpoint answered with an error.

    An account without credit is this class itself, also with the status 429: waiting does not help.

    Attributes:
        status: HTTP status code.
        body: The first 2,000 characters of the response body.
        retry_after_s: Retry delay requested by the endpoint in seconds, or None.
        endpoint_message: What the endpoint wrote about the error, redacted, in one line of at most
            300 characters. "" if the body has no such text.
    """

    endpoint_message: str = ""

    def __init__(
        self, message: str, *, status: int, body: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self._with_endpoint_message(super().__str__())

    def _with_endpoint_message(self, text: str) -> str:
        if not self.endpoint_message:
            return text
        return f"{text}. {ENDPOINT_WROTE}{self.endpoint_message}"


class LLMAuthError(LLMStatusError):
    """The key is missing, invalid, or not authorised for the request (401, 403)."""


class LLMRateLimitError(LLMStatusError):
    """Too many requests (429). A later one may succeed."""


class ModelNotFoundError(LLMStatusError):
    """The endpoint does not serve this model (404).

    Attributes:
        chosen_by: Variable or argument that named the model, or None.
    """

    chosen_by: str | None = None

    def __str__(self) -> str:
        text = LLMError.__str__(self)
        if self.chosen_by:
            text += f". The model was named by {self.chosen_by}"
        return self._with_endpoint_message(text)


class ContextTooLongError(LLMStatusError):
    """The prompt exceeds the context window of the model."""


class MalformedReplyError(LLMError):
    """The reply does not have the requested form.

    Attributes:
        reason: A short stable code.
        reply: Text of the reply.
    """

    def __init__(self, message: str, *, reason: str, reply: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.reply = reply


class CostLimitError(LLMError):
    """A call was refused because `.spent_usd` has reached `.limit_usd`."""

    def __init__(self, message: str, *, spent_usd: float, limit_usd: float) -> None:
        super().__init__(message)
        self.spent_usd = spent_usd
        self.limit_usd = limit_usd


class StoreError(LLMCommonError):
    """A store operation failed. No partial effect is visible."""


class InvalidIdError(StoreError, ValueError):
    """An id is not allowed. Nothing was read or written."""


class UnsafePathError(StoreError):
    """A path leaves the store, or is not a regular file or directory of the store.

    Nothing was read or written.
    """


class PointerNotFoundError(StoreError, KeyError):
    """The pointer does not exist.

    Attributes:
        reason: `expired` or `erased`. `elsewhere` if another session of the same user has it.
            `unknown` for anything else, also for a pointer of another user.
    """

    def __init__(self, message: str, *, reason: MissReason = "unknown") -> None:
        super().__init__(message)
        self.reason = reason


class CorruptPointerError(StoreError):
    """The stored bytes differ from the saved bytes."""


class UnserialisableError(StoreError):
    """JSON cannot represent a value. Nothing was written."""


class ResultTooLargeError(StoreError):
    """A result exceeds the limit of the store. Nothing was written."""


class StoreFullError(StoreError):
    """The device or the quota is full. The old version is intact."""


class LockTimeoutError(StoreError):
    """Another process held the lock for longer than the store waits."""


class ToolError(LLMCommonError):
    """A tool call returned no result. `.tool` is the name in the call."""

    def __init__(self, message: str, *, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


class UnknownToolError(ToolError):
    """No tool of this name is registered."""


class ToolArgumentsError(ToolError):
    """The arguments do not match the tool's schema. The tool did not run."""


class ToolFailedError(ToolError):
    """The tool raised an exception.

    Attributes:
        reason: Class and text of the exception, which may contain user data. "" if the message is
            complete.
    """

    reason: str = ""


class ServerDownError(ToolFailedError):
    """The server of the tool is down. The call may or may not have taken effect.

    Attributes:
        server: Name of the server.
        retry_after_s: Seconds until the server is restarted.
    """

    def __init__(self, message: str, *, tool: str, server: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message, tool=tool)
        self.server = server
        self.retry_after_s = retry_after_s


class NoThreadError(LLMCommonError):
    """The system could not start a thread. The work did not run."""


class RunBusyError(LLMCommonError):
    """Another run of the same query has begun and not ended, so this one did not begin or go on."""


class TokenBudgetError(LLMCommonError):
    """The required content needs `.needed_tokens`, more than `.limit_tokens`."""

    def __init__(self, message: str, *, needed_tokens: int, limit_tokens: int) -> None:
        super().__init__(message)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
