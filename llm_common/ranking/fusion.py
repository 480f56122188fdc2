"""Fuses several rankings of the same keys into one."""

import math
from collections.abc import Mapping, Sequence

from llm_common.ranking.lexical import Hit, best_first


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: int = 60, weights: Sequence[float] | None = None
) -> list[Hit]:
    """Return the keys of all rankings, first those with a high rank in many of them.

    A key's score is the sum of `weight / (k + rank)` over the rankings that hold it; the first rank
    is 1. Only ranks count, so rankings whose scores do not compare can be fused. Ties are in the
    order of the keys. From Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms
    Condorcet and individual rank learning methods", SIGIR 2009.

    Args:
        rankings: Keys, best first; a key that a ranking repeats counts once, at its best rank.
        k: The higher, the less the first ranks differ from the next; the default is the paper's.
        weights: One factor for each ranking; None gives all the weight 1.

    Raises:
        ValueError: `k` is negative, or there are not as many weights as rankings.
    """
    if k < 0:
        raise ValueError(f"k is {k}; it must be 0 or more")
    factors = [1.0] * len(rankings) if weights is None else weights
    if len(factors) != len(rankings):
        raise ValueError(f"{len(factors)} weights for {len(rankings)} rankings; give one for each")
    shares = [
        (factor, {key: 1 / (k + rank) for rank, key in enumerate(dict.fromkeys(ranking), start=1)})
        for ranking, factor in zip(rankings, factors, strict=True)
    ]
    return weighted_sum(shares)


def weighted_sum(parts: Sequence[tuple[float, Mapping[str, float]]]) -> list[Hit]:
    """Return the keys of all parts by the sum of `weight * score`, best first, ties by key.

    A part that lacks a key adds nothing to it. Normalise the parts first when their scales differ.

    Args:
        parts: Pairs of a weight and the scores of that part by key.
    """
    terms: dict[str, list[float]] = {}
    for weight, scores in parts:
        for key, score in scores.items():
            terms.setdefault(key, []).append(weight * score)
    # exact, so ties are ties in any order
    return best_first(Hit(key, math.fsum(shares)) for key, shares in terms.items())
