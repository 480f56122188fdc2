"""Tools: described to a model, ranked, checked, and run."""

from llm_common.agents.tools.calls import DroppedCall
from llm_common.agents.tools.foreign import foreign_code
from llm_common.agents.tools.pointer_arguments import PointerArgumentsTool
from llm_common.agents.tools.reader import ReadBackTool, read_context
from llm_common.agents.tools.registry import ToolRegistry
from llm_common.agents.tools.result import ToolResult
from llm_common.agents.tools.selection import SelectsTools, ToolSelection, ToolSelectionConfig
from llm_common.agents.tools.tool import Tool
from llm_common.agents.tools.validation import Problem

__all__ = [
    "DroppedCall",
    "PointerArgumentsTool",
    "Problem",
    "ReadBackTool",
    "SelectsTools",
    "Tool",
    "ToolRegistry",
    "ToolResult",
    "ToolSelection",
    "ToolSelectionConfig",
    "foreign_code",
    "read_context",
]
