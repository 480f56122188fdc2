"""What the client says a call took is what the endpoint says."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from llm_common.core.http.costs import Bill
from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt
from llm_common.errors import CostLimitError, LLMError, LLMRateLimitError, LLMTimeoutError, MalformedReplyError
from tests.core.calling import MESSAGES
from tests.core.loopback import Script, Wire, answer, loopback, ok, raw, response
from tests.selection.choosers import CHOOSERS
from tests.selection.odd_replies import SOUND

MICRO = 1_000_000


@dataclass
class Books:
    """What the endpoint charged: whole tokens, and millionths of a dollar."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    micro_usd: int = 0
    replies: int = 0

    def charge(self, rng: random.Random) -> dict[str, Any]:
        """The usage of one reply, written down."""
        prompt, completion, micro_usd = rng.randint(1, 9_999), rng.randint(0, 999), rng.randint(1, 99_999)
        cached = rng.randint(0, prompt)
        self.prompt += prompt
        self.completion += completion
        self.cached += cached
        self.micro_usd += micro_usd
        self.replies += 1
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "cost": micro_usd / MICRO,
        }


def charging(books: Books, rng: random.Random) -> Script:
    """Good answers, and failures of every kind that are charged all the same, or not."""

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            match rng.choice(["good", "good", "stated", "refused", "empty", "words", "free"]):
                case "good":
                    reply = response(200, ok(SOUND, usage=books.charge(rng)))
                case "stated":
                    reply = response(200, ok(error={"code": 429}, usage=books.charge(rng)))
                case "refused":
                    reply = response(503, ok(error="down", usage=books.charge(rng)))
                case "empty":
                    reply = response(200, ok(choices=[], usage=books.charge(rng)))
                case "words":
                    reply = response(200, ok("I would rather not", usage=books.charge(rng)))
                case _:
                    reply = response(500, b"{}")
            await wire.send(reply)

    return script


def told_by(attempts: list[Attempt]) -> tuple[int, int, int, int]:
    known = [attempt.usage for attempt in attempts if attempt.usage]
    return (
        sum(usage.prompt_tokens for usage in known),
        sum(usage.completion_tokens for usage in known),
        sum(usage.cached_tokens for usage in known),
        round(sum((attempt.cost_usd or 0.0) for attempt in attempts) * MICRO),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", sorted(CHOOSERS))
async def test_fifty_selections_report_what_the_endpoint_charged_to_the_unit(
    kind: str, seed: int, no_waits: None
) -> None:
    books, attempts = Books(), list[Attempt]()
    async with (
        loopback(charging(books, random.Random(seed))) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        for _ in range(50):
            attempts += (await CHOOSERS[kind](client, fallback_model="second")).attempts
    spent = client.usage
    expected = (books.prompt, books.completion, books.cached, books.micro_usd)
    assert (spent.prompt_tokens, spent.completion_tokens, spent.cached_tokens) == expected[:3]
    assert (round(spent.cost_usd * MICRO), spent.calls, spent.unpriced_calls) == (books.micro_usd, books.replies, 0)
    assert told_by(attempts) == expected
    assert {attempt.error for attempt in attempts} >= {None, "malformed"}


async def test_an_answer_after_a_charged_failure_bears_the_cost_of_both(no_waits: None) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "cost": 0.25}
    failed = raw(response(429, ok(usage=usage)))
    async with (
        loopback(failed, answer(200, ok(usage=usage))) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        reply = await client.chat_completion(messages=MESSAGES)
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens, reply.cost_usd) == (10, 12, 0.5)


async def test_an_error_says_what_was_charged_also_when_the_time_is_up() -> None:
    usage = {"prompt_tokens": 5, "cost": 0.25}

    async def stall(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(30)

    charge = raw(response(429, ok(usage=usage), {"Retry-After": "0"}))
    async with loopback(charge, stall) as server, OpenAICompatibleClient(server.config(timeout_s=0.8)) as client:
        with pytest.raises(LLMTimeoutError) as caught:
            await client.chat_completion(messages=MESSAGES)
    assert (caught.value.usage, caught.value.cost_usd) == (LLMUsage(prompt_tokens=5, total_tokens=5), 0.25)


async def test_an_error_that_cost_nothing_says_so() -> None:
    async with loopback(answer(404, b"{}")) as server, OpenAICompatibleClient(server.config()) as client:
        with pytest.raises(LLMError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert client.usage.calls == 0
    assert (caught.value.usage, caught.value.cost_usd) == (None, None)


async def test_nothing_is_sent_that_could_pass_the_cost_limit() -> None:
    body = ok(usage={"prompt_tokens": 5, "completion_tokens": 5, "cost": 0.6})
    async with (
        loopback(answer(200, body)) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=1.0, unknown_price="dearest")) as client,
    ):
        assert (await client.chat_completion(messages=MESSAGES)).cost_usd == 0.6
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1
        assert (client.usage.calls, client.usage.prompt_tokens, client.usage.cost_usd) == (1, 5, 0.6)
    assert (caught.value.spent_usd, caught.value.limit_usd) == (0.6, 1.0)


async def test_a_retry_is_not_sent_once_the_cost_limit_is_reached(no_waits: None) -> None:
    body = ok(usage={"cost": 0.6}, error={"code": 429})
    async with (
        loopback(answer(200, body)) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=0.5, unknown_price="dearest")) as client,
    ):
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1
    assert caught.value.cost_usd == 0.6


async def test_an_answer_of_no_use_is_paid_for_too() -> None:
    body = ok(choices=[], usage={"cost": 0.5})
    async with loopback(answer(200, body)) as server, OpenAICompatibleClient(server.config()) as client:
        with pytest.raises(MalformedReplyError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert client.usage.cost_usd == caught.value.cost_usd == 0.5


async def test_a_stated_error_without_usage_is_not_a_reply_to_pay_for(no_waits: None) -> None:
    body = b'{"error": {"code": 429}}'
    async with loopback(answer(200, body)) as server, OpenAICompatibleClient(server.config()) as client:
        with pytest.raises(LLMRateLimitError):
            await client.chat_completion(messages=MESSAGES)
        assert (client.usage.calls, client.usage.unpriced_calls) == (0, 0)


def test_one_reply_without_a_price_leaves_the_bill_without_one() -> None:
    bill = Bill()
    for cost_usd, expected in ((0.5, 0.5), (0.25, 0.75), (None, None), (0.5, None)):
        bill.add(LLMUsage(prompt_tokens=1), cost_usd=cost_usd)
        assert bill.cost_usd == expected
    assert bill.usage == LLMUsage(prompt_tokens=4)
