"""The questions that weigh candidates, and the check of a client's own answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from llm_common.core import Attempt
from llm_common.core.two_attempts import ModelCall, Verdict
from llm_common.decisions import Decisions, Predicate, Question, State
from llm_common.decisions.weighing import Questions, weighing_questions
from llm_common.errors import MalformedReplyError
from llm_common.selection.results import Weight

LINES = {"key-a": "reports rain", "key-b": "lists orders", "key-c": "plays music"}


def judged(weights: Mapping[str, Weight]) -> Verdict[dict[str, Weight]]:
    return Verdict(dict(weights), len(weights))


def questions_of(
    lines: Mapping[str, str], *, seed: str = "Does it rain?"
) -> Questions[dict[str, Weight]]:
    return weighing_questions(
        lines,
        noun="tool",
        purpose="helps",
        seed=seed,
        sections=["Query:\nDoes it rain?"],
        judge=judged,
    )


def test_the_order_of_the_candidates_has_no_influence() -> None:
    first, second = questions_of(LINES), questions_of(dict(reversed(LINES.items())))
    assert (first.state, first.questions) == (second.state, second.questions)
    assert "key-a" not in str(first.state)
    orders = {str(questions_of(LINES, seed=f"seed {number}").state) for number in range(20)}
    assert len(orders) > 1


def answers_of(
    questions: Questions[dict[str, Weight]], answers: dict[str, Any], **unanswered: str
) -> Verdict[dict[str, Weight]]:
    labels = [name for name in questions.questions if name != "which"]
    by_line = {}
    for label in labels:
        [line] = [line for line in str(questions.state).splitlines() if line.startswith(label)]
        by_line[line.partition(": ")[2]] = label
    named = {by_line.get(text, text): value for text, value in answers.items()}
    if "which" in named:
        named["which"] = {by_line.get(text, text): value for text, value in named["which"].items()}
    reasons = dict.fromkeys(questions.questions.keys() - named.keys(), "missing") | unanswered
    return questions.judge(Decisions(named, reasons))


def test_no_candidate_is_more_probable_than_that_any_fits() -> None:
    which = {"reports rain": 0.5, "lists orders": 0.125, "plays music": 0.0, "none of these": 0.375}
    verdict = answers_of(
        questions_of(LINES), {"which": which, "reports rain": 0.9, "lists orders": 0.25}
    )
    assert verdict.usable
    assert verdict.choice == {
        "key-a": Weight(0.625, 0.5),
        "key-b": Weight(0.25, 0.125),
        "key-c": Weight(0.0, 0.0),
    }


def test_without_an_answer_to_the_choice_nothing_fits() -> None:
    verdict = answers_of(questions_of(LINES), {"reports rain": 0.9}, which="refused")
    assert (verdict.usable, verdict.reason) == (False, "refused")
    assert {weight.probability for weight in verdict.choice.values()} == {0.0}
    assert verdict.feedback == (
        "the model did not answer which tool fits (refused); ask again, or use another model"
    )


class Fixed:
    """A decision client with answers of its own."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    async def decide(
        self,
        state: State,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        return self._decisions


async def asked(decisions: Decisions) -> Decisions:
    asked_about = {name: Predicate(f"Is it {name}?") for name in ("a", "b", "c")}
    questions: Questions[None] = Questions("x", asked_about, lambda _: Verdict(None, 0))
    attempts: list[Attempt] = []
    return await questions.ask(Fixed(decisions), "", ModelCall("m", 0.0, 60.0, attempts))


async def test_the_reasons_of_a_clients_missing_answers_are_kept() -> None:
    decisions = await asked(Decisions({"a": 0.5}, {"b": "no_label", "c": "refused"}))
    assert dict(decisions.answers) == {"a": 0.5}
    assert dict(decisions.unanswered) == {"b": "no_label", "c": "refused"}


async def test_an_unusable_answer_of_a_client_counts_as_none() -> None:
    decisions = await asked(Decisions({"a": 0.5, "b": 1.5, "c": True}))
    assert dict(decisions.answers) == {"a": 0.5}
    assert dict(decisions.unanswered) == {"b": "out_of_range", "c": "wrong_type"}


async def test_a_reply_of_refusals_alone_is_a_refusal() -> None:
    with pytest.raises(MalformedReplyError) as caught:
        await asked(Decisions({}, dict.fromkeys("abc", "refused")))
    assert caught.value.reason == "refusal"
    with pytest.raises(MalformedReplyError) as caught:
        await asked(Decisions({}, dict.fromkeys("abc", "missing")))
    assert caught.value.reason == "no_answers"
