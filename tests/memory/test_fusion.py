"""Fusion of rankings."""

from hypothesis import example, given, strategies as st

from llm_common.memory.postgres import reciprocal_rank_fusion
from llm_common.ranking.lexical import Hit, max_normalised

KEYS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


def test_scores_are_the_sums_of_the_papers_formula() -> None:
    assert reciprocal_rank_fusion([["a", "b"], ["b"]]) == [
        Hit("b", 1 / 62 + 1 / 61),
        Hit("a", 1 / 61),
    ]


def test_a_key_in_two_rankings_beats_the_best_of_one() -> None:
    assert [hit.key for hit in reciprocal_rank_fusion([["a", "c"], ["b", "c"]])] == ["c", "a", "b"]


def test_a_repeated_key_counts_once_at_its_best_rank() -> None:
    assert reciprocal_rank_fusion([["a", "b", "a"]]) == reciprocal_rank_fusion([["a", "b"]])


def test_empty_rankings_fuse_into_an_empty_one() -> None:
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


@given(st.lists(KEYS, max_size=4))
# With plain addition, the rounding of these sums depends on their order.
@example([list("abcdghef")] * 2 + [list("abcdefgh")] * 2)
def test_the_order_of_the_rankings_never_matters(rankings: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert [hit.key for hit in reciprocal_rank_fusion(rankings[::-1])] == [hit.key for hit in fused]
    assert {hit.key for hit in fused} == {key for ranking in rankings for key in ranking}


def test_ties_are_in_the_order_of_their_keys() -> None:
    fused = reciprocal_rank_fusion([["c"], ["a"], ["b"]])
    assert [hit.key for hit in fused] == ["a", "b", "c"]


def test_max_normalisation_keeps_zero_and_the_proportions() -> None:
    assert max_normalised({"a": 4.0, "b": 1.0, "c": 0.0}) == {"a": 1.0, "b": 0.25, "c": 0.0}
    assert max_normalised({"a": 0.0}) == {"a": 0.0}
    assert max_normalised({}) == {}
