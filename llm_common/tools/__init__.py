"""Tools: described to a model, checked, and run."""

from llm_common.tools.pointer_arguments import PointerArgumentsTool
from llm_common.tools.read_back import ReadBackTool, read_context
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool, ToolResult, third_party_code
from llm_common.tools.validation import Problem

__all__ = [
    "PointerArgumentsTool",
    "Problem",
    "ReadBackTool",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "read_context",
    "third_party_code",
]
