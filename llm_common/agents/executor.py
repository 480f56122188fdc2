"""`AgenticExecutor`: runs a plan, stores every output, and streams events."""

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import span
from llm_common.agents.answering import Answer, Answering
from llm_common.agents.context_pointers import ContextPointer
from llm_common.agents.offloading import OffloadPolicy, OffloadTurn
from llm_common.agents.session import ToolContextManager
from llm_common.core.structured import SupportsChat
from llm_common.errors import ConfigError, LLMCommonError, ToolError, ToolFailedError
from llm_common.plans import ExecutionPlan, PlannedTask, SubTaskResult, ToolCall
from llm_common.pointers.reading import ContextReading
from llm_common.selection.results import SelectsTools
from llm_common.selection.tools import ToolSelector
from llm_common.tools.pointer_arguments import PointerArgumentsTool
from llm_common.tools.read_back import LoadsPayload, ReadBackTool
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import ToolResult, third_party_code

_log = logging.getLogger(__name__)

_NO_TOOLS_CALLED = "No tools called"


class StreamEvent(BaseModel):
    """One thing that happened during a run.

    | type | data |
    |---|---|
    | `thinking` | text: the task that begins |
    | `tool_call` | `tool`, `args`, `task`: a call that was chosen; a task's calls come before its first result |
    | `tool_result` | `tool`, `args`, `task`, `output`, `saved`, `pointer_id`: a call that succeeded |
    | `text` | text: a task that needs no tools |
    | `error` | `error` (a text) and `task`; `tool` and `args` for a call that failed, `tool` for a failed save |
    | `sources` | list of sources, when there are any, after the last task |
    | `answer` | the `Answer`, at the end of `answer_stream` |
    """

    model_config = ConfigDict(frozen=True)

    type: Literal["thinking", "tool_call", "tool_result", "text", "sources", "error", "answer"]
    data: Any


