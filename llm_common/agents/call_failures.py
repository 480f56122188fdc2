"""Describe failed and refused tool calls, one line each, for events, results, logs and models.

A line holds the class and the text of what the tool raised, after two replacements: the redactor
takes the secrets out, and a text that was an argument of the call, and so may be the user's,
becomes the argument's name in brackets.
"""

from collections.abc import Iterator, Mapping
from traceback import format_exception_only
from typing import Any

from llm_common.errors import ToolError, ToolFailedError
from llm_common.plans import ToolCall
from llm_common.redaction.redactor import Redactor
from llm_common.selection.results import DroppedCall
from llm_common.text.display import one_line
from llm_common.tools.tool import ToolResult

MAX_REASON_CHARS = 400
_MAX_NAME_CHARS = 64
_MIN_ARGUMENT_CHARS = 8  # shorter ones are words such as `read`, which a message needs
_MAX_ARGUMENT_DEPTH = 8

# Refused for these reasons, a call leaves data missing; else it is a repeat, one too many, or a
# guess of the library.
LOSING_REASONS = frozenset({"malformed", "unknown_tool", "invalid_args"})


def describe_failure(call: ToolCall, error: BaseException, redactor: Redactor) -> str:
    """Return why a call raised: the tool, the class of the error and its text.

    Args:
        call: The call.
        error: Raised by the call, also within the `ToolFailedError` of a registry, of
            `third_party_code`, or of both.
        redactor: The store's.
    """
    name = _name(call.tool, redactor)
    if isinstance(error, ToolFailedError) and isinstance(error.__cause__, ToolError):
        error = error.__cause__  # the registry's own error says more
    if isinstance(error, ToolFailedError) and error.reason:
        return f"{name} raised {_line(error.reason, call, redactor)}"
    if isinstance(error, ToolError):
        text = _line(error.message, call, redactor)
        return text if name in text else f"{name}: {text}"
    return f"{name} raised {_line(''.join(format_exception_only(error)), call, redactor)}"


def describe_returned_failure(call: ToolCall, result: ToolResult, redactor: Redactor) -> str:
    """Return why a call returned a `ToolResult` without success: the result's `error`."""
    reason = _line(result.error or "", call, redactor) or "it gave no reason"
    return f"tool {_name(call.tool, redactor)!r} returned a failure: {reason}"


def describe_refusal(refused: DroppedCall, redactor: Redactor) -> str:
    """Return why a proposed call will not run. Names arguments, never their values."""
    reason = one_line(redactor.text(str(refused)), max_chars=MAX_REASON_CHARS)
    return f"a proposed call was refused: {reason}"


def error_type(error: BaseException) -> str:
    """Return the class of what a tool raised, within the `ToolFailedError`s around it."""
    while isinstance(error, ToolFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _name(tool: str, redactor: Redactor) -> str:
    return one_line(redactor.text(tool), max_chars=_MAX_NAME_CHARS)


def _line(text: str, call: ToolCall, redactor: Redactor) -> str:
    for name, value in call.args.items():
        # a longer one may hold a shorter one
        for part in sorted(_texts(value), key=len, reverse=True):
            text = text.replace(part, f"[{name[:_MAX_NAME_CHARS]}]")
    return one_line(
        redactor.beginning(text, max_chars=MAX_REASON_CHARS), max_chars=MAX_REASON_CHARS
    )


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of an argument that are long enough to be a user's."""
    if isinstance(value, str):
        if len(value) >= _MIN_ARGUMENT_CHARS:
            yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_ARGUMENT_DEPTH:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part, depth + 1)
