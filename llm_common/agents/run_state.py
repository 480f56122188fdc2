"""What a run has so far: its limits, what it spent, the calls it made, and what choosing sees of all that."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from functools import partial
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
from llm_common.agents.offloading import ResultParts, text_of
from llm_common.agents.session import ToolContextManager
from llm_common.core.tokens import DefaultCounter
from llm_common.errors import StoreError, UnserialisableError
from llm_common.plans import PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.pointer import digest_of
from llm_common.pointers.reading import ContextReading
from llm_common.selection.relevance_ranking import rank_pointers
from llm_common.selection.results import ToolSelection
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line

DEFAULT_OUTPUTS_TOKENS: Final = 2_000
"""What choosing sees of earlier outputs: about five small ones whole, or twenty lines."""

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
    """Where a run ends, however many tasks are left; None sets no limit.

    A limit ends the tasks; what they found is still answered from, within `Answering.budget`.

    Attributes:
        max_calls: Most tool calls; one whose output a resumed run finds stored is none.
        max_tokens: Tokens of the model calls that choose, prompts and replies, as the endpoint
            reports them. The call that reaches the limit is the last one, and so is an answered one
            whose tokens are not reported.
        max_cost_usd: Dollars of these calls, likewise. A call of unknown price ends the run.
        timeout_s: Seconds from the start, at which running tools are cancelled.

    Raises:
        TypeError: A limit is no number, or one of calls or tokens no int.
        ValueError: A limit is not above zero.
    """

    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if value is None:
                continue
            kind = int if field.name in {"max_calls", "max_tokens"} else int | float
            if not isinstance(value, kind) or isinstance(value, bool):
                wanted = "a whole number" if kind is int else "a number"
                raise TypeError(
                    f"{field.name} is a {type(value).__name__}; pass {wanted}, or None for no limit"
                )
            if not value > 0:
                raise ValueError(
                    f"{field.name} is {value}; pass a number above 0, or None for no limit"
                )


class TaskRecord:
    """What the rounds of one task came to.

    Attributes:
        results: Of its calls, in the order of the rounds and of their calls.
        errors: What failed, was refused or was not saved, one line each.
        failed: Whether no call could be chosen.
    """

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        self.results: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.failed = False
        self.readings: list[ContextReading] = []
        self._made: set[str] = set()

    def unmade(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """The calls that this task has not made yet; they count as made."""
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
        """Adds the results of a round."""
        self.results += results
        self.errors += [
            result[key] for result in results for key in ("error", "save_error") if key in result
        ]
        self.readings += [
            output
            for result in results
            if isinstance(output := result.get("output"), ContextReading)
        ]

    def result(self) -> SubTaskResult:
        """The outcome: a failure if nothing could be chosen, or if every call failed."""
        success = not self.failed and (
            not self.results or not all("error" in result for result in self.results)
        )
        result = self.results or (None if self.failed else NO_TOOLS_CALLED)
        return SubTaskResult(
            task_id=self.task_id,
            sub_task_id=0,
            success=success,
            result=result,
            error="; ".join(self.errors) or None,
        )


class ObservedRun:
    """A run as its trace and its `invoke_agent` span see it, both open around the yields of a generator.

    Attributes:
        status: How it ended; "cut short" until that is known.
    """

    def __init__(self, trace: TracedRun, current: Span) -> None:
        self.status = "cut short"
        self.calls = Counter[str]()
        self._trace, self._current = trace, current

    @contextmanager
    def active(self) -> Iterator[None]:
        """Records what happens in the block as the run's; not around a `yield`."""
        with counting(self.calls), self._current.active(), self._trace.active():
            yield

    @classmethod
    @contextmanager
    def of(cls, query_id: str, query: str | None, manager: object) -> Iterator[Self]:
        """The run of a manager's session for the duration of the block, which may yield."""
        session_id = getattr(manager, "session_id", None)  # other managers have none
        facts = {"gen_ai.conversation.id": session_id} if isinstance(session_id, str) else {}
        trace = begin_run(query_id, query=query)
        with operation("invoke_agent", attributes=facts, detached=True) as current:
            run = cls(trace, current)
            try:
                yield run
            finally:
                trace.end(run.status)
                for name in (INFERENCE_CALLS, TOOL_CALLS):
                    measure(name, run.calls[name])
            if run.status not in {"ok", "cut short"}:
                current.fail(run.status)


