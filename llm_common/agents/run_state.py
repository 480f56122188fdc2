"""The state of a run: its limits, what it spent, the calls it made, and what choosing sees."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from llm_common._telemetry import (
    INFERENCE_CALLS,
    TOOL_CALLS,
    Span,
    TracedRun,
    begin_run,
    counting,
    measure,
    operation,
)
from llm_common._threads import in_thread
from llm_common.agents.context_pointers import ContextPointer
from llm_common.agents.model_loop import Deadline
from llm_common.agents.offloading import ResultParts, text_of
from llm_common.agents.tool_context import ToolContextManager
from llm_common.core.tokens import DefaultCounter
from llm_common.errors import StoreError, UnserialisableError
from llm_common.plans import PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.pointer import digest_of
from llm_common.pointers.reading import ContextReading
from llm_common.selection.relevance_ranking import rank_pointers
from llm_common.selection.results import ToolSelection
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line

NO_TOOLS_CALLED: Final = "No tools called"
"""The result of a task that needs no tools."""

_SHOWN_CHARS: Final = 1_200  # of one output; a longer one is shown in parts
# a larger one is only named: finding its parts would take a second
_MAX_READ_BYTES: Final = 1_000_000
_MAX_RANKED: Final = 200
_MAX_FAILURES: Final = 10
_MAX_FAILURE_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How far a run goes, however many tasks are left.

    A limit on calls, tokens, dollars or seconds ends the tasks. What they returned is still
    answered from, within `Answering.budget`. None sets no such limit.

    Attributes:
        max_calls: Maximum number of tool calls. A call whose output a resumed run has stored does
            not count.
        max_tokens: Tokens of the model calls that choose, prompts and replies, as the endpoint
            reports them. The call that reaches the limit is the last one, and so is an answered one
            whose tokens are not reported.
        max_cost_usd: Dollars of these calls, likewise. A call of unknown price ends the run.
        timeout_s: Seconds from the start, at which running tools are cancelled.
        max_rounds: Maximum number of rounds of a task: choose, run, look. A selector without the
            parameter `rounds_left` has one.
        max_parallel: Maximum number of calls of a task that run at the same time.
        max_outputs_tokens: Tokens of the stored outputs that choosing sees. The default has room
            for about five small outputs whole, or twenty lines. 0 shows none.

    Raises:
        TypeError: If a limit is not a number, or not an int where it counts something.
        ValueError: If a limit is not above 0. `max_outputs_tokens` may be 0.
    """

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_s: float | None = None
    max_rounds: int = 3
    max_parallel: int = 8
    max_outputs_tokens: int = 2_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            is_optional = field.default is None
            if value is None and is_optional:
                continue
            hint = ", or None for no limit" if is_optional else ""
            is_whole = field.name not in {"max_cost_usd", "timeout_s"}
            kind = int if is_whole else int | float
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = "a whole number" if is_whole else "a number"
                raise TypeError(f"{field.name} is a {type(value).__name__}; pass {wanted}{hint}")
            if value == 0 and field.name == "max_outputs_tokens":
                continue
            if not value > 0:
                raise ValueError(f"{field.name} is {value}; pass a number above 0{hint}")


