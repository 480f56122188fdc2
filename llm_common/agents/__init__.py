"""Chooses and acts: the public face. `__all__` is the list of what an application may rely on.

A name's module is imported when the name is first asked for, so that nobody waits for parts that are not used. The
context selector has a face of its own, `llm_common.agents.context`, and so has memory, `llm_common.agents.memory`.
`ObjectContextPointerStore` is here too, but not in `__all__`: it needs the extra `object-store`.
"""

from typing import TYPE_CHECKING

from llm_common._faces import late_names

if TYPE_CHECKING:
    from llm_common.agents.answering import Answer, Answering
    from llm_common.agents.context_pointers import (
        ContextPointer,
        ContextRelevanceSelector,
        FileContextPointerStore,
        LexicalRelevanceSelector,
        Redactor,
        RelevanceSelection,
        RenderedContexts,
        compute_pointer_id,
        deterministic_summary,
        format_selected_contexts,
        render_selected_contexts,
    )
    from llm_common.agents.executor import AgenticExecutor
    from llm_common.agents.lexical_tool_selector import LexicalToolSelector
    from llm_common.agents.offloading import Offloaded, OffloadPolicy, OffloadTurn, offload
    from llm_common.agents.pointers.object_store import ObjectContextPointerStore as ObjectContextPointerStore
    from llm_common.agents.prompt import ContextBuilder, PromptBundle, TokenBudget, TriggerInput, fit
    from llm_common.agents.run_events import StreamEvent
    from llm_common.agents.schemas import ExecutionPlan, PlannedTask, SubTask, SubTaskResult, ToolCall
    from llm_common.agents.tool_context import ToolContextManager
    from llm_common.agents.tool_selector import ToolSelector
    from llm_common.agents.tools import (
        ReadBackTool,
        SelectsTools,
        Tool,
        ToolRegistry,
        ToolResult,
        ToolSelection,
        ToolSelectionConfig,
        read_context,
    )

__all__ = [
    "AgenticExecutor",
    "Answer",
    "Answering",
    "ContextBuilder",
    "ContextPointer",
    "ContextRelevanceSelector",
    "ExecutionPlan",
    "FileContextPointerStore",
    "LexicalRelevanceSelector",
    "LexicalToolSelector",
    "OffloadPolicy",
    "OffloadTurn",
    "Offloaded",
    "PlannedTask",
    "PromptBundle",
    "ReadBackTool",
    "Redactor",
    "RelevanceSelection",
    "RenderedContexts",
    "SelectsTools",
    "StreamEvent",
    "SubTask",
    "SubTaskResult",
    "TokenBudget",
    "Tool",
    "ToolCall",
    "ToolContextManager",
    "ToolRegistry",
    "ToolResult",
    "ToolSelection",
    "ToolSelectionConfig",
    "ToolSelector",
    "TriggerInput",
    "compute_pointer_id",
    "deterministic_summary",
    "fit",
    "format_selected_contexts",
    "offload",
    "read_context",
    "render_selected_contexts",
]

_HOMES = {
    "answering": ("Answer", "Answering"),
    "context_pointers": (
        "ContextPointer",
        "ContextRelevanceSelector",
        "FileContextPointerStore",
        "LexicalRelevanceSelector",
        "Redactor",
        "RelevanceSelection",
        "RenderedContexts",
        "compute_pointer_id",
        "deterministic_summary",
        "format_selected_contexts",
        "render_selected_contexts",
    ),
    "executor": ("AgenticExecutor",),
    "lexical_tool_selector": ("LexicalToolSelector",),
    "offloading": ("OffloadPolicy", "OffloadTurn", "Offloaded", "offload"),
    "pointers.object_store": ("ObjectContextPointerStore",),  # not in __all__, since it needs an extra
    "prompt": ("ContextBuilder", "PromptBundle", "TokenBudget", "TriggerInput", "fit"),
    "run_events": ("StreamEvent",),
    "schemas": ("ExecutionPlan", "PlannedTask", "SubTask", "SubTaskResult", "ToolCall"),
    "tool_context": ("ToolContextManager",),
    "tool_selector": ("ToolSelector",),
    "tools": (
        "ReadBackTool",
        "SelectsTools",
        "Tool",
        "ToolRegistry",
        "ToolResult",
        "ToolSelection",
        "ToolSelectionConfig",
        "read_context",
    ),
}

__getattr__ = late_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
