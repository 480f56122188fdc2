"""Questions, and the check of their answers."""

import copy
import math
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from llm_common.decisions import (
    REFUSED,
    Choice,
    Decisions,
    Predicate,
    Question,
    Score,
    decisions_of,
)
from llm_common.errors import MalformedReplyError

LATE = Predicate("It is late.")
TEAM = Choice("Which team?", {"billing": "", "none of these": ""})
ANGER = Score("How angry?", ("calm", "annoyed", "furious"))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Predicate(""), ValueError),
        (lambda: Predicate(7), TypeError),  # type: ignore[arg-type]
        (lambda: Choice("Which?", ["a", "b"]), TypeError),  # type: ignore[arg-type]
        (lambda: Choice("Which?", {"a": ""}), ValueError),
        (lambda: Choice("Which?", {"a": "", "": ""}), ValueError),
        (lambda: Choice("Which?", {"a": "", "b": None}), TypeError),  # type: ignore[dict-item]
        (lambda: Score("How?", "low"), TypeError),
        (lambda: Score("How?", ["low"]), ValueError),
        (lambda: Score("How?", ["low", 1]), TypeError),  # type: ignore[list-item]
    ],
)
def test_an_impossible_question_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"pass|say|give"):
        make()


def test_levels_can_be_in_any_order() -> None:
    decisions = decisions_of({"anger": ANGER}, {"anger": {2: 0.5, "0": 0.25, 1: 0.25}})
    assert decisions.answers == {"anger": (0.25, 0.25, 0.5)}
    assert decisions.score("anger") == pytest.approx(1.25)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -1, 1.0000001])
def test_only_numbers_from_0_to_1_are_probabilities(value: float) -> None:
    decisions = decisions_of({"late": LATE, "x": LATE}, {"late": 1, "x": value})
    assert decisions.answers == {"late": 1.0}
    assert decisions.unanswered == {"x": "out_of_range"}


@pytest.mark.parametrize(
    ("raw_answers", "reason"),
    [
        ({}, "no_answers"),
        ({"late": "yes"}, "no_answers"),
        ({"late": 0.5, "early": 0.5}, "wrong_question"),
    ],
)
def test_a_reply_without_a_usable_answer_raises(
    raw_answers: Mapping[str, object], reason: str
) -> None:
    with pytest.raises(MalformedReplyError) as caught:
        decisions_of({"late": LATE, "team": TEAM}, raw_answers)
    assert caught.value.reason == reason


def test_a_refusal_is_reported_as_refused() -> None:
    decisions = decisions_of(
        {"late": LATE, "team": TEAM}, {"late": REFUSED}, reasons={"team": "cut"}
    )
    assert decisions.answers == {}
    assert decisions.unanswered == {"late": "refused", "team": "cut"}


@pytest.mark.parametrize("question", [LATE, TEAM, ANGER])
def test_answers_and_questions_can_be_copied_and_compared(question: Question) -> None:
    raw_answers: dict[type, object] = {
        Predicate: 0.5,
        Choice: {"billing": 0.5, "none of these": 0.5},
        Score: [0, 0, 1],
    }
    decisions = decisions_of({"x": question}, {"x": raw_answers[type(question)]}, cost_usd=0.5)
    assert pickle.loads(pickle.dumps((question, decisions))) == (question, decisions)
    assert copy.deepcopy(decisions) == decisions
    with pytest.raises(AttributeError):
        decisions.model = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("read", "wrong"),
    [(Decisions.yes, "team"), (Decisions.options, "late"), (Decisions.score, "late")],
)
def test_an_answer_is_read_by_the_kind_of_its_question(read: Any, wrong: str) -> None:
    decisions = decisions_of(
        {"late": LATE, "team": TEAM, "gone": LATE},
        {"late": 0.5, "team": {"billing": 0.5, "none of these": 0.5}},
    )
    with pytest.raises(TypeError, match="is no"):
        read(decisions, wrong)
    with pytest.raises(KeyError):
        read(decisions, "unheard")
    assert not read(decisions, "gone")
