"""Third-party clients, each as an `LLMClient`; imports none of their packages."""

from llm_common.core.adapters.completions import LiteLLMClient, OpenAISDKClient
from llm_common.core.adapters.langchain import LangChainClient
from llm_common.core.adapters.pydantic_ai import PydanticAIClient

__all__ = ["LangChainClient", "LiteLLMClient", "OpenAISDKClient", "PydanticAIClient"]
