"""What a room of the budget can be filled with: items in one form or the other, as loads of a knapsack."""

from collections.abc import Sequence
from typing import NamedTuple

from llm_common.context.bundle import FRACTIONS
from llm_common.context.packing.candidate import Placed
from llm_common.context.packing.knapsack import Load

__all__ = ["Offer", "offers_of"]


class Offer(NamedTuple):
    """A form of an item, and what it adds to the forms of the same item before it."""

    placed: Placed
    load: Load


def offers_of(wholes: Sequence[Placed], parts: Sequence[Placed]) -> list[Offer]:
    """The offers, of which a later one stands for the whole item when both are taken.

    A part that is worth no more per token than the whole is not offered: the whole is as good a use of any room.

    Args:
        wholes: Items with all of their text.
        parts: Less of some of them, or of items that are too large to be whole; once each.
    """
    whole_loads = {whole.candidate: _load(whole) for whole in wholes}
    offers: list[Offer] = []
    before: dict[object, int] = {}
    for part in parts:
        load = _load(part)
        if _is_denser(load, whole_loads.get(part.candidate)):
            before[part.candidate] = len(offers)
            offers.append(Offer(part, load))
    for whole in wholes:
        load, after = whole_loads[whole.candidate], before.get(whole.candidate)
        if after is not None:
            part_load = offers[after].load
            load = Load(load.worth - part_load.worth, load.size - part_load.size, after)
        offers.append(Offer(whole, load))
    return offers


def _load(placed: Placed) -> Load:
    return Load(placed.candidate.worth * FRACTIONS[placed.form], placed.tokens)


def _is_denser(part: Load, whole: Load | None) -> bool:
    """Whether it is worth more per token, and takes less."""
    return whole is None or (0 < part.size < whole.size and part.worth * whole.size > whole.worth * part.size)
