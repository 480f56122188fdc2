"""Public exports around `ToolSelector`, which lets a model choose tool calls."""

from llm_common.selection.results import (
    DroppedCall,
    SelectsTools,
    ToolSelection,
    ToolSelectionConfig,
)
from llm_common.selection.tools import ToolSelector

__all__ = ["DroppedCall", "SelectsTools", "ToolSelection", "ToolSelectionConfig", "ToolSelector"]
