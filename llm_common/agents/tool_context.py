"""Public exports around `ToolContextManager`, the outputs of one session."""

from llm_common.agents.session import StoredContext, ToolContextManager

__all__ = ["StoredContext", "ToolContextManager"]
