"""Talks to a model: messages, clients, structured replies, token counts.

A name's module is imported on first use: the rest of the library starts without httpx, which takes
110 ms to import.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.core.client import LLMClient as LLMClient
    from llm_common.core.decision import SelectionCache as SelectionCache
    from llm_common.core.extraction import extract_json as extract_json
    from llm_common.core.http.costs import UsageTotals as UsageTotals
    from llm_common.core.http.openai_compatible import (
        OpenAICompatibleClient as OpenAICompatibleClient,
    )
    from llm_common.core.http.providers import (
        config_for_provider as config_for_provider,
        config_from_env as config_from_env,
    )
    from llm_common.core.models import (
        LLMConfig as LLMConfig,
        LLMDelta as LLMDelta,
        LLMMessage as LLMMessage,
        LLMResponse as LLMResponse,
        LLMUsage as LLMUsage,
        MessageRole as MessageRole,
        TokenPrices as TokenPrices,
    )
    from llm_common.core.structured import (
        Attempt as Attempt,
        answer_text as answer_text,
        ask as ask,
    )
    from llm_common.core.tokens import (
        CalibratedCounter as CalibratedCounter,
        DefaultCounter as DefaultCounter,
        ExactCounter as ExactCounter,
        TokenCounter as TokenCounter,
        UpperBoundCounter as UpperBoundCounter,
    )

__getattr__, __all__ = lazy_exports(__name__)
