"""Strategies side by side on one pool."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from llm_common.context import (
    ContextSelectionRequest,
    DataPoolSnapshot,
    Score,
    Scores,
    StrategyComparison,
    allocate_budget,
    compare_strategies,
    select_and_pack_context,
)
from llm_common.context.request import Kind
from llm_common.context.scoring import STRATEGIES
from tests.context.samples import NOON, file, memory, output, request_of, turn

POOL = DataPoolSnapshot(
    session_log=(
        turn(-999, "The rain gauge is read at noon, said the keeper of the rain gauge."),
        *(
            turn(number, f"Turn {number} is about something else altogether, and long.")
            for number in range(1, 40)
        ),
    ),
    context_files=tuple(
        file(f"f{number}.py", f"def rain_{number}(): return {number}\n" * 20) for number in range(6)
    ),
    memory_hits=tuple(memory(number, f"Memory {number} of the rain.") for number in range(3)),
    tool_outputs=(output(1), output(2)),
)
REQUEST = request_of(900, "where is the rain gauge read?")


def compared(*strategies: str) -> StrategyComparison:
    return compare_strategies(
        POOL, REQUEST, strategies or ("measured", "spec"), now=NOON + timedelta(hours=1)
    )


def test_each_strategy_chooses_as_it_would_alone_s1_16() -> None:
    for outcome in compared().outcomes:
        alone = REQUEST.model_copy(
            update={"strategy": outcome.strategy, "now": NOON + timedelta(hours=1)}
        )
        bundle = select_and_pack_context(POOL, allocate_budget(alone), alone.intent, request=alone)
        assert outcome.bundle == bundle
        assert outcome.kept == tuple((each.kind, each.id) for each in bundle.kept)
        assert outcome.bundle.metadata.strategy == outcome.strategy


def test_what_only_one_kept_and_the_overlap_follow_from_what_was_kept_s1_16() -> None:
    comparison = compared()
    measured, spec = comparison.outcomes
    both = set(measured.kept) & set(spec.kept)
    assert ("turn", "t-999") in measured.only_here  # an old turn that answers
    assert set(measured.only_here) == set(measured.kept) - both
    assert set(spec.only_here) == set(spec.kept) - both
    assert comparison.overlaps == {
        ("measured", "spec"): len(both) / len(set(measured.kept) | set(spec.kept))
    }
    assert 0 < comparison.overlaps["measured", "spec"] < 1


def test_a_strategy_agrees_with_itself_and_with_nothing_chosen_s1_16() -> None:
    assert compared("spec", "spec").overlaps == {}
    nothing = compare_strategies(POOL, request_of(150), ("measured", "spec"), now=NOON)
    assert nothing.overlaps == {("measured", "spec"): 1.0}


def test_the_order_of_the_pool_never_matters_s1_16() -> None:
    backwards = POOL.model_copy(
        update={"session_log": POOL.session_log[::-1], "context_files": POOL.context_files[::-1]}
    )
    assert (
        compare_strategies(backwards, REQUEST, now=NOON).explain()
        == compare_strategies(POOL, REQUEST, now=NOON).explain()
    )


def test_a_comparison_explains_itself_without_any_text_of_items_s1_16() -> None:
    comparison = compared()
    data = json.loads(json.dumps(comparison.explain()))
    assert [each["strategy"] for each in data["strategies"]] == ["measured", "spec"]
    assert ["turn", "t-999"] in data["strategies"][0]["only_here"]
    assert data["strategies"][0]["metadata"]["budget"] == 900
    assert data["overlaps"] == [
        {"strategies": ["measured", "spec"], "overlap": comparison.overlaps["measured", "spec"]}
    ]
    text = comparison.explain_text()
    assert "  only here: turn t-999" in text.splitlines()
    assert text.splitlines()[-1].startswith("overlap of measured and spec: ")
    assert "keeper" not in text + repr(data)


def test_stored_outputs_are_shown_where_their_texts_are_given_s1_16() -> None:
    shown = compare_strategies(
        POOL, REQUEST, now=NOON, texts={output(1).pointer_id: "Read at noon."}
    )
    assert all("Read at noon." in each.bundle.render() for each in shown.outcomes)


def test_strategies_of_one_s_own_are_compared_by_their_names_s1_16() -> None:
    class ByName:
        """Likes what comes first in the alphabet."""

        cut_offs: Mapping[Kind, float] = {}

        def score(
            self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
        ) -> Scores:
            return {
                ("file", each.id): Score(1 / (1 + ord(each.id[1]))) for each in pool.context_files
            }

    own = {"by name": ByName(), "spec": STRATEGIES["spec"]}
    comparison = compare_strategies(POOL, REQUEST, own)
    assert [each.strategy for each in comparison.outcomes] == ["by name", "spec"]
    asked = REQUEST.model_copy(update={"strategy": "by name"})
    alone = select_and_pack_context(
        POOL, allocate_budget(asked), asked.intent, request=asked, strategies=own
    )
    assert comparison.outcomes[0].bundle == alone
    assert alone != comparison.outcomes[1].bundle


def test_an_unknown_strategy_is_refused_s1_16() -> None:
    with pytest.raises(ValueError, match="strategy"):
        compared("measured", "nonsense")
