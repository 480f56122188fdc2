"""`ScriptedDecisionClient`: answers in order, recorded calls, and the end of the script."""

import asyncio
from collections.abc import Mapping

import pytest

from llm_common.decisions import REFUSED, Choice, Decisions, Predicate, Question, State
from llm_common.errors import LLMConnectionError, MalformedReplyError
from llm_common.testing import ScriptedDecisionClient, UnexpectedCallError

LATE = Predicate("It is late.")
TEAM = Choice("Which team?", {"billing": "", "none of these": ""})


async def test_returns_the_answers_of_the_script_in_order() -> None:
    whole = Decisions({"late": 0.125})

    async def later(state: State, _: Mapping[str, Question]) -> Mapping[str, object]:
        await asyncio.sleep(0)
        return {"late": len(state) / 4}

    client = ScriptedDecisionClient(
        [{"late": 0.75}, whole, later, {"late": REFUSED}], default={"late": 0}
    )
    answers = [await client.decide("xx", {"late": LATE}) for _ in range(5)]
    assert [decisions.yes("late") for decisions in answers] == [0.75, 0.125, 0.5, 0.0, 0.0]
    assert answers[3].unanswered == {"late": "refused"}


async def test_records_every_call_with_its_arguments() -> None:
    client = ScriptedDecisionClient({"late": 1})
    await client.decide({"a": 1}, {"late": LATE}, model="m", timeout_s=3)
    [call] = client.calls
    assert (call.state, call.questions, call.model, call.timeout_s) == (
        {"a": 1},
        {"late": LATE},
        "m",
        3,
    )


async def test_raises_the_errors_of_the_script() -> None:
    client = ScriptedDecisionClient([LLMConnectionError("gone")])
    with pytest.raises(LLMConnectionError):
        await client.decide("x", {"late": LATE})


async def test_validates_scripted_answers_like_a_models() -> None:
    client = ScriptedDecisionClient([{"team": {"other": 1.0}, "late": 0.5}, {"unasked": 0.5}])
    assert (await client.decide("x", {"late": LATE, "team": TEAM})).unanswered == {
        "team": "wrong_options"
    }
    with pytest.raises(MalformedReplyError):
        await client.decide("x", {"late": LATE})


async def test_a_call_after_the_script_fails_the_test() -> None:
    with pytest.raises(UnexpectedCallError, match="call 1"):
        await ScriptedDecisionClient().decide("x", {"late": LATE})
