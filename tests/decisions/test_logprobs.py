"""Decisions by the log probabilities of a chat model's first token."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import log
from typing import Any

import pytest

from llm_common.core import LLMMessage, LLMResponse, LLMUsage, OpenAICompatibleClient
from llm_common.decisions import (
    Choice,
    DecisionClient,
    LogprobDecisions,
    Predicate,
    Question,
    Score,
)
from llm_common.errors import (
    LLMConnectionError,
    LLMRateLimitError,
    LLMTimeoutError,
    MalformedReplyError,
)
from llm_common.testing import DecisionClientContract, ScriptedClient
from llm_common.testing.decision_contract import Answering
from tests.core.loopback import Wire, loopback, ok, response

LATE, PAID = Predicate("It is late."), Predicate("It is paid.")


def reply(*tokens: tuple[str, float], **facts: Any) -> LLMResponse:
    """Return a reply of one token, with the probabilities of the most probable tokens."""
    top = [{"token": token, "logprob": log(share)} for token, share in tokens if share > 0]
    usage = LLMUsage(prompt_tokens=50, completion_tokens=1, total_tokens=51)
    logprobs = {"content": [{"token": "x", "logprob": -1.0, "top_logprobs": top}]}
    return LLMResponse.model_validate(
        {
            "id": "1",
            "model": "served",
            "content": "x",
            "logprobs": logprobs,
            "usage": usage,
            "cost_usd": 0.001,
        }
        | facts
    )


def text_of(messages: list[LLMMessage]) -> str:
    text = messages[-1].content
    assert isinstance(text, str)
    return text


def shares_in(text: str, given: object) -> list[tuple[str, float]]:
    """Return the tokens of an answer to a prompt with letters for options or digits for levels."""
    if isinstance(given, dict):
        letters = {
            line[3:].partition(":")[0]: line[0]
            for line in text.splitlines()
            if re.match("[A-T]\\. ", line)
        }
        return [(f" {letters.get(name, 'Z')}", share) for name, share in given.items()]
    if isinstance(given, list):
        return [(str(level), share) for level, share in enumerate(given)]
    assert isinstance(given, float)
    return [("Yes", given), (" no", 1 - given)]


class TestLogprobDecisions(DecisionClientContract):
    @pytest.fixture
    def answering(self) -> Answering:
        @asynccontextmanager
        async def answer(by_text: Mapping[str, object]) -> AsyncIterator[DecisionClient]:
            def say(messages: list[LLMMessage]) -> LLMResponse:
                text = text_of(messages)
                given = next((given for asked, given in by_text.items() if asked in text), None)
                return reply(*([("Well", 0.9)] if given is None else shares_in(text, given)))

            yield LogprobDecisions(ScriptedClient([], default=say))

        return answer


async def test_each_question_costs_one_token() -> None:
    client = ScriptedClient(
        [], default=lambda _: reply(("Yes", 0.6), ("yes", 0.2), ("No", 0.2), ("Well", 0.0))
    )
    judge = LogprobDecisions(client, "small", options={"seed": 7})
    decisions = await judge.decide("the state", {"late": LATE, "paid": PAID})
    assert decisions.yes("late") == pytest.approx(0.8)
    assert (decisions.model, decisions.usage.prompt_tokens, decisions.cost_usd) == (
        "served",
        100,
        0.002,
    )
    assert len(client.calls) == 2
    for call in client.calls:
        assert (call.model, call.temperature, call.max_tokens) == ("small", 0.0, 1)
        assert call.options == {"logprobs": True, "top_logprobs": 20, "seed": 7}
        assert text_of(list(call.messages)).startswith("the state\n\n")


async def test_a_call_can_use_another_model() -> None:
    client = ScriptedClient([reply(("Yes", 0.6))])
    await LogprobDecisions(client, "small").decide("x", {"late": LATE}, model="large")
    assert client.calls[0].model == "large"


@pytest.mark.parametrize(("options", "calls"), [(20, 1), (21, 2), (45, 4), (400, 21)])
async def test_a_choice_of_many_options_is_asked_in_groups(options: int, calls: int) -> None:
    """Check a choice whose last option is right, while other groups have no clear winner."""
    wanted = f"tool_{options}"

    def say(messages: list[LLMMessage]) -> LLMResponse:
        listed = [line for line in text_of(messages).splitlines() if re.match("[A-T]\\. ", line)]
        found = {line[0]: 0.9 if line.endswith(f" {wanted}") else 0.02 for line in listed}
        return reply(*found.items())

    client = ScriptedClient([], default=say)
    asked = Choice("Which?", {f"tool_{n}": "" for n in range(1, options + 1)})
    shares = (await LogprobDecisions(client).decide("x", {"which": asked})).options("which")
    assert len(client.calls) == calls
    assert max(shares, key=lambda name: shares[name]) == wanted
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares) == list(asked.options)


@pytest.mark.parametrize(
    "question",
    [
        Choice("Which?", {str(n): "" for n in range(401)}),
        Score("How?", [f"level {n}" for n in range(11)]),
    ],
)
async def test_more_alternatives_than_labels_are_refused(question: Question) -> None:
    with pytest.raises(ValueError, match="at most"):
        await LogprobDecisions(ScriptedClient([])).decide("x", {"q": question})


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        {"content": None},
        {"content": []},
        {"content": [7]},
        {"content": [{"top_logprobs": []}]},
        {"content": [{"top_logprobs": None}]},
    ],
)
async def test_an_endpoint_without_log_probabilities_is_an_error(logprobs: Any) -> None:
    client = ScriptedClient([reply(logprobs=logprobs)])
    with pytest.raises(MalformedReplyError) as caught:
        await LogprobDecisions(client).decide("x", {"late": LATE})
    assert caught.value.reason == "no_logprobs"
    assert caught.value.cost_usd == 0.001


async def test_an_answer_without_a_label_is_charged() -> None:
    client = ScriptedClient([], default=lambda _: reply(("Well", 0.9), ("A", 0.1)))
    with pytest.raises(MalformedReplyError, match="no_label") as caught:
        await LogprobDecisions(client).decide("x", {"late": LATE, "paid": PAID})
    assert caught.value.cost_usd == 0.002


async def test_malformed_rows_are_ignored() -> None:
    rows = [
        7,
        {"token": 1, "logprob": 0},
        {"token": "No", "logprob": "0"},
        {"token": "No"},
        {"token": "no", "logprob": 9},
    ]
    good = {"token": "\u2581YES", "logprob": -0.1}
    client = ScriptedClient([reply(logprobs={"content": [{"top_logprobs": [*rows, good]}]})])
    assert (await LogprobDecisions(client).decide("x", {"late": LATE})).yes("late") == 1.0


async def test_the_first_failed_call_raises_with_all_charges() -> None:
    failed = LLMRateLimitError("no more", status=429)

    async def yes(_: list[LLMMessage]) -> LLMResponse:
        await asyncio.sleep(0.01)
        return reply(("Yes", 1.0))

    client = ScriptedClient([yes, failed], default=yes)
    with pytest.raises(LLMRateLimitError) as caught:
        await LogprobDecisions(client, max_concurrency=1).decide(
            "x", {str(n): LATE for n in range(9)}
        )
    assert caught.value is failed
    assert caught.value.cost_usd == 0.001
    assert len(client.calls) < 9


async def test_a_failed_group_of_a_choice_cancels_the_other_groups() -> None:
    cancelled = asyncio.Event()

    async def wait(_: list[LLMMessage]) -> LLMResponse:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    client = ScriptedClient([wait, ConnectionError("gone")])
    many = Choice("Which?", {f"tool_{n}": "" for n in range(40)})
    with pytest.raises(LLMConnectionError):
        await LogprobDecisions(client).decide("x", {"which": many})
    assert cancelled.is_set()


async def test_a_third_party_exception_is_translated() -> None:
    client = ScriptedClient([ConnectionError("gone")])
    with pytest.raises(LLMConnectionError):
        await LogprobDecisions(client).decide("x", {"late": LATE})


async def test_one_deadline_spans_all_calls() -> None:
    async def slow(_: list[LLMMessage]) -> LLMResponse:
        await asyncio.sleep(0.1)
        return reply(("Yes", 1.0))

    client = ScriptedClient([], default=slow)
    questions: dict[str, Question] = {str(n): LATE for n in range(50)}
    with pytest.raises(LLMTimeoutError, match=r"50 questions .* 0\.25 s"):
        await LogprobDecisions(client, max_concurrency=1).decide("x", questions, timeout_s=0.25)
    assert len(client.calls) < 10


async def test_concurrent_calls_are_limited() -> None:
    running, most = 0, 0

    async def count(_: list[LLMMessage]) -> LLMResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return reply(("Yes", 1.0))

    questions: dict[str, Question] = {str(n): LATE for n in range(20)}
    await LogprobDecisions(ScriptedClient([], default=count), max_concurrency=3).decide(
        "x", questions
    )
    assert most == 3
    with pytest.raises(ValueError, match="max_concurrency"):
        LogprobDecisions(ScriptedClient([]), max_concurrency=0)


async def test_the_log_probabilities_arrive_over_the_wire() -> None:
    choice = {
        "finish_reason": "length",
        "message": {"role": "assistant", "content": "Yes"},
        "logprobs": {
            "content": [
                {
                    "token": "Yes",
                    "logprob": -0.1,
                    "top_logprobs": [{"token": "Yes", "logprob": -0.1}],
                }
            ]
        },
    }

    async def serve(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(200, ok(choices=[choice])))

    async with loopback(serve) as server, OpenAICompatibleClient(server.config()) as client:
        decisions = await LogprobDecisions(client).decide("x", {"late": LATE})
    assert decisions.yes("late") == 1.0
    body = server.requests[0].body
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)


async def test_groups_without_any_label_are_not_compared() -> None:
    client = ScriptedClient([], default=lambda _: reply(("Well", 0.9)))
    options = {f"option {number}": "" for number in range(25)}
    questions: dict[str, Question] = {"which": Choice("Which?", options)}
    with pytest.raises(MalformedReplyError) as caught:
        await LogprobDecisions(client).decide("x", questions)
    assert caught.value.reason == "no_answers"
    assert len(client.calls) == 2


@pytest.mark.parametrize(("options", "calls"), [(20, 1), (21, 2), (25, 3), (40, 3)])
async def test_a_call_decides_between_twenty_options(options: int, calls: int) -> None:
    client = ScriptedClient([], default=lambda _: reply((" A", 0.75), (" B", 0.25)))
    names = {f"option {number}": "" for number in range(options)}
    decisions = await LogprobDecisions(client).decide("x", {"which": Choice("Which?", names)})
    shares = decisions.options("which")
    assert len(client.calls) == calls
    assert list(shares) == list(names)
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=shares.__getitem__) == "option 0"


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ({"a": Choice("?", {str(n): "" for n in range(401)})}, "401 options; ask several"),
        ({"a": Score("?", ["level"] * 11)}, "11 levels; ask with at most 10"),
    ],
)
async def test_a_question_over_the_limit_is_refused_before_any_call(
    questions: dict[str, Question], message: str
) -> None:
    client = ScriptedClient([])
    with pytest.raises(ValueError, match=message):
        await LogprobDecisions(client).decide("x", questions)
    assert client.calls == []


async def test_labels_are_read_in_any_spelling_and_rounding() -> None:
    rows = [
        {"token": " Yes", "logprob": log(0.5)},
        {"token": "YES", "logprob": log(0.25)},
        {"token": "no", "logprob": log(0.25)},
        {"token": "no", "logprob": float("nan")},
        {"token": "no", "logprob": 2.0},
        {"token": "no", "logprob": None},
        {"token": 5, "logprob": -1.0},
        "no",
    ]
    answer = reply().model_copy(update={"logprobs": {"content": [{"top_logprobs": rows}]}})
    client = ScriptedClient([answer])
    decisions = await LogprobDecisions(client).decide("x", {"late": LATE})
    assert decisions.yes("late") == pytest.approx(0.75)
