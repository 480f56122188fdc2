"""Public exports for tool outputs: pointers, store, selectors, rendering.

A stable import path: the modules of `llm_common.pointers` and `llm_common.selection` may move.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.pointers.format import format_selected_contexts
    from llm_common.pointers.object_records import (
        ObjectContextPointerStore as ObjectContextPointerStore,  # noqa: PLC0414 - not in __all__: it needs an extra
    )
    from llm_common.pointers.pointer import (
        ContextPointer,
        compute_pointer_id,
        deterministic_summary,
    )
    from llm_common.pointers.store import FileContextPointerStore
    from llm_common.redaction.redactor import Redactor
    from llm_common.selection.relevance import (
        ContextRelevanceSelector,
        LexicalRelevanceSelector,
        RelevanceSelection,
        SelectsPointers,
    )

__all__ = [
    "ContextPointer",
    "ContextRelevanceSelector",
    "FileContextPointerStore",
    "LexicalRelevanceSelector",
    "Redactor",
    "RelevanceSelection",
    "SelectsPointers",
    "compute_pointer_id",
    "deterministic_summary",
    "format_selected_contexts",
]

_MODULES = {
    "ContextPointer": "llm_common.pointers.pointer",
    "ContextRelevanceSelector": "llm_common.selection.relevance",
    "FileContextPointerStore": "llm_common.pointers.store",
    "LexicalRelevanceSelector": "llm_common.selection.relevance",
    "ObjectContextPointerStore": "llm_common.pointers.object_records",
    "Redactor": "llm_common.redaction.redactor",
    "RelevanceSelection": "llm_common.selection.relevance",
    "SelectsPointers": "llm_common.selection.relevance",
    "compute_pointer_id": "llm_common.pointers.pointer",
    "deterministic_summary": "llm_common.pointers.pointer",
    "format_selected_contexts": "llm_common.pointers.format",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
