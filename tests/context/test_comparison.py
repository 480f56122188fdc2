"""Comparison of strategies on the same pool."""

from collections.abc import Mapping
from datetime import datetime, timedelta

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
            turn(index, f"Turn {index} is about something else altogether, and long.")
            for index in range(1, 40)
        ),
    ),
    context_files=tuple(
        file(f"f{index}.py", f"def rain_{index}(): return {index}\n" * 20) for index in range(6)
    ),
    memory_hits=tuple(memory(index, f"Memory {index} of the rain.") for index in range(3)),
    tool_outputs=(output(1), output(2)),
)
REQUEST = request_of(900, "where is the rain gauge read?")


def compared(*strategies: str) -> StrategyComparison:
    return compare_strategies(
        POOL, REQUEST, strategies or ("measured", "spec"), now=NOON + timedelta(hours=1)
    )


def test_each_strategy_selects_as_it_would_alone_s1_16() -> None:
    for outcome in compared().outcomes:
        alone = REQUEST.model_copy(
            update={"strategy": outcome.strategy, "now": NOON + timedelta(hours=1)}
        )
        bundle = select_and_pack_context(POOL, allocate_budget(alone), alone.intent, request=alone)
        assert outcome.bundle == bundle
        assert outcome.kept == tuple((account.kind, account.id) for account in bundle.kept)
        assert outcome.bundle.metadata.strategy == outcome.strategy


def test_only_here_and_overlaps_follow_from_the_kept_items_s1_16() -> None:
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


def test_equal_and_empty_selections_overlap_fully_s1_16() -> None:
    assert compared("spec", "spec").overlaps == {}
    nothing = compare_strategies(POOL, request_of(150), ("measured", "spec"), now=NOON)
    assert nothing.overlaps == {("measured", "spec"): 1.0}


def test_stored_outputs_with_texts_are_shown_s1_16() -> None:
    with_texts = compare_strategies(
        POOL, REQUEST, now=NOON, texts={output(1).pointer_id: "Read at noon."}
    )
    assert all("Read at noon." in item.bundle.render() for item in with_texts.outcomes)


def test_custom_strategies_are_compared_by_name_s1_16() -> None:
    class ByName:
        """Prefers items that come first in the alphabet."""

        cut_offs: Mapping[Kind, float] = {}

        def score(
            self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
        ) -> Scores:
            return {
                ("file", item.id): Score(1 / (1 + ord(item.id[1]))) for item in pool.context_files
            }

    own = {"by name": ByName(), "spec": STRATEGIES["spec"]}
    comparison = compare_strategies(POOL, REQUEST, own)
    assert [item.strategy for item in comparison.outcomes] == ["by name", "spec"]
    selection = REQUEST.model_copy(update={"strategy": "by name"})
    alone = select_and_pack_context(
        POOL, allocate_budget(selection), selection.intent, request=selection, strategies=own
    )
    assert comparison.outcomes[0].bundle == alone
    assert alone != comparison.outcomes[1].bundle
