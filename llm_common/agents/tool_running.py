"""Run the tool calls of a run side by side, save their outputs, and offload the long ones."""

import asyncio
import copy
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from traceback import format_exception_only
from typing import Any

from llm_common._telemetry import operation, record as record_line
from llm_common._threads import in_thread
from llm_common.agents.context_pointers import ContextPointer
from llm_common.agents.offloading import OffloadPolicy, OffloadTurn
from llm_common.agents.run_state import RunState
from llm_common.agents.tool_context import ToolContextManager
from llm_common.errors import (
    LLMCommonError,
    StoreError,
    ToolError,
    ToolFailedError,
    UnserialisableError,
)
from llm_common.plans import ToolCall
from llm_common.pointers.reading import ContextReading
from llm_common.redaction.redactor import Redactor
from llm_common.selection.results import DroppedCall
from llm_common.text.display import one_line
from llm_common.tools.tool import ToolResult, third_party_code

_log = logging.getLogger(__name__)

MAX_REASON_CHARS = 400
_MAX_NAME_CHARS = 64
_MIN_ARGUMENT_CHARS = 8  # shorter ones are words such as `read`, which a message needs
_MAX_ARGUMENT_DEPTH = 8

# Refused for these reasons, a call leaves data missing; else it is a repeat, one too many, or a
# guess of the library.
LOSING_REASONS = frozenset({"malformed", "unknown_tool", "invalid_args"})


