"""`LLMClient`: the interface between llm-common and a model."""

import inspect
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, Self

from llm_common.core.models import LLMConfig, LLMMessage, LLMResponse


class LLMClient(ABC):
    """A client for a chat model. Subclasses implement `chat_completion`.

    An `async with` block closes the client's connections. Subclassing is optional: the selectors
    accept any object with a matching `chat_completion`.

    Attributes:
        default_model: Name of the model for calls that name none. None if unknown.
        provider: Name of the endpoint's provider, such as `zai` or `openai`. None if unknown.
        host: Host of the endpoint, with the port if its address has one. None if unknown.
    """

    default_model: str | None = None
    provider: str | None = None
    host: str | None = None

    @abstractmethod
    async def chat_completion(
        self,
        messages: list[LLMMessage],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Return the model's answer to a conversation.

        Args:
            messages: The conversation, oldest first.
            model: Name at the endpoint. None uses the client's default.
            temperature: Sampling temperature. None uses the client's default.
            max_tokens: Maximum length of the answer in tokens. None uses the client's default.
            **options: Further options of the endpoint, such as `response_format`.

        Returns:
            One whole answer.

        Raises:
            LLMError: If the call failed. The subclass says why.
        """

    async def aclose(self) -> None:
        """Close the client's connections. Safe to call twice."""
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


# Clients of other packages by a method, which needs no import of the package, and the adapter for
# each. The order matters: LiteLLM's router has a `chat` as well.
_ADAPTERS: Final = (
    ("acompletion", 'LiteLLMClient(client.acompletion, model="...")'),
    ("chat.completions.create", 'OpenAISDKClient(client, model="...")'),
    ("messages.create", 'LiteLLMClient(litellm.acompletion, model="anthropic/...")'),
)


def check_client(client: object) -> None:
    """Check that an object has a callable `chat_completion`.

    Raises:
        TypeError: If it has none. For a client of another package the text names the adapter.
    """
    method = getattr(client, "chat_completion", None)
    # A class has the function too, but calling it would lack `self`.
    unbound = isinstance(client, type) and inspect.isfunction(
        inspect.getattr_static(client, "chat_completion", None)
    )
    if callable(method) and not unbound:
        return
    name = client.__name__ if isinstance(client, type) else type(client).__name__
    raise TypeError(
        f"{name} is not a client: it has no callable chat_completion; {_remedy(client)}"
    )


def _remedy(client: object) -> str:
    """Return what to pass instead of an object that is not a chat client."""
    if isinstance(client, type):
        return f"pass an instance of {client.__name__}"
    if isinstance(client, LLMConfig):
        return "pass OpenAICompatibleClient(config)"
    # LiteLLM's function itself, instead of an object that has it.
    if inspect.isfunction(client) and client.__name__ == "acompletion":
        return 'wrap it: llm_common.clients.LiteLLMClient(acompletion, model="...")'
    for path, adapter in _ADAPTERS:
        method: object = client
        for name in path.split("."):
            method = getattr(method, name, None)
        if callable(method):
            is_async = inspect.iscoroutinefunction(inspect.unwrap(method))
            wrapped = "it"
            if adapter.startswith("OpenAISDK") and not is_async:
                wrapped = "the async client instead"
            return f"wrap {wrapped}: llm_common.clients.{adapter}"
    return "pass an LLMClient, such as llm_common.core.OpenAICompatibleClient.from_env()"
