"""`rooms`: how much of the budget each kind of item may take."""

from collections.abc import Mapping

from llm_common.context.request import BudgetAllocation, Kind
from llm_common.text.excerpt import fair_shares

__all__ = ["rooms"]


def rooms(
    allocation: BudgetAllocation, wanted: Mapping[Kind, int], used: Mapping[Kind, int], left: int
) -> dict[Kind, int]:
    """Tokens for each kind that wants some, at most `left` together, nobody more than it wants.

    The ceilings are the allocation's, less what a kind has already used, all made smaller alike where the rest of the
    budget is too small for them. They are cumulative: what turns leave goes on to files and outputs, which share
    theirs fairly, then to memories, then to the project. What is left at the end, the share of the system text that the
    headings do not need included, is divided fairly among the kinds that still want more.

    Args:
        allocation: The ceilings.
        wanted: Tokens of all that is not yet in, by kind.
        used: Tokens of what is in, by kind.
        left: Tokens that remain of the budget.
    """
    stages: tuple[tuple[tuple[Kind, ...], int], ...] = (
        (("turn",), allocation.recent_turns),
        (("file", "output"), allocation.files),
        (("memory",), allocation.memory),
        (("project",), allocation.project),
    )
    ceilings = [max(ceiling - sum(used.get(kind, 0) for kind in kinds), 0) for kinds, ceiling in stages]
    whole = max(sum(ceilings), left, 1)
    given: dict[Kind, int] = {}
    unused = 0
    for (kinds, _), ceiling in zip(stages, ceilings, strict=True):
        have = unused + ceiling * left // whole
        shares = fair_shares([wanted.get(kind, 0) for kind in kinds], have)
        given.update(zip(kinds, shares, strict=True))
        unused = have - sum(shares)
    unmet = {kind: wanted.get(kind, 0) - share for kind, share in given.items()}
    extra = fair_shares(list(unmet.values()), left - sum(given.values()))
    return {kind: share + more for (kind, share), more in zip(given.items(), extra, strict=True)}
