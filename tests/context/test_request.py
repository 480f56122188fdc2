import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from llm_common.context import (
    APIType,
    BudgetAllocation,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    FileMetadata,
    IntentType,
    MemorySnippet,
    TurnEntry,
    UserIntent,
    allocate_budget,
    classify_intent,
    score_context_file,
    score_conversation_turn,
    score_memory_snippet,
    select_and_pack_context,
)
from llm_common.context.request import SHARES, IntentMetadata
from llm_common.context.scoring import STRATEGIES, score_pool

START = datetime(2025, 6, 1, 12, tzinfo=UTC)


def request(
    token_budget: Any,
    intent: IntentType = IntentType.CODE_WRITING,
    target_api: APIType = APIType.COMPLETION,
) -> ContextSelectionRequest:
    return ContextSelectionRequest(
        intent=UserIntent(text="x", classification=intent, confidence=1.0),
        token_budget=token_budget,
        target_api=target_api,
    )


def parts(allocation: BudgetAllocation) -> tuple[int, int, int, int]:
    return allocation.recent_turns, allocation.files, allocation.memory, allocation.project


@pytest.mark.parametrize(
    ("budget", "intent", "expected"),
    [
        (1_200, IntentType.CODE_WRITING, (200, 600, 100, 100)),
        (1_200, IntentType.CONVERSATIONAL, (600, 100, 200, 100)),
        (1_200, IntentType.FILE_ANALYSIS, (150, 700, 100, 50)),
        (1_200, IntentType.CODE_DEBUGGING, (300, 500, 100, 100)),
        (1_200, IntentType.CODE_REFACTORING, (150, 650, 100, 100)),
        (1_200, IntentType.PROJECT_PLANNING, (250, 250, 200, 300)),
        (1_200, IntentType.DOCUMENTATION, (150, 600, 100, 150)),
        (1_200, IntentType.COMMAND_EXECUTION, (400, 250, 150, 200)),
        # tokens left by rounding go to the largest remainders: of .45, 2.1, .3 and .15
        (203, IntentType.FILE_ANALYSIS, (1, 2, 0, 0)),
        # of .5, .5, .4 and .6
        (202, IntentType.PROJECT_PLANNING, (1, 0, 0, 1)),
    ],
)
def test_shares_by_intent_s1_03(budget: int, intent: IntentType, expected: tuple[int, ...]) -> None:
    allocation = allocate_budget(request(budget, intent))
    assert (allocation.system, *parts(allocation)) == (200, *expected)
    assert allocation.total_budget == budget


@given(st.integers(1, 10**12), st.sampled_from(IntentType), st.sampled_from(APIType))
def test_parts_are_whole_and_add_up_to_the_budget_s1_03(
    budget: int, intent: IntentType, api: APIType
) -> None:
    allocation = allocate_budget(request(budget, intent, api))
    assert allocation.total_budget <= budget
    assert allocation.system + sum(parts(allocation)) == allocation.total_budget
    shared_tokens = allocation.total_budget - allocation.system
    for part, share in zip(parts(allocation), SHARES[intent], strict=True):
        assert isinstance(part, int)
        assert shared_tokens * share // 100 <= part <= shared_tokens * share // 100 + 1


def test_the_shares_add_up_to_one_hundred_s1_03() -> None:
    assert {sum(shares) for shares in SHARES.values()} == {100}
    assert set(SHARES) == set(IntentType)


@pytest.mark.parametrize(
    "budget", [0, -1, 1.5, 1.0, math.nan, True, "500", None], ids=lambda value: f"F-134-{value}"
)
def test_the_error_for_a_budget_that_is_not_a_positive_int_says_what_to_pass_s1_04(
    budget: object,
) -> None:
    with pytest.raises(ValueError, match=f"token_budget is {budget}; give a whole number above 0"):
        request(budget)


def test_a_huge_budget_is_divided_exactly_f_134() -> None:
    allocation = allocate_budget(request(10**12))
    assert sum(parts(allocation)) == 10**12 - 200


