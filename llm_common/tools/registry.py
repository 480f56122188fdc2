"""`ToolRegistry`: the tools that an agent has, by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from llm_common.errors import ConfigError, ToolArgumentsError, UnknownToolError
from llm_common.tools.tool import Tool

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ToolRegistry:
    """Tools by name: described to a model, checked, and run.

    Names, iteration and the schema are sorted by name, whatever the order of registration.

    Args:
        tools: Registered first; see `register`.

    Raises:
        TypeError: `tools` is no list.
    """

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schema: str | None = None
        given: object = tools  # a caller without a type checker passes anything
        if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            raise TypeError(
                f"tools is a {type(given).__name__}; pass a list, such as ToolRegistry([function])"
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
        replace: bool = False,
    ) -> Tool:
        """The registered tool.

        Args:
            tool: A `Tool`; a function, sync or async; or an object with `metadata.name`,
                `metadata.description`, `metadata.to_schema()` and `execute(**kwargs)`.
            name: For a function; see `Tool`.
            description: For a function; see `Tool`.
            parameters: For a function: JSON Schema of its arguments; None derives it from the type
                hints.
            read_only: For a function; see `Tool`.
            replace: Replaces a registered tool of that name, which is an error otherwise: one tool
                would silently run for the other.

        Raises:
            ConfigError: The name is taken or not allowed, or the arguments cannot be described; see
                `Tool`.
        """
        made = _tool_from(
            tool, name=name, description=description, parameters=parameters, read_only=read_only
        )
        if made.name in self._tools and not replace:
            raise ConfigError(
                f"a tool called {made.name} is registered already; choose another name, or "
                "pass replace=True",
                variable="name",
                value=made.name,
            )
        self._tools[made.name] = made
        self._schema = None
        return made

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
        """`register` as a decorator, bare or with arguments; returns the function.

        Raises:
            ConfigError: As from `register`.
        """

        def register(function: FunctionT) -> FunctionT:
            self.register(function, name=name, description=description, read_only=read_only)
            return function

        return register if function is None else register(function)

    def unregister(self, name: str) -> None:
        """Removes a tool; ignores a name that is not registered."""
        self._tools.pop(name, None)
        self._schema = None

    def get(self, name: str) -> Tool | None:
        """The tool of exactly that name, or None."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(sorted(self._tools))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter([self._tools[name] for name in self.names])

    def get_tools_schema(self) -> str:
        """Return every tool's definition in one canonical JSON list, sorted by name.

        The same tools give the same bytes: a provider can cache a prompt that holds them. Computed
        once until the tools change.
        """
        if self._schema is None:
            self._schema = f"[{','.join(tool.definition.text for tool in self)}]"
        return self._schema

    async def execute(
        self, tool_name: str, args: Mapping[str, Any] | None = None, /, **kwargs: Any
    ) -> Any:
        """What the tool returns. Runs it once, or not at all if the arguments do not fit.

        Returns a `ToolResult` unchanged, also with `success=False`. Calls may run concurrently.

        Args:
            tool_name: Exact name.
            args: Arguments by name, as one mapping.
            **kwargs: The same as keywords, instead of `args`.

        Raises:
            UnknownToolError: No tool of that name; the text suggests similar names.
            ToolArgumentsError: The arguments do not fit the schema. The text names fields, not
                values.
            ToolFailedError: The tool raised; the original is the cause.
        """
        tool = self._tools.get(tool_name)
        if tool is None:
            near = get_close_matches(str(tool_name)[:64], self.names, n=3)
            choice = (
                f"the nearest: {', '.join(near)}"
                if near
                else f"the {len(self)} that are registered"
            )
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


def _tool_from(
    source: Any,
    *,
    name: str | None,
    description: str | None,
    parameters: Mapping[str, Any] | None,
    read_only: bool | None,
) -> Tool:
    """The tool itself, or one made from a function or from an object with metadata."""
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
            f"a {type(source).__name__} is no tool; pass a function, a Tool, or an object with "
            "metadata and execute()",
            variable="tool",
        )
    return Tool(
        source, name=name, description=description, parameters=parameters, read_only=read_only
    )
