"""Third-party clients, each as an `LLMClient`; imports none of their packages."""

from llm_common.clients.completions import LiteLLMClient, OpenAISDKClient
from llm_common.clients.langchain_client import LangChainClient
from llm_common.clients.pydantic_ai_client import PydanticAIClient

__all__ = ["LangChainClient", "LiteLLMClient", "OpenAISDKClient", "PydanticAIClient"]
