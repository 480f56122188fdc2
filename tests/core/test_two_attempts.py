"""`ask_with_fallback`: at most two calls, one deadline, and which reply counts."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from llm_common.core import LLMMessage
from llm_common.core.structured import CallOptions, Outcome, Prompt, Verdict, ask_with_fallback
from llm_common.errors import (
    LLMTimeoutError,
)
from llm_common.testing import ScriptedClient


class Numbers(BaseModel):
    numbers: list[int]


def even(reply: Numbers) -> Verdict[list[int]]:
    """Choose the even numbers, and refuse a reply of odd ones."""
    chosen = [number for number in reply.numbers if number % 2 == 0]
    odd = len(reply.numbers) - len(chosen)
    if odd and not chosen:
        return Verdict(chosen, 0, feedback="all odd", reason="odd")
    return Verdict(chosen, len(chosen))


PROMPT = Prompt(system="Choose.", user="even numbers!", reply_model=Numbers, judge=even)


def numbers(*values: int) -> str:
    return json.dumps({"numbers": values})


async def decided(client: Any, *, seconds: float = 5, **changes: Any) -> Outcome[list[int]]:
    ends_at = asyncio.get_running_loop().time() + seconds
    settings: dict[str, Any] = {"model": "one", "fallback_model": "two", "timeout_s": 5.0} | changes
    prompt = replace(
        PROMPT,
        **{
            name: settings.pop(name)
            for name in ("user", "json_schema", "scope")
            if name in settings
        },
    )
    return await ask_with_fallback(client, prompt, CallOptions(**settings), ends_at=ends_at)


async def test_no_choice_after_one_that_cannot_be_used_is_no_answer_s2_08() -> None:
    outcome = await decided(ScriptedClient([numbers(1), numbers()]))
    assert (outcome.status, outcome.failure, len(outcome.attempts)) == ("invalid", "all odd", 2)


async def hang(_: list[LLMMessage]) -> str:
    await asyncio.sleep(30)
    return numbers(2)


@pytest.mark.parametrize("row", ["S2-11", "S0-38"])
async def test_attempts_share_one_deadline_and_each_has_its_own(row: str) -> None:
    # Long enough that a busy machine cannot use up the time of the second attempt.
    started = time.perf_counter()
    outcome = await decided(ScriptedClient([hang, hang]), seconds=1.2, timeout_s=0.8)
    assert 1.1 < time.perf_counter() - started < 10
    assert [attempt.error for attempt in outcome.attempts] == ["timeout", "timeout"]
    assert outcome.attempts[0].latency_ms >= 790
    assert outcome.attempts[1].latency_ms < outcome.attempts[0].latency_ms


async def test_after_the_deadline_there_is_no_second_call() -> None:
    client = ScriptedClient([hang])
    outcome = await decided(client, seconds=0.05)
    assert isinstance(outcome.error, LLMTimeoutError)
    assert outcome.error.model == "one"
    assert len(client.calls) == 1


async def test_after_the_deadline_there_is_no_first_call() -> None:
    outcome = await decided(ScriptedClient([]), seconds=-1)
    assert isinstance(outcome.error, LLMTimeoutError)
    assert outcome.attempts == ()
