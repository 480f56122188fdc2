"""Build a prompt from session, memory and context, and fit it to a budget."""

from llm_common.prompt.builder import ContextBuilder, TriggerInput
from llm_common.prompt.prompt_bundle import PromptBundle, TokenBudget, count_prompt_tokens, fit

__all__ = [
    "ContextBuilder",
    "PromptBundle",
    "TokenBudget",
    "TriggerInput",
    "count_prompt_tokens",
    "fit",
]
