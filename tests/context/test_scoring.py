import math
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    FileMetadata,
    MeasuredStrategy,
    MemorySnippet,
    Scores,
    TurnEntry,
    classify_intent,
    score_context_file,
    score_conversation_turn,
)
from llm_common.context.bundle import KINDS
from llm_common.context.request import Kind
from llm_common.context.scoring import STRATEGIES, score_pool
from tests.context.samples import NOON, PROJECT, Case, cases, file, keys_of, memory, turn

POOL = DataPoolSnapshot(
    session_log=(turn(1, "rain in app.py"), turn(2, "wind")),
    context_files=(
        file("src/app.py", "def rain(): ..."),
        file("src/pinned.py", "x", is_pinned=True),
        file("src/other.py", "x"),
        file("notes.txt", "x"),
    ),
    memory_hits=(memory(1, "rain"),),
    project_state=PROJECT,
)


def request(
    text: str = "fix rain in app.py",
    *,
    strategy: str = "spec",
    exclude: tuple[str, ...] = (),
    hints: tuple[str, ...] = (),
    min_relevance: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> ContextSelectionRequest:
    return ContextSelectionRequest(
        intent=classify_intent(text),
        token_budget=1_000,
        strategy=strategy,
        exclude_patterns=exclude,
        priority_hints=hints,
        min_relevance=min_relevance,
        weights=weights or {},
    )


def scored(selection: ContextSelectionRequest, pool: DataPoolSnapshot = POOL) -> Scores:
    return score_pool(pool, selection, now=NOON)


@pytest.mark.parametrize(
    ("selection", "rules"),
    [
        pytest.param(
            request(),
            {
                "src/app.py": "mentioned",
                "src/pinned.py": "pinned",
                "src/other.py": "ranked",
                "notes.txt": "below_cut_off",
            },
            id="S1-09-a mention and a pin",
        ),
        pytest.param(
            request("hello", hints=("notes.txt",)), {"notes.txt": "mentioned"}, id="S1-09-a hint"
        ),
        pytest.param(
            request(exclude=("src/**", "t0001", "weather"), hints=("src/pinned.py",)),
            {
                **dict.fromkeys(["src/app.py", "src/pinned.py", "src/other.py"], "excluded"),
                "t0001": "excluded",
                "weather": "excluded",
                "notes.txt": "below_cut_off",
                "t0002": "ranked",
                "m1": "ranked",
            },
            id="S1-09-excluded even if mentioned",
        ),
        pytest.param(request("fix"), {"src/other.py": "ranked"}, id="S1-08-three tenths for files"),
        pytest.param(request("hello"), {"src/other.py": "below_cut_off"}, id="S1-08-less"),
        pytest.param(
            request(min_relevance=2.0),
            {
                "src/app.py": "mentioned",
                "src/pinned.py": "pinned",
                "weather": "not_required",
                **dict.fromkeys(["src/other.py", "notes.txt", "t0001", "m1"], "below_cut_off"),
            },
            id="a minimum replaces the cut-off except for mentions",
        ),
        pytest.param(
            request("hello", min_relevance=0.0),
            dict.fromkeys(["src/app.py", "src/other.py", "notes.txt", "t0001", "m1"], "ranked"),
            id="no minimum",
        ),
        pytest.param(request("write it"), {"weather": "ranked"}, id="S1-10-a project is required"),
        pytest.param(request("explain it"), {"weather": "not_required"}, id="S1-10-it is not"),
    ],
)
def test_each_item_has_the_rule_of_the_request(
    selection: ContextSelectionRequest, rules: dict[str, str]
) -> None:
    all_rules = {item_id: score.rule for (_, item_id), score in scored(selection).items()}
    assert {item_id: all_rules[item_id] for item_id in rules} == rules


def test_a_mention_and_a_need_of_code_are_parts_of_a_score_s1_08_s1_09() -> None:
    hinted = scored(request("hello", hints=("notes.txt",)))
    assert hinted["file", "notes.txt"].parts["mention"] == 1.0
    assert scored(request("fix"))["file", "src/other.py"].value == pytest.approx(0.3)


def test_the_relevant_file_of_the_specifications_second_test_comes_first_s1_08() -> None:
    pool = DataPoolSnapshot(
        context_files=(
            file("readme.txt", "This is a readme..."),
            file("backend.py", "def api()..."),
        )
    )
    scores = scored(request("fix the API endpoint"), pool)
    assert scores["file", "backend.py"].value > scores["file", "readme.txt"].value


def test_a_file_between_two_and_three_tenths_is_below_the_cut_off_s1_08() -> None:
    pool = DataPoolSnapshot(
        context_files=(file("a.txt", "parser budget"), file("b.txt", "parser budget knapsack"))
    )
    scores = scored(request("parser budget knapsack counter"), pool)
    assert scores["file", "a.txt"].value == pytest.approx(0.2)
    assert scores["file", "b.txt"].value == pytest.approx(0.3)
    assert (scores["file", "a.txt"].rule, scores["file", "b.txt"].rule) == (
        "below_cut_off",
        "ranked",
    )


@given(
    cases(),
    st.dictionaries(st.sampled_from(["words", "neighbours", "recency", "tests"]), st.floats(-5, 5)),
)
def test_measured_scores_are_between_zero_and_one_in_the_same_order(
    case: Case, weights: dict[str, float]
) -> None:
    pool, selection = case[0], request("rain of f(x)", strategy="measured", weights=weights)
    raw, scores = MeasuredStrategy().score(pool, selection, now=NOON), scored(selection, pool)
    for key, score in scores.items():
        assert 0.0 <= score.value <= 1.0
        assert score.value == pytest.approx(max(sum(score.parts.values()), 0.0))
        assert score.parts.keys() == raw[key].parts.keys()
    for kind in KINDS:
        of_kind = sorted((key for key in scores if key[0] == kind), key=lambda key: raw[key].value)
        assert [scores[key].value for key in of_kind] == sorted(
            scores[key].value for key in of_kind
        )


def test_min_relevance_applies_to_the_returned_scores() -> None:
    pool = DataPoolSnapshot(
        session_log=(
            turn(1, "the parser drops tokens"),
            turn(2, "and so we went on"),
            turn(3, "to lunch"),
        ),
        context_files=(file("parser.py", "class Parser: tokens"), file("lunch.md", "menu")),
    )
    all_scores = scored(request("why does the parser drop tokens?", strategy="measured"), pool)
    for minimum in (0.0, *sorted({score.value for score in all_scores.values()}), 1.0):
        selection = request(
            "why does the parser drop tokens?", strategy="measured", min_relevance=minimum
        )
        scores = scored(selection, pool)
        assert {key: score.value for key, score in scores.items()} == {
            key: item.value for key, item in all_scores.items()
        }
        assert {key for key, score in scores.items() if score.rule == "ranked"} == {
            key for key, score in all_scores.items() if score.value >= minimum
        }


@pytest.mark.parametrize("weights", [{}, {"words": 5.0}], ids=["plain", "weighted"])
def test_a_cut_off_applies_to_the_strategys_own_scores(weights: dict[str, float]) -> None:
    """The files score only by their last change, from .3 down, and one file matches."""
    changed = (
        file(f"f{days}.md", "x").model_copy(
            update={"metadata": FileMetadata(last_modified=NOON - timedelta(days))}
        )
        for days in range(10)
    )
    pool = DataPoolSnapshot(context_files=(*changed, file("hit.md", "parser")))
    selection = request("parser", strategy="measured", weights=weights)
    raw, scores = MeasuredStrategy().score(pool, selection, now=NOON), scored(selection, pool)
    assert {key for key, score in scores.items() if score.rule == "ranked"} == {
        key for key, score in raw.items() if score.value >= MeasuredStrategy.cut_offs["file"]
    }
    assert {score.rule for score in scores.values()} == {"ranked", "below_cut_off"}
    assert max(score.value for score in scores.values()) <= 1.0


def test_a_strategy_without_a_maximum_keeps_its_scores() -> None:
    assert max(score.value for score in scored(request()).values()) > 1.0


def test_the_strategy_scores_as_the_functions_do_s1_07() -> None:
    selection = request()
    scores = scored(selection)
    for item in POOL.context_files:
        assert scores["file", item.id].value == score_context_file(item, selection.intent, now=NOON)
    for entry in POOL.session_log:
        assert scores["turn", entry.id].value == score_conversation_turn(
            entry, selection.intent, now=NOON
        )
    assert all(
        score.value == pytest.approx(min(2.0, sum(score.parts.values())))
        for score in scores.values()
    )


def test_weights_are_factors_of_the_parts() -> None:
    plain, doubled = (
        scored(request(weights=weights)) for weights in ({}, {"recency": 2.0, "unknown": 5.0})
    )
    key: tuple[Kind, str] = ("turn", "t0001")
    assert doubled[key].parts["recency"] == 2 * plain[key].parts["recency"]
    assert doubled[key].value == pytest.approx(plain[key].value + plain[key].parts["recency"])
    assert scored(request(weights={"recency": 1e308, "similarity": -1e308}))[key].value < math.inf


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_raises(weight: float) -> None:
    with pytest.raises(ValueError, match="weights"):
        request(weights={"recency": weight})


def test_the_error_for_an_unknown_strategy_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'best'.*spec"):
        scored(request(strategy="best"))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(case=cases())
def test_every_item_is_scored_once_and_finite_in_any_order_s1_11(strategy: str, case: Case) -> None:
    pool = case[0]
    selection = request(strategy=strategy)
    scores = scored(selection, pool)
    assert sorted(scores) == sorted(keys_of(pool))
    assert all(math.isfinite(score.value) for score in scores.values())
    kinds = ("session_log", "context_files", "memory_hits", "tool_outputs")
    mixed = {
        kind: tuple(random.Random(1).sample(items, len(items)))
        for kind in kinds
        for items in [getattr(pool, kind)]
    }
    assert scored(selection, pool.model_copy(update=mixed)) == scores


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_equal_files_score_alike_f_144(strategy: str) -> None:
    pool = DataPoolSnapshot(
        context_files=tuple(file(f"f{index}.py", "rain") for index in range(10))
    )
    scores = scored(request("rain", strategy=strategy), pool)
    assert len({score.value for score in scores.values()}) == 1


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_scores_of_hostile_items_are_finite_and_sort_f_140(strategy: str) -> None:
    latest = datetime(9999, 12, 31, tzinfo=UTC)
    pool = DataPoolSnapshot(
        session_log=(TurnEntry(id="t", timestamp=latest, role="user", content="\ud800"),),
        context_files=(
            ContextFile(
                id="f",
                path="",
                name="",
                content="a" * 100_000,
                embeddings=(math.nan,),
                tokens=math.nan,
            ),
        ),
        memory_hits=(MemorySnippet(id="m", text="", timestamp=latest, relevance_score=math.nan),),
    )
    for now in (latest, datetime(1, 1, 1)):  # noqa: DTZ001 - a time without a zone is the case
        values = [
            score.value for score in score_pool(pool, request(strategy=strategy), now=now).values()
        ]
        assert all(map(math.isfinite, values))
        assert len(values) == 3
