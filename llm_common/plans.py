"""Plans, tool calls and their results, as planners and applications exchange them."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError


class SubTask(BaseModel):
    """One piece of data to gather within a task."""

    id: int
    description: str = Field(..., description="Specific description of data to gather")


class PlannedTask(BaseModel):
    """A task of the plan, with the pieces of data it needs."""

    id: int
    description: str = Field(..., description="High level description of the task")
    sub_tasks: list[SubTask] = Field(
        default_factory=list, description="Specific data gathering steps"
    )


class ExecutionPlan(BaseModel):
    """A planner's tasks for the executor, in the order in which they run."""

    tasks: list[PlannedTask]

    @classmethod
    def of(cls, plan: object) -> Self:
        """Return the plan that a caller means by a plan, a task, a text, or a list of them.

        Mappings count as what they validate to. A task without an id gets its place in the list,
        from 1.

        Raises:
            TypeError: It is something else; the text says what to pass.
        """
        if isinstance(plan, cls):
            return plan
        if isinstance(plan, Mapping) and "tasks" in plan:
            plan = plan["tasks"]
        elif isinstance(plan, PlannedTask | str | Mapping):
            plan = [plan]
        if not isinstance(plan, Sequence) or isinstance(plan, str | bytes):
            raise TypeError(f"{_WHAT_A_PLAN_IS}, not {type(plan).__name__}")
        try:
            return cls(tasks=[_task(entry, place) for place, entry in enumerate(plan, start=1)])
        except ValidationError as exc:
            raise TypeError(f"{_WHAT_A_PLAN_IS}; a task has an int id and a description") from exc


_WHAT_A_PLAN_IS = (
    "pass an ExecutionPlan, or a list of PlannedTask(id=..., description=...) or of descriptions"
)


def _task(entry: object, place: int) -> PlannedTask:
    if isinstance(entry, PlannedTask):
        return entry
    if isinstance(entry, str):
        return PlannedTask(id=place, description=entry)
    if not isinstance(entry, Mapping):
        raise TypeError(f"{_WHAT_A_PLAN_IS}; task {place} is of type {type(entry).__name__}")
    return PlannedTask.model_validate({"id": place} | dict(entry))


class ToolCall(BaseModel):
    """A request to run one tool."""

    tool: str = Field(..., description="Name of the tool to call")
    args: dict[str, Any] = Field(..., description="Arguments for the tool")
    reasoning: str = Field(default="", description="Why this tool is being called")
    id: str = Field(
        default="",
        description="What the model's API calls this call; it is not stored",
        exclude=True,
    )


class SubTaskResult(BaseModel):
    """The outcome of a task; `sub_task_id` is 0 for the whole task."""

    task_id: int
    sub_task_id: int
    success: bool
    result: Any = None
    error: str | None = None
