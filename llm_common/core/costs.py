"""What a client has spent, and the limit on it."""

import logging
from dataclasses import dataclass, replace

from llm_common.core.models import LLMUsage
from llm_common.errors import CostLimitError

__all__ = ["CostLedger", "UsageTotals"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """What a client's answered calls took so far, as the endpoint counted it.

    Attributes:
        cached_tokens: Part of `prompt_tokens`.
        cost_usd: Dollars of the calls whose price is known.
        unpriced_calls: How many calls are missing from `cost_usd`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0


class CostLedger:
    """Adds up what calls cost and refuses new ones at the limit.

    A call is charged when its answer arrives, since its price is not known before: calls that are under way together
    can exceed the limit by what they cost, and a call that timed out may have been billed without showing here.

    Args:
        limit_usd: None sets no limit.
    """

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self.totals = UsageTotals()

    def check(self) -> None:
        """Lets a call begin.

        Raises:
            CostLimitError: The limit is reached.
        """
        spent_usd = self.totals.cost_usd
        if self._limit_usd is not None and spent_usd >= self._limit_usd:
            raise CostLimitError(
                f"no call was made: ${spent_usd:.4f} of ${self._limit_usd:.4f} are spent; raise cost_limit_usd or make "
                "a new client",
                spent_usd=spent_usd,
                limit_usd=self._limit_usd,
            )

    def charge(self, usage: LLMUsage, *, cost_usd: float | None) -> None:
        """Records one answered call; a cost of None is counted as unpriced, and warned of once if there is a limit."""
        if cost_usd is None and self._limit_usd is not None and not self.totals.unpriced_calls:
            _log.warning("a cost limit is set, but this model has no known price: its calls cannot be limited")
        self.totals = replace(
            self.totals,
            calls=self.totals.calls + 1,
            prompt_tokens=self.totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.totals.completion_tokens + usage.completion_tokens,
            cached_tokens=self.totals.cached_tokens + usage.cached_tokens,
            cost_usd=self.totals.cost_usd + (cost_usd or 0.0),
            unpriced_calls=self.totals.unpriced_calls + (cost_usd is None),
        )
