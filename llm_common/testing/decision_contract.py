"""Contract suite for decision clients: a pytest class that tests a `DecisionClient`."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from llm_common.decisions.questions import (
    Choice,
    DecisionClient,
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
    """The tests of a `DecisionClient`.

    Inherit from it in a test class with a fixture `answering`. The fixture is a function that takes
    a dict of answers by the *text* of a question, and returns an async context manager of a client
    whose model gives these answers. A question that is not in the dict gets no answer. An answer
    is a number, a dict by option, or a list by level. It may be invalid.
    """

    async def test_returns_each_kind_of_answer_by_the_id_of_its_question(
        self, answering: Answering
    ) -> None:
        """Return probabilities in the order of options and levels."""
        replies = {
            LATE.text: 0.75,
            TEAM.text: dict(reversed(_TEAMS.items())),  # options keep the question's order
            ANGER.text: [0.0, 0.5, 0.5],
        }
        async with answering(replies) as client:
            decisions = await client.decide(_STATE, {"a": LATE, "b": TEAM, "c": ANGER})
        assert isinstance(client, DecisionClient)
        # Some clients compute a probability from logarithms, which rounds it.
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
        """Accept any text, even one that UTF-8 cannot encode."""
        async with answering({LATE.text: 0.75}) as client:
            assert (await client.decide(state, {"late": LATE})).yes("late") == pytest.approx(0.75)

    # Ids that a client could confuse with its own names, with JSON or with a template.
    @pytest.mark.parametrize("name", ["x", "q1", "type", 'a "b" {c}\n', "ключ ☃", "i" * 200])
    async def test_takes_any_text_as_the_id_of_a_question(
        self, answering: Answering, name: str
    ) -> None:
        """Return the answer under the unchanged id, and no other answer."""
        async with answering({LATE.text: 0.75}) as client:
            assert [*(await client.decide(_STATE, {name: LATE})).answers] == [name]

    async def test_a_missing_answer_is_a_no_with_a_reason(self, answering: Answering) -> None:
        """Return a reason for each missing answer of any kind, and keep the other answers."""
        async with answering({LATE.text: 0.75}) as client:
            decisions = await client.decide(
                _STATE, {"late": LATE, "paid": PAID, "team": TEAM, "anger": ANGER}
            )
        assert decisions.yes("late") == pytest.approx(0.75)
        assert decisions.yes("paid") == 0.0
        assert dict(decisions.options("team")) == {}
        assert decisions.score("anger") is None
        assert [*decisions.unanswered] == ["paid", "team", "anger"]
        assert all(decisions.unanswered.values())

    async def test_a_reply_without_answers_raises(self, answering: Answering) -> None:
        """Raise an error that does not quote the state."""
        async with answering({}) as client:
            with pytest.raises(LLMError) as caught:
                await client.decide(_STATE, {"late": LATE, "paid": PAID})
        # Errors are logged, and a state may hold private data.
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
    async def test_an_invalid_answer_counts_as_missing(
        self, answering: Answering, text: str, nonsense: object
    ) -> None:
        """Ignore a probability above 1 or an unknown option, and keep the other answers."""
        questions: dict[str, Question] = {"late": LATE, "paid": PAID, "team": TEAM, "anger": ANGER}
        replies = {
            LATE.text: 0.75,
            PAID.text: 0.25,
            TEAM.text: _TEAMS,
            ANGER.text: [0.0, 0.5, 0.5],
        } | {text: nonsense}
        async with answering(replies) as client:
            decisions = await client.decide(_STATE, questions)
        [invalid] = decisions.unanswered
        assert questions[invalid].text == text
        assert decisions.answers.keys() == questions.keys() - {invalid}

    async def test_concurrent_calls_get_their_own_answers(self, answering: Answering) -> None:
        """Serve many tasks with one client."""
        probabilities: dict[str, object] = {}
        # An answer for each call shows whether two calls are mixed up.
        for number in range(1, 9):
            probabilities[f"It weighs {number} kg."] = number / 10
        async with answering(probabilities) as client:

            async def decide(text: str) -> None:
                decisions = await client.decide(_STATE, {"weight": Predicate(text)})
                assert decisions.yes("weight") == pytest.approx(probabilities[text])

            await asyncio.gather(*map(decide, probabilities))

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
    async def test_refuses_invalid_arguments(
        self, answering: Answering, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        """Raise ValueError or TypeError, and not an error of the model."""
        async with answering({LATE.text: 0.75}) as client:
            with pytest.raises(error):
                await client.decide(**{"state": _STATE, "questions": {"late": LATE}} | arguments)

    async def test_an_unknown_question_raises_key_error(self, answering: Answering) -> None:
        """Raise for a mistyped id, which would otherwise read as a no."""
        async with answering({LATE.text: 0.75}) as client:
            decisions = await client.decide(_STATE, {"late": LATE})
        with pytest.raises(KeyError):
            decisions.yes("lat")
        with pytest.raises(TypeError):
            decisions.options("late")
