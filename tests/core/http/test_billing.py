"""The client reports exactly what the endpoint charged."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from llm_common.core import Attempt, LLMConfig, LLMUsage, OpenAICompatibleClient, TokenPrices
from llm_common.core.http.model_call import Bill
from llm_common.core.http.providers import highest_prices
from llm_common.errors import (
    CostLimitError,
    LLMTimeoutError,
)
from tests.core.calling import MESSAGES
from tests.core.loopback import Script, Wire, answer, loopback, ok, raw, response
from tests.selection.choosers import CHOOSERS
from tests.selection.odd_replies import SOUND

MICRO = 1_000_000


@dataclass
class Books:
    """The endpoint's charges in whole tokens and millionths of a dollar."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    micro_usd: int = 0
    replies: int = 0

    def charge(self, rng: random.Random) -> dict[str, Any]:
        """Record the usage of one reply, and return it."""
        prompt, completion, micro_usd = (
            rng.randint(1, 9_999),
            rng.randint(0, 999),
            rng.randint(1, 99_999),
        )
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
    """Send good answers and failures of every kind, with and without a charge."""

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            match rng.choice(
                ["good", "good", "stated", "refused", "empty", "words", "denied", "free"]
            ):
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
                case "denied":
                    reply = response(200, b'{"error": {"code": 429}}')
                case _:
                    reply = response(500, b"{}")
            await wire.send(reply)

    return script


def reported_by(attempts: list[Attempt]) -> tuple[int, int, int, int]:
    known = [attempt.usage for attempt in attempts if attempt.usage]
    return (
        sum(usage.prompt_tokens for usage in known),
        sum(usage.completion_tokens for usage in known),
        sum(usage.cached_tokens for usage in known),
        round(sum((attempt.cost_usd or 0.0) for attempt in attempts) * MICRO),
    )


@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, seed) for seed, kind in enumerate(sorted(CHOOSERS))]
)
async def test_fifty_selections_report_exactly_what_the_endpoint_charged(
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
    assert (round(spent.cost_usd * MICRO), spent.calls, spent.unpriced_calls) == (
        books.micro_usd,
        books.replies,
        0,
    )
    assert reported_by(attempts) == expected
    assert {attempt.error for attempt in attempts} >= {None, "malformed"}


async def test_an_error_reports_the_charges_also_after_a_timeout() -> None:
    usage = {"prompt_tokens": 5, "cost": 0.25}

    async def stall(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(30)

    charge = raw(response(429, ok(usage=usage), {"Retry-After": "0"}))
    async with (
        loopback(charge, stall) as server,
        OpenAICompatibleClient(server.config(timeout_s=2.0)) as client,
    ):
        with pytest.raises(LLMTimeoutError) as caught:
            await client.chat_completion(messages=MESSAGES)
    assert (caught.value.usage, caught.value.cost_usd) == (
        LLMUsage(prompt_tokens=5, total_tokens=5),
        0.25,
    )


async def test_no_request_that_could_exceed_the_limit_is_sent() -> None:
    body = ok(usage={"prompt_tokens": 5, "completion_tokens": 5, "cost": 0.6})
    async with (
        loopback(answer(200, body)) as server,
        OpenAICompatibleClient(
            server.config(cost_limit_usd=1.0, unknown_price="dearest")
        ) as client,
    ):
        assert (await client.chat_completion(messages=MESSAGES)).cost_usd == 0.6
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1
        assert (client.usage.calls, client.usage.prompt_tokens, client.usage.cost_usd) == (
            1,
            5,
            0.6,
        )
    assert (caught.value.spent_usd, caught.value.limit_usd) == (0.6, 1.0)


@pytest.mark.parametrize("max_tokens", [None, 2_000])
async def test_each_of_several_answers_counts_for_the_limit(max_tokens: int | None) -> None:
    # One answer is expected to cost $0.01, or $0.02 at most with 2,000 tokens.
    prices = {"test-model": TokenPrices(prompt=0.0, completion=10.0)}
    async with (
        loopback(answer(200, ok())) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=0.05, prices=prices)) as client,
    ):
        with pytest.raises(CostLimitError):
            await client.chat_completion(messages=MESSAGES, max_tokens=max_tokens, n=6)
        assert not server.requests
        await client.chat_completion(messages=MESSAGES, max_tokens=max_tokens, n=2)


async def test_a_retry_is_not_sent_once_the_cost_limit_is_reached(no_waits: None) -> None:
    body = ok(usage={"cost": 0.6}, error={"code": 429})
    async with (
        loopback(answer(200, body)) as server,
        OpenAICompatibleClient(
            server.config(cost_limit_usd=0.5, unknown_price="dearest")
        ) as client,
    ):
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1
    assert caught.value.cost_usd == 0.6


PRICED = {"prices": {"test-model": TokenPrices(prompt=2.0, completion=8.0, cached=0.5)}}
COUNTED = {"prompt_tokens": 1_000_000, "completion_tokens": 250_000, "total_tokens": 1_250_000}


@pytest.mark.parametrize("provider", ["custom", "local", "openrouter", "zai", "openai"])
async def test_a_limit_sends_nothing_to_a_model_without_a_price(provider: str) -> None:
    async with loopback(answer(200, ok())) as server:
        client = OpenAICompatibleClient(server.config(cost_limit_usd=0.01, provider=provider))
        with pytest.raises(
            CostLimitError, match="price of this model is unknown; add it to LLMConfig"
        ) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert not server.requests
    assert (caught.value.spent_usd, caught.value.limit_usd, caught.value.model) == (
        0,
        0.01,
        "test-model",
    )
    assert client.usage.calls == 0


