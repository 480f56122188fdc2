"""Chooses and acts: the public face. `__all__` is the list of what an application may rely on."""

from typing import TYPE_CHECKING

from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
    RelevanceSelection,
    RenderedContexts,
    compute_pointer_id,
    deterministic_summary,
    format_selected_contexts,
    render_selected_contexts,
)
from llm_common.agents.executor import AgenticExecutor, StreamEvent
from llm_common.agents.lexical_tool_selector import LexicalToolSelector
from llm_common.agents.schemas import ExecutionPlan, PlannedTask, SubTask, SubTaskResult, ToolCall
from llm_common.agents.tool_context import ToolContextManager
from llm_common.agents.tool_selector import SelectsTools, ToolSelection, ToolSelectionConfig, ToolSelector
from llm_common.agents.tools import Tool, ToolRegistry, ToolResult

if TYPE_CHECKING:
    from llm_common.agents.pointers.object_store import ObjectContextPointerStore

__all__ = [
    "AgenticExecutor",
    "ContextPointer",
    "ContextRelevanceSelector",
    "ExecutionPlan",
    "FileContextPointerStore",
    "LexicalRelevanceSelector",
    "LexicalToolSelector",
    "ObjectContextPointerStore",
    "PlannedTask",
    "RelevanceSelection",
    "RenderedContexts",
    "SelectsTools",
    "StreamEvent",
    "SubTask",
    "SubTaskResult",
    "Tool",
    "ToolCall",
    "ToolContextManager",
    "ToolRegistry",
    "ToolResult",
    "ToolSelection",
    "ToolSelectionConfig",
    "ToolSelector",
    "compute_pointer_id",
    "deterministic_summary",
    "format_selected_contexts",
    "render_selected_contexts",
]


def __getattr__(name: str) -> object:
    """The store that needs the extra `object-store`, when it is asked for."""
    if name == "ObjectContextPointerStore":
        from llm_common.agents.pointers.object_store import ObjectContextPointerStore  # noqa: PLC0415 - an extra

        return ObjectContextPointerStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
