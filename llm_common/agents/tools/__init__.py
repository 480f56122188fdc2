"""Tools: described to a model, ranked, checked, and run. A name's module is imported when it is first asked for."""

from typing import TYPE_CHECKING

from llm_common._faces import late_names

if TYPE_CHECKING:
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

__getattr__ = late_names(
    __name__,
    {
        "calls": ("DroppedCall",),
        "foreign": ("foreign_code",),
        "pointer_arguments": ("PointerArgumentsTool",),
        "reader": ("ReadBackTool", "read_context"),
        "registry": ("ToolRegistry",),
        "result": ("ToolResult",),
        "selection": ("SelectsTools", "ToolSelection", "ToolSelectionConfig"),
        "tool": ("Tool",),
        "validation": ("Problem",),
    },
)
