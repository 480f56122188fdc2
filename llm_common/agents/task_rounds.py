"""`TaskRounds`: a task of a plan, whose calls are chosen and run in rounds."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from llm_common.agents.events import (
    ErrorData,
    ErrorEvent,
    RunEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultData,
    ToolResultEvent,
)
from llm_common.agents.runs import LOSING_REASONS, RunState, ToolRunner, describe_refusal
from llm_common.plans import PlannedTask, ToolCall
from llm_common.selection.results import ToolSelection

_MAX_LOGGED: Final = 5

_log = logging.getLogger(__name__)


class TaskRounds:
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
        self._resolve = choose
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
                yield limit_event(self._task.id, limit)
            else:
                yield ThinkingEvent(data=f"Choosing again: {self._task.description}")

    async def _choose(self, turns_left: int) -> ToolSelection:
        run = self._run
        try:
            async with asyncio.timeout_at(run.deadline.at) as time:
                selection = await self._resolve(turns_left)
        except TimeoutError:
            if not time.expired():
                raise  # the selector's own, and not the end of the run's time
            return ToolSelection(status="timeout", used="model", problem=run.time_over())
        run.spend(selection.attempts)
        return selection

    def _problems_of(self, selection: ToolSelection) -> list[ErrorData]:
        """Return the data of a choice's errors, and add them to the record."""
        task_id = self._task.id
        problems: list[ErrorData] = []
        for dropped in selection.dropped:
            error = describe_refusal(dropped, self._run.session.store.redactor)
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


def limit_event(task_id: int, error: str) -> ErrorEvent:
    """Return the event of a limit that ends a run."""
    return ErrorEvent(data={"task": task_id, "limit": True, "error": error})
