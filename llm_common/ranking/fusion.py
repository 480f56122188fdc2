"""Fuse several rankings of the same keys into one."""

import math
from collections.abc import Sequence

from llm_common.ranking.lexical import Hit, best_first


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: int = 60, weights: Sequence[float] | None = None
) -> list[Hit]:
    """Fuse rankings, so that a key with a high rank in many of them comes first.

    The score of a key is the sum of `weight / (k + rank)` over the rankings that contain it. The
    first rank is 1. Only ranks count, so rankings whose scores do not compare can be fused. From
    Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009.

    Args:
        rankings: Keys, best first. A repeated key counts once, at its best rank.
        k: A higher value makes the first ranks differ less. The default is the paper's.
        weights: A factor for each ranking. None weighs all alike.

    Returns:
        A hit for each key, best first. Ties are in the order of the keys.

    Raises:
        ValueError: If `k` is negative, or `weights` and `rankings` differ in length.
    """
    if k < 0:
        raise ValueError(f"k is {k}; it must be 0 or more")
    if weights is None:
        weights = [1.0] * len(rankings)
    if len(weights) != len(rankings):
        raise ValueError(
            f"{len(weights)} weights for {len(rankings)} rankings; give one weight a ranking"
        )
    shares: dict[str, list[float]] = {}
    for weight, ranking in zip(weights, rankings, strict=True):
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            shares.setdefault(key, []).append(weight / (k + rank))
    # fsum is exact, so keys with the same ranks tie whatever the order of the rankings.
    return best_first(Hit(key, math.fsum(terms)) for key, terms in shares.items())
