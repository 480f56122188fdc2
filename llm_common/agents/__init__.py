"""Public exports: stores, selectors, tools, prompts, and the executor above them.

A name's module is imported on first use. `llm_common.context` and `llm_common.memory` export their
own names. `ObjectContextPointerStore` is not in `__all__`: it needs the extra `object-store`.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.agents.answer_reading import ContextRead
    from llm_common.agents.answering import Answer, Answering
    from llm_common.agents.diagnosis import Diagnosis, doctor
    from llm_common.agents.events import RunEvent, StreamEvent
    from llm_common.agents.executor import AgenticExecutor
    from llm_common.agents.runs import RunLimits
    from llm_common.agents.session.config import OffloadPolicy, SessionConfig
    from llm_common.agents.session.offloading import (
        Offloaded,
        OffloadTurn,
        text_of as text_of,
    )
    from llm_common.agents.session.saved import (
        SavedResults as SavedResults,
        is_run_id as is_run_id,
        output_label as output_label,
    )
    from llm_common.agents.session.session import Session
    from llm_common.agents.sessions import Sessions
    from llm_common.agents.settings import Settings
    from llm_common.agents.tool_context import ToolContextManager
    from llm_common.plans import ExecutionPlan, PlannedTask, SubTask, SubTaskResult, ToolCall
    from llm_common.pointers.format import format_selected_contexts
    from llm_common.pointers.object_records import (
        ObjectContextPointerStore as ObjectContextPointerStore,
    )
    from llm_common.pointers.pointer import (
        ContextPointer,
        compute_pointer_id,
        deterministic_summary,
    )
    from llm_common.pointers.store import (
        ContextPointerStore,
        FileContextPointerStore,
        InMemoryContextPointerStore,
    )
    from llm_common.prompt.builder import ContextBuilder, TriggerInput
    from llm_common.prompt.prompt_bundle import PromptBundle, TokenBudget, fit
    from llm_common.redaction.redactor import Redactor
    from llm_common.selection.lexical_tools import LexicalToolSelector
    from llm_common.selection.planner import Planner
    from llm_common.selection.relevance import (
        ContextRelevanceSelector,
        LexicalRelevanceSelector,
        RelevanceSelection,
        SelectsPointers,
    )
    from llm_common.selection.results import (
        SelectsTools,
        ToolSelection,
        ToolSelectionConfig,
    )
    from llm_common.selection.tools import ToolSelector
    from llm_common.tools.read_back import ReadBackTool, read_context
    from llm_common.tools.registry import ToolRegistry
    from llm_common.tools.tool import Tool, ToolResult
    from llm_common.tools.tool_index import RankedTool, ToolIndex

# `SavedResults`, `is_run_id`, `output_label` and `text_of` are for the applications of this
# library, and may change.
__all__ = [
    "AgenticExecutor",
    "Answer",
    "Answering",
    "ContextBuilder",
    "ContextPointer",
    "ContextPointerStore",
    "ContextRead",
    "ContextRelevanceSelector",
    "Diagnosis",
    "ExecutionPlan",
    "FileContextPointerStore",
    "InMemoryContextPointerStore",
    "LexicalRelevanceSelector",
    "LexicalToolSelector",
    "OffloadPolicy",
    "OffloadTurn",
    "Offloaded",
    "PlannedTask",
    "Planner",
    "PromptBundle",
    "RankedTool",
    "ReadBackTool",
    "Redactor",
    "RelevanceSelection",
    "RunEvent",
    "RunLimits",
    "SelectsPointers",
    "SelectsTools",
    "Session",
    "SessionConfig",
    "Sessions",
    "Settings",
    "StreamEvent",
    "SubTask",
    "SubTaskResult",
    "TokenBudget",
    "Tool",
    "ToolCall",
    "ToolContextManager",
    "ToolIndex",
    "ToolRegistry",
    "ToolResult",
    "ToolSelection",
    "ToolSelectionConfig",
    "ToolSelector",
    "TriggerInput",
    "compute_pointer_id",
    "deterministic_summary",
    "doctor",
    "fit",
    "format_selected_contexts",
    "read_context",
]

_MODULES = {
    "AgenticExecutor": "llm_common.agents.executor",
    "Answer": "llm_common.agents.answering",
    "Answering": "llm_common.agents.answering",
    "ContextBuilder": "llm_common.prompt.builder",
    "ContextPointer": "llm_common.pointers.pointer",
    "ContextPointerStore": "llm_common.pointers.store",
    "ContextRead": "llm_common.agents.answer_reading",
    "ContextRelevanceSelector": "llm_common.selection.relevance",
    "Diagnosis": "llm_common.agents.diagnosis",
    "ExecutionPlan": "llm_common.plans",
    "FileContextPointerStore": "llm_common.pointers.store",
    "InMemoryContextPointerStore": "llm_common.pointers.store",
    "LexicalRelevanceSelector": "llm_common.selection.relevance",
    "LexicalToolSelector": "llm_common.selection.lexical_tools",
    "ObjectContextPointerStore": "llm_common.pointers.object_records",
    "OffloadPolicy": "llm_common.agents.session.config",
    "OffloadTurn": "llm_common.agents.session.offloading",
    "Offloaded": "llm_common.agents.session.offloading",
    "PlannedTask": "llm_common.plans",
    "Planner": "llm_common.selection.planner",
    "PromptBundle": "llm_common.prompt.prompt_bundle",
    "RankedTool": "llm_common.tools.tool_index",
    "ReadBackTool": "llm_common.tools.read_back",
    "Redactor": "llm_common.redaction.redactor",
    "RelevanceSelection": "llm_common.selection.relevance",
    "RunEvent": "llm_common.agents.events",
    "RunLimits": "llm_common.agents.runs",
    "SavedResults": "llm_common.agents.session.saved",
    "SelectsPointers": "llm_common.selection.relevance",
    "SelectsTools": "llm_common.selection.results",
    "Session": "llm_common.agents.session.session",
    "SessionConfig": "llm_common.agents.session.config",
    "Sessions": "llm_common.agents.sessions",
    "Settings": "llm_common.agents.settings",
    "StreamEvent": "llm_common.agents.events",
    "SubTask": "llm_common.plans",
    "SubTaskResult": "llm_common.plans",
    "TokenBudget": "llm_common.prompt.prompt_bundle",
    "Tool": "llm_common.tools.tool",
    "ToolCall": "llm_common.plans",
    "ToolContextManager": "llm_common.agents.tool_context",
    "ToolIndex": "llm_common.tools.tool_index",
    "ToolRegistry": "llm_common.tools.registry",
    "ToolResult": "llm_common.tools.tool",
    "ToolSelection": "llm_common.selection.results",
    "ToolSelectionConfig": "llm_common.selection.results",
    "ToolSelector": "llm_common.selection.tools",
    "TriggerInput": "llm_common.prompt.builder",
    "compute_pointer_id": "llm_common.pointers.pointer",
    "deterministic_summary": "llm_common.pointers.pointer",
    "doctor": "llm_common.agents.diagnosis",
    "fit": "llm_common.prompt.prompt_bundle",
    "format_selected_contexts": "llm_common.pointers.format",
    "is_run_id": "llm_common.agents.session.saved",
    "output_label": "llm_common.agents.session.saved",
    "read_context": "llm_common.tools.read_back",
    "text_of": "llm_common.agents.session.offloading",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
