"""`AgenticExecutor`: runs a plan, stores every output, and streams events."""

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from llm_common._telemetry import operation, record as record_line
from llm_common._threads import in_thread
from llm_common.agents.answering import Answer, Answering
from llm_common.agents.call_failures import (
    LOSING_REASONS,
    describe_failure,
    describe_refusal,
    describe_returned_failure,
    error_type,
)
from llm_common.agents.context_pointers import ContextPointer
from llm_common.agents.offloading import OffloadPolicy, OffloadTurn
from llm_common.agents.run_state import (
    DEFAULT_OUTPUTS_TOKENS,
    ObservedRun,
    RunLimits,
    RunState,
    TaskRecord,
)
from llm_common.agents.session import ToolContextManager
from llm_common.core.structured import SupportsChat
from llm_common.errors import (
    ConfigError,
    LLMCommonError,
    StoreError,
    ToolFailedError,
    UnserialisableError,
)
from llm_common.plans import ExecutionPlan, PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.reading import READER_NAME, ContextReading
from llm_common.selection.results import SelectsTools, ToolSelection
from llm_common.selection.tools import ToolSelector
from llm_common.tools.read_back import ReadBackTool, with_read_back
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import ToolResult, third_party_code

_log = logging.getLogger(__name__)

_MAX_LOGGED = 5
PlanLike = ExecutionPlan | PlannedTask | Sequence[PlannedTask | str]
SessionLike = ToolContextManager | str

# for a subclass whose `_resolve_tools` calls this one's: its prompt must be of the run's session
_RUN: ContextVar[RunState | None] = ContextVar("run", default=None)


