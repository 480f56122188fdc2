"""Test doubles for code that is built on llm-common."""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from llm_common.core.models import LLMClient, LLMMessage, LLMResponse
from llm_common.storage import MemoryBlobStore

__all__ = ["MemoryBlobStore", "ScriptedClient", "UnexpectedCallError"]

FixedReply = str | LLMResponse | BaseException
Reply = FixedReply | Callable[[list[LLMMessage]], FixedReply | Awaitable[FixedReply]]


class UnexpectedCallError(BaseException):
    """A call was made after the end of the script.

    It is not an `Exception`, because selectors turn exceptions of a client into empty selections.
    """


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """The arguments of a call. `options` are the additional keyword arguments."""

    messages: tuple[LLMMessage, ...]
    model: str | None
    temperature: float | None
    max_tokens: int | None
    options: dict[str, Any] = field(default_factory=dict)


class ScriptedClient(LLMClient):
    """A client that returns the replies of a script in order, and records the calls.

    A reply is the text of a complete answer, an `LLMResponse`, an exception to raise, or a function
    of the messages that returns one of these. A function may be async, to wait or to block.

    Args:
        replies: The script. A single text is a script of one reply.
        default: The reply to every call after the script. By default, such a call raises
            UnexpectedCallError, which the library never catches, so the test fails.

    Attributes:
        calls: The calls, oldest first, including failed ones.
    """

    def __init__(self, replies: Iterable[Reply], *, default: Reply | None = None) -> None:
        self.calls: list[ScriptedCall] = []
        # A text is iterable too, and would give one reply per character.
        self._replies = deque([replies] if isinstance(replies, str) else replies)
        self._default = default

    async def chat_completion(
        self,
        messages: list[LLMMessage],
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LLMResponse:
        """Return the next reply of the script. See `LLMClient`.

        Raises:
            UnexpectedCallError: If the script has ended and there is no default.
        """
        # Recorded first, so that a failed call is in the list too.
        # The caller may add to its list after the call, so the messages are copied.
        self.calls.append(ScriptedCall(tuple(messages), model, temperature, max_tokens, options))
        reply = self._replies.popleft() if self._replies else self._default
        if reply is None:
            raise UnexpectedCallError(
                f"call {len(self.calls)} has no reply. Add one to the script, or set a default"
            )
        if callable(reply):
            result = reply(list(messages))
            reply = await result if inspect.isawaitable(result) else result
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, LLMResponse):
            return reply
        return LLMResponse(
            id=f"scripted-{len(self.calls)}",
            model=model or "scripted",
            content=reply,
            finish_reason="stop",  # any other reason counts as a cut answer
        )
