"""Tools: described to a model, checked, and run.

`ReadBackTool` and `PointerArgumentsTool` are imported from their modules: choosing tools needs neither.
"""

from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool, ToolResult, third_party_code
from llm_common.tools.tool_index import DescribesTool, RankedTool, ToolIndex
from llm_common.tools.validation import Problem

__all__ = [
    "DescribesTool",
    "Problem",
    "RankedTool",
    "Tool",
    "ToolIndex",
    "ToolRegistry",
    "ToolResult",
    "third_party_code",
]
