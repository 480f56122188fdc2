"""Records what a run chose, and explains it."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.trace.sink import Run, Trace, begin_run
    from llm_common.trace.trace_file import RecordedRun, read_trace

__all__ = ["RecordedRun", "Run", "Trace", "begin_run", "read_trace"]

_MODULES = {
    "RecordedRun": "llm_common.trace.trace_file",
    "Run": "llm_common.trace.sink",
    "Trace": "llm_common.trace.sink",
    "begin_run": "llm_common.trace.sink",
    "read_trace": "llm_common.trace.trace_file",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
