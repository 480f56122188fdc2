"""Plain functions for frameworks without hooks: `wrap_tool` and `tool_functions`.

    session = Session(session_id="user:42")
    agent = Agent(tools=[wrap_tool(list_parts, session), *tool_functions(session)])

A server with many users has one agent, and finds the session of each call:

    current: ContextVar[Session] = ContextVar("current")
    agent = Agent(tools=[wrap_tool(list_parts, current.get), *tool_functions(current.get)])
"""

import dataclasses
import functools
import inspect
import logging
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
    Set as AbstractSet,
)
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar, cast, overload
from uuid import UUID

from pydantic import BaseModel

from llm_common.agents import Session, SessionConfig
from llm_common.errors import ConfigError, UnserialisableError
from llm_common.integrations.translation import read_back_or_explain, run_sync
from llm_common.text import is_tabular

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

SessionSource = Session | Callable[[], Session]
"""A session, or a function that returns the session of the current call."""

_SCALARS: Final = (bool, int, float, str, Enum, date, time, Decimal, UUID, PurePath)
_CONTAINERS: Final = (Mapping, list, tuple, AbstractSet)

_log = logging.getLogger(__name__)


def wrap_tool(
    function: FunctionT, session: SessionSource, *, query: str | Callable[[], str] = ""
) -> FunctionT:
    """Return a function whose long results are previews, for the tools of any framework.

    The new function has the same name, signature, annotations and docstring, so a framework derives
    the same schema. An async function stays async, and any other stays synchronous. A preview is a
    str, whatever the return annotation is. Short results, exceptions, iterators, media and other
    objects that are not plain data pass unchanged, and so does a generator function itself.

    Each call is a turn of its own, since a function does not know which calls are made together. A
    result that cannot be stored is returned itself, or as its beginning and end if it is long.

    Args:
        function: A function or bound method. Wrap it before the framework makes a tool of it.
        session: The session, or a function that returns the session of the current call, such as
            the `get` of a `ContextVar`. It is called in the thread or task of the tool, before
            the tool runs.
        query: The user's question, or a function that returns it. It decides what a preview
            shows. Without one, a preview shows the shape and both ends.

    Raises:
        TypeError: If `function` is not a function, or `session` cannot be used. A call raises it
            if `session` returns something else.
    """
    if not isinstance(function, functools.partial) and not inspect.isroutine(function):
        raise TypeError(
            f"function is a {type(function).__name__}; wrap the function before the framework "
            "makes a tool of it"
        )
    _check_source(session)
    named: Any = function
    while isinstance(named, functools.partial):
        named = named.func
    name = str(named.__name__)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _log.info("%s yields its result, so it is not wrapped", name)
        return function
    signature = inspect.signature(function)

    def begin(
        args: Sequence[Any], named: Mapping[str, Any]
    ) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        """Return what offloads the result of a call, with all that it will need.

        It is made before the function runs: a failure after that would lose the result.
        """
        arguments = _arguments(signature, args, named)
        text = query if isinstance(query, str) else query()
        return functools.partial(_offload, _session_of(session), name, arguments, text)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **named: Any) -> Any:
            offload = begin(args, named)
            return await offload(await function(*args, **named))

        return cast(FunctionT, call_async)

    @functools.wraps(function)
    def call_sync(*args: Any, **named: Any) -> Any:
        offload = begin(args, named)
        result = function(*args, **named)
        if not inspect.isawaitable(result):
            return run_sync(offload(result))

        async def awaited() -> Any:  # as a lambda or a decorator returns it
            return await offload(await result)

        return awaited()

    return cast(FunctionT, call_sync)


