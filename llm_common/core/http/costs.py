"""The spending of a client, and its limit."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from llm_common.core.http.providers import profile_of
from llm_common.core.models import LLMUsage
from llm_common.errors import CostLimitError, LLMError

_ANSWER_TOKENS = 1_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Usage of a client's calls so far, as the endpoint counted it.

    Attributes:
        calls: Replies that were charged; a retried call may have several, also failed ones.
        cached_tokens: Part of `prompt_tokens`.
        cost_usd: Dollars of the calls with a known price.
        unpriced_calls: How many of `calls` are missing from `cost_usd`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0


@dataclass(slots=True)
class Bill:
    """The charges of one call so far, its failed requests included.

    Attributes:
        usage: None before the first charge.
        cost_usd: None before the first charge, and once the price of a reply is unknown.
    """

    usage: LLMUsage | None = None
    cost_usd: float | None = None

    def add(self, usage: LLMUsage, *, cost_usd: float | None) -> None:
        """Records one reply."""
        known = 0.0 if self.usage is None else self.cost_usd
        self.cost_usd = None if known is None or cost_usd is None else known + cost_usd
        self.usage = usage if self.usage is None else self.usage + usage

    @contextmanager
    def attached_to_errors(self) -> Iterator[None]:
        """A block that attaches the bill to its LLMErrors."""
        try:
            yield
        except LLMError as exc:
            exc.usage, exc.cost_usd = self.usage, self.cost_usd
            raise


def expected_cost_usd(body: bytes, *, model: str, provider: str, max_tokens: int | None) -> float | None:
    """The most that a request should cost in dollars, or None for an unknown price.

    No token is shorter than a byte: the size of the request bounds its tokens. Expects 1,000 tokens of an answer
    without `max_tokens`.
    """
    usage = LLMUsage(prompt_tokens=len(body), completion_tokens=max_tokens or _ANSWER_TOKENS)
    return profile_of(model).cost_usd(usage, provider=provider)


class CostLedger:
    """Adds up costs and refuses a call that could exceed the limit.

    The expected cost of a request is reserved before it is sent, which keeps concurrent calls within the limit too.
    Three cases can still exceed it: an answer that is longer than expected, the first call of a model with an unknown
    price, and a call that timed out here but was billed.

    Args:
        limit_usd: None sets no limit.
    """

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self._reserved_usd = 0.0
        self._max_reply_usd = 0.0
        self.totals = UsageTotals()

    @contextmanager
    def reserved(self, expected_usd: float | None) -> Iterator[None]:
        """A block in which one request is sent and charged.

        Args:
            expected_usd: The most that it should cost; None, an unknown price, expects the cost of the most expensive
                reply so far.

        Raises:
            CostLimitError: It could exceed the limit; the block did not run.
        """
        expected = self._max_reply_usd if expected_usd is None else expected_usd
        taken_usd = self.totals.cost_usd + self._reserved_usd
        if self._limit_usd is not None and (taken_usd >= self._limit_usd or taken_usd + expected > self._limit_usd):
            raise CostLimitError(
                f"nothing was sent: ${taken_usd:.4f} of ${self._limit_usd:.4f} are spent or reserved, and this call "
                f"may cost ${expected:.4f}; raise cost_limit_usd, set max_tokens, or make a new client",
                spent_usd=self.totals.cost_usd,
                limit_usd=self._limit_usd,
            )
        self._reserved_usd += expected
        try:
            yield
        finally:
            self._reserved_usd -= expected

    def charge(self, usage: LLMUsage, *, cost_usd: float | None) -> None:
        """Records one reply; an unpriced one (None) is warned of once if there is a limit."""
        if cost_usd is None and self._limit_usd is not None and not self.totals.unpriced_calls:
            _log.warning("a cost limit is set, but this model has no known price: its calls cannot be limited")
        self._max_reply_usd = max(self._max_reply_usd, cost_usd or 0.0)
        self.totals = replace(
            self.totals,
            calls=self.totals.calls + 1,
            prompt_tokens=self.totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.totals.completion_tokens + usage.completion_tokens,
            cached_tokens=self.totals.cached_tokens + usage.cached_tokens,
            cost_usd=self.totals.cost_usd + (cost_usd or 0.0),
            unpriced_calls=self.totals.unpriced_calls + (cost_usd is None),
        )
