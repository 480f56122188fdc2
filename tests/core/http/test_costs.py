"""The cost limit of a client stops calls before they could exceed it."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from llm_common.core import LLMUsage, TokenPrices
from llm_common.core.http.model_call import CostLedger, expected_cost_usd
from llm_common.errors import CostLimitError

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
