"""Plans, tool calls and their results, which planners and applications exchange."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError


class SubTask(BaseModel):
    """A part of a task that gathers one piece of data.

    Attributes:
        id: Unique within its task.
        description: What to gather.
    """

    id: int
    description: str = Field(..., description="Specific description of data to gather")


class PlannedTask(BaseModel):
    """A task of a plan.

    Attributes:
        id: Unique within the plan.
        description: What to do, in a sentence. Tools are chosen for it.
        sub_tasks: Its parts, if the planner named any.
    """

    id: int
    description: str = Field(..., description="High level description of the task")
    sub_tasks: list[SubTask] = Field(
        default_factory=list, description="Specific data gathering steps"
    )


class ExecutionPlan(BaseModel):
    """A plan for the executor.

    Attributes:
        tasks: The tasks, in the order of execution.
    """

    tasks: list[PlannedTask]

    @classmethod
    def of(cls, plan: object) -> Self:
        """Convert a plan, a task, a description, or a list of these to a plan.

        Mappings are validated as tasks. A task without an id gets its position in the list, from 1.

        Raises:
            TypeError: If it cannot be converted.
        """
        if isinstance(plan, cls):
            return plan
        if isinstance(plan, Mapping) and "tasks" in plan:
            plan = plan["tasks"]
        elif isinstance(plan, PlannedTask | str | Mapping):
            plan = [plan]
        if not isinstance(plan, Sequence) or isinstance(plan, str | bytes):
            raise TypeError(f"plan is of type {type(plan).__name__}. {_ADVICE}")
        try:
            return cls(tasks=[_task(entry, index) for index, entry in enumerate(plan, start=1)])
        except ValidationError as exc:
            raise TypeError(f"A task needs an int id and a description. {_ADVICE}") from exc


_ADVICE = (
    "Pass an ExecutionPlan, or a list of PlannedTask(id=..., description=...) or of descriptions"
)


def _task(entry: object, index: int) -> PlannedTask:
    if isinstance(entry, PlannedTask):
        return entry
    if isinstance(entry, str):
        return PlannedTask(id=index, description=entry)
    if not isinstance(entry, Mapping):
        raise TypeError(f"Task {index} is of type {type(entry).__name__}. {_ADVICE}")
    return PlannedTask.model_validate({"id": index} | dict(entry))


class ToolCall(BaseModel):
    """A request to run one tool.

    Attributes:
        tool: Name of the tool.
        args: Its arguments by name.
        reasoning: Why the tool is called.
        id: Id of the call in the model's API, which is not stored.
    """

    tool: str = Field(..., description="Name of the tool to call")
    args: dict[str, Any] = Field(..., description="Arguments for the tool")
    reasoning: str = Field(default="", description="Why this tool is being called")
    id: str = Field(
        default="",
        description="Id of this call in the model's API, which is not stored",
        exclude=True,
    )


class SubTaskResult(BaseModel):
    """The result of a task or subtask.

    Attributes:
        task_id: Id of the task.
        sub_task_id: Id of the subtask. 0 for the whole task.
        success: False if tools could not be chosen, or if every call failed.
        result: A list with a mapping for each call, or a sentence if no tool was needed.
        error: What went wrong. A task can succeed with some calls that failed.
    """

    task_id: int
    sub_task_id: int
    success: bool
    result: Any = None
    error: str | None = None
