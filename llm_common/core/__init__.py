"""Calls to chat models: messages, clients, structured replies and token counts."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.core.extraction import extract_json
    from llm_common.core.http.model_call import UsageTotals
    from llm_common.core.http.openai_compatible import OpenAICompatibleClient
    from llm_common.core.http.providers import config_for_provider, config_from_env
    from llm_common.core.models import (
        LLMClient,
        LLMConfig,
        LLMDelta,
        LLMMessage,
        LLMResponse,
        LLMUsage,
        MessageRole,
        TokenPrices,
    )
    from llm_common.core.structured import Attempt, answer_text, ask
    from llm_common.core.tokens import (
        DefaultCounter,
        ExactCounter,
        TokenCounter,
        UpperBoundCounter,
        count_tokens as count_tokens,
        counter_label as counter_label,
        message_tokens as message_tokens,
    )

# The other names are for the applications of this library, and may change.
__all__ = [
    "Attempt",
    "DefaultCounter",
    "ExactCounter",
    "LLMClient",
    "LLMConfig",
    "LLMDelta",
    "LLMMessage",
    "LLMResponse",
    "LLMUsage",
    "MessageRole",
    "OpenAICompatibleClient",
    "TokenCounter",
    "TokenPrices",
    "UpperBoundCounter",
    "UsageTotals",
    "answer_text",
    "ask",
    "config_for_provider",
    "config_from_env",
    "extract_json",
]

_MODULES = {
    "Attempt": "llm_common.core.structured",
    "DefaultCounter": "llm_common.core.tokens",
    "ExactCounter": "llm_common.core.tokens",
    "LLMClient": "llm_common.core.models",
    "LLMConfig": "llm_common.core.models",
    "LLMDelta": "llm_common.core.models",
    "LLMMessage": "llm_common.core.models",
    "LLMResponse": "llm_common.core.models",
    "LLMUsage": "llm_common.core.models",
    "MessageRole": "llm_common.core.models",
    "OpenAICompatibleClient": "llm_common.core.http.openai_compatible",
    "TokenCounter": "llm_common.core.tokens",
    "TokenPrices": "llm_common.core.models",
    "UpperBoundCounter": "llm_common.core.tokens",
    "UsageTotals": "llm_common.core.http.model_call",
    "answer_text": "llm_common.core.structured",
    "ask": "llm_common.core.structured",
    "config_for_provider": "llm_common.core.http.providers",
    "config_from_env": "llm_common.core.http.providers",
    "count_tokens": "llm_common.core.tokens",
    "counter_label": "llm_common.core.tokens",
    "extract_json": "llm_common.core.extraction",
    "message_tokens": "llm_common.core.tokens",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
