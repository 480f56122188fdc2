"""Public exports around `ToolSelector`, which lets a model choose tool calls."""

from llm_common.selection.results import SelectsTools, ToolSelection, ToolSelectionConfig
from llm_common.selection.tools import ToolSelector

__all__ = ["SelectsTools", "ToolSelection", "ToolSelectionConfig", "ToolSelector"]
