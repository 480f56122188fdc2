"""Third-party clients, each as an `LLMClient`; imports none of their packages."""

from llm_common.core.adapters.completions import LiteLLMClient, OpenAISDKClient
from llm_common.core.adapters.langchain_client import LangChainClient
from llm_common.core.adapters.pydantic_ai_client import PydanticAIClient

__all__ = ["LangChainClient", "LiteLLMClient", "OpenAISDKClient", "PydanticAIClient"]
