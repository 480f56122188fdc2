"""How verdicts move weights."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from llm_common.context import ContextBundle, DataPoolSnapshot, ItemAccount
from llm_common.context.extras.feedback import HALF_LIFE, STEP, bounded, faded, pushes
from llm_common.context.request import Kind, Score
from tests.context.samples import file, memory, packed, request_of

PARTS: list[dict[str, float]] = [
    {"words": 1.0, "change": 0.0, "code": 0.1},
    {"words": 0.2, "change": 0.3, "code": 0.1},
    {"words": 0.6, "change": 0.0, "code": 0.1},
]


def bundle_of(*parts: dict[str, float]) -> ContextBundle:
    pool = DataPoolSnapshot(
        context_files=tuple(file(f"f{number}.py", "rain " * 9) for number in range(len(parts))),
        memory_hits=(memory(1, "It rained."),),
    )
    scores: dict[tuple[Kind, str], Score] = {
        ("file", f"f{number}.py"): Score(sum(of_one.values()), of_one) for number, of_one in enumerate(parts)
    }
    return packed(pool, request_of(5_000), {**scores, ("memory", "m1"): Score(1.0, {"relevance": 1.0})})


def account_of(bundle: ContextBundle, item_id: str) -> ItemAccount:
    return next(each for each in (*bundle.kept, *bundle.dropped) if each.id == item_id)


def moves(item_id: str, *parts: dict[str, float], helpful: bool = True) -> dict[str, float]:
    bundle = bundle_of(*parts)
    return pushes(bundle, account_of(bundle, item_id), helpful=helpful)


def test_a_helpful_item_raises_what_sets_it_apart_and_an_unhelpful_one_lowers_it_s1_16() -> None:
    helpful, unhelpful = moves("f1.py", *PARTS), moves("f1.py", *PARTS, helpful=False)
    assert helpful["change"] > 0 > helpful["words"]
    assert unhelpful["change"] < 0 < unhelpful["words"]
    assert "code" not in helpful  # all have it


def test_an_item_that_wins_anyway_teaches_less_than_one_that_loses_s1_16() -> None:
    losing, winning = moves("f1.py", *PARTS[:2]), moves("f0.py", *PARTS[:2])
    assert abs(losing["words"]) > 1.2 * abs(winning["words"])


def test_what_nothing_can_be_learned_from_moves_nothing_s1_16() -> None:
    assert moves("m1", *PARTS) == {}  # no rival
    assert moves("f0.py", {"words": 1.0}, {"words": 1.0}) == {}
    assert moves("f0.py", {"words": 1.0}, {"words": 0.2}) == {"words": 0.0}  # a single part orders alike by any factor
    assert moves("f0.py", {"words": math.inf, "code": math.nan}, {"words": 0.2, "code": 0.1}) == {}


def test_what_was_left_out_is_compared_with_what_was_kept_s1_16() -> None:
    bundle = bundle_of(*PARTS)
    dropped = tuple(account_of(bundle, name) for name in ("f0.py", "f1.py"))
    divided = replace(bundle, kept=tuple(each for each in bundle.kept if each not in dropped), dropped=dropped)
    missed = pushes(divided, account_of(bundle, "f1.py"), helpful=True)
    assert missed["change"] > 0 > missed["words"]
    assert missed == pushes(bundle_of(PARTS[2], PARTS[1]), account_of(bundle, "f1.py"), helpful=True)


FINITE_OR_NOT = st.dictionaries(st.sampled_from(["words", "change", "code"]), st.floats(), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(FINITE_OR_NOT, min_size=2, max_size=5), st.booleans())
def test_a_verdict_moves_little_and_on_balance_nothing_s1_16(parts: list[dict[str, float]], helpful: bool) -> None:
    found = moves("f0.py", *parts, helpful=helpful).values()
    assert all(abs(move) <= STEP for move in found)
    assert sum(found) == pytest.approx(0.0, abs=1e-9)


def test_a_factor_is_bounded_and_forgotten_by_half_in_its_time_s1_16() -> None:
    assert math.exp(bounded(9.0)) == pytest.approx(2.0)
    assert math.exp(bounded(-9.0)) == pytest.approx(0.5)
    assert bounded(0.1) == 0.1
    assert faded(0.4, HALF_LIFE) == pytest.approx(0.2)
    assert faded(0.4, 10 * HALF_LIFE) < 0.001
    assert faded(0.4, -timedelta(days=400)) == 0.4
