"""Compare what different strategies select from the same pool."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, combinations

from llm_common.context.bundle import ContextBundle
from llm_common.context.request import (
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    allocate_budget,
)
from llm_common.context.scoring import STRATEGIES, Strategy
from llm_common.context.selector import select_and_pack_context


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """The bundle of a strategy.

    Attributes:
        strategy: Name of the strategy.
        bundle: Its bundle.
        only_here: Kind and id of the items that no other strategy kept.
    """

    strategy: str
    bundle: ContextBundle
    only_here: tuple[tuple[Kind, str], ...]

    @property
    def kept(self) -> tuple[tuple[Kind, str], ...]:
        """Return kind and id of the items in the bundle, in the order of the prompt."""
        return _keys(self.bundle)


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """The selections of several strategies from the same pool.

    Attributes:
        outcomes: The outcome of each strategy, in the requested order.
        overlaps: The Jaccard index of each pair of strategies: the items that both kept, as a share
            of the items that either kept. It is 1 if neither kept any.
    """

    outcomes: tuple[StrategyOutcome, ...]
    overlaps: Mapping[tuple[str, str], float]


def compare_strategies(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    strategies: Sequence[str] | Mapping[str, Strategy] = ("measured", "spec"),
    *,
    now: datetime | None = None,
    texts: Mapping[str, str] | None = None,
) -> StrategyComparison:
    """Select with each strategy from the same pool, and compare the bundles.

    Pure, like `select_and_pack_context`. The order of the pool does not matter.

    Args:
        pool: The candidates.
        request: The task and the budget. Its strategy is ignored.
        strategies: Names in `STRATEGIES`, without regard to repetitions, or a mapping of names to
            other strategies, as for a `ContextSelector`.
        now: The time from which ages are measured. None uses the request's time, or else the time
            of the newest item.
        texts: Texts of stored outputs by pointer id. Other outputs can only be named.

    Returns:
        The outcome of each strategy, and how far they agree.

    Raises:
        ValueError: If one of the names is unknown.
    """
    if now is not None:
        request = request.model_copy(update={"now": now})
    by_name = strategies if isinstance(strategies, Mapping) else STRATEGIES
    bundles: dict[str, ContextBundle] = {}
    for name in strategies:
        variant = request.model_copy(update={"strategy": name})
        bundles[name] = select_and_pack_context(
            pool,
            allocate_budget(variant),
            variant.intent,
            request=variant,
            texts=texts,
            strategies=by_name,
        )
    counts = Counter(chain.from_iterable(map(_keys, bundles.values())))
    outcomes: list[StrategyOutcome] = []
    for name, bundle in bundles.items():
        only_here = tuple(key for key in _keys(bundle) if counts[key] == 1)
        outcomes.append(StrategyOutcome(name, bundle, only_here))
    overlaps: dict[tuple[str, str], float] = {}
    for left, right in combinations(bundles, 2):
        left_keys, right_keys = set(_keys(bundles[left])), set(_keys(bundles[right]))
        union = left_keys | right_keys
        overlaps[left, right] = len(left_keys & right_keys) / len(union) if union else 1.0
    return StrategyComparison(tuple(outcomes), overlaps)


def _keys(bundle: ContextBundle) -> tuple[tuple[Kind, str], ...]:
    """Return kind and id of the items that a bundle kept."""
    return tuple((account.kind, account.id) for account in bundle.kept)
