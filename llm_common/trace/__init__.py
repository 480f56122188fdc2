"""Records what a run chose, and explains it."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.trace.amounts import (
        FORM_NAMES as FORM_NAMES,
        Flows as Flows,
        call_label as call_label,
        flows as flows,
        labels as labels,
        missing_tokens as missing_tokens,
        shares as shares,
    )
    from llm_common.trace.lines import (
        NO_MODEL as NO_MODEL,
        AnswerLine as AnswerLine,
        Line as Line,
        ModelCallLine as ModelCallLine,
        OffloadLine as OffloadLine,
        PackingLine as PackingLine,
        RunBegin as RunBegin,
        RunEnd as RunEnd,
        SentMessage as SentMessage,
        ToolCallLine as ToolCallLine,
    )
    from llm_common.trace.run import (
        RecordedRun,
        is_run as is_run,
        read_ends as read_ends,
        read_trace,
    )
    from llm_common.trace.sink import (
        Run,
        Trace,
        begin_run,
    )

# The other names are for the applications of this library, and may change.
__all__ = ["RecordedRun", "Run", "Trace", "begin_run", "read_trace"]

_MODULES = {
    "FORM_NAMES": "llm_common.trace.amounts",
    "Flows": "llm_common.trace.amounts",
    "call_label": "llm_common.trace.amounts",
    "flows": "llm_common.trace.amounts",
    "labels": "llm_common.trace.amounts",
    "missing_tokens": "llm_common.trace.amounts",
    "shares": "llm_common.trace.amounts",
    "NO_MODEL": "llm_common.trace.lines",
    "AnswerLine": "llm_common.trace.lines",
    "Line": "llm_common.trace.lines",
    "ModelCallLine": "llm_common.trace.lines",
    "OffloadLine": "llm_common.trace.lines",
    "PackingLine": "llm_common.trace.lines",
    "RunBegin": "llm_common.trace.lines",
    "RunEnd": "llm_common.trace.lines",
    "SentMessage": "llm_common.trace.lines",
    "ToolCallLine": "llm_common.trace.lines",
    "RecordedRun": "llm_common.trace.run",
    "Run": "llm_common.trace.sink",
    "Trace": "llm_common.trace.sink",
    "begin_run": "llm_common.trace.sink",
    "is_run": "llm_common.trace.run",
    "read_ends": "llm_common.trace.run",
    "read_trace": "llm_common.trace.run",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
