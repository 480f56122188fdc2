"""`LLMClient`: the interface between llm-common and a model."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from llm_common.core.models import LLMMessage, LLMResponse


class LLMClient(ABC):
    """Answers a conversation; subclasses implement one method.

    An `async with` block closes the client's connections. Subclassing is optional: the selectors take any object with a
    matching `chat_completion`.

    Attributes:
        default_model: Name of the model that answers a call which names none; None if the client does not say.
        provider: Name of the endpoint's provider, such as `zai` or `openai`; None if the client does not say.
    """

    default_model: str | None = None
    provider: str | None = None

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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
