"""`selectors_from_env`: who chooses tools and outputs, a configured model or full-text ranking."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from llm_common.agents.context_pointers import ContextRelevanceSelector, LexicalRelevanceSelector
from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.http.providers import config_from_env
from llm_common.core.models import LLMConfig
from llm_common.selection.lexical_tools import LexicalToolSelector
from llm_common.selection.tools import SelectsTools, ToolSelectionConfig, ToolSelector

__all__ = ["Selectors", "selectors_from_env"]


@dataclass(frozen=True, slots=True)
class Selectors:
    """The two choices of a run; `endpoint` is None when nobody but this machine makes them."""

    tools: SelectsTools
    contexts: ContextRelevanceSelector | LexicalRelevanceSelector
    endpoint: LLMConfig | None = None
    tool_model: str | None = None

    def label(self, model: str | None) -> str:
        """Who chooses, in words; None stands for the endpoint's default model."""
        if self.endpoint is None:
            return "full-text ranking on this machine (no endpoint is configured)"
        return f"{model or self.endpoint.default_model} at {self.endpoint.base_url}"


@asynccontextmanager
async def selectors_from_env(*, max_outputs: int) -> AsyncIterator[Selectors]:
    """Selectors that ask the endpoint of the environment, or without one rank locally.

    Args:
        max_outputs: Most outputs to keep.

    Raises:
        ConfigError: A setting cannot be used.
    """
    tool_config = ToolSelectionConfig.from_env()
    endpoint = config_from_env()
    if endpoint is None:
        yield Selectors(LexicalToolSelector(tool_config), LexicalRelevanceSelector(max_outputs))
        return
    async with OpenAICompatibleClient(endpoint) as client:
        if tool_config.model == ToolSelectionConfig().model:  # not set, so the endpoint's own model
            tool_config = tool_config.model_copy(update={"model": endpoint.default_model})
        contexts = ContextRelevanceSelector(client, max_selected=max_outputs)
        yield Selectors(ToolSelector(client, tool_config), contexts, endpoint, tool_config.model)
