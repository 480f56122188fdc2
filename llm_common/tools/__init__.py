"""Tools: described to a model, ranked, checked, and run.

`ReadBackTool` is imported from its module: choosing tools does not need it.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.tools.definitions import (
        ToolDefinition,
        check_definitions as check_definitions,
        has_writing_verb as has_writing_verb,
        only_reads as only_reads,
        read_definitions,
    )
    from llm_common.tools.registry import ToolRegistry
    from llm_common.tools.tool import Tool, ToolResult
    from llm_common.tools.tool_index import RankedTool, ToolIndex
    from llm_common.tools.validation import Problem, find_problems as find_problems

# The other names are for the applications of this library, and may change.
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

_MODULES = {
    "Problem": "llm_common.tools.validation",
    "RankedTool": "llm_common.tools.tool_index",
    "Tool": "llm_common.tools.tool",
    "ToolDefinition": "llm_common.tools.definitions",
    "ToolIndex": "llm_common.tools.tool_index",
    "ToolRegistry": "llm_common.tools.registry",
    "ToolResult": "llm_common.tools.tool",
    "check_definitions": "llm_common.tools.definitions",
    "find_problems": "llm_common.tools.validation",
    "has_writing_verb": "llm_common.tools.definitions",
    "only_reads": "llm_common.tools.definitions",
    "read_definitions": "llm_common.tools.definitions",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
