"""Records what a run chose, and explains it."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.trace.lines import (
        LINE as LINE,
        AnswerLine as AnswerLine,
        FoldLine as FoldLine,
        Line as Line,
        ModelCallLine as ModelCallLine,
        OffloadLine as OffloadLine,
        PackedItem as PackedItem,
        PackingLine as PackingLine,
        RunBegin as RunBegin,
        RunEnd as RunEnd,
        SelectionLine as SelectionLine,
        ToolCallLine as ToolCallLine,
        ToolListLine as ToolListLine,
    )
    from llm_common.trace.sink import Run, Trace, begin_run
    from llm_common.trace.trace_file import RecordedRun, read_trace

# The other names are for the applications of this library, and may change.
__all__ = ["RecordedRun", "Run", "Trace", "begin_run", "read_trace"]

_MODULES = {
    "AnswerLine": "llm_common.trace.lines",
    "FoldLine": "llm_common.trace.lines",
    "LINE": "llm_common.trace.lines",
    "Line": "llm_common.trace.lines",
    "ModelCallLine": "llm_common.trace.lines",
    "OffloadLine": "llm_common.trace.lines",
    "PackedItem": "llm_common.trace.lines",
    "PackingLine": "llm_common.trace.lines",
    "RunBegin": "llm_common.trace.lines",
    "RunEnd": "llm_common.trace.lines",
    "SelectionLine": "llm_common.trace.lines",
    "ToolCallLine": "llm_common.trace.lines",
    "ToolListLine": "llm_common.trace.lines",
    "RecordedRun": "llm_common.trace.trace_file",
    "Run": "llm_common.trace.sink",
    "Trace": "llm_common.trace.sink",
    "begin_run": "llm_common.trace.sink",
    "read_trace": "llm_common.trace.trace_file",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