class StreamEvent(BaseModel):
    """One thing that happened during a run.

    | type | data |
    |---|---|
    | `thinking` | text: the task that begins, or that its calls are chosen again |
    | `tool_call` | `tool`, `args`, `task`: a call that was chosen; a task's calls come before its first result |
    | `tool_result` | `tool`, `args`, `task`, `output`, `saved`, `pointer_id`: a call that succeeded |
    | `tool_result` | for one that a resumed run did not make again also `resumed`: True |
    | `text` | text: a task that needs no tools |
    | `error` | `error` (a text) and `task`; `tool` and `args` for a call that failed, `tool` for a failed save |
    | `error` | for a proposed call that was refused also `tool` and `reason`, of the `DroppedCall` |
    | `error` | for a limit that ends the run also `limit`: True |
    | `sources` | list of sources, when there are any, after the last task |
    | `answer_delta` | text: what the answer goes on with, while the model writes it |
    | `answer` | the `Answer`, at the end of `answer_stream` |
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    type: Literal[
        "thinking", "tool_call", "tool_result", "text", "sources", "error", "answer_delta", "answer"
    ]
    data: Any


class AgenticExecutor:
    """Run plans for many sessions; runs that name no session share the executor's own.

    A run sees, stores and reads back the outputs of its session alone. Name the session of each
    user with `session`, an id or a `ToolContextManager`. One executor may serve several runs at
    once. The tasks of a plan run in order, and the tool calls of a task concurrently.

    Choosing the calls of a task sees what the session has stored and what failed before: the
    relevant outputs first, small ones whole. A task takes another round, with its own outputs and
    failures in view, if the model asks for one, up to `max_rounds`; a call is made once in a task.

    Every output is saved through the context manager. A task fails, and ends the run, if its tools
    could not be chosen or all of them failed. If only some failed, the task succeeds and its
    `error` lists them, with the calls that were refused. The error of a tool is its class and its
    text, in one line, without secrets and without the texts of the call's arguments; it is also
    logged. Cancelling a run, or closing its stream, cancels the running tools and waits for them; a
    save that has begun goes on.

    Args:
        client: Asked by the default selector; may be None when `selector` is given.
        tool_registry: Has `get_tools_schema()` and an async `execute`, called as `execute(name,
            args)` when it takes two positionals, else as `execute(name, **args)`. The signature is
            inspected once, here.
        context_manager: The session of runs that name none. Sessions that are named by id are kept
            in its store.
        selector: Chooses the calls of a task; None takes `ToolSelector(client)`.
        max_parallel: Most calls of one task that run at the same time.
        offload: Which saved outputs are replaced by an `Offloaded` with a preview; one task is one
            turn. None leaves every output whole.
        read_back: Adds a tool that reads this session's outputs, under the name `read_context`, or
            under the one that is given; previews name it. What it returns is not saved. Offered to
            the selector once its context shows the id of an output, so never with `outputs_tokens`
            0.
        max_rounds: Most rounds of a task: choose, run, look. A selector without the parameter
            `rounds_left` has one.
        limits: Where a run ends, however many tasks are left.
        outputs_tokens: Most tokens of the stored outputs that choosing sees; 0 shows none.

    Raises:
        TypeError: The registry has no `execute`, or `context_manager` is no `ToolContextManager`.
        ValueError: Neither a client nor a selector, or a number is too small.
        ConfigError: `read_back` does not fit the registry; see `with_read_back`.
    """

    def __init__(
        self,
        client: SupportsChat | None,
        tool_registry: Any,
        context_manager: ToolContextManager,
        *,
        selector: SelectsTools | None = None,
        max_parallel: int = 8,
        offload: OffloadPolicy | None = None,
        read_back: bool | str = False,
        max_rounds: int = 3,
        limits: RunLimits | None = None,
        outputs_tokens: int = DEFAULT_OUTPUTS_TOKENS,
    ) -> None:
        for name, value, least in (
            ("max_parallel", max_parallel, 1),
            ("max_rounds", max_rounds, 1),
            ("outputs_tokens", outputs_tokens, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        if selector is None:
            if client is None:
                raise ValueError("give a client or a selector")
            selector = ToolSelector(client)
        if not callable(getattr(tool_registry, "execute", None)):
            kind = type(tool_registry).__name__
            raise TypeError(
                f"tool_registry needs an async execute(), which {kind} lacks; pass a ToolRegistry"
            )
        if not isinstance(context_manager, ToolContextManager):
            kind = type(context_manager).__name__
            raise TypeError(
                f"context_manager is a {kind}; pass ToolContextManager(folder) or (pointer_store=...)"
            )
        self.client = client
        self.context_manager = context_manager
        self._tools = tool_registry
        self._reader_name = (
            read_back if isinstance(read_back, str) else READER_NAME if read_back else None
        )
        self.registry = self._registry_of(context_manager)
        self._selector = selector
        self._max_parallel = max_parallel
        self._takes_args_whole = _takes_two_positionals(self.registry.execute)
        # a subclass may do without
        self._passes_query = "query" in inspect.signature(self._resolve_tools).parameters
        self._tells_rounds = "rounds_left" in inspect.signature(selector.select_detailed).parameters
        self._max_rounds = max_rounds if self._tells_rounds else 1
        self._limits = limits or RunLimits()
        self._outputs_tokens = outputs_tokens
        self._offload = (
            replace(offload, reader_name=self._reader_name)
            if offload and self._reader_name
            else offload
        )

    async def run_stream(
        self,
        plan: PlanLike,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a run; results of parallel calls come in the order they finish.

        Close the stream (`contextlib.aclosing`) if you leave it early: this ends the running tools
        at once.

        Args:
            plan: Tasks in the order in which they run; a list of tasks or descriptions will do.
            query_id: The query that the outputs are stored under; an id that the store allows. A
                named session stores them under its own `query_id_of(query_id)`.
            query: The user's question, for the selector.
            session: The session that the run sees and stores in: its id, which brings what the
                session has stored so far, or a `ToolContextManager`. None uses `context_manager`.
            resume: Takes up a run of this plan that ended early, in this process or another:
                outputs that the session has of the query count as this run's, and a call that has
                one is not made again. Only for a named session.

        Yields:
            Events. Failures of tools, of choosing and of saving are `error` events, never raised.

        Raises:
            TypeError: `plan` is no plan, or `session` no session; the text says what to pass.
            ConfigError: `resume` is set, and the session has no name of its own.
            StoreError: The outputs of the session or of the run to resume cannot be listed, or the
                session's id is not allowed.
        """
        run = self._begin(await self._session_of(session), query_id, resume=resume)
        async with aclosing(self._run_plan(plan, query, run, resume=resume)) as items:
            async for item in items:
                if isinstance(item, StreamEvent):
                    yield item

    async def answer_stream(
        self,
        query: str,
        *,
        plan: PlanLike | None = None,
        answering: Answering | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
        deltas: bool = True,
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a run for the query, then one `answer` event with the `Answer`.

        Close the stream (`contextlib.aclosing`) if you leave it early: this ends the model's call
        too.

        Args:
            query: The user's question.
            plan: How to get the data; None makes the query the only task.
            answering: Settings of the answer; None takes `Answering()`, with the name of this
                executor's reader.
            session: As for `run_stream`, as is `resume`.
            resume: Takes up a run that ended early.
            deltas: Whether `answer_delta` events come before the `answer`, as from
                `Answering.stream`; only of a client that streams.

        Raises:
            ValueError: The executor has no client.
            TypeError: `query` is no text, or `plan` no plan; the text says what to pass.
            ConfigError: As from `run_stream`.
            StoreError: As from `run_stream`.
        """
        if self.client is None:
            raise ValueError("an answer needs a client; give the executor one")
        plan = query if plan is None else plan
        manager = await self._session_of(session)
        run = self._begin(manager, manager.query_id_of(query), resume=resume)
        results: list[SubTaskResult] = []
        with ObservedRun.of(run.query_id, query, run.session) as observed:
            async with aclosing(
                self._run_plan(plan, query, run, resume=resume, observed=observed)
            ) as items:
                async for item in items:
                    if isinstance(item, StreamEvent):
                        yield item
                    else:
                        results.append(item)
            name = self._offload.reader_name if self._offload else self._reader_name or READER_NAME
            answering = answering or Answering(reader_name=name)
            parts = answering.stream(
                self.client, run.session, query=query, results=results, deltas=deltas
            )
            async with aclosing(parts):
                while True:
                    with observed.active():  # never around a `yield`
                        part = await anext(parts, None)
                        if isinstance(part, Answer):
                            record_line("answer", answer=part)
                            observed.status = part.status
                    if part is None:
                        break
                    yield StreamEvent(
                        type="answer" if isinstance(part, Answer) else "answer_delta", data=part
                    )

    async def run(
        self,
        query: str,
        *,
        plan: PlanLike | None = None,
        answering: Answering | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
    ) -> Answer:
        """The answer from the plan's tool outputs; arguments as for `answer_stream`.

        Returns:
            The answer; a failure is its `status`. What failed on the way is in `failures`. A run
            with a failed task and no successful call is not answered.

        Raises:
            ValueError: The executor has no client.
            TypeError: `query` is no text, or `plan` no plan; the text says what to pass.
            ConfigError: As from `run_stream`.
            StoreError: As from `run_stream`.
        """
        async with aclosing(
            self.answer_stream(
                query,
                plan=plan,
                answering=answering,
                session=session,
                resume=resume,
                deltas=False,
            )
        ) as events:
            [answer] = [event.data async for event in events if event.type == "answer"]
        assert isinstance(answer, Answer)
        return answer

    async def execute_plan(
        self,
        plan: PlanLike,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
    ) -> list[SubTaskResult]:
        """The results of the tasks that ran, in order; arguments and errors as for `run_stream`."""
        run = self._begin(await self._session_of(session), query_id, resume=resume)
        async with aclosing(self._run_plan(plan, query, run, resume=resume)) as items:
            return [item async for item in items if isinstance(item, SubTaskResult)]

    async def execute_task(
        self,
        task: PlannedTask | str,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
    ) -> SubTaskResult:
        """The result of one task: those of its calls, or "No tools called"."""
        [result] = await self.execute_plan([task], query_id, query=query, session=session)
        return result

    async def execute_tool_calls(
        self,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]],
        task_id: int,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
    ) -> list[dict[str, Any]]:
        """The results of the calls, in call order; never raises what a tool raises.

        Args:
            tool_calls: The calls, or mappings of `tool` and `args`; at most `max_parallel` run at
                the same time.
            task_id: The task of the calls.
            query_id: The query that the outputs are stored under.
            query: Decides what the previews of offloaded outputs show.
            session: As for `run_stream`.

        Returns:
            Per call a dict with `tool` and `args`; `output` if the tool returned; `error` if it
            failed, and `limit` if `timeout_s` ended it; `saved`, and `pointer_id` or `save_error`,
            if there was an output to save.

        Raises:
            TypeError: An entry is no call; the text says what to pass.
        """
        calls = [_call_of(entry) for entry in tool_calls]
        run = self._begin(await self._session_of(session), query_id)
        async with aclosing(self._finished_calls(calls, task_id, query, run)) as finished:
            by_index = {index: result async for index, result in finished}
        return [by_index[index] for index in sorted(by_index)]

    def _registry_of(self, session: ToolContextManager) -> Any:
        """Return the tools of a run, of which the reader loads outputs of its session alone."""
        if not self._reader_name:
            return self._tools
        return with_read_back(self._tools, session.load_payload, name=self._reader_name)

    async def _session_of(self, session: SessionLike | None) -> ToolContextManager:
        if session is None:
            return self.context_manager
        if isinstance(session, ToolContextManager):
            return session
        if not isinstance(session, str):
            raise TypeError(
                f"session is a {type(session).__name__}; pass the id of a session, such as "
                "'user:42', or a ToolContextManager"
            )
        store = self.context_manager.pointer_store
        manager = ToolContextManager(pointer_store=store, session_id=session)
        await manager.resume()
        return manager

    def _begin(
        self, session: ToolContextManager, query_id: str, *, resume: bool = False
    ) -> RunState:
        """Return a new run of a session, with a query id that no other session has."""
        is_named = session.is_named is True  # a double of a manager has anything
        if resume and not is_named:
            raise ConfigError(
                "resume=True needs a named session, since outputs without one may be another "
                "user's: pass session='user:42', or the executor a ToolContextManager(session_id=...)",
                variable="session",
            )
        registry = self.registry
        if session is not self.context_manager:
            registry = self._registry_of(session)
        return RunState(
            self._limits,
            session,
            registry,
            query_id=session.query_id_of(query_id) if is_named else query_id,
            outputs_tokens=self._outputs_tokens,
            reader_name=self._reader_name,
        )

    async def _run_plan(
        self,
        plan: PlanLike,
        query: str | None,
        run: RunState,
        *,
        resume: bool = False,
        observed: ObservedRun | None = None,
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        """The events of the tasks, each task's result after its events, and then the sources."""
        tasks = ExecutionPlan.of(plan).tasks
        opened = (
            nullcontext(observed) if observed else ObservedRun.of(run.query_id, query, run.session)
        )
        with opened as run.observed:
            if resume:
                await run.resume()
            for number, task in enumerate(tasks):
                if limit := run.limit_reached():
                    text = f"{limit}; {len(tasks) - number} of {len(tasks)} tasks were not run"
                    yield StreamEvent(
                        type="error", data={"task": task.id, "limit": True, "error": text}
                    )
                    yield SubTaskResult(task_id=task.id, sub_task_id=0, success=False, error=text)
                    break
                failed = False
                async with aclosing(self._run_task(task, query, run)) as items:
                    async for item in items:
                        yield item
                        failed = isinstance(item, SubTaskResult) and not item.success
                if failed:
                    _log.warning("plan halted: task %d failed", task.id)
                    break
            if sources := run.session.get_all_sources(run.query_id):
                yield StreamEvent(type="sources", data=sources)
            if observed is None:
                run.observed.status = "ok"

    async def _run_task(
        self, task: PlannedTask, query: str | None, run: RunState
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        """The events of a task's rounds, and then its result."""
        yield StreamEvent(type="thinking", data=f"Processing: {task.description}")
        asked = " ".join(filter(None, (query, task.description)))
        record = run.begin_task(task.id)
        for rounds_left in reversed(range(self._max_rounds)):
            with run.active():
                selection = await self._choose(task, query, run, rounds_left)
            for facts in self._problems_of(selection, run, record):
                yield StreamEvent(type="error", data=facts)
            proposed = () if selection.failed else record.unmade(selection.calls)
            calls = run.admit(task.id, proposed)
            async with aclosing(self._run_calls(calls, asked, run, record)) as events:
                async for event in events:
                    yield event
            if not (len(calls) < len(proposed) or (calls and rounds_left and selection.again)):
                break
            if limit := run.limit_reached():
                record.errors.append(limit)
                yield StreamEvent(
                    type="error", data={"task": task.id, "limit": True, "error": limit}
                )
                break
            yield StreamEvent(type="thinking", data=f"Choosing again: {task.description}")
        if not record.results and not record.failed:
            yield StreamEvent(type="text", data="No tools needed for this step.")
        yield record.result()

    async def _choose(
        self, task: PlannedTask, query: str | None, run: RunState, rounds_left: int
    ) -> ToolSelection:
        """The calls of a round, within the time that the run has left."""
        own = getattr(self._resolve_tools, "__func__", None) is AgenticExecutor._resolve_tools
        try:
            async with asyncio.timeout_at(run.ends_at) as time:
                if own:
                    selection = await self._select(task, query, run, rounds_left)
                else:  # a subclass chooses itself
                    asked = {"query": query} if self._passes_query else {}
                    running = _RUN.set(run)
                    try:
                        chosen = await self._resolve_tools(task, **asked)
                    finally:
                        _RUN.reset(running)
                    selection = (
                        chosen if isinstance(chosen, ToolSelection) else _selection_of(chosen)
                    )
        except TimeoutError:
            if not time.expired():
                raise
            return ToolSelection(status="timeout", used="model", problem=run.time_over())
        run.spend(selection)
        return selection

    def _problems_of(
        self, selection: ToolSelection, run: RunState, record: TaskRecord
    ) -> list[dict[str, Any]]:
        """The facts of the error events of a choice, also added to the record."""
        refused = [
            (dropped, describe_refusal(dropped, run.session.redactor))
            for dropped in selection.dropped
        ]
        if refused:
            listed = "; ".join(text for _, text in refused[:_MAX_LOGGED])
            _log.warning(
                "task %d: %d proposed calls were refused: %s", record.task_id, len(refused), listed
            )
        problems = [
            {"task": record.task_id, "tool": dropped.tool, "reason": dropped.reason, "error": text}
            for dropped, text in refused
        ]
        record.errors += [text for dropped, text in refused if dropped.reason in LOSING_REASONS]
        if selection.failed:
            text = f"no tools could be chosen for task {record.task_id} (status {selection.status}): {selection.problem}"
            record.errors.append(text)
            record.failed = not record.results
            limit = {"limit": True} if selection.problem == run.time_over() else {}
            problems.append(
                {"task": record.task_id, "status": selection.status, "error": text} | limit
            )
        return problems

    async def _run_calls(
        self,
        calls: Sequence[ToolCall],
        asked: str,
        run: RunState,
        record: TaskRecord,
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of the calls, whose results the record gets in call order."""
        task = {"task": record.task_id}
        for call in calls:
            yield StreamEvent(
                type="tool_call", data=call.model_dump(include={"tool", "args"}) | task
            )
        by_index: dict[int, dict[str, Any]] = {}
        async with aclosing(self._finished_calls(calls, record.task_id, asked, run)) as finished:
            async for index, result in finished:
                by_index[index] = result
                yield StreamEvent(
                    type="error" if "error" in result else "tool_result", data=result | task
                )
                if "save_error" in result:
                    facts = {"tool": result["tool"], "error": result["save_error"]} | task
                    yield StreamEvent(type="error", data=facts)
        record.add([by_index[index] for index in sorted(by_index)])

    async def _resolve_tools(
        self, task: PlannedTask, *, query: str | None = None
    ) -> ToolSelection | Sequence[ToolCall | Mapping[str, Any]]:
        """The calls of a task; a subclass may return a plain list of calls."""
        run = _RUN.get() or self._begin(self.context_manager, self.context_manager.session_id)
        return await self._select(task, query, run, 0)

    async def _select(
        self, task: PlannedTask, query: str | None, run: RunState, rounds_left: int
    ) -> ToolSelection:
        context = await run.seen(task, query)
        registry = run.registry
        # a reader without an id is a dead end
        if self._reader_name and not (context or {}).get("stored_outputs"):
            registry = ToolRegistry(
                [tool for tool in registry if not isinstance(tool, ReadBackTool)]
            )
        options: dict[str, Any] = {"rounds_left": rounds_left} if self._tells_rounds else {}
        if context:
            options["context"] = context
        return await self._selector.select_detailed(
            task=task, tool_registry=registry, query=query, **options
        )

    async def _finished_calls(
        self,
        calls: Sequence[ToolCall],
        task_id: int,
        query: str | None,
        run: RunState,
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """The index and result of each call as it finishes.

        Closing the generator cancels the running calls.
        The calls that the run's time does not reach fail.
        """
        turn = (
            OffloadTurn(self._offload, query=query or "", calls=len(calls))
            if self._offload
            else None
        )
        waiting = deque(enumerate(calls))
        running: dict[asyncio.Task[dict[str, Any]], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._max_parallel and run.seconds_left() != 0:
                    index, call = waiting.popleft()
                    with run.active():
                        running[
                            asyncio.create_task(self._execute_tool(call, task_id, turn, run))
                        ] = index
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running, timeout=run.seconds_left(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in sorted(done, key=running.__getitem__):
                    index = running.pop(task)
                    yield index, self._outcome(calls[index], task, run)
                if not done:
                    break
            for task in running:
                task.cancel()
            for index in sorted([*running.values(), *(index for index, _ in waiting)]):
                call, became = (
                    calls[index],
                    "was ended" if index in running.values() else "was not called",
                )
                text = f"tool {call.tool!r} {became}: {run.time_over()}"
                yield index, {"tool": call.tool, "args": call.args, "error": text, "limit": True}
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _outcome(
        self, call: ToolCall, task: asyncio.Task[dict[str, Any]], run: RunState
    ) -> dict[str, Any]:
        """The result of a finished call, also of one that raised what no `except Exception` catches."""
        record: dict[str, Any] = {"tool": call.tool, "args": call.args}
        if task.cancelled():  # the tool itself raised CancelledError
            record["error"] = f"tool {call.tool!r} cancelled itself (CancelledError)"
        elif (raised := task.exception()) is None or isinstance(
            raised, KeyboardInterrupt | SystemExit
        ):
            record = task.result()
        else:
            record["error"] = describe_failure(call, raised, run.session.redactor)
        if "error" in record:
            _log.warning("a tool call failed: %s", record["error"])
        return record

    async def _execute_tool(
        self, call: ToolCall, task_id: int, turn: OffloadTurn | None, run: RunState
    ) -> dict[str, Any]:
        record: dict[str, Any] = {"tool": call.tool, "args": call.args}
        if stored := await self._resumed(call, task_id, turn, run):
            return record | stored
        execute: Callable[..., Awaitable[Any]] = run.registry.execute
        facts = {"gen_ai.tool.name": call.tool, "gen_ai.tool.type": "function"}
        facts |= {"gen_ai.tool.call.id": call.id} if call.id else {}
        with operation("execute_tool", call.tool, facts) as current:
            try:
                with third_party_code(call.tool):
                    # the tool may change them; the call is saved with its own
                    args = copy.deepcopy(call.args)
                    output = await (
                        execute(call.tool, args)
                        if self._takes_args_whole
                        else execute(call.tool, **args)
                    )
            except ToolFailedError as exc:
                current.fail(error_type(exc))
                record_line(
                    "tool_call",
                    tool=call.tool,
                    args=call.args,
                    task=task_id,
                    failure=error_type(exc),
                )
                return record | {"error": describe_failure(call, exc, run.session.redactor)}
            record["output"] = output
            if isinstance(output, ToolResult) and not output.success:
                current.fail("ToolResult")
                record["error"] = describe_returned_failure(call, output, run.session.redactor)
                record["output"] = await _without_secrets(output, run.session)
        if isinstance(output, ContextReading):  # stored already
            if turn is not None:
                await turn.keeps(call.tool, output)
            return record
        saved, pointer = await self._save(call, output, task_id, run)
        failure = "ToolResult" if "error" in record else None
        record_line(
            "tool_call",
            tool=call.tool,
            args=call.args,
            task=task_id,
            pointer=pointer,
            failure=failure,
        )
        if turn is not None and pointer is not None and not await turn.keeps(call.tool, output):
            shown = await run.session.as_stored(output)
            record["output"] = await turn.preview(pointer, shown)
        return record | saved

    async def _resumed(
        self, call: ToolCall, task_id: int, turn: OffloadTurn | None, run: RunState
    ) -> dict[str, Any] | None:
        """What a call gave before the run was resumed, or why it is not made again.

        None if it has to be made.
        """
        pointer = run.stored(task_id, call)
        if pointer is None:
            return None
        try:
            output = await in_thread(run.session.load_result, pointer=pointer)
            # a `ToolResult`
            is_failure = isinstance(output, dict) and output.get("success") is False
        except StoreError:
            is_failure = True
        if is_failure:  # worth another try
            return run.make_again(call)
        if turn is not None and not await turn.keeps(call.tool, output):
            output = await turn.preview(pointer, output)
        return {"saved": True, "pointer_id": pointer.pointer_id, "resumed": True, "output": output}

    async def _save(
        self, call: ToolCall, output: Any, task_id: int, run: RunState
    ) -> tuple[dict[str, Any], ContextPointer | None]:
        try:
            pointer = await run.session.save_context(
                tool_name=call.tool,
                args=call.args,
                result=output,
                task_id=str(task_id),
                query_id=run.query_id,
            )
        except (LLMCommonError, OSError) as exc:
            # the library's own text is harmless
            reason = f": {exc.message}" if isinstance(exc, LLMCommonError) else ""
            _log.warning("an output was not saved (%s)%s", type(exc).__name__, reason)
            text = f"the output of tool {call.tool!r} was not saved ({type(exc).__name__}){reason}"
            return {"saved": False, "save_error": text}, None
        if not isinstance(pointer, ContextPointer):  # a third-party context manager
            return {"saved": True}, None
        return {"saved": True, "pointer_id": pointer.pointer_id}, pointer


def _call_of(entry: object) -> ToolCall:
    if isinstance(entry, ToolCall):
        return entry
    try:
        return ToolCall.model_validate(entry)
    except ValidationError as exc:
        raise TypeError(
            f"pass ToolCall(tool=..., args={{...}}) or such a mapping, not {type(entry).__name__}"
        ) from exc


async def _without_secrets(failed: ToolResult, session: ToolContextManager) -> ToolResult:
    """Return a returned failure without the secrets that its stored copy lacks."""
    text = session.redactor.text(failed.error or "") or None
    told = failed.model_copy(update={"error": text})
    try:
        stored = await session.as_stored(failed)
    except UnserialisableError:  # it will not be stored either
        return told
    return told.model_copy(update=stored) if isinstance(stored, dict) else told


def _selection_of(chosen: Sequence[ToolCall | Mapping[str, Any]]) -> ToolSelection:
    """The selection that a subclass means by a list of calls."""
    calls = tuple(_call_of(entry) for entry in chosen)
    return ToolSelection(calls=calls, status="ok" if calls else "empty", used="model")


def _takes_two_positionals(execute: Callable[..., object]) -> bool:
    """Whether a registry takes arguments as one dict; assumed if its signature cannot be read."""
    try:
        parameters = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = [parameter.kind for parameter in parameters]
    positional = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(
        inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    return positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
