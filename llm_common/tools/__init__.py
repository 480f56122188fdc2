"""Tools: described to a model, ranked, checked, and run.

`ReadBackTool` is imported from its module: choosing tools does not need it.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.tools.definitions import (
        ToolDefinition as ToolDefinition,
        read_definition as read_definition,
        read_definitions as read_definitions,
    )
    from llm_common.tools.registry import ToolRegistry as ToolRegistry
    from llm_common.tools.tool import (
        Tool as Tool,
        ToolResult as ToolResult,
        third_party_code as third_party_code,
    )
    from llm_common.tools.tool_index import (
        RankedTool as RankedTool,
        ToolIndex as ToolIndex,
    )
    from llm_common.tools.validation import Problem as Problem

__getattr__, __all__ = lazy_exports(__name__)
