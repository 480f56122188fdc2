"""`ToolRegistry`: the tools that an agent has, by name."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar, overload

from llm_common.errors import ConfigError, ToolArgumentsError, UnknownToolError
from llm_common.tools.tool import Tool

_MAX_NAMED: Final = 10  # tools in an error
_SEPARATOR: Final = re.compile(r"[\W_]")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ToolRegistry:
    """Tools by name: described to a model, checked, and run.

    Names, iteration and the schema are sorted by name, whatever the order of registration.

    Args:
        tools: Tools to begin with, in any form that `register` takes.

    Raises:
        ConfigError: As from `register`.
        TypeError: If `tools` is not a list or another iterable.
    """

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schema: str | None = None
        untyped: object = tools  # for mypy, which would call the check below unreachable
        if not isinstance(untyped, Iterable) or isinstance(untyped, str | Mapping):
            raise TypeError(
                f"tools is a {type(tools).__name__}; pass a list, such as ToolRegistry([function])"
            )
        for tool in tools:
            self.register(tool)

    def register(
        self,
        tool: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        read_only: bool | None = None,
    ) -> Tool:
        """Register a tool, and return it as a `Tool`.

        Args:
            tool: A `Tool`, a function, sync or async, or an object with `metadata.name`,
                `metadata.description`, `metadata.to_schema()` and `execute(**kwargs)`.
            name: The name of a function's tool. See `Tool`.
            description: The description of a function's tool. See `Tool`.
            parameters: JSON Schema of a function's arguments. None derives it from the type hints.
            read_only: Whether calls of the function change nothing. See `Tool`.

        Raises:
            ConfigError: If the name is taken or not allowed, or the arguments cannot be described.
                See `Tool`.
        """
        registered = _tool_from(
            tool, name=name, description=description, parameters=parameters, read_only=read_only
        )
        if registered.name in self._tools:
            raise ConfigError(
                f"a tool called {registered.name} is registered already; choose another name, or "
                "unregister it first",
                variable="name",
                value=registered.name,
            )
        self._tools[registered.name] = registered
        self._schema = None
        return registered

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...
    def tool(
        self,
        function: FunctionT | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Register the decorated function, and return the function. Takes arguments or none.

        Raises:
            ConfigError: As from `register`.
        """

        def register(function: FunctionT) -> FunctionT:
            self.register(function, name=name, description=description, read_only=read_only)
            return function

        return register if function is None else register(function)

    def unregister(self, name: str) -> None:
        """Remove a tool. A name that is not registered is ignored."""
        self._tools.pop(name, None)
        self._schema = None

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly this name, or None."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all tools, sorted."""
        return tuple(sorted(self._tools))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        # Over a copy, so that the loop may register and unregister tools.
        return iter([self._tools[name] for name in self.names])

    def get_tools_schema(self) -> str:
        """Return every tool's definition in one canonical JSON list, sorted by name.

        The same tools always give the same bytes, so providers can cache prompts with them. The
        list is computed once until the tools change.
        """
        if self._schema is None:
            self._schema = f"[{','.join(tool.definition.text for tool in self)}]"
        return self._schema

    # Positional-only, so that a tool's arguments may have the names `tool_name` and `args`.
    async def execute(
        self, tool_name: str, args: Mapping[str, Any] | None = None, /, **kwargs: Any
    ) -> Any:
        """Run a tool once and return its result. Calls may run concurrently.

        A tool whose arguments do not fit is not run. A `ToolResult` is returned unchanged, also
        with `success=False`.

        Args:
            tool_name: The exact name.
            args: Arguments by name, as one mapping.
            **kwargs: The arguments as keywords, instead of `args`.

        Raises:
            UnknownToolError: If no tool has this name. The text suggests similar names.
            ToolArgumentsError: If the arguments do not fit the schema. The text names fields, not
                values.
            ToolFailedError: If the tool raised. Its exception is the cause, and the message gives
                the reason to a model.
        """
        tool = self._tools.get(tool_name)
        if tool is None:
            choice = tools_meant(str(tool_name), self.names) or f"the {len(self)} registered tools"
            raise UnknownToolError(
                f"no tool of that name; use one of {choice}", tool=str(tool_name)
            )
        if args is not None and kwargs:
            raise ToolArgumentsError(
                f"{tool.name} was not run: pass its arguments as one mapping or as keywords, "
                "not both",
                tool=tool.name,
            )
        return await tool.run(kwargs if args is None else args)


def tools_meant(name: str, names: Sequence[str]) -> str:
    """Return the tools that a model may have meant by an unknown name, as a list in words.

    These are the nearest names, else all tools if there are few, else those of the namespace that
    the name begins with, such as `email.send` for `email`. "" if there are none of these.
    """
    name = name[:64]  # it may have any length, and the comparison is quadratic
    near = get_close_matches(name, names, n=3)
    if near:
        return f"the nearest: {', '.join(near)}"
    if len(names) <= _MAX_NAMED:
        return ", ".join(names)
    namespace = _SEPARATOR.split(name)[0].casefold()
    members = [tool for tool in names if _SEPARATOR.split(tool)[0].casefold() == namespace]
    return ", ".join(members[:_MAX_NAMED])


def _tool_from(
    source: Any,
    *,
    name: str | None,
    description: str | None,
    parameters: Mapping[str, Any] | None,
    read_only: bool | None,
) -> Tool:
    """Return the tool itself, or make one from a function or from an object with metadata."""
    if isinstance(source, Tool):
        return source
    metadata = getattr(source, "metadata", None)
    if metadata is not None and hasattr(source, "execute"):
        return Tool(
            source.execute,
            name=name or metadata.name,
            description=description or metadata.description,
            parameters=parameters or metadata.to_schema(),
            read_only=read_only,
        )
    if not callable(source):
        raise ConfigError(
            f"a {type(source).__name__} is not a tool; pass a function, a Tool, or an object with "
            "metadata and execute()",
            variable="tool",
        )
    return Tool(
        source, name=name, description=description, parameters=parameters, read_only=read_only
    )
