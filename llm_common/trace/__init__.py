"""Records what a run chose, and shows why."""

from llm_common.trace.differing import StepDiff, diff
from llm_common.trace.sink import Run, Trace, begin_run
from llm_common.trace.trace_file import RecordedRun, read_trace

__all__ = ["RecordedRun", "Run", "StepDiff", "Trace", "begin_run", "diff", "read_trace"]
