"""Read-back: a model reads the part of a stored result that it needs, and no more."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from pydantic import ValidationError

from llm_common._telemetry import record
from llm_common._threads import in_thread
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import (
    ConfigError,
    LLMCommonError,
    MissReason,
    PointerNotFoundError,
    StoreError,
    ToolArgumentsError,
    ToolFailedError,
)
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.reading import (
    MIN_LIMIT_TOKENS,
    READER_NAME,
    ContextReading,
    ResultPart,
    read_payload,
)
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool

DEFAULT_MAX_TOKENS = 1_000
"""Room for a page of text or some dozen records."""

LoadsPayload = Callable[[str], tuple[ContextPointer, bytes]]
"""Loads a pointer and its result by the id, such as `ToolContextManager.load_payload`."""

_DESCRIPTION = (
    "Reads a stored result, or a part of it, by its id. Ask for what you need: keys first to "
    "see what is there, then a path. Several arguments narrow the part in the order path, keys, "
    "lines, chars, pattern. A long answer ends with a cursor for the next piece."
)
_MISSES: Final[Mapping[MissReason, str]] = {
    "expired": "the stored result is gone, because it has expired; go on without it",
    "erased": "the stored result is gone, because it was erased; go on without it",
    "elsewhere": "another session of this user has the stored result; go on without it",
    "unknown": (
        "no stored result of this session has this id; use an id that was shown to you, or go on "
        "without it"
    ),
}
_FORMS: Final = {
    "path": "path must be a JSON pointer of at most 2,000 characters, such as /items/4321/name",
    "keys": "keys must be true or false",
    "lines": "lines must be the first and last line, from 1, such as [1, 20]",
    "chars": "chars must be the first character, from 0, and the end, such as [0, 500]",
    "pattern": "pattern must be a regular expression of at most 500 characters",
}
"""What each field of a `ResultPart` must be."""
_RANGE = {"type": "array", "items": {"type": "integer"}}
_PARAMETERS = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "path": {"type": "string", "description": "JSON pointer, such as /items/4321/name."},
        "keys": {"type": "boolean", "description": "Names and counts instead of values."},
        "lines": _RANGE | {"description": "First and last, from 1."},
        "chars": _RANGE | {"description": "First, from 0, and end."},
        "pattern": {"type": "string", "description": "Regular expression."},
        "cursor": {"type": "string", "description": "Of the answer before. Repeat its arguments."},
    },
    "required": ["id"],
    "additionalProperties": False,
}
_OLD_NAMES: Final = {"pointer_id": "id", "regex": "pattern", "query": "words"}


def flat_arguments(
    args: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """Return the arguments of a reading tool by their names, and a line about old forms.

    The calls that a long conversation shows may have a part in `select`, and arguments by the
    names that they had before. They are understood, and the line tells the model the names. Nulls
    are removed, because strict function calling sends them for omitted arguments.

    Args:
        args: The arguments of the call.
        parameters: The tool's parameters, as JSON Schema.
    """
    if not isinstance(args, Mapping):
        return args, ""  # the check of the arguments describes the problem
    names = parameters["properties"]
    flat = {name: value for name, value in args.items() if value is not None}
    part = flat.get("select")
    if isinstance(part, Mapping):
        del flat["select"]
        flat.update(part)
    for old_name, name in _OLD_NAMES.items():
        if name in names and flat.get(old_name) is not None:
            flat[name] = flat.pop(old_name)
    hint = ""
    if not flat.keys() <= args.keys():
        hint = f"\nNext time pass the arguments by these names: {', '.join(names)}."
    return {name: value for name, value in flat.items() if value is not None}, hint


async def read_context(
    pointer_id: str,
    *,
    load: LoadsPayload,
    path: str | None = None,
    keys: bool = False,
    lines: Sequence[int] | None = None,
    chars: Sequence[int] | None = None,
    pattern: str | None = None,
    cursor: str | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    counter: TokenCounter | None = None,
) -> ContextReading:
    """Return a piece of a stored result, or of a part of it, within `max_tokens`.

    The pieces of all cursors, joined, are exactly the part. No state is kept, so any process that
    loads the same result can continue. The work runs in a thread. A pattern stops after 1.2 s of
    CPU time. Each of `path`, `keys`, `lines`, `chars` and `pattern` narrows the part, in this
    order. Without them, the part is the whole result.

    Args:
        pointer_id: The id of the result.
        load: Loads the result, in a thread.
        path: JSON pointer to a value, such as `/items/4321/name`.
        keys: Whether to read counts and the names and shapes of members instead of the value.
        lines: First and last line, from 1.
        chars: Index of the first character, from 0, and of the end.
        pattern: Regular expression, whose matches are returned with the text around them.
        cursor: The cursor of the previous piece of the same part. None reads the first.
        max_tokens: Maximum tokens of the answer's `rendered`, `MIN_LIMIT_TOKENS` or more.
        counter: Counts tokens. None takes `DefaultCounter`.

    Raises:
        PointerNotFoundError: If `load` finds no such result. `.reason` says why.
        ToolArgumentsError: If the part is missing, or its pattern or cursor is not valid.
        StoreError: If the result cannot be loaded.
        ValueError: If `max_tokens` is too small.
    """
    part = _part(path=path, keys=keys, lines=lines, chars=chars, pattern=pattern)
    tokens = counter or DefaultCounter()

    def read() -> ContextReading:
        pointer, payload = load(pointer_id)
        return read_payload(
            pointer, payload, part=part, cursor=cursor, max_tokens=max_tokens, counter=tokens
        )

    parts = tuple(part.model_dump(exclude_defaults=True))
    try:
        reading = await in_thread(read)
    except LLMCommonError as exc:
        record("read_back", pointer_id=pointer_id, parts=parts, failure=type(exc).__name__)
        raise
    record("read_back", pointer_id=pointer_id, parts=parts, chars=len(reading.text))
    return reading


class ReadBackTool(Tool):
    """`read_context` as a tool for a model, over the results that `load` can load.

    The executor does not store or offload its results, which are `ContextReading`s.

    Args:
        load: Loads only what the model may read: the session's `ToolContextManager.load_payload`,
            or `functools.partial(store.load_payload, query_id=...)` for the results of one query.
        name: The tool's name.
        max_tokens: Maximum tokens of an answer.
        counter: Counts tokens. None takes `DefaultCounter`.
        running: Returns the context in which a call runs, such as that of a trace.

    Raises:
        ConfigError: If the name is not allowed.
        TypeError: If `load` cannot be called.
        ValueError: If `max_tokens` is under `MIN_LIMIT_TOKENS`.
    """

    __slots__ = ("_counter", "_load", "_max_tokens", "_running")

    def __init__(
        self,
        load: LoadsPayload,
        *,
        name: str = READER_NAME,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        counter: TokenCounter | None = None,
        running: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        if max_tokens < MIN_LIMIT_TOKENS:
            raise ValueError(f"max_tokens is {max_tokens}; it must be {MIN_LIMIT_TOKENS} or more")
        if not callable(load):
            raise TypeError(
                f"load is a {type(load).__name__}; pass the load_payload of a session or a store"
            )
        # The function is never called, since `run` is replaced.
        super().__init__(read_context, name=name, description=_DESCRIPTION, parameters=_PARAMETERS)
        self._load = load
        self._max_tokens = max_tokens
        self._counter = counter or DefaultCounter()
        self._running = running

    async def run(self, args: Mapping[str, Any]) -> ContextReading:
        """Return the piece that the arguments request.

        Raises:
            ToolArgumentsError: If the arguments do not fit, or select a part that is missing. The
                message tells the model what to do.
            ToolFailedError: If the result cannot be read. The message says why, and does not
                suggest that the model runs the tool again.
        """
        flat, hint = flat_arguments(args, self.definition.parameters)
        part = dict(self._bind(flat))
        pointer_id = part.pop("id").strip().lower()  # models add blanks, or shout
        max_tokens = self._max_tokens - self._counter.count(hint)
        if max_tokens < MIN_LIMIT_TOKENS:
            hint = ""
            max_tokens = self._max_tokens
        try:
            with self._running():
                reading = await read_context(
                    pointer_id,
                    load=self._load,
                    max_tokens=max_tokens,
                    counter=self._counter,
                    **part,
                )
        except StoreError as exc:
            # A model that reads only "not found" repeats the call, which may cost money or write
            # twice. So no reason hints to run the tool again.
            reason = "the stored result cannot be read now; go on without it"
            if isinstance(exc, PointerNotFoundError):
                reason = _MISSES[exc.reason]
            text = f"{reason}, and say so where it matters"
            raise ToolFailedError(text, tool=self.name) from exc
        return reading.model_copy(update={"hint": hint})


def with_read_back(registry: object, *readers: Tool) -> ToolRegistry:
    """Return a copy of a registry that also has the tools that read a session's results.

    Args:
        registry: The application's tools. The copy does not get tools that are registered later.
        readers: Read the session's results and nothing else, as `Session.reader` and
            `Session.querier` return them.

    Raises:
        ConfigError: If `registry` is not a `ToolRegistry`, or has a tool of a reader's name.
    """
    if not isinstance(registry, ToolRegistry):
        raise ConfigError("read_back needs a ToolRegistry; pass one", variable="tool_registry")
    # A copy, since the registry may serve other sessions too.
    return ToolRegistry([*registry, *readers])


def _part(**fields: Any) -> ResultPart:
    try:
        return ResultPart.model_validate(fields)
    except ValidationError as exc:
        problems: list[str] = []
        for error in exc.errors():
            # Pydantic's messages may quote the value.
            problem = "the range is empty: its end must not be before its beginning"
            if error["loc"]:
                problem = _FORMS[str(error["loc"][0])]
            problems.append(problem)
        listed = "; ".join(dict.fromkeys(problems))
        raise ToolArgumentsError(listed, tool=READER_NAME) from exc
