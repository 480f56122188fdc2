"""Any reply of an endpoint gives probabilities for the sent questions only, or raises."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from llm_common.decisions import (
    REFUSED,
    Choice,
    Decisions,
    Predicate,
    Question,
    Score,
    decisions_of,
)
from llm_common.decisions.wire_formats import WIRE_FORMATS
from llm_common.errors import MalformedReplyError
from tests.decisions.decision_server import WireName, payload

QUESTIONS: dict[str, Question] = {
    "late": Predicate("It is late."),
    "team": Choice("Which team?", {"billing": "", "shipping": ""}),
    "anger": Score("How angry?", ["calm", "furious"]),
}
WORDS = st.sampled_from(
    [
        *QUESTIONS,
        "billing",
        "shipping",
        "0",
        "1",
        "x",
        "answers",
        "type",
        "noul",
        "predicate",
        "choice",
        "score",
    ]
)
SHARES = st.sampled_from([0, 0.25, 0.5, 0.75, 1, 1.5, -1, True, None, "0.5"]) | st.floats()
VALUES = st.recursive(
    SHARES | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
TOLD = st.fixed_dictionaries(
    {},
    optional={
        question.text: SHARES | st.dictionaries(WORDS, SHARES) | st.lists(SHARES)
        for question in QUESTIONS.values()
    },
)


def assert_lawful(decisions: Decisions) -> None:
    assert decisions.answers.keys() | decisions.unanswered.keys() == QUESTIONS.keys()
    assert not decisions.answers.keys() & decisions.unanswered.keys()
    assert 0 <= decisions.yes("late") <= 1
    team = decisions.options("team")
    assert not team or (
        list(team) == ["billing", "shipping"] and sum(team.values()) == pytest.approx(1, abs=0.011)
    )
    anger = decisions.score("anger")
    assert anger is None or 0 <= anger <= 1.01


@pytest.mark.parametrize("wire", [*WIRE_FORMATS])
@given(data=st.data())
def test_a_reply_answers_the_questions_or_raises(wire: WireName, data: st.DataObject) -> None:
    form = WIRE_FORMATS[wire]
    reply: dict[str, Any] = payload(wire, form.fields("x", QUESTIONS), data.draw(TOLD))
    if data.draw(st.booleans()):
        reply["answers"] = data.draw(VALUES)
    try:
        decisions = decisions_of(QUESTIONS, form.answers(reply, QUESTIONS))
    except MalformedReplyError:
        return
    assert_lawful(decisions)


@given(st.dictionaries(st.sampled_from([*QUESTIONS]), VALUES | st.just(REFUSED)))
def test_answers_of_any_kind_are_probabilities_or_raise(raw_answers: dict[str, object]) -> None:
    try:
        decisions = decisions_of(QUESTIONS, raw_answers)
    except MalformedReplyError:
        return
    assert_lawful(decisions)