class RunState:
    """One run: what it may still do, and what it did.

    Attributes:
        observed: Its trace and its span, where it has them.
        session: Whose outputs choosing sees, and where the run's own are stored.
        registry: Its tools, with the reader of its session.
        query_id: What its outputs are stored under.

    Args:
        limits: Where it ends.
        session: See the attribute, as for `registry` and `query_id`.
        registry: The tools.
        query_id: The query.
        outputs_tokens: Most tokens of what choosing sees of them.
        reader_name: The tool that reads outputs back, if it is offered.
    """

    def __init__(
        self,
        limits: RunLimits,
        session: ToolContextManager,
        registry: Any,
        *,
        query_id: str,
        outputs_tokens: int = DEFAULT_OUTPUTS_TOKENS,
        reader_name: str | None = None,
    ) -> None:
        self.observed: ObservedRun | None = None
        self._limits = limits
        self.session = session
        self.registry = registry
        self.query_id = query_id
        self._outputs_tokens = outputs_tokens
        self._reader_name = reader_name
        self._calls = 0
        self._tokens: int | None = 0
        self._cost_usd: float | None = 0.0
        self._started = asyncio.get_running_loop().time()
        self._stored: dict[tuple[str, str, str], ContextPointer] = {}
        self._tasks: list[TaskRecord] = []

    def active(self) -> AbstractContextManager[None]:
        """Records what happens in the block as this run's, if it is observed."""
        return nullcontext() if self.observed is None else self.observed.active()

    @property
    def ends_at(self) -> float | None:
        """When the run has to end, by the clock of the event loop."""
        return None if self._limits.timeout_s is None else self._started + self._limits.timeout_s

    def seconds_left(self) -> float | None:
        """Seconds until the run has to end, at least 0; None without such a limit."""
        return (
            None
            if self.ends_at is None
            else max(self.ends_at - asyncio.get_running_loop().time(), 0.0)
        )

    def time_over(self) -> str:
        """What is said where the run's time ends it, as a sentence."""
        return f"the {self._limits.timeout_s} seconds that timeout_s allows are over"

    def spend(self, selection: ToolSelection) -> None:
        """Counts what a choice cost."""
        is_counted = all(
            each.error or (each.usage and each.usage.total_tokens) for each in selection.attempts
        )
        tokens = selection.usage.total_tokens if is_counted else None
        self._tokens = None if tokens is None or self._tokens is None else self._tokens + tokens
        cost = selection.cost_usd
        self._cost_usd = None if cost is None or self._cost_usd is None else self._cost_usd + cost

    def limit_reached(self) -> str:
        """The limit that ends the run here, as a sentence; "" if there is none."""
        limits = self._limits
        if self._has_made_all():
            return f"the run has made the {limits.max_calls} tool calls that max_calls allows"
        if limits.max_tokens is not None and (
            self._tokens is None or self._tokens >= limits.max_tokens
        ):
            took = (
                "a number of tokens that is not reported"
                if self._tokens is None
                else f"{self._tokens:,} tokens"
            )
            return f"choosing took {took}, and max_tokens allows {limits.max_tokens:,}"
        if limits.max_cost_usd is not None and self._cost_usd is None:
            return "a model call has no known price, so max_cost_usd cannot hold"
        if limits.max_cost_usd is not None and (self._cost_usd or 0) >= limits.max_cost_usd:
            return f"choosing cost {self._cost_usd:.4f} dollars, and max_cost_usd allows {limits.max_cost_usd}"
        return self.time_over() if self.seconds_left() == 0 else ""

    def admit(self, task_id: int, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """The first calls, as many as `max_calls` leaves.

        They count as made unless their output is stored.
        """
        for place, call in enumerate(calls):
            if self.stored(task_id, call) is None:
                if self._has_made_all():
                    return calls[:place]
                self._calls += 1
        return calls

    def make_again(self, call: ToolCall) -> dict[str, Any] | None:
        """Counts a call whose stored output is of no use.

        The facts of its failure if `max_calls` is reached.
        """
        if self._has_made_all():
            return {
                "error": f"tool {call.tool!r} was not called again: {self.limit_reached()}",
                "limit": True,
            }
        self._calls += 1
        return None

    def _has_made_all(self) -> bool:
        return self._limits.max_calls is not None and self._calls >= self._limits.max_calls

    def begin_task(self, task_id: int) -> TaskRecord:
        """The record of the task that runs now."""
        self._tasks.append(TaskRecord(task_id))
        return self._tasks[-1]

    async def resume(self) -> None:
        """Counts the stored outputs of the query as those of this run.

        Raises:
            StoreError: They cannot be listed.
        """
        for pointer in await self.session.resume(self.query_id):
            key = (
                pointer.task_id or "",
                pointer.tool_name,
                pointer.args_sha256 or digest_of(pointer.args),
            )
            self._stored[key] = pointer

    def stored(self, task_id: int, call: ToolCall) -> ContextPointer | None:
        """The output of this call from before the run was resumed."""
        if not self._stored:
            return None
        with suppress(UnserialisableError):
            return self._stored.get((str(task_id), call.tool, digest_of(call.args)))
        return None

    async def seen(self, task: PlannedTask, query: str | None) -> dict[str, Any] | None:
        """What choosing the calls of a task sees: stored outputs, the relevant ones first, and what failed.

        Small outputs are whole, of larger ones the parts that hold words of the task. All outputs
        together take at most `outputs_tokens`.

        Returns:
            Plain data, or None if there is nothing yet.
        """
        seen: dict[str, Any] = {}
        pointers = self.session.get_all_pointers()
        if pointers and self._outputs_tokens:
            asked = " ".join(
                [task.description, *(part.description for part in task.sub_tasks), query or ""]
            )
            seen = await in_thread(self._outputs, pointers, asked)
        if failures := [error for task in self._tasks for error in task.errors]:
            seen["failed"] = [
                one_line(text, max_chars=_MAX_FAILURE_CHARS) for text in failures[-_MAX_FAILURES:]
            ]
        return seen or None

    def _outputs(self, pointers: Sequence[ContextPointer], asked: str) -> dict[str, Any]:
        room = self._outputs_tokens
        count = partial(_tokens, DefaultCounter())
        read: list[dict[str, Any]] = []
        # what a task read serves that task
        for reading in reversed(self._tasks[-1].readings if self._tasks else ()):
            entry = {"pointer_id": reading.pointer_id, "read_back": reading.text}
            if (tokens := count(entry)) <= room:
                room -= tokens
                read.append(entry)
        listed: list[dict[str, Any]] = []
        for ranked in rank_pointers(asked, pointers, limit=_MAX_RANKED):
            whole, line = self._entry(ranked.pointer, asked)
            entry = whole if count(whole) <= room else line
            if (tokens := count(entry)) > room:
                break
            room -= tokens
            listed.append(entry)
        more = {"not_listed": len(pointers) - len(listed)} if len(listed) < len(pointers) else {}
        return {"stored_outputs": [*read, *listed], **more}

    def _entry(self, pointer: ContextPointer, asked: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """An output with its content as far as it is shown, and the line that only names it."""
        call = {"pointer_id": pointer.pointer_id, "call": pointer.summary}
        line = call | {
            "holds": pointer.digest.partition("; ")[0],
            "unread": self._unread("all of it"),
        }
        if (pointer.result_bytes or math.inf) > _MAX_READ_BYTES:
            return line, line
        try:
            result = self.session.load_result(pointer=pointer)
        except StoreError:
            return call | {"unread": "it is no longer stored"}, line
        text = text_of(result)
        if len(text) <= _SHOWN_CHARS:
            return call | {"result": result}, line
        parts = ResultParts(text, result, asked).body(_SHOWN_CHARS)
        unread = self._unread(f"most of its {len(text):,} characters")
        return call | {"parts": parts, "unread": unread}, line

    def _unread(self, what: str) -> str:
        return f"{what}; {self._reader_name} reads it" if self._reader_name else what


def _tokens(counter: DefaultCounter, entry: dict[str, Any]) -> int:
    return counter.count(stable_json(entry))
