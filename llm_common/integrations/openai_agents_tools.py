"""Wrap tools of the OpenAI Agents SDK so that their results can be offloaded."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Self

from agents import FunctionTool, RunContextWrapper, tool as sdk
from agents.tool_context import ToolContext

from llm_common.integrations.translation import plain_text
from llm_common.tools import ToolDefinition


class FormattedError(str):
    """The text that a tool's own `failure_error_function` returned for an error."""

    __slots__ = ()


class OffloadingInvoker:
    """Call a tool, then hand its result to `finish`.

    The SDK reads attributes of `on_invoke_tool`. Those of the tool's own function are passed on.

    Args:
        tool: The tool.
        finish: Returns what the model sees of a result.
        prepare: Returns the arguments that the tool gets, or None for those of the model.
    """

    def __init__(
        self,
        tool: FunctionTool,
        finish: Callable[[Any, ToolContext[Any]], Awaitable[Any]],
        prepare: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._prepare = prepare
        # A copy, because its formatter is changed below, and other agents may share the tool.
        self._tool, self._finish = replace(tool), finish
        formatter = sdk.resolve_function_tool_failure_error_function(tool)
        # The SDK returns an error's text like any result. Marked, it is not offloaded.
        if formatter not in (None, sdk.default_tool_error_function):
            sdk.set_function_tool_failure_error_function(self._tool, _marking(formatter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool.on_invoke_tool, name)

    def __agents_bind_function_tool__(self, _: FunctionTool) -> Self:
        # The SDK calls this for each copy of a tool. The tool to run stays the same.
        return self

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Run the tool and return what `finish` makes of its result."""
        if self._prepare is not None:
            arguments = await self._prepare(arguments)
        return await self._finish(await self._tool.on_invoke_tool(ctx, arguments), ctx)


def _marking(formatter: Any) -> Any:
    async def mark(ctx: RunContextWrapper[Any], error: Exception) -> str:
        text = formatter(ctx, error)
        return FormattedError(await text if isawaitable(text) else text)

    return mark


def describe(tool: Any) -> ToolDefinition | None:
    """Return the definition of a function tool, or None for a tool that runs at the provider."""
    if not isinstance(tool, FunctionTool):
        return None
    return ToolDefinition(tool.name, tool.description, tool.params_json_schema)


def is_final_output(tool_name: str, behavior: Any) -> bool:
    """Return whether an agent's `tool_use_behavior` makes the tool's result the run's output.

    A function as the behaviour decides by the results, so it is not known before the call.
    """
    if isinstance(behavior, dict):
        return tool_name in behavior.get("stop_at_tool_names", ())
    return bool(behavior == "stop_on_first_tool")


def content_of(result: Any) -> Any:
    """Return a tool's result as text or data, or None if it is an error or holds media."""
    if isinstance(result, FormattedError):
        return None
    blocks: list[dict[str, Any]] = []
    for part in result if isinstance(result, list) else [result]:
        # The SDK has a pydantic model and a dict for each kind of output.
        blocks.append(part if isinstance(part, dict) else getattr(part, "__dict__", {}))
    types = {block.get("type") for block in blocks}
    if types & {"image", "file"}:
        return None
    if types == {"text"}:
        return plain_text(blocks)
    return result
