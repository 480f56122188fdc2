import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.context.request import (
    SHARES,
    APIType,
    BudgetAllocation,
    ContextSelectionRequest,
    IntentType,
    UserIntent,
    allocate_budget,
    effective_budget,
)


def request(
    token_budget: Any, intent: IntentType = IntentType.CODE_WRITING, target_api: APIType = APIType.COMPLETION
) -> ContextSelectionRequest:
    return ContextSelectionRequest(
        intent=UserIntent(text="x", classification=intent, confidence=1.0),
        token_budget=token_budget,
        target_api=target_api,
    )


def parts(allocation: BudgetAllocation) -> tuple[int, int, int, int]:
    return allocation.recent_turns, allocation.files, allocation.memory, allocation.project


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        (IntentType.CODE_WRITING, (200, 600, 100, 100)),
        (IntentType.CONVERSATIONAL, (600, 100, 200, 100)),
        (IntentType.FILE_ANALYSIS, (150, 700, 100, 50)),
        (IntentType.CODE_DEBUGGING, (300, 500, 100, 100)),
        (IntentType.CODE_REFACTORING, (150, 650, 100, 100)),
        (IntentType.PROJECT_PLANNING, (250, 250, 200, 300)),
        (IntentType.DOCUMENTATION, (150, 600, 100, 150)),
        (IntentType.COMMAND_EXECUTION, (400, 250, 150, 200)),
    ],
)
def test_shares_by_intent_s1_03(intent: IntentType, expected: tuple[int, ...]) -> None:
    allocation = allocate_budget(request(1_200, intent))
    assert (allocation.system, *parts(allocation)) == (200, *expected)
    assert allocation.total_budget == 1_200


@given(st.integers(1, 10**12), st.sampled_from(IntentType), st.sampled_from(APIType))
def test_parts_are_whole_and_make_up_the_budget_exactly_s1_03(budget: int, intent: IntentType, api: APIType) -> None:
    asked = request(budget, intent, api)
    allocation = allocate_budget(asked)
    assert allocation.total_budget == effective_budget(asked) <= budget
    assert allocation.system + sum(parts(allocation)) == allocation.total_budget
    rest = allocation.total_budget - allocation.system
    for part, share in zip(parts(allocation), SHARES[intent], strict=True):
        assert isinstance(part, int)
        assert rest * share // 100 <= part <= rest * share // 100 + 1


def test_every_share_is_of_a_hundred_s1_03() -> None:
    assert {sum(shares) for shares in SHARES.values()} == {100}
    assert set(SHARES) == set(IntentType)


@pytest.mark.parametrize("budget", [0, -1, 1.5, 1.0, math.nan, True, "500", None], ids=lambda value: f"F-134-{value}")
def test_what_is_no_positive_whole_number_is_refused_s1_04(budget: Any) -> None:
    with pytest.raises(ValueError, match="token_budget"):
        request(budget)


def test_a_huge_budget_is_shared_exactly_f_134() -> None:
    allocation = allocate_budget(request(10**12))
    assert sum(parts(allocation)) == 10**12 - 200


@pytest.mark.parametrize(("budget", "shared"), [(1, 0), (199, 0), (200, 0), (201, 1)], ids=["F-135"] * 4)
def test_a_budget_up_to_the_systems_leaves_nothing_to_share_s1_04(budget: int, shared: int) -> None:
    allocation = allocate_budget(request(budget))
    assert (allocation.system, sum(parts(allocation)), allocation.total_budget) == (min(budget, 200), shared, budget)


@pytest.mark.parametrize(
    ("api", "budget", "expected"),
    [
        (APIType.REALTIME, 100_000, 4_096),
        (APIType.REALTIME, 4_000, 4_000),
        (APIType.COMPLETION, 100_000, 100_000),
        (APIType.BATCH, 10**9, 10**9),
        (APIType.STREAMING, 100_000, 100_000),
    ],
)
def test_the_target_caps_the_budget_s1_06(api: APIType, budget: int, expected: int) -> None:
    assert effective_budget(request(budget, target_api=api)) == expected
    assert allocate_budget(request(budget, target_api=api)).total_budget == expected
