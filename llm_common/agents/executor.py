"""`AgenticExecutor`: runs a plan, stores every output, and streams events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from pydantic import ValidationError

from llm_common._telemetry import record as record_line
from llm_common._threads import in_thread
from llm_common.agents.answering import Answer, Answering
from llm_common.agents.events import (
    AnswerDeltaEvent,
    AnswerEvent,
    ErrorData,
    ErrorEvent,
    RunEvent,
    SourcesEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultData,
    ToolResultEvent,
)
from llm_common.agents.runs import (
    LOSING_REASONS,
    RunLimits,
    RunState,
    SavesOutput,
    ToolRunner,
    model_loop,
    takes_mapping,
)
from llm_common.agents.session.config import OffloadPolicy
from llm_common.agents.session.saved import run_id_of
from llm_common.agents.session.session import Session
from llm_common.agents.tool_context import ToolContextManager
from llm_common.core.structured import Attempt, SupportsChat
from llm_common.errors import ConfigError, LLMError, LLMTimeoutError, ToolFailedError
from llm_common.plans import ExecutionPlan, PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.reading import READER_NAME
from llm_common.selection.planner import Planner
from llm_common.selection.results import SelectsTools, ToolSelection
from llm_common.selection.tools import ToolSelector
from llm_common.text.display import one_line
from llm_common.tools.read_back import with_read_back
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import MAX_REASON_CHARS

_log = logging.getLogger(__name__)

_MAX_LOGGED: Final = 5

PlanLike = ExecutionPlan | PlannedTask | Sequence[PlannedTask | str] | Planner
SessionLike = Session | ToolContextManager | str


class AgenticExecutor:
    """Run plans for many sessions. Runs that name no session share the executor's own.

    A run sees, stores and reads back only the outputs of its session. Pass each user's session as
    `session`, a `Session` or its id. One executor may serve several runs at the same time. The
    tasks of a plan run in order, and the tool calls of a task concurrently.

    The selector sees the session's stored outputs and earlier failures when it chooses the calls of
    a task. Relevant outputs come first, and small ones are whole. If the model asks for another
    round, it chooses again with the new outputs and failures. A task never repeats a call.

    Every output is saved. A task fails, and ends the run, if its calls could not be chosen or all
    of them failed. If some calls succeed, the task succeeds and its `error` lists the failed and
    refused calls. The error of a tool is its class and text in one line, without secrets and
    without texts of the call's arguments. It is also logged. Cancelling a run, or closing its
    stream, cancels the running tools and waits for them. A save that has begun continues.

    A subclass may override `_resolve_tools(task, *, query)`, and return a list of calls.

    Args:
        client: The client of the default selector and of answers. None needs a `selector`.
        tool_registry: Has `get_tools_schema()` and an async `execute`. It is called as
            `execute(name, args)` if it has two positional parameters, else as
            `execute(name, **args)`. The signature is inspected once, here.
        context_manager: The session of runs without a `session`, as a `Session` or a
            `ToolContextManager`. Its store also keeps the sessions that are passed by id.
        selector: Chooses the calls of a task. None creates a `ToolSelector(client)`.
        limits: The limits of each run. None takes the defaults.
        offload: Which saved outputs are replaced by an `Offloaded` with a preview. One task is one
            turn. None leaves every output whole.
        read_back: Whether to add the tools that read and query the outputs of a run's session. A
            text is the reader's name in place of `read_context`. Previews contain the name.
            Readings are not saved, the rows of a query are, for later tasks and the answer. The
            selector sees the tools once its context has the id of an output.

    Raises:
        TypeError: If the registry has no `execute`, or `context_manager` is not a session.
        ValueError: If both client and selector are None.
        ConfigError: If `read_back` does not fit the registry. See `with_read_back`.
    """

    def __init__(
        self,
        client: SupportsChat | None,
        tool_registry: Any,
        context_manager: Session | ToolContextManager,
        *,
        selector: SelectsTools | None = None,
        limits: RunLimits | None = None,
        offload: OffloadPolicy | None = None,
        read_back: bool | str = False,
    ) -> None:
        if selector is None:
            if client is None:
                raise ValueError("client and selector are both None; pass one of them")
            selector = ToolSelector(client)
        if not callable(getattr(tool_registry, "execute", None)):
            raise TypeError(
                f"tool_registry needs an async execute(), which {type(tool_registry).__name__} "
                "lacks; pass a ToolRegistry"
            )
        if not isinstance(context_manager, Session | ToolContextManager):
            raise TypeError(
                f"context_manager is a {type(context_manager).__name__}; pass a Session, or "
                "pass ToolContextManager(folder) or (pointer_store=...)"
            )
        self._reader_name: str | None = None
        if read_back:
            self._reader_name = read_back if isinstance(read_back, str) else READER_NAME
        if offload is not None and self._reader_name:
            # Previews have to name the reader that the model is offered.
            offload = replace(offload, reader_name=self._reader_name)
        self.client = client
        self._own_session = context_manager
        if isinstance(context_manager, Session):
            context_manager = ToolContextManager.over(context_manager)
        self.context_manager = context_manager
        self._tools = tool_registry
        self.registry = self._registry_of(context_manager.session)
        self._takes_mapping = takes_mapping(self.registry.execute)
        self._selector = selector
        self._limits = limits or RunLimits()
        self._offload = offload

    async def run_stream(
        self,
        plan: PlanLike,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a plan, and yield its events. The results of parallel calls come as they finish.

        Close the stream (`contextlib.aclosing`) if you leave it early, so that the running tools
        end immediately.

        Args:
            plan: The tasks in their order, as an `ExecutionPlan` or a list of tasks or
                descriptions. A `Planner` makes the plan within the run: its call counts towards
                the limits and is in the trace.
            query_id: The query id of the stored outputs, which the store has to allow. A named
                session uses its `query_id_of(query_id)`.
            query: The user's question, for the selector. A planner needs it.
            session: The session of the run, as a `Session`, its id, or a `ToolContextManager`. The
                first two include everything that the session has stored. None uses
                `context_manager`.
            resume: Whether to continue a run of this plan that ended early, in this process or
                another. The session's outputs of the query count as this run's, and their calls are
                not repeated. Only for a named session.

        Yields:
            Events. Failures of tools, of planning, of choosing and of saving are `error` events,
            never raised.

        Raises:
            TypeError: If `plan` is not a plan, or `session` not a session.
            ValueError: If a planner has no `query`.
            ConfigError: If `resume` is set for a session without a name.
            StoreError: If the outputs of the session cannot be listed, or an id is not allowed.
            RunBusyError: If the named session already runs this query, in any process that shares
                its store, and no tool was called. Also if the run lost its lease, as after a pause
                of the machine. The other run may then have repeated its unfinished calls.
        """
        async with aclosing(self._run_plan(plan, query_id, query, session, resume)) as items:
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
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a plan for a query, and yield its events, then one `answer` with the `Answer`.

        Close the stream (`contextlib.aclosing`) if you leave it early, so that the model's call
        ends too.

        Args:
            query: The user's question.
            plan: The tasks that gather data, or a `Planner`, as for `run_stream`. None takes the
                query as the only task.
            answering: Settings of the answer. None takes `Answering()`, with the name of this
                executor's reader.
            session: As for `run_stream`.
            resume: As for `run_stream`.
            deltas: Whether `answer_delta` events come before the `answer`, as from
                `Answering.stream`. Needs a client that streams.

        Raises:
            ValueError: If the executor has no client.
            TypeError: If `query` is not a str, or as from `run_stream`.
            ConfigError: As from `run_stream`.
            StoreError: As from `run_stream`.
            RunBusyError: As from `run_stream`.
        """
        if self.client is None:
            raise ValueError("client is None; pass AgenticExecutor a client to get an answer")
        if answering is None:
            reader_name = self._offload.reader_name if self._offload else self._reader_name
            answering = Answering(reader_name=reader_name or READER_NAME)
        run = await self._begin(session, None, query, resume=resume)
        results: list[SubTaskResult] = []
        async with run.open(query):
            tasks = self._run_tasks(query if plan is None else plan, query, run, resume=resume)
            async with aclosing(tasks) as items:
                async for item in items:
                    if isinstance(item, StreamEvent):
                        yield item
                    else:
                        results.append(item)

            parts = answering.stream(
                self.client, run.session, query=query, results=results, deltas=deltas
            )
            async with aclosing(parts):
                while True:
                    with run.active():  # never around a `yield`
                        part = await anext(parts)
                    if isinstance(part, Answer):
                        break
                    yield AnswerDeltaEvent(data=part)
            with run.active():
                record_line(
                    "answer",
                    text=part.text,
                    status=part.status,
                    problem=part.problem,
                    prompt_tokens=part.prompt_tokens,
                    shown=part.context.outputs if part.context else (),
                    attempts=part.attempts,
                )
            run.status = part.status
            yield AnswerEvent(data=part)

    async def run(
        self,
        query: str,
        *,
        plan: PlanLike | None = None,
        answering: Answering | None = None,
        session: SessionLike | None = None,
        resume: bool = False,
    ) -> Answer:
        """Answer a query from the outputs of a plan. Arguments and errors as for `answer_stream`.

        Returns:
            The answer. A failure is its `status`. Failed calls and tasks are in `failures`. The
            model is not asked after a run with a failed task and no successful call.
        """
        stream = self.answer_stream(
            query, plan=plan, answering=answering, session=session, resume=resume, deltas=False
        )
        async with aclosing(stream) as events:
            [answer] = [event.data async for event in events if event.type == "answer"]
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
        """Run a plan, and return the results of its tasks. Arguments as for `run_stream`."""
        async with aclosing(self._run_plan(plan, query_id, query, session, resume)) as items:
            return [item async for item in items if isinstance(item, SubTaskResult)]

    async def execute_task(
        self,
        task: PlannedTask | str,
        query_id: str,
        *,
        query: str | None = None,
        session: SessionLike | None = None,
    ) -> SubTaskResult:
        """Run one task, and return the results of its calls, or "No tools called"."""
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
        """Run calls, and return their results in the same order. Exceptions of tools are results.

        Args:
            tool_calls: The calls, or mappings with `tool` and `args`.
            task_id: The task of the calls.
            query_id: The query id of the stored outputs.
            query: The question that decides what the previews show.
            session: As for `run_stream`.

        Returns:
            A dict for each call with `tool` and `args`, `output` if the tool returned, `error` if
            it failed, and `limit` if `timeout_s` ended it. A call with an output also has `saved`,
            and `pointer_id` or `save_error`.

        Raises:
            TypeError: If an entry is not a call, or `session` is not a session.
        """
        calls = [_call_of(entry) for entry in tool_calls]
        run = await self._begin(session, query_id)
        async with aclosing(self._runner(run).results(calls, task_id, query)) as finished:
            results = {index: result async for index, result in finished}
        return [results[index] for index in sorted(results)]

    async def _session_of(self, session: SessionLike | None) -> tuple[Session, SavesOutput]:
        """Return a session, and what saves its outputs, which may be an application's."""
        if session is None:
            session = self._own_session
        if isinstance(session, ToolContextManager):
            return session.session, partial(_save_in, session)
        if isinstance(session, str):
            session = Session(self.context_manager.pointer_store, session_id=session)
        if not isinstance(session, Session):
            raise TypeError(
                f"session is a {type(session).__name__}; pass a Session, or the id of one, such as "
                "'user:42'"
            )
        await session.results.resume()
        return session, session.results.save

    def _registry_of(self, session: Session) -> Any:
        """Return the tools of a run, with those that read and query its session's outputs."""
        if not self._reader_name:
            return self._tools
        return with_read_back(self._tools, session.reader(self._reader_name), session.querier())

    async def _begin(
        self,
        source: SessionLike | None,
        query_id: str | None,
        query: str = "",
        *,
        resume: bool = False,
    ) -> RunState:
        """Return a new run of a session. A named session has its own query ids.

        Without a query id, that of the query is taken.
        """
        session, save = await self._session_of(source)
        is_named = session.results.is_named is True  # every attribute of a mock is truthy
        if resume and not is_named:
            raise ConfigError(
                "resume=True needs a named session, since unnamed sessions may share outputs: "
                "pass session='user:42', or the executor a Session(session_id=...)",
                variable="session",
            )
        if query_id is None:
            # A question of megabytes would block the loop while it is hashed.
            query_id = await in_thread(session.results.query_id_of, query)
        elif is_named:
            query_id = run_id_of(query_id, session_id=session.session_id)
        # Before the first tool runs. The store would refuse the id with the first output.
        session.results.check_query(query_id)
        return RunState(
            self._limits,
            session,
            save,
            self._registry_of(session),
            query_id=query_id,
            reader_name=self._reader_name,
        )

    def _runner(self, run: RunState) -> ToolRunner:
        return ToolRunner(run, offload=self._offload, takes_mapping=self._takes_mapping)

    async def _run_plan(
        self,
        plan: PlanLike,
        query_id: str,
        query: str | None,
        session: SessionLike | None,
        resume: bool,
    ) -> AsyncGenerator[RunEvent | SubTaskResult, None]:
        """Yield the items of `_run_tasks` for a new run."""
        run = await self._begin(session, query_id, resume=resume)
        async with run.open(query):
            async with aclosing(self._run_tasks(plan, query, run, resume=resume)) as items:
                async for item in items:
                    yield item
            # A caller that leaves the stream early never gets here, and the run is "cut short".
            run.status = "ok"

    async def _run_tasks(
        self, plan: PlanLike, query: str | None, run: RunState, *, resume: bool
    ) -> AsyncGenerator[RunEvent | SubTaskResult, None]:
        """Yield the events of the tasks, each task's result after its events, then the sources."""
        if isinstance(plan, Planner):
            try:
                plan = await self._planned(plan, query, run)
            except (LLMError, ToolFailedError) as exc:
                error = f"no plan could be made: {exc}"
                yield ErrorEvent(data={"task": 0, "error": error})
                yield SubTaskResult(task_id=0, sub_task_id=0, success=False, error=error)
                return
            steps = "; ".join(task.description for task in plan.tasks)
            yield ThinkingEvent(data=f"Planned: {steps or 'no tool helps'}")
        tasks = ExecutionPlan.of(plan).tasks
        if resume:
            await run.resume()
        for number, task in enumerate(tasks):
            if limit := run.limit_reached():
                text = f"{limit}; {len(tasks) - number} of {len(tasks)} tasks were not run"
                yield _limit_event(task.id, text)
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
        if sources := run.session.results.sources(run.query_id):
            yield SourcesEvent(data=sources)

    async def _planned(self, planner: Planner, query: str | None, run: RunState) -> ExecutionPlan:
        """Return the plan of a planner, made within the run's trace and limits."""
        if query is None:
            raise ValueError("a Planner needs the question; pass query=...")
        attempts: list[Attempt] = []
        try:
            with run.active():
                async with asyncio.timeout_at(run.deadline.at) as time:
                    # Without the reader: a plan says which data a question needs.
                    return await planner.plan(query, self._tools, attempts=attempts)
        except TimeoutError:
            if not time.expired():
                raise
            raise LLMTimeoutError(run.time_over(), timeout_s=run.limits.timeout_s or 0) from None
        finally:
            run.spend(attempts)

    async def _run_task(
        self, task: PlannedTask, query: str | None, run: RunState
    ) -> AsyncGenerator[RunEvent | SubTaskResult, None]:
        """Yield the events of a task's rounds, and then its result."""
        yield ThinkingEvent(data=f"Processing: {task.description}")
        rounds = _TaskRounds(
            run,
            task,
            query,
            choose=partial(self._choose, run, task, query),
            runner=self._runner(run),
        )
        async with aclosing(model_loop(rounds, max_turns=self._limits.max_rounds)) as events:
            async for event in events:
                yield event
        record = rounds.record
        if not record.results and not record.failed:
            yield TextEvent(data="No tools needed for this step.")
        yield record.result()

    async def _choose(
        self, run: RunState, task: PlannedTask, query: str | None, rounds_left: int
    ) -> ToolSelection:
        """Choose the calls of a round in the run's time, by `_resolve_tools` of any subclass."""
        token = _ROUND.set((run, rounds_left))
        try:
            async with asyncio.timeout_at(run.deadline.at) as time:
                chosen = await self._resolve_tools(task, query=query)
        except TimeoutError:
            if not time.expired():
                raise  # the selector's own, and not the end of the run's time
            return ToolSelection(status="timeout", used="model", problem=run.time_over())
        finally:
            _ROUND.reset(token)
        if not isinstance(chosen, ToolSelection):
            calls = tuple(map(_call_of, chosen))
            chosen = ToolSelection(calls=calls, status="ok" if calls else "empty", used="model")
        run.spend(chosen.attempts)
        return chosen

    async def _resolve_tools(
        self, task: PlannedTask, *, query: str | None = None
    ) -> ToolSelection | Sequence[ToolCall | Mapping[str, Any]]:
        """Choose the calls of a task, with the outputs of the run's session in the prompt."""
        run, rounds_left = _ROUND.get()
        context = await run.context_of(task, query)
        registry = run.registry
        if self._reader_name and "stored_outputs" not in (context or {}):
            # Readers need an id or a table, and without one the model would invent it.
            tools = [tool for tool in registry if tool.name in self._tools.names]
            registry = ToolRegistry(tools)
        return await self._selector.select_detailed(
            task=task,
            tool_registry=registry,
            query=query,
            context=context,
            rounds_left=rounds_left,
        )


