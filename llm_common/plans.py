"""Plans, tool calls and their results, as planners and applications exchange them."""

from typing import Any

from pydantic import BaseModel, Field


class SubTask(BaseModel):
    """One piece of data to gather within a task."""

    id: int
    description: str = Field(..., description="Specific description of data to gather")


class PlannedTask(BaseModel):
    """A task of the plan, with the pieces of data it needs."""

    id: int
    description: str = Field(..., description="High level description of the task")
    sub_tasks: list[SubTask] = Field(default_factory=list, description="Specific data gathering steps")


class ExecutionPlan(BaseModel):
    """A planner's tasks for the executor, in the order in which they run."""

    tasks: list[PlannedTask]


class ToolCall(BaseModel):
    """A request to run one tool."""

    tool: str = Field(..., description="Name of the tool to call")
    args: dict[str, Any] = Field(..., description="Arguments for the tool")
    reasoning: str = Field(default="", description="Why this tool is being called")


class SubTaskResult(BaseModel):
    """The outcome of a task; `sub_task_id` is 0 for the whole task."""

    task_id: int
    sub_task_id: int
    success: bool
    result: Any = None
    error: str | None = None