class AgenticExecutor:
    """Runs the tasks of a plan in order, and the tool calls of a task concurrently.

    Every output is saved through the context manager. A task fails, and ends the run, if its tools could not be chosen
    or all of them failed. If only some failed, the task succeeds and its `error` lists them. Errors name tools and
    error classes, never arguments or outputs. Cancelling a run, or closing its stream, cancels the running tools and
    waits for them. One executor may serve several runs at once.

    Args:
        client: Asked by the default selector; may be None when `selector` is given.
        tool_registry: Has `get_tools_schema()` and an async `execute`, called as `execute(name, args)` when it takes
            two positionals, else as `execute(name, **args)`. The signature is inspected once, here.
        context_manager: Keeps the outputs.
        selector: Chooses the calls of a task; None takes `ToolSelector(client)`.
        max_parallel: Most calls of one task that run at the same time.
        offload: Which saved outputs are replaced by an `Offloaded` with a preview; one task is one turn. None leaves
            every output whole.
        read_back: Adds the tool `read_context` for this session's outputs. What it returns is not saved.
        pointer_arguments: Parameters that may be given as `{"$pointer": id}`, by tool.

    Raises:
        ValueError: Neither a client nor a selector, or `max_parallel` under 1.
        ConfigError: `read_back` or `pointer_arguments` do not fit the registry; see `session_registry`.
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
        read_back: bool = False,
        pointer_arguments: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        if max_parallel < 1:
            raise ValueError("max_parallel must be at least 1")
        if selector is None:
            if client is None:
                raise ValueError("give a client or a selector")
            selector = ToolSelector(client)
        self.client = client
        self.registry = session_registry(
            tool_registry,
            lambda pointer_id: context_manager.load_payload(pointer_id),  # noqa: PLW0108 - other managers have none
            read_back=read_back,
            pointer_arguments=pointer_arguments,
        )
        self.context_manager = context_manager
        self._offload = offload
        self._selector = selector
        self._max_parallel = max_parallel
        self._takes_args_whole = _takes_two_positionals(self.registry.execute)

    async def run_stream(
        self, plan: ExecutionPlan, query_id: str, *, query: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a run; results of parallel calls come in the order they finish.

        Close the stream (`contextlib.aclosing`) if you leave it early: this ends the running tools at once.

        Args:
            plan: Tasks in the order in which they run.
            query_id: The query that the outputs are stored under; an id that the store allows.
            query: The user's question, for the selector.

        Yields:
            Events. Failures of tools, of choosing and of saving are `error` events, never raised.
        """
        async with aclosing(self._run_plan(plan, query_id, query)) as items:
            async for item in items:
                if isinstance(item, StreamEvent):
                    yield item

    async def answer_stream(
        self, query: str, *, plan: ExecutionPlan | None = None, answering: Answering | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a run for the query, then one `answer` event with the `Answer`.

        Args:
            query: The user's question.
            plan: How to get the data; None makes the query the only task.
            answering: Settings of the answer; None takes `Answering()`.

        Raises:
            ValueError: The executor has no client.
        """
        if self.client is None:
            raise ValueError("an answer needs a client; give the executor one")
        plan = plan or ExecutionPlan(tasks=[PlannedTask(id=1, description=query)])
        query_id = self.context_manager.hash_query(query)
        results: list[SubTaskResult] = []
        async with aclosing(self._run_plan(plan, query_id, query)) as items:
            async for item in items:
                if isinstance(item, StreamEvent):
                    yield item
                else:
                    results.append(item)
        answer = await (answering or Answering()).answer(
            self.client, self.context_manager, query=query, results=results
        )
        yield StreamEvent(type="answer", data=answer)

    async def run(self, query: str, *, plan: ExecutionPlan | None = None, answering: Answering | None = None) -> Answer:
        """The answer from the plan's tool outputs; arguments as for `answer_stream`.

        Returns:
            The answer; a failure is its `status`. A run with a failed task is not answered.

        Raises:
            ValueError: The executor has no client.
        """
        async with aclosing(self.answer_stream(query, plan=plan, answering=answering)) as events:
            [answer] = [event.data async for event in events if event.type == "answer"]
        assert isinstance(answer, Answer)
        return answer

    async def execute_plan(
        self, plan: ExecutionPlan, query_id: str, *, query: str | None = None
    ) -> list[SubTaskResult]:
        """The results of the tasks that ran, in order; arguments as for `run_stream`."""
        async with aclosing(self._run_plan(plan, query_id, query)) as items:
            return [item async for item in items if isinstance(item, SubTaskResult)]

    async def execute_task(self, task: PlannedTask, query_id: str, *, query: str | None = None) -> SubTaskResult:
        """The result of one task: those of its calls, or "No tools called"."""
        [result] = await self.execute_plan(ExecutionPlan(tasks=[task]), query_id, query=query)
        return result

    async def execute_tool_calls(
        self, tool_calls: Sequence[ToolCall], task_id: int, query_id: str, *, query: str | None = None
    ) -> list[dict[str, Any]]:
        """The results of the calls, in call order; never raises what a tool raises.

        Args:
            tool_calls: The calls; at most `max_parallel` run at the same time.
            task_id: The task of the calls.
            query_id: The query that the outputs are stored under.
            query: Decides what the previews of offloaded outputs show.

        Returns:
            Per call a dict with `tool` and `args`; `output` if the tool returned; `error` if it failed; `saved`, and
            `pointer_id` or `save_error`, if there was an output to save.
        """
        async with aclosing(self._finished_calls(tool_calls, task_id, query_id, query)) as finished:
            by_index = {index: result async for index, result in finished}
        return [by_index[index] for index in sorted(by_index)]

    async def _run_plan(
        self, plan: ExecutionPlan, query_id: str, query: str | None
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        """The events of the tasks, each task's result after its events, and then the sources."""
        for task in plan.tasks:
            failed = False
            async with aclosing(self._run_task(task, query_id, query)) as items:
                async for item in items:
                    yield item
                    failed = isinstance(item, SubTaskResult) and not item.success
            if failed:
                _log.warning("plan halted: task %d failed", task.id)
                break
        if sources := self.context_manager.get_all_sources(query_id):
            yield StreamEvent(type="sources", data=sources)

    async def _run_task(
        self, task: PlannedTask, query_id: str, query: str | None
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        yield StreamEvent(type="thinking", data=f"Processing: {task.description}")
        selection = await self._selector.select_detailed(task=task, tool_registry=self.registry, query=query)
        if selection.failed:
            text = f"no tools could be chosen for task {task.id} (status {selection.status}): {selection.problem}"
            yield StreamEvent(type="error", data={"task": task.id, "status": selection.status, "error": text})
            yield SubTaskResult(task_id=task.id, sub_task_id=0, success=False, error=text)
            return
        if not selection.calls:
            yield StreamEvent(type="text", data="No tools needed for this step.")
            yield SubTaskResult(task_id=task.id, sub_task_id=0, success=True, result=_NO_TOOLS_CALLED)
            return
        for call in selection.calls:
            yield StreamEvent(type="tool_call", data=call.model_dump(include={"tool", "args"}) | {"task": task.id})
        by_index: dict[int, dict[str, Any]] = {}
        asked = " ".join(filter(None, (query, task.description)))
        async with aclosing(self._finished_calls(selection.calls, task.id, query_id, asked)) as finished:
            async for index, result in finished:
                by_index[index] = result
                yield StreamEvent(type="error" if "error" in result else "tool_result", data=result | {"task": task.id})
                if "save_error" in result:
                    facts = {"tool": result["tool"], "task": task.id, "error": result["save_error"]}
                    yield StreamEvent(type="error", data=facts)
        results = [by_index[index] for index in sorted(by_index)]
        errors = [result[key] for result in results for key in ("error", "save_error") if key in result]
        yield SubTaskResult(
            task_id=task.id,
            sub_task_id=0,
            success=not all("error" in result for result in results),
            result=results,
            error="; ".join(errors) or None,
        )

    async def _finished_calls(
        self, calls: Sequence[ToolCall], task_id: int, query_id: str, query: str | None
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """The index and result of each call as it finishes; closing the generator cancels the running calls."""
        turn = OffloadTurn(self._offload, query=query or "", calls=len(calls)) if self._offload else None
        waiting = deque(enumerate(calls))
        running: dict[asyncio.Task[dict[str, Any]], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._max_parallel:
                    index, call = waiting.popleft()
                    running[asyncio.create_task(self._execute_tool(call, task_id, query_id, turn))] = index
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=running.__getitem__):
                    index = running.pop(task)
                    if task.cancelled():  # the tool itself raised CancelledError
                        call = calls[index]
                        error = f"tool {call.tool!r} cancelled itself (CancelledError)"
                        yield index, {"tool": call.tool, "args": call.args, "error": error}
                    else:
                        yield index, task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _execute_tool(
        self, call: ToolCall, task_id: int, query_id: str, turn: OffloadTurn | None
    ) -> dict[str, Any]:
        record: dict[str, Any] = {"tool": call.tool, "args": call.args}
        execute: Callable[..., Awaitable[Any]] = self.registry.execute
        with span("llm_common.tool", tool=call.tool):
            try:
                with third_party_code(call.tool):
                    args = copy.deepcopy(call.args)  # the tool may change them; the call is saved with its own
                    output = await (execute(call.tool, args) if self._takes_args_whole else execute(call.tool, **args))
            except ToolFailedError as exc:
                return record | {"error": str(exc.__cause__ if isinstance(exc.__cause__, ToolError) else exc)}
        record["output"] = output
        if isinstance(output, ToolResult) and not output.success:
            record["error"] = f"tool {call.tool!r} returned a failure (ToolResult)"
        if isinstance(output, ContextReading):  # stored already
            if turn is not None:
                await turn.keeps(call.tool, output)
            return record
        saved, pointer = await self._save(call, output, task_id, query_id)
        if turn is not None and pointer is not None and not await turn.keeps(call.tool, output):
            shown = await self.context_manager.as_stored(output)
            record["output"] = await turn.preview(pointer, shown)
        return record | saved

    async def _save(
        self, call: ToolCall, output: Any, task_id: int, query_id: str
    ) -> tuple[dict[str, Any], ContextPointer | None]:
        try:
            pointer = await self.context_manager.save_context(
                tool_name=call.tool, args=call.args, result=output, task_id=str(task_id), query_id=query_id
            )
        except (LLMCommonError, OSError) as exc:
            _log.warning("an output was not saved: %s", type(exc).__name__)
            text = f"the output of tool {call.tool!r} was not saved ({type(exc).__name__})"
            return {"saved": False, "save_error": text}, None
        if not isinstance(pointer, ContextPointer):  # a third-party context manager
            return {"saved": True}, None
        return {"saved": True, "pointer_id": pointer.pointer_id}, pointer


def session_registry(
    registry: Any,
    load: LoadsPayload,
    *,
    read_back: bool = False,
    pointer_arguments: Mapping[str, Collection[str]] | None = None,
) -> Any:
    """The registry, or a copy of it with the session's own tools.

    A copy only if `read_back` or `pointer_arguments` are given.

    Args:
        registry: The application's tools, never modified; a copy does not get tools that are registered later.
        load: Loads the session's results and nothing else: `ToolContextManager.load_payload`.
        read_back: Adds a `ReadBackTool`.
        pointer_arguments: Parameters that may be given as `{"$pointer": id}`, by tool; see `PointerArgumentsTool`.

    Raises:
        ConfigError: The registry is no `ToolRegistry`, has no such tool or parameter, or has a tool of the reader's
            name already.
    """
    named = pointer_arguments or {}
    if not read_back and not named:
        return registry
    if not isinstance(registry, ToolRegistry):
        raise ConfigError("read_back and pointer_arguments need a ToolRegistry; pass one", variable="tool_registry")
    if unknown := sorted(set(named) - set(registry.names)):
        raise ConfigError(
            f"there is no tool {unknown[0]}; name registered tools in pointer_arguments",
            variable="pointer_arguments",
            value=unknown[0],
        )
    tools = [
        PointerArgumentsTool(tool, load, parameters=named[tool.name]) if tool.name in named else tool
        for tool in registry
    ]
    return ToolRegistry([*tools, ReadBackTool(load)] if read_back else tools)


def _takes_two_positionals(execute: Callable[..., object]) -> bool:
    """Whether a registry takes arguments as one dict; assumed if its signature cannot be read."""
    try:
        parameters = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = [parameter.kind for parameter in parameters]
    positional = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
