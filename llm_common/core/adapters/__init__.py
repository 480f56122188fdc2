"""Clients that an application already has, as an `LLMClient` each. None of the foreign packages is imported."""

from llm_common.core.adapters.langchain import LangChainClient
from llm_common.core.adapters.openai_sdk import LiteLLMClient, OpenAISDKClient
from llm_common.core.adapters.pydantic_ai import PydanticAIClient

__all__ = ["LangChainClient", "LiteLLMClient", "OpenAISDKClient", "PydanticAIClient"]
