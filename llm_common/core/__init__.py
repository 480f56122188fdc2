"""Talks to a model: messages, clients, structured replies, token counts.

The clients are imported when they are first asked for, so that the rest of the library starts without httpx.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports
from llm_common.core.client import LLMClient
from llm_common.core.decision import SelectionCache
from llm_common.core.http.costs import UsageTotals
from llm_common.core.http.providers import config_for_provider, config_from_env
from llm_common.core.models import LLMConfig, LLMMessage, LLMResponse, LLMUsage, MessageRole
from llm_common.core.structured import Attempt, answer_text, ask, extract_json
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter

if TYPE_CHECKING:
    from llm_common.core.adapters import LangChainClient, LiteLLMClient, OpenAISDKClient, PydanticAIClient
    from llm_common.core.http.openai_compatible import OpenAICompatibleClient

__all__ = [
    "Attempt",
    "ExactCounter",
    "LLMClient",
    "LLMConfig",
    "LLMMessage",
    "LLMResponse",
    "LLMUsage",
    "LangChainClient",
    "LiteLLMClient",
    "MessageRole",
    "OpenAICompatibleClient",
    "OpenAISDKClient",
    "PydanticAIClient",
    "SelectionCache",
    "TokenCounter",
    "UpperBoundCounter",
    "UsageTotals",
    "answer_text",
    "ask",
    "config_for_provider",
    "config_from_env",
    "extract_json",
]

__getattr__, _ = lazy_exports(__name__)
