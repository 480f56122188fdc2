"""`SessionTrace`: records what a session does for a model, in a run for each turn.

`RecordedTool` is a tool of the session whose calls it records.
"""

import atexit
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cachetools import LRUCache

# As a module, whose names are imported on first use: a trace imports everything that it records.
from llm_common import trace
from llm_common._telemetry import is_recording, is_traced, record
from llm_common._threads import ForkSafeLock, PerProcess, SharedCache
from llm_common.pointers.pointer import text_digest
from llm_common.tools.read_back import flat_arguments
from llm_common.tools.tool import Tool

# Each run keeps its file open. A server may have a thousand sessions, and as many files at most.
_MAX_OPEN_RUNS: Final = 64
_MAX_QUESTIONS: Final = 64


class _OpenRuns(LRUCache[str, "trace.Run"]):
    """The runs of sessions that have not ended, of which the least recent ends for a new one."""

    def __init__(self) -> None:
        super().__init__(_MAX_OPEN_RUNS)
        self.lock = ForkSafeLock()
        self._process = os.getpid()
        atexit.register(self.end_all)

    def popitem(self) -> tuple[str, "trace.Run"]:
        """Remove and end the least recently used run."""
        key, run = super().popitem()
        run.end()
        return key, run

    def end_all(self) -> None:
        """End all runs. Does nothing in a forked child, which has runs of its own."""
        if self._process != os.getpid():
            return
        with self.lock:
            while self:
                self.popitem()


_RUNS: Final = PerProcess(_OpenRuns)


class SessionTrace:
    """Records the calls of one session.

    A call within a run, such as that of an executor, is recorded there. Any other call is recorded
    in the run of its turn, which begins with a question that the session has not heard before.

    Args:
        session_id: Names the folder of the runs.

    Attributes:
        session_id: The session.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._questions: SharedCache[str, bool] = SharedCache(_MAX_QUESTIONS)

    @contextmanager
    def recorded(self, question: Callable[[], str] | None = None) -> Iterator[None]:
        """Record the block.

        Args:
            question: Returns the user's newest text. None belongs to the turn before.
        """
        if is_recording() or not is_traced():
            yield
            return
        with self._run(question() if question is not None else "").active():
            yield

    def _run(self, question: str) -> "trace.Run":
        runs = _RUNS.get()
        with runs.lock:
            run = runs.get(self.session_id)
            question_digest = text_digest(question)
            is_new = bool(question) and not self._questions.get(question_digest)
            if is_new:
                self._questions.put(question_digest, True)
            if run is not None and not is_new:
                return run
            if run is not None:
                run.end()
            runs[self.session_id] = trace.begin_run(self.session_id, query=question or None)
            return runs[self.session_id]


class RecordedTool(Tool):
    """A tool of a session that answers with a text, and whose calls are recorded.

    Args:
        trace: Records the calls.
        answer: Returns the text.
        options: The arguments of `Tool`.
    """

    __slots__ = ("_trace",)

    def __init__(
        self, trace: SessionTrace, answer: Callable[..., Awaitable[str]], **options: Any
    ) -> None:
        super().__init__(answer, read_only=True, **options)
        self._trace = trace

    async def run(self, args: Mapping[str, Any]) -> Any:
        """Return the answer. See `Tool.run`."""
        flat, _ = flat_arguments(args, self.definition.parameters)
        with self._trace.recorded():
            text = await super().run(flat)
            record("read_back", tool=self.name, chars=len(text))
        return text
