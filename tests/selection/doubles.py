"""Candidates and registries that tests of selections share."""

from typing import Any

from llm_common.agents import (
    ContextPointer,
    PlannedTask,
    ToolSelection,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.tools import ToolRegistry

TASK = PlannedTask(id=1, description="Compare the weather")


def get_weather(city: str, days: int = 1) -> str:
    """Forecasts the weather."""
    return f"{city} {days}"


def search_web(query: str) -> str:
    """Finds pages."""
    return query


REGISTRY = ToolRegistry([get_weather, search_web])


async def select_tools(
    client: Any,
    registry: Any = REGISTRY,
    config: ToolSelectionConfig | None = None,
    *,
    task: PlannedTask = TASK,
    **options: Any,
) -> ToolSelection:
    """Let a model choose tools."""
    selector = ToolSelector(client, config or ToolSelectionConfig())
    return await selector.select_detailed(task=task, tool_registry=registry, **options)


def candidate(pointer_id: str = "24248a36f5e3", **fields: Any) -> ContextPointer:
    """Return a pointer, in which `fields` replace those of a plain one."""
    plain: dict[str, Any] = {
        "query_id": "q",
        "tool_name": "t",
        "created_at": "now",
        "summary": "rain t",
        "result_path": "x",
    }
    return ContextPointer.model_validate({"pointer_id": pointer_id} | plain | fields)


class FixedRegistry:
    """An application's own registry, which counts how often it is asked."""

    def __init__(self, schema: object) -> None:
        self.schema = schema
        self.requests = 0

    def get_tools_schema(self) -> object:
        self.requests += 1
        return self.schema
