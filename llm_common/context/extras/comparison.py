"""`compare_strategies`: what different strategies choose from the same pool."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

from llm_common.context.bundle import ContextBundle
from llm_common.context.pool import DataPoolSnapshot
from llm_common.context.request import ContextSelectionRequest, Kind, allocate_budget
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
        return tuple((each.kind, each.id) for each in self.bundle.kept)


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
        """The comparison as plain data for JSON; no text of any item."""
        return {
            "strategies": [
                {
                    "strategy": each.strategy,
                    "metadata": asdict(each.bundle.metadata),
                    "kept": [list(key) for key in each.kept],
                    "only_here": [list(key) for key in each.only_here],
                }
                for each in self.outcomes
            ],
            "overlaps": [
                {"strategies": list(pair), "overlap": overlap}
                for pair, overlap in self.overlaps.items()
            ],
        }

    def explain_text(self) -> str:
        """The same as a text: a line per strategy, its own items, and a line per pair."""
        lines = []
        for each in self.outcomes:
            figures = each.bundle.metadata
            lines.append(
                f"{each.strategy}: {len(each.bundle.kept)} items, {figures.total_tokens:,} of {figures.budget:,} tokens"
            )
            lines += [
                f"  only here: {kind} {one_line(item, max_chars=_ID_CHARS)}"
                for kind, item in each.only_here
            ]
        lines += [
            f"overlap of {one} and {other}: {share:.0%}"
            for (one, other), share in self.overlaps.items()
        ]
        return "\n".join(lines)


def compare_strategies(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    strategies: Sequence[str] | Mapping[str, Strategy] = ("measured", "spec"),
    *,
    now: datetime | None = None,
    texts: Mapping[str, str] | None = None,
) -> StrategyComparison:
    """What each strategy chooses from the pool, and how far they agree.

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
    asked = request if now is None else request.model_copy(update={"now": now})
    known = strategies if isinstance(strategies, Mapping) else STRATEGIES
    bundles = {name: _bundle(pool, asked, name, texts, known) for name in strategies}
    kept = {
        name: {(each.kind, each.id) for each in bundle.kept} for name, bundle in bundles.items()
    }
    outcomes = []
    for name, bundle in bundles.items():
        elsewhere = set().union(*(keys for other, keys in kept.items() if other != name))
        only_here = (
            (each.kind, each.id) for each in bundle.kept if (each.kind, each.id) not in elsewhere
        )
        outcomes.append(StrategyOutcome(name, bundle, tuple(only_here)))
    overlaps = {
        (one, other): _overlap(kept[one], kept[other]) for one, other in combinations(kept, 2)
    }
    return StrategyComparison(tuple(outcomes), overlaps)


def _bundle(
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    strategy: str,
    texts: Mapping[str, str] | None,
    strategies: Mapping[str, Strategy],
) -> ContextBundle:
    asked = request.model_copy(update={"strategy": strategy})
    allocation = allocate_budget(asked)
    return select_and_pack_context(
        pool, allocation, asked.intent, request=asked, texts=texts, strategies=strategies
    )


def _overlap(one: set[tuple[Kind, str]], other: set[tuple[Kind, str]]) -> float:
    return len(one & other) / len(one | other) if one | other else 1.0
