"""Talks to a model: messages, clients, structured replies, token counts.

The HTTP client is imported when it is first asked for, so that the rest of the library starts without httpx.
"""

from typing import TYPE_CHECKING

from llm_common.core.client import LLMClient
from llm_common.core.costs import UsageTotals
from llm_common.core.models import LLMConfig, LLMMessage, LLMResponse, LLMUsage, MessageRole
from llm_common.core.providers import config_for_provider, config_from_env
from llm_common.core.structured import Attempt, answer_text, ask, extract_json
from llm_common.core.tokens import ExactCounter, TokenCounter, UpperBoundCounter

if TYPE_CHECKING:
    from llm_common.core.http import OpenAICompatibleClient

__all__ = [
    "Attempt",
    "ExactCounter",
    "LLMClient",
    "LLMConfig",
    "LLMMessage",
    "LLMResponse",
    "LLMUsage",
    "MessageRole",
    "OpenAICompatibleClient",
    "TokenCounter",
    "UpperBoundCounter",
    "UsageTotals",
    "answer_text",
    "ask",
    "config_for_provider",
    "config_from_env",
    "extract_json",
]


def __getattr__(name: str) -> object:
    if name == "OpenAICompatibleClient":
        from llm_common.core.http import OpenAICompatibleClient  # noqa: PLC0415 - slow to import

        return OpenAICompatibleClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