class ToolRunner:
    """Executes the tool calls of one run.

    Args:
        run: The run, with its session, tools and limits.
        offload: Which outputs become previews. None keeps every output whole.
        takes_mapping: Whether the registry takes the arguments of a call as one mapping.
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

        Calls that the run's time does not reach fail. Closing the generator cancels the running
        calls and waits for them.
        """
        turn = None
        if self._offload is not None:
            turn = OffloadTurn(self._offload, query=query or "", calls=len(calls))
        deadline = self._run.deadline
        waiting = deque(enumerate(calls))
        running: dict[asyncio.Task[dict[str, Any]], int] = {}
        try:
            while waiting or running:
                room = 0 if deadline.is_over else self._run.limits.max_parallel - len(running)
                while waiting and room > 0:
                    room -= 1
                    index, call = waiting.popleft()
                    with self._run.active():
                        task = asyncio.create_task(self._execute(call, task_id, turn))
                    running[task] = index
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running, timeout=deadline.left_s(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in sorted(done, key=running.__getitem__):
                    index = running.pop(task)
                    yield index, self.outcome(calls[index], task)
                if not done:
                    break
            late = dict.fromkeys(running.values(), "was ended")
            late |= {index: "was not called" for index, _ in waiting}
            for task in running:  # before the reader of the events is told that they ended
                task.cancel()
            for index in sorted(late):
                call = calls[index]
                text = f"tool {call.tool!r} {late[index]}: {self._run.time_over()}"
                yield index, {"tool": call.tool, "args": call.args, "error": text, "limit": True}
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def outcome(self, call: ToolCall, task: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a finished call, also of one that raised a `BaseException`."""
        result: dict[str, Any] = {"tool": call.tool, "args": call.args}
        if task.cancelled():  # the tool itself raised CancelledError
            result["error"] = f"tool {call.tool!r} cancelled itself (CancelledError)"
        else:
            raised = task.exception()
            if raised is None or isinstance(raised, KeyboardInterrupt | SystemExit):
                result = task.result()
            else:
                result["error"] = describe_failure(call, raised, self._session.redactor)
        if "error" in result:
            _log.warning("a tool call failed: %s", result["error"])
        return result

    async def _execute(
        self, call: ToolCall, task_id: int, turn: OffloadTurn | None
    ) -> dict[str, Any]:
        stored = self._run.stored(task_id, call)
        if stored is not None:
            result = await self._resumed(call, stored, turn)
            if result is not None:
                return {"tool": call.tool, "args": call.args} | result

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
                result["error"] = describe_failure(call, exc, self._session.redactor)
                return result
            result["output"] = output
            failure = None
            if isinstance(output, ToolResult) and not output.success:
                failure = "ToolResult"
                span.fail(failure)
                result["error"] = describe_returned_failure(call, output, self._session.redactor)
                result["output"] = await _without_secrets(output, self._session)

        if isinstance(output, ContextReading):  # stored already
            if turn is not None:
                await turn.keeps(call.tool, output)
            return result
        pointer = await self._save(call, output, task_id, result)
        record_line("tool_call", **line, pointer=pointer, failure=failure)
        if turn is not None and pointer is not None and not await turn.keeps(call.tool, output):
            redacted = await self._session.as_stored(output)
            result["output"] = await turn.preview(pointer, redacted)
        return result

    async def _called(self, call: ToolCall) -> Any:
        """Return what the tool returns, or raise `ToolFailedError`."""
        execute: Callable[..., Awaitable[Any]] = self._run.registry.execute
        with third_party_code(call.tool):
            # the tool may change its arguments, and the call is saved with its own
            args = copy.deepcopy(call.args)
            if self._takes_mapping:
                return await execute(call.tool, args)
            return await execute(call.tool, **args)

    async def _resumed(
        self, call: ToolCall, pointer: ContextPointer, turn: OffloadTurn | None
    ) -> dict[str, Any] | None:
        """Return the stored output of a call as its result, or None if the call has to be made."""
        try:
            output = await in_thread(self._session.load_result, pointer=pointer)
            is_failure = isinstance(output, dict) and output.get("success") is False
        except StoreError:
            is_failure = True
        if is_failure:  # worth another try
            return self._run.make_again(call)
        if turn is not None and not await turn.keeps(call.tool, output):
            output = await turn.preview(pointer, output)
        return {"saved": True, "pointer_id": pointer.pointer_id, "resumed": True, "output": output}

    async def _save(
        self, call: ToolCall, output: Any, task_id: int, result: dict[str, Any]
    ) -> ContextPointer | None:
        """Save an output, and add to its call's result where it is, or why it is nowhere."""
        try:
            pointer = await self._session.save_context(
                tool_name=call.tool,
                args=call.args,
                result=output,
                task_id=str(task_id),
                query_id=self._run.query_id,
            )
        except (LLMCommonError, OSError) as exc:
            # only the library's own text has no text of others in it
            reason = f": {exc.message}" if isinstance(exc, LLMCommonError) else ""
            problem = f"was not saved ({type(exc).__name__}){reason}"
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
    """Return whether a registry takes the arguments of a call as one mapping.

    An `execute` whose signature cannot be read does.
    """
    try:
        parameters = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return True
        positional += parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    return positional > 1


async def _without_secrets(failed: ToolResult, session: ToolContextManager) -> ToolResult:
    """Return a returned failure without the secrets that its stored copy lacks."""
    error = session.redactor.text(failed.error or "") or None
    redacted = failed.model_copy(update={"error": error})
    try:
        stored = await session.as_stored(failed)
    except UnserialisableError:  # it will not be stored either
        return redacted
    return redacted.model_copy(update=stored) if isinstance(stored, dict) else redacted


# A line about a failed call holds the class and the text of what the tool raised, after two
# replacements: the redactor takes the secrets out, and a text that was an argument of the call,
# and so may be the user's, becomes the argument's name in brackets.


def describe_failure(call: ToolCall, error: BaseException, redactor: Redactor) -> str:
    """Return why a call raised: the tool, the class of the error and its text.

    Args:
        call: The call.
        error: Raised by the call, also within the `ToolFailedError` of a registry, of
            `third_party_code`, or of both.
        redactor: The store's.
    """
    name = _name(call.tool, redactor)
    if isinstance(error, ToolFailedError) and isinstance(error.__cause__, ToolError):
        error = error.__cause__  # the registry's own error says more
    if isinstance(error, ToolFailedError) and error.reason:
        return f"{name} raised {_line(error.reason, call, redactor)}"
    if isinstance(error, ToolError):
        text = _line(error.message, call, redactor)
        return text if name in text else f"{name}: {text}"
    return f"{name} raised {_line(''.join(format_exception_only(error)), call, redactor)}"


def describe_returned_failure(call: ToolCall, result: ToolResult, redactor: Redactor) -> str:
    """Return why a call returned a `ToolResult` without success: the result's `error`."""
    reason = _line(result.error or "", call, redactor) or "it gave no reason"
    return f"tool {_name(call.tool, redactor)!r} returned a failure: {reason}"


def describe_refusal(refused: DroppedCall, redactor: Redactor) -> str:
    """Return why a proposed call will not run. Names arguments, never their values."""
    reason = one_line(redactor.text(str(refused)), max_chars=MAX_REASON_CHARS)
    return f"a proposed call was refused: {reason}"


def error_type(error: BaseException) -> str:
    """Return the class of what a tool raised, within the `ToolFailedError`s around it."""
    while isinstance(error, ToolFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__


def _name(tool: str, redactor: Redactor) -> str:
    return one_line(redactor.text(tool), max_chars=_MAX_NAME_CHARS)


def _line(text: str, call: ToolCall, redactor: Redactor) -> str:
    for name, value in call.args.items():
        # a longer one may hold a shorter one
        for part in sorted(_texts(value), key=len, reverse=True):
            text = text.replace(part, f"[{name[:_MAX_NAME_CHARS]}]")
    return one_line(
        redactor.beginning(text, max_chars=MAX_REASON_CHARS), max_chars=MAX_REASON_CHARS
    )


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the texts of an argument that are long enough to be a user's."""
    if isinstance(value, str):
        if len(value) >= _MIN_ARGUMENT_CHARS:
            yield value
    elif isinstance(value, Mapping | list) and depth < _MAX_ARGUMENT_DEPTH:
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part, depth + 1)
