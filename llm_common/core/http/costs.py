"""What a client has spent, and the limit on it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from llm_common.core.http.providers import profile_of
from llm_common.core.models import LLMUsage
from llm_common.errors import CostLimitError, LLMError

__all__ = ["Bill", "CostLedger", "UsageTotals", "expected_cost_usd"]

_ANSWER_TOKENS = 1_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """What a client's calls took so far, as the endpoint counted it.

    Attributes:
        calls: Replies that were charged; a call that was retried may have several, also failed ones.
        cached_tokens: Part of `prompt_tokens`.
        cost_usd: Dollars of the calls whose price is known.
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
    """What one call was charged so far, its failed requests included.

    Attributes:
        usage: None before anything was charged.
        cost_usd: None before that too, and as soon as one reply's price is not known.
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
        """A block whose LLMErrors carry the bill."""
        try:
            yield
        except LLMError as exc:
            exc.usage, exc.cost_usd = self.usage, self.cost_usd
            raise


def expected_cost_usd(body: bytes, *, model: str, provider: str, max_tokens: int | None) -> float | None:
    """The most that a request should cost, or None where the price is not known.

    No token is shorter than a byte, so the size of the request bounds its tokens. An answer without a limit of its own
    is expected to take 1,000.
    """
    usage = LLMUsage(prompt_tokens=len(body), completion_tokens=max_tokens or _ANSWER_TOKENS)
    return profile_of(model).cost_usd(usage, provider=provider)


class CostLedger:
    """Adds up what calls cost and refuses what could pass the limit.

    Before a request is sent, the most that it is expected to cost is set aside, so that calls that are under way
    together stay within the limit as well. What can still pass it: an answer that is longer than expected, the first
    call of a model whose price nobody knows, and a call that timed out and was billed without showing here.

    Args:
        limit_usd: None sets no limit.
    """

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self._set_aside_usd = 0.0
        self._dearest_usd = 0.0
        self.totals = UsageTotals()

    @contextmanager
    def reserved(self, expected_usd: float | None) -> Iterator[None]:
        """A block in which one request is sent and charged.

        Args:
            expected_usd: The most that it should cost; None for a price that is not known, which expects as much as
                the dearest reply so far.

        Raises:
            CostLimitError: It could pass the limit; the block did not run.
        """
        expected = self._dearest_usd if expected_usd is None else expected_usd
        taken_usd = self.totals.cost_usd + self._set_aside_usd
        if self._limit_usd is not None and (taken_usd >= self._limit_usd or taken_usd + expected > self._limit_usd):
            raise CostLimitError(
                f"nothing was sent: ${taken_usd:.4f} of ${self._limit_usd:.4f} are spent or set aside, and this call "
                f"may cost ${expected:.4f}; raise cost_limit_usd, set max_tokens, or make a new client",
                spent_usd=self.totals.cost_usd,
                limit_usd=self._limit_usd,
            )
        self._set_aside_usd += expected
        try:
            yield
        finally:
            self._set_aside_usd -= expected

    def charge(self, usage: LLMUsage, *, cost_usd: float | None) -> None:
        """Records one reply; a cost of None is counted as unpriced, and warned of once if there is a limit."""
        if cost_usd is None and self._limit_usd is not None and not self.totals.unpriced_calls:
            _log.warning("a cost limit is set, but this model has no known price: its calls cannot be limited")
        self._dearest_usd = max(self._dearest_usd, cost_usd or 0.0)
        self.totals = replace(
            self.totals,
            calls=self.totals.calls + 1,
            prompt_tokens=self.totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.totals.completion_tokens + usage.completion_tokens,
            cached_tokens=self.totals.cached_tokens + usage.cached_tokens,
            cost_usd=self.totals.cost_usd + (cost_usd or 0.0),
            unpriced_calls=self.totals.unpriced_calls + (cost_usd is None),
        )
