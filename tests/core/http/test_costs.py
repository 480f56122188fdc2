"""The cost limit of a client stops calls before they could exceed it."""

import pytest

from llm_common.core import LLMUsage, TokenPrices
from llm_common.core.http.model_call import CostLedger, expected_cost_usd
from llm_common.errors import CostLimitError

USAGE = LLMUsage(prompt_tokens=10, completion_tokens=1, total_tokens=11)


def spend(ledger: CostLedger, *, expected_usd: float | None, cost_usd: float | None) -> None:
    with ledger.reserve(expected_usd):
        ledger.charge(USAGE, cost_usd=cost_usd)


def test_a_call_that_could_exceed_the_limit_is_refused() -> None:
    ledger = CostLedger(1.0)
    spend(ledger, expected_usd=0.5, cost_usd=0.4)
    with pytest.raises(CostLimitError) as caught, ledger.reserve(0.7):
        raise AssertionError("nothing may be sent")
    assert (caught.value.spent_usd, caught.value.limit_usd) == (0.4, 1.0)
    spend(ledger, expected_usd=0.5, cost_usd=0.5)
    assert ledger.totals.cost_usd == pytest.approx(0.9)


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


def test_a_call_of_unknown_price_is_refused_only_under_a_limit() -> None:
    with pytest.raises(
        CostLimitError, match=r"LLMConfig\.prices.*LLM_COMMON_UNKNOWN_PRICE=dearest"
    ):
        spend(CostLedger(1.0), expected_usd=None, cost_usd=None)
    ledger = CostLedger(None)
    spend(ledger, expected_usd=None, cost_usd=None)
    assert (ledger.totals.calls, ledger.totals.unpriced_calls) == (1, 1)


def test_an_assumed_cost_counts_only_towards_the_limit() -> None:
    ledger = CostLedger(1.0)
    for cost_usd, assumed_usd in ((None, 0.4), (0.1, 0.4), (None, 0.4)):
        with ledger.reserve(0.1):
            ledger.charge(USAGE, cost_usd=cost_usd, assumed_usd=assumed_usd)
    with pytest.raises(CostLimitError) as caught, ledger.reserve(0.2):
        raise AssertionError("nothing may be sent")
    assert caught.value.spent_usd == pytest.approx(0.9)
    assert (ledger.totals.cost_usd, ledger.totals.unpriced_calls) == (0.1, 2)


@pytest.mark.parametrize(("limit_usd", "refused"), [(None, False), (0.0, True), (1e-9, False)])
def test_a_limit_of_zero_sends_nothing_and_none_limits_nothing(
    limit_usd: float | None, refused: bool
) -> None:
    ledger = CostLedger(limit_usd)
    if refused:
        with pytest.raises(CostLimitError):
            spend(ledger, expected_usd=0.0, cost_usd=0.0)
    else:
        spend(ledger, expected_usd=0.0, cost_usd=0.0)


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
