"""A 0/1 knapsack: the items with the highest value within a capacity, nearly.

Items are taken by value per token. Where that may leave more than half a percent of the possible value, a bounded
branch-and-bound search over the items around the break improves it (Horowitz and Sahni 1974; Pisinger 1997 on cores).
"""

from collections.abc import Sequence, Set as AbstractSet
from typing import NamedTuple

from llm_common.context.packing.candidate import Placed

_CORE = 40
_MAX_NODES = 3_000
_SLACK = 1.005


class KnapsackItem(NamedTuple):
    """The value of an item, 0 or more, and its size, 0 or more.

    Attributes:
        value: What it adds.
        size: What it takes of the capacity.
        after: The position of an earlier item with at least the same value per size, without which this one cannot be
            taken. This one is then what a fuller form adds to the form before it.
    """

    value: float
    size: int
    after: int | None = None


class Option(NamedTuple):
    """A form of a candidate, and what it adds to the option before it of the same candidate."""

    placed: Placed
    item: KnapsackItem


def best_of(wholes: Sequence[Placed], parts: Sequence[Placed], capacity: int) -> list[Placed]:
    """The forms with the highest value within the capacity, one for each candidate.

    Args:
        wholes: As for `options_of`.
        parts: As for `options_of`.
        capacity: Tokens that they may take together.
    """
    options = options_of(wholes, parts)
    chosen = [options[position].placed for position in choose([option.item for option in options], capacity)]
    return list({placed.candidate: placed for placed in chosen}.values())


def options_of(wholes: Sequence[Placed], parts: Sequence[Placed]) -> list[Option]:
    """The forms to choose among; of two of one candidate the later stands for both.

    A part with no more value per token than its whole is no option, since the whole uses any capacity as well.

    Args:
        wholes: Candidates with all of their text.
        parts: Parts of some of them, or of candidates that are too large to be whole; at most one for each.
    """
    whole_of = {whole.candidate: whole for whole in wholes}
    dense = [part for part in parts if _is_denser(part, whole_of.get(part.candidate))]
    options = [Option(part, KnapsackItem(part.value, part.tokens)) for part in dense]
    position_of = {part.candidate: position for position, part in enumerate(dense)}
    for whole in wholes:
        after = position_of.get(whole.candidate)
        value, size = (0.0, 0) if after is None else (dense[after].value, dense[after].tokens)
        options.append(Option(whole, KnapsackItem(whole.value - value, whole.tokens - size, after)))
    return options


def _is_denser(part: Placed, whole: Placed | None) -> bool:
    """Whether the part takes less than the whole, and has more value per token."""
    if whole is None:
        return True
    return 0 < part.tokens < whole.tokens and part.value * whole.tokens > whole.value * part.tokens


def choose(items: Sequence[KnapsackItem], capacity: int) -> list[int]:
    """The positions of the items to take, ascending, never over the capacity.

    Up to 40 items that fit give at least 99.5 % of the highest possible value, unless the search reaches its bound of
    3,000 steps. More items give at least the greedy choice. The first of equals is taken.
    """
    able = [position for position, item in enumerate(items) if item.size <= capacity]
    able.sort(key=lambda position: (-items[position].value / max(items[position].size, 1), position))
    taken, left = _greedy(items, able, capacity)
    first = next((rank for rank, position in enumerate(able) if position not in taken), len(able))
    start = max(first - _CORE // 2, 0) if len(able) > _CORE else 0
    core = able[start : start + _CORE]
    fixed = taken.difference(core)
    free = [items[position] for position in taken if position not in fixed]
    search = _Search(items, core, fixed, best_value=sum(item.value for item in free))
    search.run(0, left + sum(item.size for item in free), 0.0)
    if search.best is not None:
        taken = fixed.union(search.best)
        taken, _ = _greedy(items, able, capacity - sum(items[position].size for position in taken), taken)
    return sorted(taken)


def _greedy(
    items: Sequence[KnapsackItem], order: Sequence[int], capacity: int, taken: AbstractSet[int] = frozenset()
) -> tuple[set[int], int]:
    """The items taken before and those of the others that fit, in that order; the capacity that is left."""
    taken = set(taken)
    for position in order:
        item = items[position]
        if item.size <= capacity and position not in taken and (item.after is None or item.after in taken):
            taken.add(position)
            capacity -= item.size
    return taken, capacity


class _Search:
    """A depth-first search over items by falling value per size, cut off where no better choice can follow."""

    def __init__(
        self, items: Sequence[KnapsackItem], order: Sequence[int], fixed: AbstractSet[int], *, best_value: float
    ) -> None:
        self._items = [items[position] for position in order]
        self._order = order
        self._fixed = fixed
        self._taken: list[int] = []
        self._nodes = 0
        self._best_value = best_value
        self.best: list[int] | None = None

    def run(self, at: int, capacity: int, value: float) -> None:
        """Tries every choice among the items from that one on."""
        self._nodes += 1
        if value > self._best_value:
            self.best, self._best_value = self._taken.copy(), value
        if at == len(self._items) or self._nodes > _MAX_NODES:
            return
        if value + self._bound(at, capacity) <= self._best_value * _SLACK:
            return
        item = self._items[at]
        if item.size <= capacity and (item.after is None or item.after in self._fixed or item.after in self._taken):
            self._taken.append(self._order[at])
            self.run(at + 1, capacity - item.size, value + item.value)
            self._taken.pop()
        self.run(at + 1, capacity, value)

    def _bound(self, at: int, capacity: int) -> float:
        """The value that the items from that one on could add if the last one could be split."""
        total = 0.0
        for item in self._items[at:]:
            if item.size > capacity:
                return total + item.value * capacity / item.size
            capacity -= item.size
            total += item.value
        return total