def _arguments(
    signature: inspect.Signature, args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, without the objects that a framework adds."""
    arguments: dict[str, Any] = {}
    for name, value in signature.bind(*args, **named).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        else:
            arguments[name] = value
    return {name: value for name, value in arguments.items() if _is_argument(value)}


async def _offload(
    session: Session, tool: str, args: Mapping[str, Any], query: str, result: Any
) -> Any:
    """Return the result itself, or its preview if the session does not keep it whole."""
    if not _is_data(result):
        kind = type(result).__name__
        _log.info("a result of %s passes as it is: not plain data (%s)", tool, kind)
        return result
    try:
        preview = await session.offload(result, tool=tool, args=args, query=query)
    except UnserialisableError as exc:
        # The framework has its own text for such a value, and the tool worked before.
        _log.warning("a result of %s is not offloaded: %s", tool, exc)
        return result
    return result if preview.is_whole else str(preview)


@overload
def tool_functions(
    session: SessionSource, *, sync: Literal[False] = False
) -> list[Callable[..., Coroutine[Any, Any, str]]]: ...


@overload
def tool_functions(session: SessionSource, *, sync: Literal[True]) -> list[Callable[..., str]]: ...


def tool_functions(session: SessionSource, *, sync: bool = False) -> list[Callable[..., Any]]:
    """Return the session's tools that read, search and query as functions, for any framework.

    Their type hints and docstrings describe the arguments. A wrong argument or an unknown id
    returns a text that tells the model what to do. `find_tools` is missing, because a function
    cannot change which tools the model sees.

    Args:
        session: As for `wrap_tool`. If it is a function, the tools have their default names.
        sync: Whether the functions are synchronous, for frameworks that call tools in threads.

    Raises:
        TypeError: If `session` cannot be used.
        ConfigError: From a call, if `session` is a function and its session's tools have other
            names.
    """
    _check_source(session)
    config = session.config if isinstance(session, Session) else SessionConfig()
    described: dict[str, Callable[..., None]] = {
        config.offload.reader_name: _read_context,
        config.search_name: _search_context,
        config.query_name: _query_context,
    }
    return [
        _tool_function(name, description, session, sync=sync)
        for name, description in described.items()
    ]


# The functions below only describe the tools: a model passes their arguments by name.


def _read_context(  # noqa: PLR0917
    id: str,  # noqa: A002 - the name that previews use
    path: str | None = None,
    keys: bool | None = None,
    lines: list[int] | None = None,
    chars: list[int] | None = None,
    pattern: str | None = None,
    cursor: str | None = None,
) -> None:
    """Read a stored result, or a part of it, by its id.

    Ask for what you need: keys first to see what is there, then a path. A long answer ends
    with a cursor for the next piece.

    Args:
        id: Id of the stored result.
        path: JSON pointer to a value, such as /items/4321/name.
        keys: True returns counts and names of members instead of values.
        lines: First and last line, from 1.
        chars: First character, from 0, and the one after the last.
        pattern: Python regular expression. Returns the places of its matches.
        cursor: From the answer before. Pass the same other arguments with it.
    """


def _search_context(words: str) -> None:
    """Find words in all earlier tool results that are not shown any more.

    Args:
        words: Words that were said or returned.
    """


def _query_context(sql: str, cursor: str | None = None) -> None:
    """Run one SELECT (SQLite) over stored records, joins included, and return the rows.

    Previews name their tables, and SELECT * FROM tables lists all. number(x) reads texts such
    as $1,234.50.

    Args:
        sql: The SELECT.
        cursor: From the answer before. Pass the same sql with it.
    """


def _tool_function(
    name: str, description: Callable[..., None], session: SessionSource, *, sync: bool
) -> Callable[..., Any]:
    """Return a function that calls a tool of the session, with the parameters of a description."""
    signature = inspect.signature(description).replace(return_annotation=str)

    def begin(args: Sequence[Any], named: Mapping[str, Any]) -> Coroutine[Any, Any, str]:
        # Finds the session before the coroutine starts, so in the thread of the caller.
        return _answer(_session_of(session), name, signature.bind(*args, **named).arguments)

    async def call_async(*args: Any, **named: Any) -> str:
        return await begin(args, named)

    def call_sync(*args: Any, **named: Any) -> str:
        return run_sync(begin(args, named))

    call: Callable[..., Any] = call_async
    if sync:
        call = call_sync
    call.__doc__ = description.__doc__
    call.__module__ = description.__module__
    call.__name__ = call.__qualname__ = name
    call.__annotations__ = description.__annotations__ | {"return": str}
    vars(call)["__signature__"] = signature
    return call


async def _answer(session: Session, tool_name: str, args: Mapping[str, Any]) -> str:
    if tool_name not in session.tool_names:
        raise ConfigError(
            f"the session has no tool {tool_name}, but {', '.join(session.tool_names)}; give the "
            "sessions that the function returns the same names",
            variable="session",
        )
    return await read_back_or_explain(session, tool_name, args)


def _is_argument(value: object) -> bool:
    """Return whether a model can send a value. A framework's own objects may hold keys."""
    return value is None or isinstance(value, (*_SCALARS, list, dict, set, tuple, BaseModel))


def _is_data(result: object) -> bool:
    """Return whether a result is plain data, and not a stream, media or a framework's object."""
    if isinstance(result, list | tuple | AbstractSet):
        return all(map(_is_record, result))
    return _is_record(result)


def _is_record(value: object) -> bool:
    fields: Iterable[object] = ()
    if isinstance(value, BaseModel):
        fields = vars(value).values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif value is not None and not isinstance(value, (*_SCALARS, *_CONTAINERS)):
        return is_tabular(value)
    # A model with bytes is media, such as LlamaIndex's `ImageBlock`.
    return not any(isinstance(field, bytes) for field in fields)


def _check_source(session: object) -> None:
    if not isinstance(session, Session) and not callable(session):
        raise TypeError(
            f"session is a {type(session).__name__}; pass a Session, or a function that returns one"
        )


def _session_of(source: SessionSource) -> Session:
    """Return the session of the current call."""
    if isinstance(source, Session):
        return source
    session: object = source()
    if not isinstance(session, Session):
        raise TypeError(f"session() returned a {type(session).__name__}; return a Session")
    return session
