"""Tests the ranking that all stores share."""

import pytest
from hypothesis import given, strategies as st

from llm_common.memory.recall import MAX_MATCHES, best_lines, counted_terms, shortlist


def best(matches: list[list[int]], *, lines: int, k: int = 4) -> list[int]:
    weights = shortlist(matches, lines=lines, k=k)
    return ranked(weights, dict.fromkeys(weights, 10), k=k)


def ranked(weights: dict[int, float], word_counts: dict[int, int], *, k: int) -> list[int]:
    current = [(position, words, True) for position, words in word_counts.items()]
    return [position for position, _ in best_lines(weights, current, k=k)]


@pytest.mark.parametrize(
    ("matches", "k", "first"),
    [
        pytest.param([[90, 80, 70, 60], [5]], 4, [5, 90, 80, 70], id="a rare word"),
        pytest.param([[10, 40, 41]], 4, [41, 40], id="a line next to a match"),
        pytest.param([[41, 40, 10], [99, 90, 80, 70]], 3, [41, 40], id="and beside others"),
    ],
)
def test_a_rare_word_and_a_match_next_to_it_raise_a_line_s3_05(
    matches: list[list[int]], k: int, first: list[int]
) -> None:
    assert best(matches, lines=100, k=k)[: len(first)] == first


def test_the_names_of_a_question_count_twice_s3_05() -> None:
    assert counted_terms("When did Ada paint? Paint it, Ada!") == ["ada", "paint", "ada"]
    assert counted_terms("Paint. Draw! Sing? in NATO") == ["paint", "draw", "sing", "nato"]
    assert len(counted_terms(" ".join(f"to Wor{chr(97 + n)}d" for n in range(26)) * 9)) <= 64


def test_matches_that_reach_far_back_mean_a_rare_word_s3_05() -> None:
    everywhere = list(range(10_000, 10_000 - MAX_MATCHES, -1))
    scattered = list(range(10_000, 10_000 - 20 * MAX_MATCHES, -20))
    weights = shortlist([everywhere, [7]], lines=10_000, k=1_000)
    assert weights[7] > 100 * weights[10_000]
    assert (
        shortlist([scattered], lines=10_000, k=1)[10_000]
        > 100 * shortlist([everywhere], lines=10_000, k=1)[10_000]
    )


def test_a_short_line_outweighs_a_long_one_s3_05() -> None:
    weights = shortlist([[1, 50]], lines=100, k=2)
    assert ranked(weights, {1: 5, 50: 500}, k=2) == [1, 50]


def test_a_line_without_a_word_count_is_left_out_s3_05() -> None:
    weights = shortlist([[1, 2]], lines=2, k=4)
    assert ranked(weights, {1: 3}, k=4) == [1]
    assert ranked(weights, {}, k=4) == []


@given(st.lists(st.sets(st.integers(1, 500), max_size=60), max_size=5), st.integers(1, 80))
def test_the_order_of_words_does_not_change_the_ranking_s3_05(
    words: list[set[int]], k: int
) -> None:
    matches = [sorted(positions, reverse=True) for positions in words]
    order = best(matches, lines=500, k=k)
    assert order == best(matches[::-1], lines=500, k=k)
    assert len(order) == len(set(order)) == min(k, len(set().union(*words)))
    assert best(matches[:1], lines=500, k=k) == best([*matches[:1], []], lines=500, k=k)


def test_a_match_raises_the_lines_around_it_by_distance_s3_05() -> None:
    weights = {10: 4.0, 12: 1.0, 30: 2.5, 50: 2.5, 70: 1.5}
    order = ranked(weights, dict.fromkeys(weights, 5), k=5)
    assert order == [10, 50, 30, 12, 70], "a quarter of 4 two lines away, and the newer first"


def test_only_the_nearer_side_of_a_line_counts_s3_05() -> None:
    # Otherwise, of equal lines, the newest would rank below those between two neighbours.
    positions = [*range(1, 11)]
    weights, counts = dict.fromkeys(positions, 1.0), dict.fromkeys(positions, 5)
    assert ranked(weights, counts, k=1) == [10]
