"""How a verdict on one item moves the weights of the score's parts; pure."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from llm_common.context.bundle import ContextBundle, ItemAccount

__all__ = ["HALF_LIFE", "MAX_FACTOR", "MIN_FACTOR", "STEP", "bounded", "faded", "pushes"]

MIN_FACTOR: Final = 0.5
MAX_FACTOR: Final = 2.0
"""A part counts at least half and at most twice of what the strategy gives it, whatever the verdicts."""

STEP: Final = 0.1
"""The most that one verdict adds to the logarithm of a factor: a tenth, so that a single one decides nothing."""

HALF_LIFE: Final = timedelta(days=30)
"""After so long without a new verdict, a logarithm has half its size: old habits are forgotten."""


def pushes(bundle: ContextBundle, account: ItemAccount, *, helpful: bool) -> dict[str, float]:
    """What a verdict on an item adds to the logarithm of each part's factor, within ±`STEP`.

    A helpful item should beat the mean of its rivals, the other kept items of its kind, or all others of the kind where
    none was kept; an unhelpful one should lose to it. The parts by which it does differ are moved multiplicatively
    along the gradient of the logistic loss of that comparison (exponentiated gradient: Kivinen & Warmuth 1997,
    https://doi.org/10.1006/inco.1996.2612), so that a comparison that is right by a wide margin moves little. All
    differences are measured in the largest of them, and the moves of a verdict sum up to 0, as the normalisation there
    has it: scores keep their scale, and with it the cut-offs their meaning.

    Returns:
        The moves by part; empty without a rival and where nothing tells the item from them. A part that does so alone
        is moved by 0: an order by one part is the same with any factor.
    """
    lead = _lead(bundle, account)
    largest = max(map(abs, lead.values()), default=0.0)
    if not 0.0 < largest < math.inf:
        return {}
    lead = {name: value / largest for name, value in lead.items()}
    verdict = 1.0 if helpful else -1.0
    surprise = 1.0 / (1.0 + math.exp(verdict * sum(lead.values())))
    balance = sum(lead.values()) / len(lead)
    moves = {name: value - balance for name, value in lead.items()}
    size = STEP * verdict * surprise / max(1.0, *map(abs, moves.values()))
    return {name: size * move for name, move in moves.items()}


def faded(logarithm: float, age: timedelta) -> float:
    """What is left of a factor's logarithm after that time; all of it where the clock went back."""
    return logarithm * math.exp2(-max(0.0, age / HALF_LIFE))


def bounded(logarithm: float) -> float:
    """The logarithm within those of the least and the largest factor."""
    return max(math.log(MIN_FACTOR), min(math.log(MAX_FACTOR), logarithm))


def _lead(bundle: ContextBundle, account: ItemAccount) -> dict[str, float]:
    """By how much each part of the item exceeds the mean of its rivals'.

    Parts in which none differs, and those that are no finite number, are left out.
    """
    rivals = _rivals(bundle.kept, account) or _rivals(bundle.dropped, account)
    names = sorted({name for each in (account, *rivals) for name in each.parts})
    lead = {}
    for name in names if rivals else ():
        values = [each.parts.get(name, 0.0) for each in rivals]
        own = account.parts.get(name, 0.0)
        ahead = own - sum(values) / len(values)
        if any(value != own for value in values) and math.isfinite(ahead):
            lead[name] = ahead
    return lead


def _rivals(accounts: Sequence[ItemAccount], account: ItemAccount) -> list[ItemAccount]:
    return [each for each in accounts if each.kind == account.kind and each.id != account.id]
