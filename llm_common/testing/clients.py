"""`ScriptedClient`: a model with scripted replies, for tests."""

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from llm_common.core.client import LLMClient
from llm_common.core.models import LLMMessage, LLMResponse

FixedReply = str | LLMResponse | BaseException
Reply = FixedReply | Callable[[list[LLMMessage]], FixedReply | Awaitable[FixedReply]]


class UnexpectedCallError(BaseException):
    """The script is at its end; no Exception, since selectors would hide that."""


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call as the client received it; `options` are the further keywords."""

    messages: tuple[LLMMessage, ...]
    model: str | None
    temperature: float | None
    max_tokens: int | None
    options: dict[str, Any] = field(default_factory=dict)


class ScriptedClient(LLMClient):
    """A client that gives the replies of a script, one a call, and records the calls.

    A reply is the text of a finished answer, a whole `LLMResponse`, an exception to raise, or a
    function of the messages that returns one of these. An async function may wait, block or ignore
    its cancellation.

    Args:
        replies: The script, in the order of the calls; a single text is a script of one.
        default: The reply to every call after the script. None: such a call raises
            UnexpectedCallError, which fails the test, since the library never catches it.

    Attributes:
        calls: One record a call, oldest first, also of failed calls.
    """

    def __init__(self, replies: Iterable[Reply], *, default: Reply | None = None) -> None:
        self.calls: list[ScriptedCall] = []
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
        """The next reply of the script.

        Raises:
            UnexpectedCallError: The script is at its end and there is no default.
        """
        self.calls.append(ScriptedCall(tuple(messages), model, temperature, max_tokens, options))
        reply = self._replies.popleft() if self._replies else self._default
        if reply is None:
            raise UnexpectedCallError(
                f"call {len(self.calls)} has no reply; add one to the script, or give a default"
            )
        if callable(reply):
            made = reply(list(messages))
            reply = await made if inspect.isawaitable(made) else made
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, LLMResponse):
            return reply
        return LLMResponse(
            id=f"scripted-{len(self.calls)}",
            model=model or "scripted",
            content=reply,
            finish_reason="stop",
        )
