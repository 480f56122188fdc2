"""One run of a plan: its loop of model calls, its limits, what it spent, and its tool calls."""

import asyncio
import copy
import inspect
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol, TypeAlias, TypeVar

# As a module, whose names are imported on first use: a trace imports everything that it records.
from llm_common import trace
from llm_common._telemetry import (
    Span,
    is_traced,
    operation,
    record as record_line,
)
from llm_common._threads import in_thread
from llm_common.agents.context_pointers import ContextPointer
from llm_common.agents.session.config import OffloadPolicy
from llm_common.agents.session.offloading import OffloadTurn, text_of, unstored
from llm_common.agents.session.session import Session
from llm_common.core.structured import Attempt, cost_of, usage_of
from llm_common.core.tokens import CountedOnce, DefaultCounter
from llm_common.errors import (
    LLMCommonError,
    RunBusyError,
    StoreError,
    ToolFailedError,
    UnserialisableError,
)
from llm_common.parts.fill import fill
from llm_common.parts.result_parts import ResultParts
from llm_common.plans import PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.pointer import digest_of
from llm_common.pointers.reading import ContextReading
from llm_common.pointers.run_lease import only_run
from llm_common.redaction.redactor import Redactor
from llm_common.selection.relevance_ranking import rank_pointers
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line
from llm_common.tools.tool import (
    ToolResult,
    describe_failure,
    failure_reason,
    shown_name,
    third_party_code,
)

_log = logging.getLogger(__name__)

CallT = TypeVar("CallT")
EventT = TypeVar("EventT")
EventT_co = TypeVar("EventT_co", covariant=True)

SavesOutput: TypeAlias = Callable[..., Awaitable[ContextPointer]]
"""Stores an output. Its parameters are those of a session's `results.save`."""

NO_TOOLS_CALLED: Final = "No tools called"
"""The result of a task that needs no tools."""

_SHOWN_CHARS: Final = 1_200  # of one output. A longer output is shown in parts
# A larger output is only named, since finding its parts would take a second.
_MAX_READ_BYTES: Final = 1_000_000
# Ten times as many lines as the default of `max_outputs_tokens` fits.
_MAX_RANKED: Final = 200
_MAX_FAILURES: Final = 10
_MAX_FAILURE_CHARS: Final = 300

# The data of such a refused call is missing. Other refused calls repeat a call, exceed the limit,
# or were a guess of the library.
LOSING_REASONS = frozenset({"malformed", "unknown_tool", "invalid_args"})


class Dialogue(Protocol[CallT, EventT_co]):
    """A conversation with a model that calls tools.

    Attributes:
        goes_on: Whether the model is asked again. `ask` and `run` set it.
    """

    goes_on: bool

    async def ask(self, turns_left: int, /) -> Sequence[CallT]:
        """Return the calls of the model's next turn. At most `turns_left` turns follow."""

    def run(self, calls: Sequence[CallT]) -> AsyncGenerator[EventT_co, None]:
        """Run the calls of a turn, and yield events."""


async def model_loop(
    dialogue: Dialogue[CallT, EventT], *, max_turns: int
) -> AsyncGenerator[EventT, None]:
    """Ask a model and run its calls, turn by turn, until the dialogue ends.

    A turn begins when all calls of the previous one have ended. Closing the generator ends the
    running calls.

    Args:
        dialogue: Asks the model and runs its calls.
        max_turns: Maximum number of turns.

    Yields:
        The events of the calls, in their order of time.
    """
    for turns_left in reversed(range(max_turns)):
        calls = await dialogue.ask(turns_left)
        # Without `aclosing`, the calls would run on until the generator is garbage collected.
        async with aclosing(dialogue.run(calls)) as events:
            async for event in events:
                yield event
        if not dialogue.goes_on:
            return


