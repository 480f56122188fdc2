"""`decide`: two calls at most, one deadline, and what of both counts."""

import asyncio
import json
import time
from typing import Any

import pytest
from pydantic import BaseModel

from llm_common.core.decision import Asking, Decision, Judged, Question, SelectionCache, decide
from llm_common.core.models import LLMMessage, MessageRole
from llm_common.errors import CostLimitError, LLMAuthError, LLMConnectionError, LLMError, LLMTimeoutError
from llm_common.testing import ScriptedClient


class Numbers(BaseModel):
    numbers: list[int]


def even(reply: Numbers) -> Judged[list[int]]:
    """Keeps what is even; says what was odd."""
    kept = [number for number in reply.numbers if number % 2 == 0]
    odd = len(reply.numbers) - len(kept)
    if odd and not kept:
        return Judged(kept, 0, usable=False, wrong="all odd", reason="odd")
    return Judged(kept, len(kept), wrong=f"{odd} odd" if odd else "")


def messages(wrong: str) -> list[LLMMessage]:
    return [LLMMessage(role=MessageRole.USER, content=f"even numbers!{wrong and f' Wrong: {wrong}'}")]


QUESTION = Question(messages=messages, reply_model=Numbers, judge=even)


def numbers(*values: int) -> str:
    return json.dumps({"numbers": values})


async def decided(client: Any, *, seconds: float = 5, **changes: Any) -> Decision[list[int]]:
    ends_at = asyncio.get_running_loop().time() + seconds
    facts: dict[str, Any] = {"model": "one", "fallback_model": "two", "timeout_s": 5.0} | changes
    return await decide(QUESTION, Asking(client=client, ends_at=ends_at, **facts))


@pytest.mark.parametrize(
    ("replies", "kept", "calls"),
    [
        ([numbers(2, 4)], [2, 4], 1),
        ([numbers()], [], 1),
        ([numbers(1), numbers(2)], [2], 2),
        (["no", numbers(2)], [2], 2),
        ([LLMConnectionError("down"), numbers(2)], [2], 2),
        # the first answer is partly valid: it stays, unless the second holds as much
        ([numbers(2, 1), numbers(4)], [4], 2),
        ([numbers(2, 4, 1), numbers(6)], [2, 4], 2),
        ([numbers(2, 1), "no"], [2], 2),
        ([numbers(2, 1), LLMConnectionError("down")], [2], 2),
        ([numbers(2, 1), numbers()], [2], 2),
        ([numbers(2, 1), numbers(3)], [2], 2),
    ],
)
async def test_what_was_valid_in_the_first_answer_is_never_lost(
    replies: list[Any], kept: list[int], calls: int
) -> None:
    client = ScriptedClient(replies)
    decision = await decided(client)
    assert decision.judged is not None
    assert (decision.judged.choice, decision.judged.usable, len(decision.attempts)) == (kept, True, calls)
    assert [call.model for call in client.calls] == ["one", "two"][:calls]


@pytest.mark.parametrize("replies", [["no", "no"], [numbers(1), "no"], ["no", LLMConnectionError("down")]])
async def test_two_failures_are_one_s2_09(replies: list[Any]) -> None:
    decision = await decided(ScriptedClient(replies))
    assert decision.judged is None
    assert isinstance(decision.error, LLMError)
    assert len(decision.attempts) == 2


@pytest.mark.parametrize(
    "error", [LLMAuthError("no", status=401), CostLimitError("spent", spent_usd=1, limit_usd=1)], ids=["F-116", "cost"]
)
async def test_no_other_model_is_asked_after_a_refused_key_or_a_spent_budget_s2_08(error: LLMError) -> None:
    client = ScriptedClient([error])
    assert (await decided(client)).error is error
    assert len(client.calls) == 1


async def test_without_a_fallback_one_call_is_made_s2_08() -> None:
    client = ScriptedClient([numbers(2, 1)])
    decision = await decided(client, fallback_model=None)
    assert decision.judged is not None
    assert decision.judged.choice == [2]


async def test_the_second_prompt_begins_with_the_first_and_says_what_was_wrong_s2_08() -> None:
    client = ScriptedClient([numbers(1), numbers(2)])
    decision = await decided(client)
    first, second = (str(call.messages[0].content) for call in client.calls)
    assert second == f"{first} Wrong: all odd"
    assert [(attempt.error, attempt.reason) for attempt in decision.attempts] == [("malformed", "odd"), (None, None)]


async def hang(_: list[LLMMessage]) -> str:
    await asyncio.sleep(30)
    return numbers(2)


@pytest.mark.parametrize("row", ["S2-11", "S0-38"])
async def test_attempts_share_one_deadline_and_each_has_its_own(row: str) -> None:
    started = time.perf_counter()
    decision = await decided(ScriptedClient([hang, hang]), seconds=0.3, timeout_s=0.2)
    assert 0.25 < time.perf_counter() - started < 1.3
    assert [attempt.error for attempt in decision.attempts] == ["timeout", "timeout"]
    assert decision.attempts[0].latency_ms >= 190
    assert decision.attempts[1].latency_ms < decision.attempts[0].latency_ms


async def test_when_the_time_is_over_no_second_call_is_made() -> None:
    client = ScriptedClient([hang])
    decision = await decided(client, seconds=0.05)
    assert isinstance(decision.error, LLMTimeoutError)
    assert len(client.calls) == 1


async def test_when_the_time_is_over_before_it_began_no_call_is_made() -> None:
    decision = await decided(ScriptedClient([]), seconds=-1)
    assert isinstance(decision.error, LLMTimeoutError)
    assert decision.attempts == ()


async def test_a_reply_from_the_cache_costs_no_call_and_failures_are_not_kept() -> None:
    cache = SelectionCache()
    client = ScriptedClient(["no", numbers(1), numbers(2), numbers(4)])
    assert (await decided(client, cache=cache)).error is None
    assert len(cache) == 0
    for cached in (False, True):
        decision = await decided(client, cache=cache)
        assert decision.judged is not None
        assert (decision.judged.choice, decision.cached, len(decision.attempts)) == ([2], cached, 1 - cached)
    assert (await decided(client, cache=cache, model="other")).cached is False


async def test_cancellation_passes_through_f_132() -> None:
    task = asyncio.create_task(decided(ScriptedClient([hang])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