class TaskRecord:
    """The calls and failures of one task, over all of its rounds.

    Attributes:
        task_id: The task.
        results: The results of its calls, in the order of the rounds and of their calls.
        errors: What failed, was refused or was not saved, one line each.
        failed: Whether no call could be chosen.
        readings: The parts of stored outputs that its calls read back.
    """

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        self.results: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.failed = False
        self.readings: list[ContextReading] = []
        self._made: set[str] = set()

    def unmade(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that this task has not made yet, and count them as made."""
        new = []
        for call in calls:
            with suppress(UnserialisableError):
                key = stable_json([call.tool, call.args])
                if key in self._made:
                    continue
                self._made.add(key)
            new.append(call)
        return new

    def add(self, results: Sequence[dict[str, Any]]) -> None:
        """Add the results of a round."""
        self.results += results
        for result in results:
            for key in ("error", "save_error"):
                if key in result:
                    self.errors.append(result[key])
            output = result.get("output")
            if isinstance(output, ContextReading):
                self.readings.append(output)

    def result(self) -> SubTaskResult:
        """Return the outcome: a failure if nothing could be chosen, or if every call failed."""
        has_output = not self.results or not all("error" in result for result in self.results)
        result: object = self.results
        if not self.results:
            result = None if self.failed else NO_TOOLS_CALLED
        return SubTaskResult(
            task_id=self.task_id,
            sub_task_id=0,
            success=has_output and not self.failed,
            result=result,
            error="; ".join(self.errors) or None,
        )


class ObservedRun:
    """A run as its trace and its `invoke_agent` span see it.

    Both stay open around the yields of a generator.

    Attributes:
        status: How it ended. "cut short" until that is known.
    """

    def __init__(self, trace: TracedRun, span: Span) -> None:
        self.status = "cut short"
        self.calls = Counter[str]()
        self._trace = trace
        self._span = span

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record what happens in the block as the run's. Never put it around a `yield`."""
        with counting(self.calls), self._span.active(), self._trace.active():
            yield

    @classmethod
    @contextmanager
    def of(cls, query_id: str, query: str | None, session: ToolContextManager) -> Iterator[Self]:
        """Observe a run of a session for the duration of the block, which may yield."""
        attributes = {"gen_ai.conversation.id": session.session_id}
        trace = begin_run(query_id, query=query)
        with operation("invoke_agent", attributes=attributes, detached=True) as span:
            run = cls(trace, span)
            try:
                yield run
            finally:
                trace.end(run.status)
                for name in (INFERENCE_CALLS, TOOL_CALLS):
                    measure(name, run.calls[name])
            if run.status not in {"ok", "cut short"}:
                span.fail(run.status)


class RunState:
    """One run of a session: what it may still do, and what it did.

    Args:
        limits: How far it goes.
        session: The session whose outputs choosing sees, and where the run's own are stored.
        registry: The run's tools, with the reader of its session.
        query_id: The query that its outputs are stored under.
        reader_name: The tool that reads outputs back, if it is offered.

    Attributes:
        observed: Its trace and its span, where it has them.
        deadline: When it ends.
    """

    def __init__(
        self,
        limits: RunLimits,
        session: ToolContextManager,
        registry: Any,
        *,
        query_id: str,
        reader_name: str | None = None,
    ) -> None:
        self.limits = limits
        self.session = session
        self.registry = registry
        self.query_id = query_id
        self.observed: ObservedRun | None = None
        self.deadline = Deadline(limits.timeout_s)
        self._reader_name = reader_name
        self._calls = 0
        self._tokens: int | None = 0
        self._cost_usd: float | None = 0.0
        self._stored: dict[tuple[str, str, str], ContextPointer] = {}
        self._tasks: list[TaskRecord] = []

    def active(self) -> AbstractContextManager[None]:
        """Record what happens in the block as this run's, if it is observed."""
        return nullcontext() if self.observed is None else self.observed.active()

    def begin_task(self, task_id: int) -> TaskRecord:
        """Return the record of the task that runs now."""
        self._tasks.append(TaskRecord(task_id))
        return self._tasks[-1]

    def time_over(self) -> str:
        """Return the sentence that says that the run's time has ended it."""
        return f"the {self.limits.timeout_s} seconds that timeout_s allows are over"

    def spend(self, selection: ToolSelection) -> None:
        """Count what a choice cost. The sum is unknown once a part of it is."""
        for attempt in selection.attempts:
            if not attempt.error and not (attempt.usage and attempt.usage.total_tokens):
                self._tokens = None
        if self._tokens is not None:
            self._tokens += selection.usage.total_tokens
        if selection.cost_usd is None:
            self._cost_usd = None
        elif self._cost_usd is not None:
            self._cost_usd += selection.cost_usd

    def limit_reached(self) -> str:
        """Return the limit that ends the run here, as a sentence, or "" if there is none."""
        limits = self.limits
        if self._has_made_all():
            return f"the run has made the {limits.max_calls} tool calls that max_calls allows"
        if limits.max_tokens is not None:
            if self._tokens is None:
                tokens = "a number of tokens that is not reported"
            else:
                tokens = f"{self._tokens:,} tokens"
            if self._tokens is None or self._tokens >= limits.max_tokens:
                return f"choosing took {tokens}, and max_tokens allows {limits.max_tokens:,}"
        if limits.max_cost_usd is not None:
            if self._cost_usd is None:
                return "a model call has no known price, so max_cost_usd cannot hold"
            if self._cost_usd >= limits.max_cost_usd:
                cost = f"{self._cost_usd:.4f} dollars"
                return f"choosing cost {cost}, and max_cost_usd allows {limits.max_cost_usd}"
        return self.time_over() if self.deadline.is_over else ""

    def admit(self, task_id: int, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the first calls, as many as `max_calls` leaves.

        They count as made unless their output is stored.
        """
        for index, call in enumerate(calls):
            if self.stored(task_id, call) is None:
                if self._has_made_all():
                    return calls[:index]
                self._calls += 1
        return calls

    def make_again(self, call: ToolCall) -> dict[str, Any] | None:
        """Count a call whose stored output is of no use.

        Returns:
            The failure of the call if `max_calls` is reached, else None.
        """
        if self._has_made_all():
            error = f"tool {call.tool!r} was not called again: {self.limit_reached()}"
            return {"error": error, "limit": True}
        self._calls += 1
        return None

    def _has_made_all(self) -> bool:
        return self.limits.max_calls is not None and self._calls >= self.limits.max_calls

    async def resume(self) -> None:
        """Count the stored outputs of the query as those of this run.

        Raises:
            StoreError: If they cannot be listed.
        """
        for pointer in await self.session.resume(self.query_id):
            args_digest = pointer.args_sha256 or digest_of(pointer.args)
            self._stored[pointer.task_id or "", pointer.tool_name, args_digest] = pointer

    def stored(self, task_id: int, call: ToolCall) -> ContextPointer | None:
        """Return the output of a call from before the run was resumed."""
        if not self._stored:
            return None
        with suppress(UnserialisableError):
            return self._stored.get((str(task_id), call.tool, digest_of(call.args)))
        return None

    async def context_of(self, task: PlannedTask, query: str | None) -> dict[str, Any] | None:
        """Return what choosing the calls of a task sees: relevant outputs first, then failures.

        Small outputs are whole. Larger ones are shown by the parts that hold words of the task. All
        outputs together take at most `max_outputs_tokens`.

        Returns:
            Plain data, or None if there is nothing yet.
        """
        context: dict[str, Any] = {}
        pointers = self.session.get_all_pointers()
        if pointers and self.limits.max_outputs_tokens:
            parts = [task.description, *(part.description for part in task.sub_tasks), query or ""]
            context = await in_thread(self._outputs, pointers, " ".join(parts))
        errors: list[str] = []
        for record in self._tasks:
            errors += record.errors
        if errors:
            context["failed"] = [
                one_line(error, max_chars=_MAX_FAILURE_CHARS) for error in errors[-_MAX_FAILURES:]
            ]
        return context or None

    def _outputs(self, pointers: Sequence[ContextPointer], words: str) -> dict[str, Any]:
        counter = DefaultCounter()
        room = self.limits.max_outputs_tokens
        entries: list[dict[str, Any]] = []
        readings = self._tasks[-1].readings if self._tasks else []
        for reading in reversed(readings):  # what a task read serves that task
            entry = {"pointer_id": reading.pointer_id, "read_back": reading.text}
            tokens = counter.count(stable_json(entry))
            if tokens <= room:
                room -= tokens
                entries.append(entry)

        not_listed = len(pointers)
        for ranked in rank_pointers(words, pointers, limit=_MAX_RANKED):
            entry, line = self._entry(ranked.pointer, words)
            tokens = counter.count(stable_json(entry))
            if tokens > room:
                entry = line
                tokens = counter.count(stable_json(entry))
            if tokens > room:
                break
            room -= tokens
            entries.append(entry)
            not_listed -= 1
        outputs: dict[str, Any] = {"stored_outputs": entries}
        if not_listed:
            outputs["not_listed"] = not_listed
        return outputs

    def _entry(self, pointer: ContextPointer, words: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return an output with its content as far as it is shown, and a line that names it."""
        call = {"pointer_id": pointer.pointer_id, "call": pointer.summary}
        shape = pointer.digest.partition("; ")[0]
        line = call | {"holds": shape, "unread": self._unread("all of it")}
        if (pointer.result_bytes or math.inf) > _MAX_READ_BYTES:
            return line, line
        try:
            result = self.session.load_result(pointer=pointer)
        except StoreError:
            return call | {"unread": "it is no longer stored"}, line
        text = text_of(result)
        if len(text) <= _SHOWN_CHARS:
            return call | {"result": result}, line
        parts = ResultParts(text, result, words).body(_SHOWN_CHARS)
        unread = self._unread(f"most of its {len(text):,} characters")
        return call | {"parts": parts, "unread": unread}, line

    def _unread(self, part: str) -> str:
        return f"{part}; {self._reader_name} reads it" if self._reader_name else part
