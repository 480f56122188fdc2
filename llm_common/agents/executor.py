"""`AgenticExecutor`: runs a plan, keeps every output behind a pointer, and says what happens while it happens."""

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
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
from llm_common.selection.results import SelectsTools, ToolSelection
from llm_common.selection.tools import ToolSelector
from llm_common.tools.pointer_arguments import PointerArgumentsTool
from llm_common.tools.read_back import LoadsPayload, ReadBackTool
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import ToolResult, third_party_code

__all__ = ["AgenticExecutor", "StreamEvent", "cancelled_within", "events_of", "session_registry", "task_result"]


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


def cancelled_within(call: ToolCall) -> dict[str, Any]:
    """The result of a call whose tool ended itself by a cancellation that nobody asked for."""
    return {"tool": call.tool, "args": call.args, "error": f"tool {call.tool!r} cancelled itself (CancelledError)"}


def events_of(result: dict[str, Any], task_id: int) -> Iterator[StreamEvent]:
    """What is told of a finished call."""
    yield StreamEvent(type="error" if "error" in result else "tool_result", data=result | {"task": task_id})
    if "save_error" in result:
        facts = {"tool": result["tool"], "task": task_id, "error": result["save_error"]}
        yield StreamEvent(type="error", data=facts)


def task_result(task_id: int, results: list[dict[str, Any]]) -> SubTaskResult:
    """What a task came to; it failed when all of its calls did."""
    errors = [result[key] for result in results for key in ("error", "save_error") if key in result]
    return SubTaskResult(
        task_id=task_id,
        sub_task_id=0,
        success=not all("error" in result for result in results),
        result=results,
        error="; ".join(errors) or None,
    )