@pytest.mark.parametrize(
    ("budget", "shared"), [(1, 0), (199, 0), (200, 0), (201, 1)], ids=["F-135"] * 4
)
def test_a_budget_within_the_system_part_leaves_no_tokens_s1_04(budget: int, shared: int) -> None:
    allocation = allocate_budget(request(budget))
    assert (allocation.system, sum(parts(allocation)), allocation.total_budget) == (
        min(budget, 200),
        shared,
        budget,
    )


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
    assert allocate_budget(request(budget, target_api=api)).total_budget == expected


INTENT = UserIntent(text="x", classification=IntentType.CODE_WRITING, confidence=1.0)


def made(**fields: Any) -> ContextSelectionRequest:
    return ContextSelectionRequest(**{"intent": INTENT, "token_budget": 1_000, **fields})


def test_the_names_of_the_specification_are_accepted_s1_08() -> None:
    selection = made(selection_strategy="spec", custom_weights={"words": 2.0})
    assert (selection.strategy, selection.weights) == ("spec", {"words": 2.0})
    assert made(selection_strategy="spec").weights == {}


@pytest.mark.parametrize(
    "twice",
    [
        {"strategy": "spec", "selection_strategy": "spec"},
        {"weights": {}, "custom_weights": {"words": 1.0}},
    ],
)
def test_a_field_with_both_names_raises_s1_08(twice: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="are the same field; give one of them"):
        made(**twice)


def test_unknown_fields_raise_s1_08() -> None:
    makers: list[Callable[..., object]] = [
        made,
        partial(UserIntent, text="x", classification=IntentType.CODE_WRITING, confidence=1.0),
        IntentMetadata,
    ]
    for make in makers:
        make()
        with pytest.raises(ValueError, match="bugdet"):
            make(bugdet=1)


def test_the_error_for_a_str_as_intent_names_the_classifier() -> None:
    with pytest.raises(TypeError, match=r"intent is a str; pass classify_intent\(text\)"):
        made(intent="fix the bug")
    with pytest.raises(TypeError, match=r"pass classify_intent\(text\)"):
        score_context_file(
            ContextFile(id="a", path="a", name="a", content=""), cast("UserIntent", "fix the bug")
        )
    with pytest.raises(TypeError, match=r"pass classify_intent\(text\)"):
        select_and_pack_context(
            DataPoolSnapshot(),
            allocate_budget(made()),
            cast("UserIntent", "fix the bug"),
            request=made(),
        )


def test_the_strategies_are_measured_by_default_and_spec_s1_13() -> None:
    assert made().strategy == "measured"
    assert STRATEGIES.keys() == {"measured", "spec"}
    pool = DataPoolSnapshot(
        session_log=(
            TurnEntry(
                id="old",
                timestamp=START,
                role="user",
                content="the kitchen counter is two metres long",
            ),
            *(
                TurnEntry(
                    id=f"t{hour}",
                    timestamp=START + timedelta(hours=hour),
                    role="user",
                    content="and so on",
                )
                for hour in range(1, 40)
            ),
        )
    )
    first = {}
    for selection in (
        made(intent=classify_intent("how long is the kitchen counter?")),
        made(strategy="spec"),
    ):
        scores = score_pool(pool, selection, now=START + timedelta(hours=40))
        first[selection.strategy] = max(scores, key=lambda key: scores[key].value)[1]
    assert first == {"measured": "old", "spec": "t39"}


def test_the_score_functions_use_the_current_time_by_default_s1_07() -> None:
    now = datetime.now(UTC)
    turn = TurnEntry(id="t", timestamp=now, role="user", content="")
    assert score_conversation_turn(turn, INTENT) == pytest.approx(0.7, abs=0.01)
    changed = ContextFile(
        id="a", path="a", name="a", content="", metadata=FileMetadata(last_modified=now)
    )
    assert score_context_file(changed, INTENT) == pytest.approx(0.2)
    snippet = MemorySnippet(id="m", text="", timestamp=now)
    assert score_memory_snippet(snippet, INTENT) == pytest.approx(0.2, abs=0.01)
