"""Calls to chat models: messages, clients, structured replies and token counts."""

from importlib import import_module
from typing import TYPE_CHECKING

from llm_common.core.client import LLMClient
from llm_common.core.extraction import extract_json
from llm_common.core.models import (
    LLMConfig,
    LLMDelta,
    LLMMessage,
    LLMResponse,
    LLMUsage,
    MessageRole,
    TokenPrices,
)
from llm_common.core.selection_cache import SelectionCache
from llm_common.core.structured import Attempt, answer_text, ask
from llm_common.core.tokens import (
    CalibratedCounter,
    DefaultCounter,
    ExactCounter,
    TokenCounter,
    UpperBoundCounter,
)
from llm_common.errors import missing_name

if TYPE_CHECKING:
    from llm_common.core.http.costs import UsageTotals
    from llm_common.core.http.openai_compatible import OpenAICompatibleClient
    from llm_common.core.http.providers import config_for_provider, config_from_env

__all__ = [
    "Attempt",
    "CalibratedCounter",
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
    "SelectionCache",
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

# Importing httpx takes 110 ms, so the modules that need it are imported on first use.
_MODULES = {
    "OpenAICompatibleClient": "llm_common.core.http.openai_compatible",
    "UsageTotals": "llm_common.core.http.costs",
    "config_for_provider": "llm_common.core.http.providers",
    "config_from_env": "llm_common.core.http.providers",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _MODULES:
        raise missing_name(__name__, name)
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
