"""Which items are worth most together in a room: a 0/1 knapsack, solved nearly exactly in little time.

Items are taken by worth per token; where that leaves more than a two-hundredth of the possible worth, a bounded
branch-and-bound search over the items around the break improves it (Horowitz and Sahni 1974; Pisinger 1997 on cores).
"""

from collections.abc import Sequence, Set as AbstractSet
from typing import NamedTuple

from llm_common.context.bundle import FRACTIONS
from llm_common.context.packing.candidate import Placed

__all__ = ["Load", "Offer", "choose", "offers_of"]

_CORE = 40
_MAX_NODES = 3_000
_SLACK = 1.005


class Load(NamedTuple):
    """What an item is worth, 0 or more, and what it takes, 0 or more.

    Attributes:
        worth: What it adds.
        size: What it takes.
        after: The position of an earlier load, worth no less per token, without which it cannot be taken: what it adds
            to another form of its item.
    """

    worth: float
    size: int
    after: int | None = None


def choose(loads: Sequence[Load], room: int) -> list[int]:
    """The positions of the loads to take, in ascending order; what they take never exceeds the room.

    Up to 40 loads that fit give at least 99.5% of the largest possible worth, unless the search reaches its bound of
    3,000 steps; more loads give at least the greedy choice. The first of equals is taken.
    """
    able = [position for position, load in enumerate(loads) if load.size <= room]
    able.sort(key=lambda position: (-loads[position].worth / max(loads[position].size, 1), position))
    taken, left = _greedy(loads, able, room)
    first = next((rank for rank, position in enumerate(able) if position not in taken), len(able))
    start = max(first - _CORE // 2, 0) if len(able) > _CORE else 0
    core = able[start : start + _CORE]
    fixed = taken.difference(core)
    search = _Search(loads, core, fixed)
    search.best_worth = sum(loads[position].worth for position in taken if position not in fixed)
    search.run(0, left + sum(loads[position].size for position in taken if position not in fixed), 0.0)
    if search.best is not None:
        taken = fixed.union(search.best)
        taken, _ = _greedy(loads, able, room - sum(loads[position].size for position in taken), taken)
    return sorted(taken)


def _greedy(
    loads: Sequence[Load], order: Sequence[int], room: int, taken: AbstractSet[int] = frozenset()
) -> tuple[set[int], int]:
    """The loads taken before and those of the others that fit, in that order; the room that is left."""
    taken = set(taken)
    for position in order:
        load = loads[position]
        if load.size <= room and position not in taken and (load.after is None or load.after in taken):
            taken.add(position)
            room -= load.size
    return taken, room


class _Search:
    """Depth first over loads in the order of their worth per token, cut off where no better choice can follow."""

    def __init__(self, loads: Sequence[Load], order: Sequence[int], fixed: AbstractSet[int]) -> None:
        self._loads = [loads[position] for position in order]
        self._order = order
        self._fixed = fixed
        self._taken: list[int] = []
        self._nodes = 0
        self.best: list[int] | None = None
        self.best_worth = 0.0

    def run(self, at: int, room: int, worth: float) -> None:
        """Tries every choice among the loads from that one on."""
        self._nodes += 1
        if worth > self.best_worth:
            self.best, self.best_worth = self._taken.copy(), worth
        if at == len(self._loads) or self._nodes > _MAX_NODES:
            return
        if worth + self._bound(at, room) <= self.best_worth * _SLACK:
            return
        load = self._loads[at]
        if load.size <= room and (load.after is None or load.after in self._fixed or load.after in self._taken):
            self._taken.append(self._order[at])
            self.run(at + 1, room - load.size, worth + load.worth)
            self._taken.pop()
        self.run(at + 1, room, worth)

    def _bound(self, at: int, room: int) -> float:
        """The worth that loads from that one on could add if the last could be split."""
        total = 0.0
        for load in self._loads[at:]:
            if load.size > room:
                return total + load.worth * room / load.size
            room -= load.size
            total += load.worth
        return total


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
