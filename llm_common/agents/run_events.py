"""`StreamEvent`, what is told of a run while it happens, and how results become events."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from llm_common.plans import SubTaskResult, ToolCall

__all__ = ["StreamEvent", "cancelled_within", "events_of", "task_result"]


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
