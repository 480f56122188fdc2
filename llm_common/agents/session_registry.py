"""`session_registry`: the tools of an application as one session offers them, with its stored results at hand."""

from collections.abc import Collection, Mapping
from typing import Any

from llm_common.errors import ConfigError
from llm_common.tools.pointer_arguments import PointerArgumentsTool
from llm_common.tools.read_back import LoadsPayload, ReadBackTool
from llm_common.tools.registry import ToolRegistry

__all__ = ["session_registry"]


def session_registry(
    registry: Any,
    load: LoadsPayload,
    *,
    read_back: bool = False,
    pointer_arguments: Mapping[str, Collection[str]] | None = None,
) -> Any:
    """The registry itself when nothing is asked for, else a copy of it with what is; the original stays as it is.

    Args:
        registry: The application's tools; tools that are registered there later do not reach the copy.
        load: Loads the session's results and nothing else: `ToolContextManager.load_payload`.
        read_back: Adds a `ReadBackTool`.
        pointer_arguments: Parameters that may be given as `{"$pointer": id}`, by tool; see `PointerArgumentsTool`.

    Raises:
        ConfigError: The registry is no `ToolRegistry`, has no such tool or parameter, or has a tool of the reader's
            name already.
    """
    named = pointer_arguments or {}
    if not read_back and not named:
        return registry
    if not isinstance(registry, ToolRegistry):
        raise ConfigError("read_back and pointer_arguments need a ToolRegistry; pass one", variable="tool_registry")
    if unknown := sorted(set(named) - set(registry.names)):
        raise ConfigError(
            f"there is no tool {unknown[0]}; name registered tools in pointer_arguments",
            variable="pointer_arguments",
            value=unknown[0],
        )
    tools = [
        PointerArgumentsTool(tool, load, parameters=named[tool.name]) if tool.name in named else tool
        for tool in registry
    ]
    return ToolRegistry([*tools, ReadBackTool(load)] if read_back else tools)