class Deadline:
    """The time at which model calls and tools are ended.

    Args:
        timeout_s: Seconds from now. None sets no limit.

    Attributes:
        at: The deadline by the event loop's clock, or None.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self.at: float | None = None
        if timeout_s is not None:
            # By the loop's clock, since `asyncio.timeout_at` expects it.
            self.at = asyncio.get_running_loop().time() + timeout_s

    @property
    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        return self.left_s() == 0

    def left_s(self) -> float | None:
        """Return the remaining seconds, at least 0, or None without a limit."""
        if self.at is None:
            return None
        return max(self.at - asyncio.get_running_loop().time(), 0.0)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run.

    A limit on calls, tokens, dollars or seconds ends the tasks. The answer is still written from
    the outputs so far, within `Answering.budget`. None sets no such limit.

    Attributes:
        max_calls: Maximum number of tool calls. A call does not count if a resumed run has its
            output.
        max_tokens: Maximum tokens of the model calls that plan and choose tools, prompts and
            replies, as the endpoint reports them. The call that reaches the limit is the last one.
            So is an answered call whose tokens the endpoint does not report, or reports as below 0.
        max_cost_usd: Maximum dollars of these calls. A call of unknown price ends the run.
        timeout_s: Seconds from the start. Then the running tools are cancelled. They have a second
            to end.
        max_rounds: Maximum number of rounds of a task. A round chooses calls and runs them.
        max_parallel: Maximum number of calls of a task that run at the same time.
        max_outputs_tokens: Maximum tokens of stored outputs in the prompt that chooses tools. The
            default fits about five small outputs whole, or twenty lines. 0 shows no outputs.

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
            # True is an int, and would count as 1.
            if not isinstance(value, kind) or isinstance(value, bool):
                number = "a whole number" if is_whole else "a number"
                raise TypeError(f"{field.name} is a {type(value).__name__}; pass {number}{hint}")
            if value == 0 and field.name == "max_outputs_tokens":
                continue
            # `value <= 0` would let NaN pass.
            if not value > 0:
                raise ValueError(f"{field.name} is {value}; pass a number above 0{hint}")


class TaskRecord:
    """The calls and failures of one task, over all of its rounds.

    Attributes:
        task_id: The id of the task.
        results: The results of its calls, in the order of the rounds and of their calls.
        errors: The failed, refused and unsaved calls, a line for each.
        failed: Whether the calls could not be chosen.
        readings: The parts of stored outputs that its calls read back.
    """

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        self.results: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.failed = False
        self.readings: list[ContextReading] = []
        self._calls: set[str] = set()

    def add_calls(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that are new in this task, and record them."""
        new = []
        for call in calls:
            # Arguments that cannot be compared are not a repeat. The tool refuses them later.
            with suppress(UnserialisableError):
                # Keys are sorted, so their order does not make another call.
                key = stable_json([call.tool, call.args])
                if key in self._calls:
                    continue
                self._calls.add(key)
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
        """Return the outcome: a failure if choosing failed, or if every call failed."""
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


