"""Adapters that turn clients of other packages into an `LLMClient`.

None of those packages is imported.
"""

from llm_common.clients.completions import LiteLLMClient, OpenAISDKClient
from llm_common.clients.langchain_client import LangChainClient
from llm_common.clients.pydantic_ai_client import PydanticAIClient

__all__ = ["LangChainClient", "LiteLLMClient", "OpenAISDKClient", "PydanticAIClient"]
