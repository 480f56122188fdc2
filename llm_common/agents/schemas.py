"""Plans, tool calls and their results, as planners and applications exchange them."""

from llm_common.plans import ExecutionPlan, PlannedTask, SubTask, SubTaskResult, ToolCall

__all__ = ["ExecutionPlan", "PlannedTask", "SubTask", "SubTaskResult", "ToolCall"]