async def test_a_configured_price_counts_as_cost_and_for_the_limit() -> None:
    cached = COUNTED | {"prompt_tokens_details": {"cached_tokens": 400_000}}
    async with (
        loopback(answer(200, ok(usage=cached))) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=4.0, **PRICED)) as client,
    ):
        assert (await client.chat_completion(messages=MESSAGES)).cost_usd == pytest.approx(
            1.2 + 0.2 + 2.0
        )
        assert client.usage.cost_usd == pytest.approx(3.4)
        assert client.usage.unpriced_calls == 0
        with pytest.raises(CostLimitError, match=r"\$3\.4 of \$4 are spent or reserved.*may cost"):
            await client.chat_completion(messages=MESSAGES, max_tokens=90_000)
        with pytest.raises(CostLimitError, match="unknown"):
            await client.chat_completion(messages=MESSAGES, model="other")
        assert len(server.requests) == 1


async def test_a_configured_price_wins_over_the_known_one() -> None:
    async with loopback(answer(200, ok(model="gpt-4o", usage=COUNTED))) as server:
        prices = {"gpt-4o": TokenPrices(prompt=1.0, completion=0.0)}
        async with OpenAICompatibleClient(
            server.config(provider="openai", prices=prices)
        ) as client:
            assert (await client.chat_completion(messages=MESSAGES, model="gpt-4o")).cost_usd == 1.0
            known = await client.chat_completion(messages=MESSAGES, model="gpt-4.1")
            assert known.cost_usd == pytest.approx(2.0 + 2.0)


async def test_a_model_without_a_price_reaches_the_limit_as_the_dearest() -> None:
    async with loopback(answer(200, ok(usage=COUNTED | {"completion_tokens": 0}))) as server:
        config = server.config(cost_limit_usd=0.05, unknown_price="dearest")
        async with OpenAICompatibleClient(config) as client:
            assert (await client.chat_completion(messages=MESSAGES)).cost_usd is None
            assert (client.usage.cost_usd, client.usage.unpriced_calls) == (0.0, 1)
            with pytest.raises(CostLimitError) as caught:
                await client.chat_completion(messages=MESSAGES)
            assert len(server.requests) == 1
    assert caught.value.spent_usd == pytest.approx(2.5)


async def test_the_dearest_known_price_is_the_highest_of_each_kind() -> None:
    assert highest_prices({}) == TokenPrices(prompt=2.5, completion=10.0)
    configured = {
        "a": TokenPrices(prompt=50.0, completion=1.0),
        "b": TokenPrices(prompt=1.0, completion=70.0, cached=0),
    }
    assert highest_prices(configured) == TokenPrices(prompt=50.0, completion=70.0)


@pytest.mark.parametrize("usage", [None, {}, "many"])
async def test_an_endpoint_without_usage_cannot_exceed_the_limit(usage: object) -> None:
    async with (
        loopback(answer(200, ok(usage=usage))) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=0.03, **PRICED)) as client,
    ):
        # The expected cost is $0.0080 to $0.0085.
        assert (await client.chat_completion(messages=MESSAGES)).cost_usd is None
        for _ in range(2):
            await client.chat_completion(messages=MESSAGES)
        with pytest.raises(CostLimitError):
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 3


async def test_an_unpriced_model_is_expected_to_cost_the_dearest_reply() -> None:
    dear, cheap = (
        raw(response(200, ok(usage={"prompt_tokens": 5, "cost": cost}))) for cost in (0.6, 0.1)
    )
    async with (
        loopback(dear, cheap) as server,
        OpenAICompatibleClient(
            server.config(cost_limit_usd=1.25, unknown_price="dearest")
        ) as client,
    ):
        for _ in range(2):
            await client.chat_completion(messages=MESSAGES)
        with pytest.raises(CostLimitError, match=r"may cost \$0\.6;"):
            await client.chat_completion(messages=MESSAGES)
        assert client.usage.cost_usd == pytest.approx(0.7)


async def test_a_priced_model_is_expected_to_cost_its_price() -> None:
    async with (
        loopback(answer(200, ok(usage={"prompt_tokens": 5, "cost": 0.6}))) as server,
        OpenAICompatibleClient(server.config(cost_limit_usd=1.0, **PRICED)) as client,
    ):
        for _ in range(2):
            await client.chat_completion(messages=MESSAGES)
        with pytest.raises(CostLimitError):
            await client.chat_completion(messages=MESSAGES)


@pytest.mark.parametrize(
    "prices",
    [
        {"prompt": -1, "completion": 1},
        {"prompt": 1},
        {"prompt": float("nan"), "completion": 1},
        {"input": 1},
    ],
)
def test_an_impossible_price_is_refused(prices: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="prices"):
        LLMConfig.model_validate(
            {"base_url": "https://x", "default_model": "m", "prices": {"m": prices}}
        )


def test_one_unpriced_reply_makes_the_cost_unknown() -> None:
    bill = Bill()
    for cost_usd, expected in ((0.5, 0.5), (0.25, 0.75), (None, None), (0.5, None)):
        bill.add(LLMUsage(prompt_tokens=1), cost_usd=cost_usd)
        assert bill.cost_usd == expected
    assert bill.usage == LLMUsage(prompt_tokens=4)
