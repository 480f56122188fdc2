"""Replies in OpenAI's decision format, entry by entry."""

from typing import Any

import pytest

from llm_common.decisions import REFUSED, Choice, Predicate, Question, Score
from llm_common.decisions.wire_formats import OPENAI, SYSTEMONE
from llm_common.errors import MalformedReplyError

QUESTIONS: dict[str, Question] = {
    "late": Predicate("It is late."),
    "team": Choice("Which team?", {"billing": "Money", "sales": ""}),
    "anger": Score("How angry?", ["calm", "furious"]),
}


def choice(*rows: object) -> dict[str, Any]:
    return {"name": "team", "type": "choice", "probabilities": list(rows)}


def share(value: object, probability: float) -> dict[str, Any]:
    return {"value": value, "probability": probability}


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ({"name": "late", "type": "predicate", "probability": 0.25}, 0.25),
        ({"name": "late", "type": "refusal"}, REFUSED),
        ({"name": "late", "type": "choice", "probability": 0.25}, None),
        ({"name": "late"}, None),
        (
            choice(share("billing", 0.75), share("sales", 0.25)),
            {"billing": 0.75, "sales": 0.25},
        ),
        (choice(share("billing", 0.5), share("billing", 0.5)), None),
        (choice(share(1, 1.0)), None),
        (choice("billing"), None),
        ({"name": "team", "type": "choice", "probabilities": {"billing": 1.0}}, None),
        (
            {
                "name": "anger",
                "type": "score",
                "probabilities": [share(0, 0.5), share(1, 0.5)],
            },
            {"0": 0.5, "1": 0.5},
        ),
        ({"name": "anger", "type": "score", "probabilities": [share(True, 1.0)]}, None),
        ({"name": "anger", "type": "score", "probabilities": [share("0", 1.0)]}, None),
    ],
)
def test_an_entry_is_an_answer_only_in_the_form_of_its_question(
    entry: dict[str, Any], answer: object
) -> None:
    assert OPENAI.answers({"answers": [entry]}, QUESTIONS) == {entry["name"]: answer}


def test_two_answers_to_one_question_are_refused() -> None:
    entry = {"name": "late", "type": "predicate", "probability": 0.5}
    with pytest.raises(MalformedReplyError) as caught:
        OPENAI.answers({"answers": [entry, entry]}, QUESTIONS)
    assert caught.value.reason == "wrong_question"


@pytest.mark.parametrize("payload", [{}, {"answers": {}}, {"answers": ["late"]}, {"answers": None}])
def test_a_reply_without_entries_has_no_answers(payload: dict[str, Any]) -> None:
    with pytest.raises(MalformedReplyError) as caught:
        OPENAI.answers(payload, QUESTIONS)
    assert caught.value.reason == "no_answers"


@pytest.mark.parametrize(("questions", "is_taken"), [(400, True), (401, False)])
def test_openai_takes_four_hundred_questions(questions: int, is_taken: bool) -> None:
    many = dict.fromkeys(map(str, range(questions)), Predicate("It is late."))
    SYSTEMONE.check_sizes(many)
    if is_taken:
        OPENAI.check_sizes(many)
    else:
        with pytest.raises(ValueError, match="400"):
            OPENAI.check_sizes(many)


@pytest.mark.parametrize(("options", "is_taken"), [(255, True), (256, False)])
def test_openai_takes_255_options(options: int, is_taken: bool) -> None:
    many = {"which": Choice("Which?", dict.fromkeys(map(str, range(options)), ""))}
    SYSTEMONE.check_sizes(many)
    if is_taken:
        OPENAI.check_sizes(many)
    else:
        with pytest.raises(ValueError, match="255"):
            OPENAI.check_sizes(many)
