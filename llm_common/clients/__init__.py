"""Adapters that turn clients of other packages into an `LLMClient`.

None of those packages is imported.
"""

from llm_common.clients.completions import LiteLLMClient, OpenAISDKClient

__all__ = ["LiteLLMClient", "OpenAISDKClient"]
