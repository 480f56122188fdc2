"""Public exports: stores, selectors, tools, prompts, and the executor above them.

A name's module is imported on first use. `llm_common.context` and `llm_common.memory` export their
own names. `ObjectContextPointerStore` is not in `__all__`: it needs the extra `object-store`.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.agents.answer_reading import ContextRead as ContextRead
    from llm_common.agents.answering import (
        Answer as Answer,
        Answering as Answering,
    )
    from llm_common.agents.context_pointers import (
        ContextPointer as ContextPointer,
        ContextRelevanceSelector as ContextRelevanceSelector,
        FileContextPointerStore as FileContextPointerStore,
        LexicalRelevanceSelector as LexicalRelevanceSelector,
        Redactor as Redactor,
        RelevanceSelection as RelevanceSelection,
        RenderedContexts as RenderedContexts,
        compute_pointer_id as compute_pointer_id,
        deterministic_summary as deterministic_summary,
        format_selected_contexts as format_selected_contexts,
        render_selected_contexts as render_selected_contexts,
    )
    from llm_common.agents.executor import (
        AgenticExecutor as AgenticExecutor,
        StreamEvent as StreamEvent,
    )
    from llm_common.agents.offloading import (
        Offloaded as Offloaded,
        OffloadPolicy as OffloadPolicy,
        OffloadTurn as OffloadTurn,
        offload as offload,
    )
    from llm_common.agents.run_state import RunLimits as RunLimits
    from llm_common.agents.session import ToolContextManager as ToolContextManager
    from llm_common.plans import (
        ExecutionPlan as ExecutionPlan,
        PlannedTask as PlannedTask,
        SubTask as SubTask,
        SubTaskResult as SubTaskResult,
        ToolCall as ToolCall,
    )
    from llm_common.pointers.object_records import (
        ObjectContextPointerStore as ObjectContextPointerStore,
    )
    from llm_common.pointers.store import (
        ContextPointerStore as ContextPointerStore,
        InMemoryContextPointerStore as InMemoryContextPointerStore,
    )
    from llm_common.prompt import (
        ContextBuilder as ContextBuilder,
        PromptBundle as PromptBundle,
        TokenBudget as TokenBudget,
        TriggerInput as TriggerInput,
        fit as fit,
    )
    from llm_common.selection.lexical_tools import LexicalToolSelector as LexicalToolSelector
    from llm_common.selection.planner import Planner as Planner
    from llm_common.selection.results import (
        SelectsTools as SelectsTools,
        ToolSelection as ToolSelection,
        ToolSelectionConfig as ToolSelectionConfig,
    )
    from llm_common.selection.tools import ToolSelector as ToolSelector
    from llm_common.tools.read_back import (
        ReadBackTool as ReadBackTool,
        read_context as read_context,
    )
    from llm_common.tools.registry import (
        ToolRegistry as ToolRegistry,
    )
    from llm_common.tools.tool import (
        Tool as Tool,
        ToolResult as ToolResult,
    )
    from llm_common.tools.tool_index import (
        RankedTool as RankedTool,
        ToolIndex as ToolIndex,
    )

__getattr__, _names = lazy_exports(__name__)
__all__ = [name for name in _names if name != "ObjectContextPointerStore"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
