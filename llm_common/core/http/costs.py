"""The spending of a client, and its limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from llm_common._env import CONTEXT_SELECTION_MODEL, TOOL_SELECTION_MODEL, UNKNOWN_PRICE
from llm_common.core.models import LLMUsage, TokenPrices
from llm_common.errors import CostLimitError, LLMError

_ANSWER_TOKENS = 1_000
_BY_CALL = (
    f"the call's `model`, a selector's from {TOOL_SELECTION_MODEL.name} or "
    f"{CONTEXT_SELECTION_MODEL.name}"
)


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
        if self.usage is None:
            self.usage, self.cost_usd = usage, cost_usd
            return
        self.usage += usage
        if self.cost_usd is None or cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += cost_usd

    @contextmanager
    def attached_to_errors(
        self, *, model: str, host: str | None, chosen_by: str | None
    ) -> Iterator[None]:
        """A block whose LLMErrors get the bill, and the names that `LLMError.locate` takes.

        None for `chosen_by` means the call itself.
        """
        try:
            yield
        except LLMError as exc:
            exc.usage, exc.cost_usd = self.usage, self.cost_usd
            exc.locate(model=model, host=host, chosen_by=chosen_by or _BY_CALL)
            raise


def expected_cost_usd(body: bytes, *, prices: TokenPrices, max_tokens: int | None) -> float:
    """The most that a request should cost in dollars.

    No token is shorter than a byte: the size of the request bounds its tokens. Expects 1,000 tokens
    of an answer without `max_tokens`.
    """
    return prices.cost_usd(
        LLMUsage(prompt_tokens=len(body), completion_tokens=max_tokens or _ANSWER_TOKENS)
    )


class CostLedger:
    """Adds up costs and refuses a call that could exceed the limit.

    The expected cost of a request is reserved before it is sent, which keeps concurrent calls
    within the limit too. What can still exceed it: see `LLMConfig.cost_limit_usd`.

    Args:
        limit_usd: None sets no limit.

    Attributes:
        totals: What was charged.
        max_reply_usd: Cost of the most expensive reply so far.
    """

    def __init__(self, limit_usd: float | None) -> None:
        self._limit_usd = limit_usd
        self._reserved_usd = 0.0
        self._assumed_usd = 0.0  # for replies that no one priced
        self.max_reply_usd = 0.0
        self.totals = UsageTotals()

    @contextmanager
    def reserved(self, expected_usd: float | None) -> Iterator[None]:
        """A block in which one request is sent and charged.

        Args:
            expected_usd: The most that it should cost; None for an unknown price.

        Raises:
            CostLimitError: It could exceed the limit, or has no known price under a limit; the
                block did not run.
        """
        expected = expected_usd or 0.0
        if self._limit_usd is not None:
            spent_usd = self.totals.cost_usd + self._assumed_usd
            taken_usd = spent_usd + self._reserved_usd
            text = ""
            if expected_usd is None:
                text = (
                    f"nothing was sent: cost_limit_usd is ${self._limit_usd:.4g}, and the price "
                    f"of this model is not "
                    "known; give it in LLMConfig.prices, or count it as the dearest known model by "
                    f'unknown_price="dearest" or {UNKNOWN_PRICE.name}=dearest'
                )
            elif taken_usd >= self._limit_usd or taken_usd + expected > self._limit_usd:
                text = (
                    f"nothing was sent: ${taken_usd:.4g} of ${self._limit_usd:.4g} are spent or "
                    f"reserved, and this "
                    f"call may cost ${expected:.4g}; raise cost_limit_usd, set max_tokens, or "
                    f"make a new client"
                )
            if text:
                raise CostLimitError(text, spent_usd=spent_usd, limit_usd=self._limit_usd)
        self._reserved_usd += expected
        try:
            yield
        finally:
            self._reserved_usd -= expected

    def charge(self, usage: LLMUsage, *, cost_usd: float | None, assumed_usd: float = 0.0) -> None:
        """Records one reply.

        Args:
            usage: Its tokens.
            cost_usd: Its dollars, or None if unknown.
            assumed_usd: Dollars that then count towards the limit alone.
        """
        if cost_usd is None:
            self._assumed_usd += assumed_usd
        self.max_reply_usd = max(self.max_reply_usd, cost_usd or 0.0)
        self.totals = replace(
            self.totals,
            calls=self.totals.calls + 1,
            prompt_tokens=self.totals.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.totals.completion_tokens + usage.completion_tokens,
            cached_tokens=self.totals.cached_tokens + usage.cached_tokens,
            cost_usd=self.totals.cost_usd + (cost_usd or 0.0),
            unpriced_calls=self.totals.unpriced_calls + (cost_usd is None),
        )