class RunState:
    """The state of one run: its session, its tools, and its use of the limits.

    Args:
        limits: The limits of the run.
        session: The session whose outputs the selector sees. The run stores its outputs there.
        save: Stores an output.
        registry: The run's tools, with the reader of its session.
        query_id: The query that its outputs are stored under.
        reader_name: The name of the tool that reads outputs back, or None without such a tool.

    Attributes:
        status: The outcome of the run, and "cut short" until it ends.
        deadline: The time at which the run ends.
    """

    def __init__(
        self,
        limits: RunLimits,
        session: Session,
        save: SavesOutput,
        registry: Any,
        *,
        query_id: str,
        reader_name: str | None = None,
    ) -> None:
        self.limits = limits
        self.session = session
        self.save = save
        self.registry = registry
        self.query_id = query_id
        self.status = "cut short"
        self.deadline = Deadline(limits.timeout_s)
        self._traced: trace.Run | None = None
        self._span: Span | None = None
        self._reader_name = reader_name
        self._is_held: Callable[[], bool] | None = None  # without a lease
        self._calls = 0
        self._tokens: int | None = 0
        self._cost_usd: float | None = 0.0
        self._stored: dict[tuple[str, str, str], ContextPointer] = {}
        self._tasks: list[TaskRecord] = []

    @asynccontextmanager
    async def open(self, query: str | None) -> AsyncIterator[None]:
        """Hold the lease, the trace and the span of the run during the block, which may yield.

        Other runs of the same query and session cannot begin. An unnamed session takes no lease,
        since no other process can have it.
        """
        async with AsyncExitStack() as stack:
            if self.session.results.is_named is True:
                lease = only_run(
                    self.session.store,
                    session_id=self.session.session_id,
                    query_id=self.query_id,
                )
                self._is_held = await stack.enter_async_context(lease)
            with self._observed(query):
                yield

    @contextmanager
    def _observed(self, query: str | None) -> Iterator[None]:
        """Observe the run for the duration of the block, which may yield."""
        attributes = {"gen_ai.conversation.id": self.session.session_id}
        if is_traced():
            self._traced = trace.begin_run(self.query_id, query=query)
        with operation("invoke_agent", attributes=attributes, detached=True) as self._span:
            try:
                yield
            finally:
                if self._traced is not None:
                    self._traced.end(self.status)
            # A caller that stops reading the events did not make the run fail.
            if self.status not in {"ok", "cut short"}:
                self._span.fail(self.status)

    async def check_alone(self) -> None:
        """Raise RunBusyError if the run has lost its lease, as after a pause of the machine."""
        if self._is_held is not None and not await in_thread(self._is_held):
            raise RunBusyError(
                f"This run of the query {self.query_id} lost its lease, and another run may have "
                "begun. Wait for it, or end it and resume"
            )

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record the calls of the block as this run's. The block must not contain a `yield`."""
        # The active span is a context variable: around a `yield` it would leak into the caller.
        with ExitStack() as stack:
            for observer in (self._span, self._traced):
                if observer is not None:
                    stack.enter_context(observer.active())
            yield

    def begin_task(self, task_id: int) -> TaskRecord:
        """Add a record for a task, and return it."""
        self._tasks.append(TaskRecord(task_id))
        return self._tasks[-1]

    def time_over(self) -> str:
        """Return the error text of a call or choice that the run's timeout ended."""
        return f"the {self.limits.timeout_s} seconds that timeout_s allows are over"

    def spend(self, attempts: Sequence[Attempt]) -> None:
        """Add the tokens and dollars of model calls. A sum with an unknown part is unknown."""
        for attempt in attempts:
            # Failed calls often report no tokens, so they do not make the sum unknown.
            if not attempt.error and not (attempt.usage and attempt.usage.total_tokens):
                self._tokens = None
        if self._tokens is not None:
            self._tokens += usage_of(attempts).total_tokens
        cost_usd = cost_of(attempts)
        if cost_usd is None:
            self._cost_usd = None
        elif self._cost_usd is not None:
            self._cost_usd += cost_usd

    def limit_reached(self) -> str:
        """Return the limit that ends the run now, as a sentence, or ""."""
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

    async def admit(self, task_id: int, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return as many of the first calls as `max_calls` allows, and count them.

        A call does not count if its output is stored.
        """
        for index, call in enumerate(calls):
            if await self.stored(task_id, call) is None:
                if self._has_made_all():
                    return calls[:index]
                self._calls += 1
        return calls

    def count_repeat(self, call: ToolCall) -> dict[str, Any] | None:
        """Count a call that is repeated because its stored output cannot be used.

        `admit` has not counted it, because its output was stored.

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
        """Reuse the stored outputs of the query in this run.

        Raises:
            StoreError: If they cannot be listed.
        """
        for pointer in await self.session.results.resume(self.query_id):
            # `pointer.args` are redacted and may be cut. Only older pointers have no digest.
            args_digest = pointer.args_sha256 or digest_of(pointer.args)
            # The oldest come first, so the newest output of a repeated call counts.
            self._stored[pointer.task_id or "", pointer.tool_name, args_digest] = pointer

    async def stored(self, task_id: int, call: ToolCall) -> ContextPointer | None:
        """Return the output of a call that the run made before it was resumed, or None."""
        if not self._stored:
            return None
        with suppress(UnserialisableError):
            args_digest = await in_thread(digest_of, call.args)
            return self._stored.get((str(task_id), call.tool, args_digest))
        return None

    async def context_of(self, task: PlannedTask, query: str | None) -> dict[str, Any] | None:
        """Return the context for choosing the calls of a task: outputs, and earlier failures.

        Relevant outputs come first. Small outputs are whole, larger ones are reduced to the parts
        with words of the task. All outputs together take at most `max_outputs_tokens`.

        Returns:
            Plain data, or None if the session has no outputs and the run no failures.
        """
        context: dict[str, Any] = {}
        pointers = tuple(self.session.results.pointers.values())
        if pointers and self.limits.max_outputs_tokens:
            words = [task.description]
            words += [sub_task.description for sub_task in task.sub_tasks]
            words.append(query or "")
            context = await in_thread(self._outputs, pointers, " ".join(words))
        errors: list[str] = []
        for record in self._tasks:
            errors += record.errors
        if errors:
            context["failed"] = [
                one_line(error, max_chars=_MAX_FAILURE_CHARS) for error in errors[-_MAX_FAILURES:]
            ]
        return context or None

    def _outputs(self, pointers: Sequence[ContextPointer], words: str) -> dict[str, Any]:
        """Return stored outputs for a prompt, best first."""
        counter = CountedOnce(DefaultCounter())

        def tokens_of(entry: dict[str, Any]) -> int:
            return counter.count(stable_json(entry))

        tokens_left = self.limits.max_outputs_tokens
        entries: list[dict[str, Any]] = []
        # The parts that a task read back serve that task only, newest first.
        readings = self._tasks[-1].readings if self._tasks else []
        for reading in reversed(readings):
            entry = {"pointer_id": reading.pointer_id, "read_back": reading.text}
            tokens = tokens_of(entry)
            if tokens <= tokens_left:
                tokens_left -= tokens
                entries.append(entry)

        ranked = [best.pointer for best in rank_pointers(words, pointers, limit=_MAX_RANKED)]
        # What an output has is worth more than the names of several others.
        shown = fill(tokens_left, (self._entry(pointer, words) for pointer in ranked), tokens_of)
        tokens_left -= sum(map(tokens_of, shown))
        lines = fill(tokens_left, map(self._line, ranked[len(shown) :]), tokens_of)
        not_listed = len(pointers) - len(shown) - len(lines)
        outputs: dict[str, Any] = {"stored_outputs": [*entries, *shown, *lines]}
        if not_listed:
            outputs["not_listed"] = not_listed
        return outputs

    def _entry(self, pointer: ContextPointer, words: str) -> dict[str, Any]:
        """Return an entry with an output's content or parts."""
        # An unknown size counts as too large.
        if (pointer.result_bytes or math.inf) > _MAX_READ_BYTES:
            return self._line(pointer)
        call = {"pointer_id": pointer.pointer_id, "call": pointer.summary}
        try:
            result = self.session.results.load_result(pointer=pointer)
        except StoreError:
            return call | {"unread": "it is no longer stored"}
        text = text_of(result)
        if len(text) <= _SHOWN_CHARS:
            return call | {"result": result}
        parts = ResultParts(text, result, words).excerpt(_SHOWN_CHARS).text
        unread = self._unread(f"the rest of its {len(text):,} characters")
        return call | {"parts": parts, "unread": unread}

    def _line(self, pointer: ContextPointer) -> dict[str, Any]:
        """Return an entry that only names an output."""
        return {
            "pointer_id": pointer.pointer_id,
            "call": pointer.summary,
            "holds": pointer.digest.partition("; ")[0],
            "unread": self._unread("all of it"),
        }

    def _unread(self, part: str) -> str:
        return f"{part}; {self._reader_name} reads it" if self._reader_name else part


class ToolRunner:
    """Executes the tool calls of one run.

    Args:
        run: The run, with its session, tools and limits.
        offload: Which outputs become previews. None keeps every output whole.
        takes_mapping: Whether the registry's `execute` takes the arguments as one mapping.
    """

    def __init__(
        self, run: RunState, *, offload: OffloadPolicy | None, takes_mapping: bool
    ) -> None:
        self._run = run
        self._session = run.session
        self._offload = offload
        self._takes_mapping = takes_mapping

    async def results(
        self, calls: Sequence[ToolCall], task_id: int, query: str | None
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Yield the index and the result of each call, in the order in which they finish.

        Calls that do not end in the run's time fail. Closing the generator cancels the running
        calls and waits for them.
        """
        turn = None
        if self._offload is not None:
            turn = OffloadTurn(self._offload, query=query or "", calls=len(calls))
        deadline = self._run.deadline
        queue = deque(enumerate(calls))
        running: dict[asyncio.Task[dict[str, Any]], int] = {}
        try:
            while queue or running:
                free = 0 if deadline.is_over else self._run.limits.max_parallel - len(running)
                while queue and free > 0:
                    free -= 1
                    index, call = queue.popleft()
                    # A task copies the context variables now, so its spans belong to the run.
                    with self._run.active():
                        task = asyncio.create_task(self._execute(call, task_id, turn))
                    running[task] = index
                # The time is over, and the calls in the queue never start.
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running, timeout=deadline.left_s(), return_when=asyncio.FIRST_COMPLETED
                )
                # `done` is a set, and the events of the same moment should repeat.
                for task in sorted(done, key=running.__getitem__):
                    index = running.pop(task)
                    yield index, await self.outcome(calls[index], task)
                # Only the end of the time ends the wait without a finished call.
                if not done:
                    break
            late = dict.fromkeys(running.values(), "was ended")
            late |= {index: "was not called" for index, _ in queue}
            # Before the events say so, since the caller may not ask for another event for a while.
            for task in running:
                task.cancel()
            for index in sorted(late):
                call = calls[index]
                text = f"tool {call.tool!r} {late[index]}: {self._run.time_over()}"
                yield index, {"tool": call.tool, "args": call.args, "error": text, "limit": True}
        finally:
            # Also if the caller closes the generator. Only a tool that hangs outlives its run.
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def outcome(self, call: ToolCall, task: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a finished call, also if it raised a `BaseException`."""
        result: dict[str, Any] = {"tool": call.tool, "args": call.args}
        if task.cancelled():  # the tool itself raised CancelledError
            result["error"] = f"tool {call.tool!r} cancelled itself (CancelledError)"
        else:
            raised = task.exception()
            if raised is None or isinstance(raised, KeyboardInterrupt | SystemExit | RunBusyError):
                # Raises these three, which end the program or the run.
                result = task.result()
            else:
                result["error"] = await self._failure(call, raised)
        if "error" in result:
            _log.warning("a tool call failed: %s", result["error"])
        return result

    async def _execute(
        self, call: ToolCall, task_id: int, turn: OffloadTurn | None
    ) -> dict[str, Any]:
        stored = await self._run.stored(task_id, call)
        if stored is not None:
            result = await self._resumed(call, stored, turn)
            if result is not None:
                return {"tool": call.tool, "args": call.args} | result

        await self._run.check_alone()
        result = {"tool": call.tool, "args": call.args}
        line = result | {"task": task_id}
        attributes = {"gen_ai.tool.name": call.tool, "gen_ai.tool.type": "function"}
        if call.id:
            attributes["gen_ai.tool.call.id"] = call.id
        with operation("execute_tool", call.tool, attributes) as span:
            try:
                output = await self._called(call)
            except ToolFailedError as exc:
                span.fail(error_type(exc))
                record_line("tool_call", **line, failure=error_type(exc))
                result["error"] = await self._failure(call, exc)
                return result
            result["output"] = output
            failure = None
            if isinstance(output, ToolResult) and not output.success:
                failure = "ToolResult"
                span.fail(failure)
                result["error"] = await in_thread(
                    describe_returned_failure, call, output, self._session.store.redactor
                )
                result["output"] = await _without_secrets(output, self._session)

        pointer = None
        if not isinstance(output, ContextReading):  # a reading is stored already
            # A tool may take longer than the lease.
            await self._run.check_alone()
            pointer = await self._save(call, output, task_id, result)
            record_line("tool_call", **line, pointer=pointer, failure=failure)
            if pointer is None:
                result["output"] = await self._unstored(call, result["output"], turn)
                return result
        result["output"] = await self._offloaded(call, result["output"], pointer, turn)
        return result

    async def _failure(self, call: ToolCall, error: BaseException) -> str:
        """Return why a call raised, without secrets."""
        # In a thread, since the arguments and the error may have megabytes.
        return await in_thread(
            describe_failure, call.tool, call.args, error, self._session.store.redactor
        )

    async def _offloaded(
        self, call: ToolCall, output: Any, pointer: ContextPointer | None, turn: OffloadTurn | None
    ) -> Any:
        """Return an output that stays whole, or an `Offloaded` with its preview."""
        if turn is None:
            return output
        offloaded = await self._session.offload(
            output, tool=call.tool, args=call.args, turn=turn, pointer=pointer
        )
        # A whole output stays data: its text is for models, and callers of the executor are not.
        if offloaded.is_whole:
            return output
        return offloaded

    async def _unstored(self, call: ToolCall, output: Any, turn: OffloadTurn | None) -> Any:
        """Return an output that was not saved, or its beginning and end if it is long."""
        if turn is None:
            return output
        with suppress(UnserialisableError):  # has no text to cut
            # A model must not see a secret that the store removes.
            text = await in_thread(text_of, await self._session.store.as_stored(output))
            cut = unstored(call.tool, text)
            return output if cut.is_whole else cut
        return output

    async def _called(self, call: ToolCall) -> Any:
        """Return what the tool returns, or raise `ToolFailedError`."""
        execute: Callable[..., Awaitable[Any]] = self._run.registry.execute
        with third_party_code(call.tool):
            # The tool may change its arguments, and the call is saved with the original ones.
            args = copy.deepcopy(call.args)
            if self._takes_mapping:
                return await execute(call.tool, args)
            return await execute(call.tool, **args)

    async def _resumed(
        self, call: ToolCall, pointer: ContextPointer, turn: OffloadTurn | None
    ) -> dict[str, Any] | None:
        """Return the stored output of a call as its result, or None if the call is repeated."""
        try:
            output = await in_thread(self._session.results.load_result, pointer=pointer)
        except StoreError:
            return self._run.count_repeat(call)
        # A `ToolResult` is loaded as a dict of all its fields, and one without success is worth
        # another try. A tool's own dict may have a field `success` too, as that of a declined
        # payment, and its call is never repeated.
        is_result = isinstance(output, dict) and output.keys() >= ToolResult.model_fields.keys()
        if is_result and output["success"] is False:
            return self._run.count_repeat(call)
        output = await self._offloaded(call, output, pointer, turn)
        return {"saved": True, "pointer_id": pointer.pointer_id, "resumed": True, "output": output}

    async def _save(
        self, call: ToolCall, output: Any, task_id: int, result: dict[str, Any]
    ) -> ContextPointer | None:
        """Save an output, and add its pointer or the reason of the failure to the result."""
        try:
            pointer = await self._run.save(
                output,
                tool=call.tool,
                args=call.args,
                task_id=str(task_id),
                query_id=self._run.query_id,
            )
        except (LLMCommonError, OSError) as exc:
            # The text of an OSError may contain a path of the user. Our own texts do not.
            problem = f"was not saved ({type(exc).__name__})"
            if isinstance(exc, LLMCommonError):
                problem += f": {exc.message}"
            _log.warning("an output %s", problem)
            result["saved"] = False
            result["save_error"] = f"the output of tool {call.tool!r} {problem}"
            return None
        result["saved"] = True
        if not isinstance(pointer, ContextPointer):  # a double of a session
            return None
        result["pointer_id"] = pointer.pointer_id
        return pointer


def takes_mapping(execute: Callable[..., object]) -> bool:
    """Return whether an `execute` takes the arguments of a call as one mapping."""
    try:
        parameters = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):
        return True  # functions written in C have no signature, and the mapping is the usual form
    positional = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return True
        positional += parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    # The first one is the tool's name.
    return positional > 1


async def _without_secrets(failed: ToolResult, session: Session) -> ToolResult:
    """Return a failed `ToolResult` with the redactions of its stored copy."""
    error = await in_thread(session.store.redactor.text, failed.error or "") or None
    redacted = failed.model_copy(update={"error": error})
    try:
        stored = await session.store.as_stored(failed)
    except UnserialisableError:  # the store will refuse it too
        return redacted
    if isinstance(stored, dict):
        redacted = redacted.model_copy(update=stored)
    return redacted


def describe_returned_failure(call: ToolCall, result: ToolResult, redactor: Redactor) -> str:
    """Return why a call failed that returned a `ToolResult` without success."""
    reason = failure_reason(result.error or "", call.args, redactor) or "it gave no reason"
    return f"tool {shown_name(call.tool, redactor)!r} returned a failure: {reason}"


def error_type(error: BaseException) -> str:
    """Return the class of a tool's exception, within the `ToolFailedError`s around it."""
    while isinstance(error, ToolFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__
