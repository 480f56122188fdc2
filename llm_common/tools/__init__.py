"""Tools: described to a model, ranked, checked, and run.

`ReadBackTool` is imported from its module: choosing tools does not need it.
"""

from llm_common.tools.definitions import ToolDefinition, read_definitions
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool, ToolResult
from llm_common.tools.tool_index import RankedTool, ToolIndex
from llm_common.tools.validation import Problem

__all__ = [
    "Problem",
    "RankedTool",
    "Tool",
    "ToolDefinition",
    "ToolIndex",
    "ToolRegistry",
    "ToolResult",
    "read_definitions",
]