_ROUND: ContextVar[tuple[RunState, int]] = ContextVar("round")
"""What `_choose` passes to `_resolve_tools`, whose parameters are those of its overrides."""


class _TaskRounds:
    """A task as a dialogue, which chooses and runs its calls.

    Args:
        run: The run of the task.
        task: The task.
        query: The user's question.
        choose: Chooses the calls of a round. It gets the number of rounds that may follow.
        runner: Runs the calls.

    Attributes:
        goes_on: Whether another round follows.
        record: The calls and failures so far.
    """

    def __init__(
        self,
        run: RunState,
        task: PlannedTask,
        query: str | None,
        *,
        choose: Callable[[int], Awaitable[ToolSelection]],
        runner: ToolRunner,
    ) -> None:
        self.goes_on = False
        self.record = run.begin_task(task.id)
        self._run = run
        self._task = task
        self._query = query
        self._choose = choose
        self._runner = runner
        self._problems: list[ErrorData] = []

    async def ask(self, turns_left: int) -> Sequence[ToolCall]:
        """Choose the calls of a round, within the limits of the run."""
        with self._run.active():
            selection = await self._choose(turns_left)
        self._problems = self._problems_of(selection)
        chosen = [] if selection.failed else self.record.add_calls(selection.calls)
        calls = await self._run.admit(self._task.id, chosen)
        asks_again = bool(calls) and turns_left > 0 and selection.again
        # A limit that cut the calls has to be reported, which `run` does before another round.
        self.goes_on = asks_again or len(calls) < len(chosen)
        return calls

    async def run(self, calls: Sequence[ToolCall]) -> AsyncGenerator[RunEvent, None]:
        """Run the calls of a round. The record gets their results in call order."""
        for problem in self._problems:
            yield ErrorEvent(data=problem)
        task_id = self._task.id
        for call in calls:
            yield ToolCallEvent(data={"tool": call.tool, "args": call.args, "task": task_id})

        results: dict[int, dict[str, Any]] = {}
        words = " ".join(filter(None, (self._query, self._task.description)))
        async with aclosing(self._runner.results(calls, self._task.id, words)) as finished:
            async for index, result in finished:
                results[index] = result
                if "error" in result:
                    yield ErrorEvent(data=cast(ErrorData, result | {"task": task_id}))
                else:
                    yield ToolResultEvent(data=cast(ToolResultData, result | {"task": task_id}))
                if "save_error" in result:
                    save_error = result["save_error"]
                    yield ErrorEvent(
                        data={"tool": result["tool"], "error": save_error, "task": task_id}
                    )
        self.record.add([results[index] for index in sorted(results)])

        if self.goes_on:
            limit = self._run.limit_reached()
            if limit:
                self.goes_on = False
                self.record.errors.append(limit)
                yield _limit_event(self._task.id, limit)
            else:
                yield ThinkingEvent(data=f"Choosing again: {self._task.description}")

    def _problems_of(self, selection: ToolSelection) -> list[ErrorData]:
        """Return the data of a choice's errors, and add them to the record."""
        task_id = self._task.id
        problems: list[ErrorData] = []
        for dropped in selection.dropped:
            # Names arguments, never their values.
            refusal = self._run.session.store.redactor.text(str(dropped))
            reason = one_line(refusal, max_chars=MAX_REASON_CHARS)
            error = f"a proposed call was refused: {reason}"
            problems.append(
                {"task": task_id, "tool": dropped.tool, "reason": dropped.reason, "error": error}
            )
            if dropped.reason in LOSING_REASONS:
                self.record.errors.append(error)
        if problems:
            listed = "; ".join(problem["error"] for problem in problems[:_MAX_LOGGED])
            _log.warning(
                "task %d: %d proposed calls were refused: %s", task_id, len(problems), listed
            )
        if selection.failed:
            status = selection.status
            reason = f"(status {status}): {selection.problem}"
            error = f"no tools could be chosen for task {task_id} {reason}"
            self.record.errors.append(error)
            # A later round that fails does not undo the results of earlier rounds.
            self.record.failed = not self.record.results
            problem: ErrorData = {"task": task_id, "status": status, "error": error}
            # A selector has timeouts too. The text tells the end of the run's time from them.
            if selection.problem == self._run.time_over():
                problem["limit"] = True
            problems.append(problem)
        return problems


def _limit_event(task_id: int, error: str) -> ErrorEvent:
    return ErrorEvent(data={"task": task_id, "limit": True, "error": error})


def _call_of(entry: object) -> ToolCall:
    if isinstance(entry, ToolCall):
        return entry
    try:
        return ToolCall.model_validate(entry)
    except ValidationError as exc:
        raise TypeError(
            f"pass ToolCall(tool=..., args={{...}}) or such a mapping, not {type(entry).__name__}"
        ) from exc


async def _save_in(
    manager: ToolContextManager, result: Any, *, tool: str, args: dict[str, Any], **ids: str
) -> ContextPointer:
    """Save an output by a manager, whose method may be an application's."""
    return await manager.save_context(tool_name=tool, args=args, result=result, **ids)
