"""Records what a run chose, and explains it."""

from llm_common.trace.differing import diff
from llm_common.trace.sink import Run, Trace, begin_run
from llm_common.trace.trace_file import RecordedRun, read_trace

__all__ = ["RecordedRun", "Run", "Trace", "begin_run", "diff", "read_trace"]
