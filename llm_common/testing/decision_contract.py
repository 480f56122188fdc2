"""Contract suite of decision clients: what every `DecisionClient` must do, as a pytest class."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from llm_common.decisions.questions import (
    Choice,
    DecisionClient,
    Decisions,
    Predicate,
    Question,
    Score,
)
from llm_common.errors import LLMError

LATE, PAID = Predicate("The parcel is late."), Predicate("The parcel is paid.")
TEAM = Choice(
    "Which team is it for?",
    {"billing": "", "shipping": "Parcels on their way", "none of these": ""},
)
ANGER = Score("How angry is the sender?", ["calm", "annoyed", "furious"])
_STATE = "My parcel of Monday has not come. I have paid for it!"
_TEAMS = {"billing": 0.25, "shipping": 0.5, "none of these": 0.25}

Answering = Callable[[Mapping[str, object]], AbstractAsyncContextManager[DecisionClient]]


class DecisionClientContract:
    """What a `DecisionClient` promises.

    Inherit it in a test class with a fixture `answering`: a function that takes a dict of answers
    by the *text* of a question, and gives an async context of a client whose model answers so. A
    question whose text is not in the dict gets no answer. An answer is a number, a dict by option,
    or a list by level; it may be nonsense.
    """

    async def test_gives_each_kind_of_answer_under_the_id_of_its_question(
        self, answering: Answering
    ) -> None:
        """In the order of options and levels, as probabilities."""
        told = {
            LATE.text: 0.75,
            TEAM.text: dict(reversed(_TEAMS.items())),
            ANGER.text: [0.0, 0.5, 0.5],
        }
        async with answering(told) as client:
            decisions = await client.decide(_STATE, {"a": LATE, "b": TEAM, "c": ANGER})
        assert isinstance(client, DecisionClient)
        assert decisions.yes("a") == pytest.approx(0.75)
        assert list(decisions.options("b")) == list(_TEAMS)
        assert dict(decisions.options("b")) == pytest.approx(_TEAMS)
        assert decisions.score("c") == pytest.approx(1.5)
        assert not decisions.unanswered

    @pytest.mark.parametrize(
        "state", ["", "späť \u2028 \ud83d", {"text": _STATE, "n": [1, None]}, [{"role": "user"}]]
    )
    async def test_takes_a_text_or_json_as_the_state(
        self, answering: Answering, state: Any
    ) -> None:
        """Any text, also one that UTF-8 cannot hold."""
        async with answering({LATE.text: 0.75}) as client:
            assert (await client.decide(state, {"late": LATE})).yes("late") == pytest.approx(0.75)

    @pytest.mark.parametrize("name", ["x", "q1", "type", 'a "b" {c}\n', "ключ ☃", "i" * 200])
    async def test_takes_any_text_as_the_id_of_a_question(
        self, answering: Answering, name: str
    ) -> None:
        """The id comes back unchanged, and no other."""
        async with answering({LATE.text: 0.75}) as client:
            assert [*(await client.decide(_STATE, {name: LATE})).answers] == [name]

    async def test_a_missing_answer_is_a_no_with_a_reason(self, answering: Answering) -> None:
        """Of every kind; the other answers stay."""
        async with answering({LATE.text: 0.75}) as client:
            decisions = await client.decide(
                _STATE, {"late": LATE, "paid": PAID, "team": TEAM, "anger": ANGER}
            )
        assert decisions.yes("late") == pytest.approx(0.75)
        assert (
            decisions.yes("paid"),
            dict(decisions.options("team")),
            decisions.score("anger"),
        ) == (0.0, {}, None)
        assert [*decisions.unanswered] == ["paid", "team", "anger"]
        assert all(decisions.unanswered.values())

    async def test_no_answer_at_all_is_an_error(self, answering: Answering) -> None:
        """Nothing can be decided by it."""
        async with answering({}) as client:
            with pytest.raises(LLMError) as caught:
                await client.decide(_STATE, {"late": LATE, "paid": PAID})
        assert _STATE not in f"{caught.value}{vars(caught.value)}"

    @pytest.mark.parametrize(
        ("text", "nonsense"),
        [
            (PAID.text, 1.5),
            (TEAM.text, {"billing": 1.5, "shipping": 0.0, "none of these": 0.0}),
            (TEAM.text, {"marketing": 1.0}),
            (ANGER.text, [1.5, 0.0, 0.0]),
        ],
        ids=["over-1", "option-over-1", "option-not-offered", "level-over-1"],
    )
    async def test_an_answer_that_does_not_fit_is_no_answer(
        self, answering: Answering, text: str, nonsense: object
    ) -> None:
        """A probability above 1, an option that was not offered; the other answers stay."""
        questions: dict[str, Question] = {"late": LATE, "paid": PAID, "team": TEAM, "anger": ANGER}
        told = {
            LATE.text: 0.75,
            PAID.text: 0.25,
            TEAM.text: _TEAMS,
            ANGER.text: [0.0, 0.5, 0.5],
        } | {text: nonsense}
        async with answering(told) as client:
            decisions = await client.decide(_STATE, questions)
        [bad] = [name for name, question in questions.items() if question.text == text]
        assert [*decisions.unanswered] == [bad]
        assert decisions.answers.keys() == questions.keys() - {bad}

    async def test_concurrent_calls_get_their_own_answers(self, answering: Answering) -> None:
        """One client serves many tasks."""
        asked = [Predicate(f"It weighs {n} kg.") for n in range(1, 9)]
        async with answering({each.text: n / 10 for n, each in enumerate(asked, 1)}) as client:
            calls = (client.decide(_STATE, {"weight": each}) for each in asked)
            found: list[Decisions] = await asyncio.gather(*calls)
        assert [each.yes("weight") for each in found] == pytest.approx(
            [n / 10 for n in range(1, 9)]
        )

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"questions": {}}, ValueError),
            ({"questions": [LATE]}, TypeError),
            ({"questions": {"late": "It is late."}}, TypeError),
            ({"questions": {1: LATE}}, TypeError),
            ({"state": b"bytes"}, TypeError),
            ({"state": 7}, TypeError),
            ({"state": [float("nan")]}, TypeError),
            ({"state": {"text": b"bytes"}}, TypeError),
            ({"timeout_s": 0}, ValueError),
            ({"timeout_s": float("nan")}, ValueError),
        ],
    )
    async def test_refuses_what_it_cannot_ask(
        self, answering: Answering, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        """Wrong arguments are the caller's fault, not the model's."""
        async with answering({LATE.text: 0.75}) as client:
            with pytest.raises(error):
                await client.decide(**{"state": _STATE, "questions": {"late": LATE}} | arguments)

    async def test_an_unknown_question_is_a_key_error(self, answering: Answering) -> None:
        """A mistyped id never reads as a no."""
        async with answering({LATE.text: 0.75}) as client:
            decisions = await client.decide(_STATE, {"late": LATE})
        with pytest.raises(KeyError):
            decisions.yes("lat")
        with pytest.raises(TypeError):
            decisions.options("late")