def session_registry(
    registry: Any,
    load: LoadsPayload,
    *,
    read_back: bool = False,
    pointer_arguments: Mapping[str, Collection[str]] | None = None,
) -> Any:
    """The registry itself when nothing is asked for, else a copy of it with what is; the original stays as it is.

    Args:
        registry: The application's tools; tools that are registered there later do not reach the copy.
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


_log = logging.getLogger(__name__)

_NO_TOOLS_CALLED = "No tools called"


class AgenticExecutor:
    """Runs the tasks of a plan one after the other, and the tool calls of a task side by side.

    Every output is saved through the context manager. A task that failed ends the run: its tools could not be chosen,
    or all of them failed. Where some failed, the task is a success and its `error` lists them. Errors name tools and
    error classes, never arguments or outputs. Cancelling a run, or closing its stream, cancels the running tools and
    waits for them. One executor may serve several runs at once.

    Args:
        client: Asked by the default selector; may be None when `selector` is given.
        tool_registry: Has `get_tools_schema()` and an async `execute`, called as `execute(name, args)` when it takes
            two positionals, else as `execute(name, **args)`. Its signature is looked at once, here.
        context_manager: Keeps the outputs.
        selector: Chooses the calls of a task; None takes `ToolSelector(client)`.
        max_parallel: Calls of one task that may run at the same time.
        offload: Which outputs become an `Offloaded` with a preview once they are saved; one task is one turn. None
            leaves every output whole.
        read_back: Offers `read_context` beside the tools, for this session's outputs. What it returns is not saved.
        pointer_arguments: Parameters that may be given as `{"$pointer": id}`, by tool.

    Raises:
        ValueError: Neither a client nor a selector, or `max_parallel` under 1.
        ConfigError: `read_back` or `pointer_arguments` do not go with the registry; see `session_registry`.
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
        self.client = client
        self.registry = session_registry(
            tool_registry,
            lambda pointer_id: context_manager.load_payload(pointer_id),  # noqa: PLW0108 - other managers have none
            read_back=read_back,
            pointer_arguments=pointer_arguments,
        )
        self.context_manager = context_manager
        self._offload = offload
        self._selector = selector or _default_selector(client)
        self._max_parallel = max_parallel
        self._takes_args_whole = _takes_two_positionals(self.registry.execute)

    async def run_stream(
        self, plan: ExecutionPlan, query_id: str, *, query: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """What happens during the run, as it happens; results of parallel calls come in the order they finish.

        Close the stream (`contextlib.aclosing`) when you leave it early, so that running tools end at once.

        Args:
            plan: Tasks in the order in which they run.
            query_id: Files the outputs; an id that the store allows.
            query: The user's question, for the selector.

        Yields:
            Events; failures of tools, of choosing and of saving are `error` events and are not raised.
        """
        async with aclosing(self._run_plan(plan, query_id, query)) as items:
            async for item in items:
                if isinstance(item, StreamEvent):
                    yield item
        sources = self.context_manager.get_all_sources(query_id)
        if sources:
            yield StreamEvent(type="sources", data=sources)

    async def answer_stream(
        self, query: str, *, plan: ExecutionPlan | None = None, answering: Answering | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """The events of a run for the query, then one `answer` event with the `Answer`.

        Args:
            query: The user's question.
            plan: How to get the data; None makes the query itself the only task.
            answering: How the answer is made; None takes `Answering()`.

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
        if sources := self.context_manager.get_all_sources(query_id):
            yield StreamEvent(type="sources", data=sources)
        answering = answering or Answering()
        answer = await answering.answer(self.client, self.context_manager, query=query, results=results)
        yield StreamEvent(type="answer", data=answer)

    async def run(self, query: str, *, plan: ExecutionPlan | None = None, answering: Answering | None = None) -> Answer:
        """The answer to the query, made of what the plan's tools returned; arguments as for `answer_stream`.

        Returns:
            The answer; what went wrong is its `status`. A run whose tasks failed is not answered.

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
        """The results of the tasks that ran, in order; a failed task is the last one.

        Args:
            plan: Tasks in the order in which they run.
            query_id: Files the outputs.
            query: The user's question, for the selector.
        """
        async with aclosing(self._run_plan(plan, query_id, query)) as items:
            return [item async for item in items if isinstance(item, SubTaskResult)]

    async def execute_task(self, task: PlannedTask, query_id: str, *, query: str | None = None) -> SubTaskResult:
        """The result of one task: `result` is a list as `execute_tool_calls` returns it, or "No tools called".

        Args:
            task: What to do.
            query_id: Files the outputs.
            query: The user's question, for the selector.
        """
        [result] = await self.execute_plan(ExecutionPlan(tasks=[task]), query_id, query=query)
        return result

    async def execute_tool_calls(
        self, tool_calls: Sequence[ToolCall], task_id: int, query_id: str, *, query: str | None = None
    ) -> list[dict[str, Any]]:
        """The results of the calls, in call order; nothing a tool raises is raised.

        Args:
            tool_calls: Calls to make, at most `max_parallel` at the same time.
            task_id: Task they belong to.
            query_id: Files the outputs.
            query: What previews of offloaded outputs are made for.

        Returns:
            Per call a dict with `tool` and `args`; `output` when the tool returned; `error` when it failed;
            `saved`, and `pointer_id` or `save_error`, when there was an output to save.
        """
        async with aclosing(self._finished_calls(tool_calls, task_id, query_id, query)) as finished:
            by_index = {index: result async for index, result in finished}
        return [by_index[index] for index in sorted(by_index)]

    async def _run_plan(
        self, plan: ExecutionPlan, query_id: str, query: str | None
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        """The one event loop: events, and after those of a task its result."""
        for task in plan.tasks:
            failed = False
            async with aclosing(self._run_task(task, query_id, query)) as items:
                async for item in items:
                    yield item
                    failed = isinstance(item, SubTaskResult) and not item.success
            if failed:
                _log.warning("plan halted: task %d failed", task.id)
                return

    async def _run_task(
        self, task: PlannedTask, query_id: str, query: str | None
    ) -> AsyncGenerator[StreamEvent | SubTaskResult, None]:
        yield StreamEvent(type="thinking", data=f"Processing: {task.description}")
        selection = await self._resolve_tools(task, query=query)
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
                for event in events_of(result, task.id):
                    yield event
        yield task_result(task.id, [by_index[index] for index in sorted(by_index)])

    async def _resolve_tools(self, task: PlannedTask, *, query: str | None = None) -> ToolSelection:
        return await self._selector.select_detailed(task=task, tool_registry=self.registry, query=query)

    async def _finished_calls(
        self, calls: Sequence[ToolCall], task_id: int, query_id: str, query: str | None
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Each call's place and result as it finishes; whatever ends this early ends the running calls too."""
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
                    yield index, cancelled_within(calls[index]) if task.cancelled() else task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _execute_tool(
        self, call: ToolCall, task_id: int, query_id: str, turn: OffloadTurn | None
    ) -> dict[str, Any]:
        record: dict[str, Any] = {"tool": call.tool, "args": call.args}
        with span("llm_common.tool", tool=call.tool):
            try:
                with third_party_code(call.tool):
                    output = await self._execution(call)
            except ToolFailedError as exc:
                told = exc.__cause__ if isinstance(exc.__cause__, ToolError) else exc  # our own registry says more
                return record | {"error": str(told)}
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

    def _execution(self, call: ToolCall) -> Awaitable[Any]:
        """The running call; its arguments are a copy, so that what is saved is what was asked for."""
        args = copy.deepcopy(call.args)
        execute: Callable[..., Awaitable[Any]] = self.registry.execute
        return execute(call.tool, args) if self._takes_args_whole else execute(call.tool, **args)

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
        if not isinstance(pointer, ContextPointer):  # of a context manager that is not ours
            return {"saved": True}, None
        return {"saved": True, "pointer_id": pointer.pointer_id}, pointer


def _default_selector(client: SupportsChat | None) -> SelectsTools:
    if client is None:
        raise ValueError("give a client or a selector")
    return ToolSelector(client)


def _takes_two_positionals(execute: Callable[..., object]) -> bool:
    """Whether arguments go to a registry as one dict; so they do where its signature cannot be told."""
    try:
        parameters = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = [parameter.kind for parameter in parameters]
    positional = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
