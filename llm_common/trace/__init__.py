"""Records what a run chose, and shows why."""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.trace.differing import (
        StepDiff as StepDiff,
        diff as diff,
    )
    from llm_common.trace.page import render_html as render_html
    from llm_common.trace.sink import (
        Run as Run,
        Trace as Trace,
        begin_run as begin_run,
    )
    from llm_common.trace.trace_file import (
        RecordedRun as RecordedRun,
        read_trace as read_trace,
    )

__getattr__, __all__ = lazy_exports(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
