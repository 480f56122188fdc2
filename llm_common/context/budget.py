"""How the tokens of a request are shared among the parts of a bundle."""

from collections.abc import Mapping
from typing import Final

from llm_common.context.request import APIType, BudgetAllocation, ContextSelectionRequest, IntentType

__all__ = ["API_CAPS", "SHARES", "SYSTEM_TOKENS", "allocate_budget", "effective_budget"]

SYSTEM_TOKENS: Final = 200
"""What is kept back for what stands around the items: the frame, its headings and fences.

The specification reserves it for a system prompt ("Phase 1: Budget Allocation"). Here the budget is that of the bundle
alone, all of which `render()` may use: what the frame does not need of the reserve goes to the items.
"""

API_CAPS: Final[Mapping[APIType, int]] = {APIType.REALTIME: 4_096}
"""The window of a target, where it has a fixed one."""

# In percent, so that the parts come out exact for any whole number of tokens: turns, files, memory, project.
SHARES: Final[Mapping[IntentType, tuple[int, int, int, int]]] = {
    IntentType.CODE_WRITING: (20, 60, 10, 10),
    IntentType.CODE_DEBUGGING: (30, 50, 10, 10),
    IntentType.CODE_REFACTORING: (15, 65, 10, 10),
    IntentType.FILE_ANALYSIS: (15, 70, 10, 5),
    IntentType.CONVERSATIONAL: (60, 10, 20, 10),
    IntentType.PROJECT_PLANNING: (25, 25, 20, 30),
    IntentType.DOCUMENTATION: (15, 60, 10, 15),
    IntentType.COMMAND_EXECUTION: (40, 25, 15, 20),
}
"""Percent of the tokens beside the system's that turns, files, memory and project get, by intent."""


def effective_budget(request: ContextSelectionRequest) -> int:
    """The tokens that a bundle may take: the request's budget, or the window of its target where that is smaller."""
    return min(request.token_budget, API_CAPS.get(request.target_api, request.token_budget))


def allocate_budget(request: ContextSelectionRequest) -> BudgetAllocation:
    """Whole tokens for each part, which with the system's are the effective budget exactly.

    What the percentages leave over in fractions goes to the parts that lost most by rounding down, the first of equals
    first. A budget of at most 200 tokens is all the system's: the parts get nothing, and nothing can be selected.

    Args:
        request: Its intent decides the shares (specification, "Phase 1: Budget Allocation").
    """
    budget = effective_budget(request)
    system = min(budget, SYSTEM_TOKENS)
    shares = SHARES[request.intent.classification]
    whole, lost = zip(*(divmod((budget - system) * share, 100) for share in shares), strict=True)
    neediest = sorted(range(len(shares)), key=lambda part: -lost[part])[: budget - system - sum(whole)]
    turns, files, memory, project = (tokens + (part in neediest) for part, tokens in enumerate(whole))
    return BudgetAllocation(system, turns, files, memory, project, total_budget=budget)
