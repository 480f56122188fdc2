"""`LLMClient`: the interface between llm-common and a model."""

import inspect
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, Self

from llm_common.core.models import LLMConfig, LLMMessage, LLMResponse


class LLMClient(ABC):
    """Answers a conversation; subclasses implement one method.

    An `async with` block closes the client's connections. Subclassing is optional: the selectors
    take any object with a matching `chat_completion`.

    Attributes:
        default_model: Name of the model that answers a call which names none; None if the client
            does not say.
        provider: Name of the endpoint's provider, such as `zai` or `openai`; None if the client
            does not say.
        host: Host of the endpoint, with the port that its address names; None if the client does
            not say.
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
        """The model's answer to the conversation.

        Args:
            messages: The conversation, oldest first.
            model: Name at the endpoint; None takes the client's default.
            temperature: Sampling temperature; None takes the client's default.
            max_tokens: Limit of the answer in tokens; None takes the client's default.
            **options: Further options of the endpoint, such as `response_format`.

        Returns:
            One whole answer.

        Raises:
            LLMError: The call failed; its subclasses say why.
        """

    async def aclose(self) -> None:
        """Closes the client's connections; safe to call twice."""
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


# Attributes by which a client of another package is known without importing it, and what makes it
# an `LLMClient`. The first that fits counts: LiteLLM's router has a `chat` as well.
_DIALECTS: Final = (
    ("ainvoke", "LangChainClient(client)"),
    ("acompletion", 'LiteLLMClient(client.acompletion, model="...")'),
    ("chat.completions.create", 'OpenAISDKClient(client, model="...")'),
    ("messages.create", 'LiteLLMClient(litellm.acompletion, model="anthropic/...")'),
    ("run_sync", "PydanticAIClient(client.model)"),
    ("request_stream", "PydanticAIClient(client)"),
)


def check_client(client: object) -> None:
    """Nothing, if the object has a `chat_completion` that can be called.

    Raises:
        TypeError: It has none. The text names the adapter for a client of another package, which is
            known by its shape.
    """
    method = getattr(client, "chat_completion", None)
    unbound = isinstance(client, type) and inspect.isfunction(
        inspect.getattr_static(client, "chat_completion", None)
    )
    if callable(method) and not unbound:
        return
    name = client.__name__ if isinstance(client, type) else type(client).__name__
    raise TypeError(
        f"{name} is no client: it has no chat_completion that can be called; {_way_out(client)}"
    )


def _way_out(client: object) -> str:
    if isinstance(client, type):
        return f"pass an instance of {client.__name__}"
    # Other packages' decision models have a chat client's methods as well.
    kinds = [kind.__name__ for kind in type(client).__mro__]
    if callable(getattr(client, "decide", None)) or "BaseDecisionModel" in kinds:
        return (
            "pass a decision client to DecisionRelevanceSelector or DecisionToolSelector of "
            "llm_common.decisions"
        )
    if isinstance(client, LLMConfig):
        return "pass OpenAICompatibleClient(config)"
    if inspect.isfunction(client) and client.__name__ == "acompletion":
        return 'wrap it: llm_common.clients.LiteLLMClient(acompletion, model="...")'
    for path, adapter in _DIALECTS:
        found: object = client
        for name in path.split("."):
            found = getattr(found, name, None)
        if callable(found):
            blocking = adapter.startswith("OpenAISDK") and not inspect.iscoroutinefunction(
                inspect.unwrap(found)
            )
            return (
                f"{'take the async client and ' if blocking else ''}wrap it: "
                f"llm_common.clients.{adapter}"
            )
    return "pass an LLMClient, such as llm_common.core.OpenAICompatibleClient.from_env()"
