"""`LLMClient`: the seam between llm-common and whatever answers."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from llm_common.core.models import LLMMessage, LLMResponse

__all__ = ["LLMClient"]


class LLMClient(ABC):
    """Something that answers a conversation; one method to implement.

    An `async with` block closes what the client holds open. The selectors take any object with a matching
    `chat_completion`, so subclassing is a convenience and not a duty.
    """

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
            **options: What else the endpoint takes, such as `response_format`.

        Returns:
            One answer, whole: a stream is drained first.

        Raises:
            LLMError: The call gave nothing usable; its subclasses say why.
        """

    async def aclose(self) -> None:
        """Closes what the client holds open; safe to call twice."""
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
