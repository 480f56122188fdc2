"""Stored tool outputs: pointers to them, the store, choosing among them, and showing what was chosen.

The face of `llm_common.agents.pointers`, whose modules may move; import from here.
"""

from typing import TYPE_CHECKING

from llm_common.agents.pointers.housekeeping import GcReport
from llm_common.agents.pointers.local_selection import LexicalRelevanceSelector
from llm_common.agents.pointers.pointer import KEY_ARGS, ContextPointer, compute_pointer_id, deterministic_summary
from llm_common.agents.pointers.redaction import Redactor
from llm_common.agents.pointers.relevance_selection import DroppedId, PointerChoice, RelevanceSelection
from llm_common.agents.pointers.rendering import (
    RenderedBlock,
    RenderedContexts,
    format_selected_contexts,
    render_selected_contexts,
)
from llm_common.agents.pointers.selection import ContextRelevanceSelector
from llm_common.agents.pointers.store import FileContextPointerStore
from llm_common.agents.pointers.verification import StoreFinding, StoreReport

if TYPE_CHECKING:
    from llm_common.agents.pointers.object_store import (
        ObjectContextPointerStore as ObjectContextPointerStore,  # noqa: PLC0414 - not in __all__: it needs an extra
    )

__all__ = [
    "KEY_ARGS",
    "ContextPointer",
    "ContextRelevanceSelector",
    "DroppedId",
    "FileContextPointerStore",
    "GcReport",
    "LexicalRelevanceSelector",
    "PointerChoice",
    "Redactor",
    "RelevanceSelection",
    "RenderedBlock",
    "RenderedContexts",
    "StoreFinding",
    "StoreReport",
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
