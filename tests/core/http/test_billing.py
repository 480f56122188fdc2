"""The client reports exactly what the endpoint charged, and stops before it exceeds its limit."""

import asyncio
import random
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from llm_common.core import Attempt, LLMConfig, LLMUsage, OpenAICompatibleClient, TokenPrices
from llm_common.core.http.model_call import Bill, CostLedger, expected_cost_usd
from llm_common.core.http.providers import highest_prices
from llm_common.errors import (
    CostLimitError,
    LLMTimeoutError,
)
from tests.core.loopback import (
    MESSAGES,
    Script,
    Wire,
    answer,
    failure_at,
    loopback,
    ok,
    raw,
    response,
)
from tests.selection.choosers import CHOOSERS
from tests.selection.odd_replies import SOUND

MICRO = 1_000_000


def charge(charges: list[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    """Record the usage of one reply, whose cost is in whole millionths of a dollar."""
    prompt, completion = rng.randint(1, 9_999), rng.randint(0, 999)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": rng.randint(0, prompt)},
        "cost": rng.randint(1, 99_999) / MICRO,
    }
    charges.append(usage)
    return usage


def charging(charges: list[dict[str, Any]], rng: random.Random) -> Script:
    """Send good answers and failures of every kind, with and without a charge."""

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            match rng.choice(
                ["good", "good", "stated", "refused", "empty", "words", "denied", "free"]
            ):
                case "good":
                    reply = response(200, ok(SOUND, usage=charge(charges, rng)))
                case "stated":
                    reply = response(200, ok(error={"code": 429}, usage=charge(charges, rng)))
                case "refused":
                    reply = response(503, ok(error="down", usage=charge(charges, rng)))
                case "empty":
                    reply = response(200, ok(choices=[], usage=charge(charges, rng)))
                case "words":
                    reply = response(200, ok("I would rather not", usage=charge(charges, rng)))
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
    charges, attempts = list[dict[str, Any]](), list[Attempt]()
    async with (
        loopback(charging(charges, random.Random(seed))) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        for _ in range(50):
            attempts += (await CHOOSERS[kind](client, fallback_model="second")).attempts
    spent = client.usage
    expected = (
        sum(usage["prompt_tokens"] for usage in charges),
        sum(usage["completion_tokens"] for usage in charges),
        sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in charges),
        round(sum(usage["cost"] for usage in charges) * MICRO),
    )
    assert (
        spent.prompt_tokens,
        spent.completion_tokens,
        spent.cached_tokens,
        round(spent.cost_usd * MICRO),
    ) == expected
    assert (spent.calls, spent.unpriced_calls) == (len(charges), 0)
    assert reported_by(attempts) == expected
    assert {attempt.error for attempt in attempts} >= {None, "malformed"}


async def test_an_error_reports_the_charges_also_after_a_timeout() -> None:
    usage = {"prompt_tokens": 5, "cost": 0.25}

    async def stall(wire: Wire) -> None:
        await wire.request()
        await asyncio.sleep(30)

    charge = raw(response(429, ok(usage=usage), {"Retry-After": "0"}))
    error, _ = await failure_at(LLMTimeoutError, charge, stall, timeout_s=2.0)
    assert error.usage == LLMUsage(prompt_tokens=5, total_tokens=5)
    assert error.cost_usd == 0.25


PRICED = {"prices": {"test-model": TokenPrices(prompt=2.0, completion=8.0, cached=0.5)}}
UNREADABLE: list[object] = [None, {}, "many"]
DEAREST: dict[str, Any] = {"unknown_price": "dearest"}
COUNTED = {"prompt_tokens": 1_000_000, "completion_tokens": 250_000, "total_tokens": 1_250_000}


@pytest.mark.parametrize(
    ("config", "usages", "answers", "spent_usd"),
    [
        pytest.param({"cost_limit_usd": 1.0, **DEAREST}, [{"cost": 0.6}], 1, 0.6, id="one reply"),
        pytest.param(
            {"cost_limit_usd": 1.25, **DEAREST},
            [{"cost": 0.6}, {"cost": 0.1}],
            2,
            0.7,
            id="without a price, the next reply may cost as much as the dearest",
        ),
        pytest.param(
            {"cost_limit_usd": 0.05, **DEAREST},
            [COUNTED | {"completion_tokens": 0}],
            1,
            2.5,
            id="without a price and a cost, tokens count as those of the dearest model",
        ),
        pytest.param(
            {"cost_limit_usd": 1.0, **PRICED},
            [{"cost": 0.6}],
            2,
            1.2,
            id="with a price, the next reply is expected to cost it",
        ),
        *(
            pytest.param(
                {"cost_limit_usd": 0.03, **PRICED},
                [usage],
                3,
                0.025,  # the expected cost of a call is $0.0080 to $0.0085
                id=f"with the usage {usage}, each call counts as expected",
            )
            for usage in UNREADABLE
        ),
    ],
)
async def test_no_request_that_could_exceed_the_limit_is_sent(
    config: dict[str, Any], usages: list[object], answers: int, spent_usd: float
) -> None:
    scripts = [raw(response(200, ok(usage=usage))) for usage in usages]
    async with (
        loopback(*scripts) as server,
        OpenAICompatibleClient(server.config(**config)) as client,
    ):
        for _ in range(answers):
            await client.chat_completion(messages=MESSAGES)
        with pytest.raises(CostLimitError) as caught:
            await client.chat_completion(messages=MESSAGES)
        assert client.usage.calls == len(server.requests) == answers
    assert caught.value.spent_usd == pytest.approx(spent_usd, abs=0.001)
    assert caught.value.limit_usd == config["cost_limit_usd"]


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
    error, server = await failure_at(
        CostLimitError, answer(200, body), cost_limit_usd=0.5, **DEAREST
    )
    assert len(server.requests) == 1
    assert error.cost_usd == 0.6


@pytest.mark.parametrize("provider", ["custom", "local", "openrouter", "zai", "openai"])
async def test_a_limit_sends_nothing_to_a_model_without_a_price(provider: str) -> None:
    error, server = await failure_at(
        CostLimitError, answer(200, ok()), cost_limit_usd=0.01, provider=provider
    )
    assert "price of this model is unknown; add it to LLMConfig" in str(error)
    assert not server.requests
    assert (error.spent_usd, error.limit_usd, error.model) == (0, 0.01, "test-model")


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


async def test_the_dearest_known_price_is_the_highest_of_each_kind() -> None:
    assert highest_prices({}) == TokenPrices(prompt=2.5, completion=10.0)
    configured = {
        "a": TokenPrices(prompt=50.0, completion=1.0),
        "b": TokenPrices(prompt=1.0, completion=70.0, cached=0),
    }
    assert highest_prices(configured) == TokenPrices(prompt=50.0, completion=70.0)


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


USAGE = LLMUsage(prompt_tokens=10, completion_tokens=1, total_tokens=11)


def spend(ledger: CostLedger, *, expected_usd: float | None, cost_usd: float | None) -> None:
    with ledger.reserve(expected_usd):
        ledger.charge(USAGE, cost_usd=cost_usd)


def test_concurrent_calls_share_the_limit() -> None:
    ledger = CostLedger(1.0)
    with ledger.reserve(0.6):
        with pytest.raises(CostLimitError), ledger.reserve(0.6):
            pass
        with ledger.reserve(0.4):
            pass
    with ledger.reserve(0.9):
        pass


def test_a_reservation_ends_with_a_failure() -> None:
    ledger = CostLedger(1.0)
    with pytest.raises(RuntimeError), ledger.reserve(0.9):
        raise RuntimeError
    with ledger.reserve(0.9):
        pass


@pytest.mark.parametrize(
    ("limit_usd", "outcome"),
    [(None, nullcontext()), (0.0, pytest.raises(CostLimitError)), (1e-9, nullcontext())],
)
def test_a_limit_of_zero_sends_nothing_and_none_limits_nothing(
    limit_usd: float | None, outcome: AbstractContextManager[object]
) -> None:
    with outcome:
        spend(CostLedger(limit_usd), expected_usd=0.0, cost_usd=0.0)


def test_a_limit_can_be_used_up_exactly() -> None:
    ledger = CostLedger(1.0)
    spend(ledger, expected_usd=1.0, cost_usd=1.0)
    with pytest.raises(CostLimitError), ledger.reserve(0.0):
        raise AssertionError("nothing may be sent")


def test_the_size_of_a_request_bounds_its_cost() -> None:
    body = b"x" * 4_000
    prices = TokenPrices(prompt=0.20, completion=1.10)
    expected = expected_cost_usd(body, prices=prices, max_tokens=100)
    assert expected == pytest.approx((4_000 * 0.20 + 100 * 1.10) / 1e6)
    without = expected_cost_usd(body, prices=prices, max_tokens=None)
    assert without == pytest.approx((4_000 * 0.20 + 1_000 * 1.10) / 1e6)
