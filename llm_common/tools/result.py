"""`ToolResult`: what a tool may return when it wants to say more than its data."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ToolResult"]


class ToolResult(BaseModel):
    """Data with its sources, or an expected failure, as a value.

    A registry hands it back as it is, also with `success=False`: whether that ends a task is the executor's decision.
    Further fields, such as evidence, are kept.

    Attributes:
        success: Whether the tool did what was asked.
        data: What it found or made.
        source_urls: Where the data came from; they reach the stored pointer.
        error: What went wrong, in words that a model may read.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    success: bool
    data: Any = None
    source_urls: list[str] = Field(default_factory=list)
    error: str | None = None
