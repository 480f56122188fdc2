"""Whether and when a failed request is retried: the library's only retries."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import stamina

from llm_common.core.http.wire import ChatRequest, is_transient
from llm_common.errors import LLMStatusError

__all__ = ["RetryPolicy", "attempts_of"]

_WAIT_INITIAL_S, _WAIT_JITTER_S, _WAIT_MAX_S = 0.1, 0.4, 5.0


@dataclass(slots=True)
class RetryPolicy:
    """Decides after each failure of one call whether to retry, and after which wait.

    A retry that cannot finish before the deadline is not begun: the caller gets the true error instead of a timeout.
    An endpoint that refuses an optional field is asked again with a substitute, and in the last attempt without any.

    Attributes:
        wanted: The call with every option.
        refused: Options that the endpoint is known to refuse; grows with each refusal.
        max_attempts: Requests that the call may send.
        deadline: On the running loop's clock, in seconds.
        request: What the next attempt sends.
    """

    wanted: ChatRequest
    refused: frozenset[str]
    max_attempts: int
    deadline: float
    request: ChatRequest = field(init=False)
    _failures: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.request = self.wanted.without(self.refused)

    def __call__(self, error: Exception) -> bool | float:
        """False: no retry. A number: retry after that many seconds. True: after stamina's exponential back-off."""
        self._failures += 1
        named = self.request.named_in(error)
        if named:
            self.refused |= named
            last = self._failures + 1 >= self.max_attempts
            self.request = self.wanted.bare() if last else self.wanted.without(self.refused)
            return 0.0
        if not is_transient(error):
            return False
        asked_s = error.retry_after_s if isinstance(error, LLMStatusError) else None
        left_s = self.deadline - asyncio.get_running_loop().time()
        if left_s <= (_WAIT_INITIAL_S + _WAIT_JITTER_S if asked_s is None else asked_s):
            return False
        return True if asked_s is None else asked_s


def attempts_of(policy: RetryPolicy) -> AsyncIterator[stamina.Attempt]:
    """The attempts of one call, each a `with` block; raises the last failure.

    stamina's hooks see only our errors, whose texts repeat nothing that was sent or received.
    """
    return aiter(
        stamina.retry_context(
            on=policy,
            attempts=policy.max_attempts,
            timeout=None,
            wait_initial=_WAIT_INITIAL_S,
            wait_jitter=_WAIT_JITTER_S,
            wait_max=_WAIT_MAX_S,
        )
    )
