"""`compare_strategies`: what different strategies choose from the same pool."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain, combinations
from typing import Any

from llm_common.context.bundle import ContextBundle
from llm_common.context.request import (
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    allocate_budget,
)
from llm_common.context.scoring import STRATEGIES, Strategy
from llm_common.context.selector import select_and_pack_context
from llm_common.text.display import one_line

_ID_CHARS = 48


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """The bundle of one strategy, and the items that no other strategy kept."""

    strategy: str
    bundle: ContextBundle
    only_here: tuple[tuple[Kind, str], ...]

    @property
    def kept(self) -> tuple[tuple[Kind, str], ...]:
        """Kind and id of the items in its bundle, in the bundle's order."""
        return tuple((account.kind, account.id) for account in self.bundle.kept)


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """What strategies chose from the same pool.

    Attributes:
        outcomes: One per strategy, in the order asked for.
        overlaps: By pair of names, in that order: the items that both kept as a share of those that
            either kept (Jaccard's index); 1 when neither kept any.
    """

    outcomes: tuple[StrategyOutcome, ...]
    overlaps: Mapping[tuple[str, str], float]

    def explain(self) -> dict[str, Any]:
        """Return the comparison as plain data for JSON, without the text of any item."""
        strategies: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            entry = {
                "strategy": outcome.strategy,
                "metadata": asdict(outcome.bundle.metadata),
                "kept": [*map(list, outcome.kept)],
                "only_here": [*map(list, outcome.only_here)],
            }
            strategies.append(entry)
        overlaps = [
            {"strategies": list(pair), "overlap": overlap}
            for pair, overlap in self.overlaps.items()
        ]
        return {"strategies": strategies, "overlaps": overlaps}

    def explain_text(self) -> str:
        """Return the same as a text: a line per strategy, its own items, and a line per pair."""
        lines: list[str] = []
        for outcome in self.outcomes:
            metadata = outcome.bundle.metadata
            lines.append(
                f"{outcome.strategy}: {len(outcome.bundle.kept)} items, "
                f"{metadata.total_tokens:,} of {metadata.budget:,} tokens"
            )
            for kind, item_id in outcome.only_here:
                shown_id = one_line(item_id, max_chars=_ID_CHARS)
                lines.append(f"  only here: {kind} {shown_id}")
        for (left, right), share in self.overlaps.items():
            agreement = f"overlap of {left} and {right}: {share:.0%}"
            lines.append(agreement)
        return "\n".join(lines)


def compare_strategies(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    strategies: Sequence[str] | Mapping[str, Strategy] = ("measured", "spec"),
    *,
    now: datetime | None = None,
    texts: Mapping[str, str] | None = None,
) -> StrategyComparison:
    """Return what each strategy chooses from the pool, and how far they agree.

    Pure, as `select_and_pack_context` is; the order of the pool does not matter.

    Args:
        pool: The candidates.
        request: What to select for; its strategy is not read.
        strategies: Names in `STRATEGIES`, of which a repeated one counts once; or other strategies
            by name, as for a `ContextSelector`.
        now: The moment that ages are measured from; None takes the request's, else the newest
            item's.
        texts: Texts of stored outputs by pointer id; other outputs can only be named.

    Raises:
        ValueError: There is no strategy of one of the names.
    """
    if now is not None:
        request = request.model_copy(update={"now": now})
    by_name = strategies if isinstance(strategies, Mapping) else STRATEGIES
    bundles: dict[str, ContextBundle] = {}
    kept: dict[str, set[tuple[Kind, str]]] = {}
    for name in strategies:
        asked = request.model_copy(update={"strategy": name})
        bundles[name] = select_and_pack_context(
            pool,
            allocate_budget(asked),
            asked.intent,
            request=asked,
            texts=texts,
            strategies=by_name,
        )
        kept[name] = {(account.kind, account.id) for account in bundles[name].kept}
    holders = Counter(chain.from_iterable(kept.values()))
    outcomes: list[StrategyOutcome] = []
    for name, bundle in bundles.items():
        keys = [(account.kind, account.id) for account in bundle.kept]
        only_here = tuple(key for key in keys if holders[key] == 1)
        outcomes.append(StrategyOutcome(name, bundle, only_here))
    overlaps: dict[tuple[str, str], float] = {}
    for left, right in combinations(kept, 2):
        union = kept[left] | kept[right]
        overlaps[left, right] = len(kept[left] & kept[right]) / len(union) if union else 1.0
    return StrategyComparison(tuple(outcomes), overlaps)
