"""The prompt, built from session, memory and context, and fitted to a budget."""

from llm_common.prompt.builder import ContextBuilder, TriggerInput
from llm_common.prompt.fitting import FittedPrompt, fit, fit_detailed
from llm_common.prompt.prompt_bundle import PromptBundle, Renders, TokenBudget, count_prompt_tokens

__all__ = [
    "ContextBuilder",
    "FittedPrompt",
    "PromptBundle",
    "Renders",
    "TokenBudget",
    "TriggerInput",
    "count_prompt_tokens",
    "fit",
    "fit_detailed",
]
