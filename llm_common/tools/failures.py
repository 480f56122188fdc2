"""Say why a tool call failed, for a model and a log: the class and the text of the exception.

Two replacements keep other people's data out. The redactor removes secrets. A text of the call's
arguments, which may be the user's, becomes the argument's name in brackets.
"""

from collections.abc import Iterator, Mapping
from traceback import format_exception_only
from typing import Any, Final

from llm_common.errors import ToolError, ToolFailedError
from llm_common.redaction.redactor import Redactor
from llm_common.text.display import one_line

MAX_REASON_CHARS: Final = 400
_MAX_NAME_CHARS: Final = 64
_MIN_ARGUMENT_CHARS: Final = 8  # shorter arguments are words such as `read`, which a message needs
_MAX_ARGUMENT_DEPTH: Final = 8
_MAX_HEAD_CHARS: Final = 64  # of an argument's text, by which it is looked up
_MAX_READ_CHARS: Final = 1_000  # more than `Redactor.beginning` reads for a reason


def describe_failure(
    tool: str, args: Mapping[str, Any], error: BaseException, redactor: Redactor
) -> str:
    """Return why a call raised: the tool, the class of the error and its text.

    Args:
        tool: The tool's name.
        args: The arguments of the call.
        error: The exception, also within the `ToolFailedError` of a registry, of
            `third_party_code`, or of both.
        redactor: Removes secrets.
    """
    name = shown_name(tool, redactor)
    if isinstance(error, ToolFailedError) and isinstance(error.__cause__, ToolError):
        error = error.__cause__  # the registry's error has the tool's own text
    if isinstance(error, ToolFailedError) and error.reason:
        return f"{name} raised {failure_reason(error.reason, args, redactor)}"
    if isinstance(error, ToolError):
        text = failure_reason(error.message, args, redactor)
        # The registry's own errors have the name already.
        return text if name in text else f"{name}: {text}"
    text = "".join(format_exception_only(error))
    return f"{name} raised {failure_reason(text, args, redactor)}"


def failure_reason(text: str, args: Mapping[str, Any], redactor: Redactor) -> str:
    """Return the text of an error in one line, without secrets and texts of the arguments."""
    beginning = redactor.beginning(_without_arguments(text, args), max_chars=MAX_REASON_CHARS)
    return one_line(beginning, max_chars=MAX_REASON_CHARS)


def shown_name(tool: str, redactor: Redactor) -> str:
    """Return the name of a tool in one line. A model may have made it up."""
    return one_line(redactor.text(tool), max_chars=_MAX_NAME_CHARS)


def _without_arguments(text: str, args: Mapping[str, Any]) -> str:
    """Return the beginning of a text, with the names of arguments in place of their texts.

    Reads each place once, so that neither many arguments nor a name that contains such a text can
    make it long or slow.
    """
    names: dict[str, str] = {}
    for name, value in args.items():
        for argument in _texts(value):
            names.setdefault(argument, f"[{name[:_MAX_NAME_CHARS]}]")
    by_head: dict[str, list[str]] = {}
    # Longest first, since a text may contain a shorter one.
    for argument in sorted(names, key=len, reverse=True):
        by_head.setdefault(argument[:_MAX_HEAD_CHARS], []).append(argument)
    head_sizes = sorted({len(head) for head in by_head}, reverse=True)

    def argument_at(place: int) -> str:
        for size in head_sizes:
            for argument in by_head.get(text[place : place + size], ()):
                if text.startswith(argument, place):
                    return argument
        return ""

    pieces: list[str] = []
    place = chars = 0
    while place < len(text) and chars < _MAX_READ_CHARS:
        argument = argument_at(place)
        piece = names[argument] if argument else text[place]
        pieces.append(piece)
        chars += len(piece)
        place += len(argument) or 1
    return "".join(pieces)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of an argument that are long enough to be the user's."""
    if isinstance(value, str):
        if len(value) >= _MIN_ARGUMENT_CHARS:
            yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_ARGUMENT_DEPTH:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part, depth + 1)
