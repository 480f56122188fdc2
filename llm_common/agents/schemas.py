"""Public exports for plans, tool calls and their results."""

from llm_common.plans import ExecutionPlan, PlannedTask, SubTask, SubTaskResult, ToolCall

__all__ = ["ExecutionPlan", "PlannedTask", "SubTask", "SubTaskResult", "ToolCall"]
